"""Runs of the demo as a stranger starts it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
_CHOICES: Final = ("SEED", "KEEP")
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if name not in _CHOICES},
    "PYTHONPATH": str(_ROOT),
    "PYTHONUNBUFFERED": "1",
}


def command(*arguments: str) -> list[str]:
    """Return the command of the demo."""
    return [sys.executable, "-m", "tools.demo", *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in a folder to its end, and return what it printed."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
