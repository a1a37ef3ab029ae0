"""Checkouts beside this one, for tools that run older or changed code."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("operator", "extender", "policies")


@contextmanager
def checkout(folder: Path, revision: str) -> Iterator[None]:
    """Have a revision checked out in a folder within the block."""
    git("worktree", "add", "--detach", str(folder), revision)
    try:
        yield
    finally:
        git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> None:
    """Run git in this checkout; CalledProcessError where it fails."""
    subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True)
