"""A reader of a page, who does step by step what it says and compares what it shows."""

import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Final

from testbed.controlplane.binaries import CONTROL_PLANE, cache_key, cache_root, is_built
from testbed.controlplane.waiting import wait_until
from testbed.pages.blocks import Commands, File, steps_of
from testbed.pages.comparison import differences
from testbed.pages.shell import Shell, ShellError, statements_of

ROOT: Final = Path(__file__).parents[2]
_READS: Final = re.compile(
    r"kubectl( -\S+ \S+)? (get|auth can-i|describe)\b|bireme (why|list|queue|usage|policies|logs)\b"
)
# Its status is its answer, which it prints as well.
_ANSWERS_NO: Final = re.compile(r"kubectl auth can-i\b")
_STARTS: Final = re.compile(r"bireme try\b")
_READY: Final = "Ctrl-C ends all of it."
_KUBECONFIG: Final = re.compile(r"export KUBECONFIG=(\S+)")
_START_SECONDS: Final = 60.0
_READ_SECONDS: Final = 20.0
"""A reader looks again, until the cluster has done what the page shows."""


class PageError(AssertionError):
    """A page shows something else than its commands do."""


def find_kubectl() -> Path | None:
    """Return kubectl of the built control plane, else that of PATH; None without one."""
    if is_built():
        return cache_root() / "controlplane" / cache_key(CONTROL_PLANE) / "kubectl"
    on_path = shutil.which("kubectl")
    return Path(on_path) if on_path else None


def environment_of(folder: Path, kubectl: Path | None) -> dict[str, str]:
    """Return the environment of a reader, whose programs lie in ``folder``."""
    folder.mkdir()
    if kubectl is not None:
        (folder / "kubectl").symlink_to(kubectl)
    # Others run clusters on this machine as well; a page may pause programs of its own alone.
    if pgrep := shutil.which("pgrep"):
        (folder / "pgrep").write_text(f'#!/bin/sh\nexec {pgrep} --session 0 "$@"\n')
        (folder / "pgrep").chmod(0o755)
    programs = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    sources = [ROOT / each for each in ("policies", "operator", "extender", ".")]
    return {
        "PATH": programs,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(map(str, sources)),
    }


@dataclass(eq=False)
class Reader:
    """A reader of ``page`` in a folder.

    Attributes:
        skips: Beginnings of the shell blocks that are not run.
        substitutions: Texts of the page and those to run in their place, such as ports.
    """

    page: Path
    shell: Shell
    folder: Path
    skips: tuple[str, ...] = ()
    substitutions: Mapping[str, str] = field(default_factory=dict)
    _kubeconfig: str = ""

    def read(self) -> None:
        """Do what the page says.

        Raises:
            PageError: a command fails, or prints something else than the page shows.
        """
        for step in steps_of(self.page):
            if isinstance(step, File):
                (self.folder / step.name).write_text(self._replace(step.text))
            elif not step.text.startswith(self.skips):
                self._run(step)

    def _run(self, block: Commands) -> None:
        statements = [self._replace(each) for each in statements_of(block.text)]
        backwards = takewhile(_READS.match, reversed(statements))
        reads = list(reversed(list(backwards)))
        changes = statements[: len(statements) - len(reads)]
        try:
            results = [self._do(each) for each in changes]
            deadline = time.monotonic() + _READ_SECONDS
            while True:
                looks = [self.shell.run(each) for each in reads]
                failure = self._failure(block, statements, [*results, *looks])
                if not failure:
                    return
                if not reads or time.monotonic() > deadline:
                    raise PageError(failure)
        except ShellError as error:
            raise PageError(f"{self._place(block.line)}: {error}") from error

    def _do(self, statement: str) -> tuple[int, str]:
        if _STARTS.match(statement):
            return self._start_cluster(statement)
        if _KUBECONFIG.match(statement):
            statement = f"export KUBECONFIG={self._kubeconfig}"
        return self.shell.run(statement)

    def _start_cluster(self, statement: str) -> tuple[int, str]:
        """Run what occupies a terminal of its own, and return what it printed once it is ready."""
        log = self.folder / ".cluster"
        log.touch()
        command = re.sub(r"\s+#.*", "", statement)
        # No page opens the board, and its start takes seconds.
        self.shell.run(f"{command} --no-board >{log.name} 2>&1 &")
        wait_until(
            lambda: _READY in log.read_text(),
            _START_SECONDS,
            f"{command} to be ready",
            log.read_text,
        )
        text = log.read_text()
        kubeconfig = _KUBECONFIG.search(text)
        if kubeconfig is None:
            raise PageError(f"{command} prints no kubeconfig:\n{text}")
        self._kubeconfig = kubeconfig[1]
        return 0, text

    def _failure(
        self, block: Commands, statements: Sequence[str], results: Sequence[tuple[int, str]]
    ) -> str:
        """Return how the page differs from the results of its statements; empty if it does not."""
        shows_error = block.output is not None and re.search(
            r"^error:", block.output.text, re.MULTILINE
        )
        for statement, (status, text) in zip(statements, results, strict=True):
            if status and not shows_error and not _ANSWERS_NO.match(statement):
                return f"{self._place(block.line)}: status {status} of\n{statement}\n{text}"
        if block.output is None:
            return ""
        output = "".join(text for _, text in results)
        lines = differences(block.output.text, output)
        if not lines:
            return ""
        return (
            f"{self._place(block.output.line)} shows other output (-) than its commands print (+):"
            f"\n{_indent(statements)}\n" + "\n".join(lines)
        )

    def _place(self, line: int) -> str:
        return f"{self.page.relative_to(ROOT)}:{line}"

    def _replace(self, text: str) -> str:
        for old, new in self.substitutions.items():
            text = text.replace(old, new)
        return text


def _indent(statements: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for each in statements for line in each.splitlines())
