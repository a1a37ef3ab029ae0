"""Compiles Go programs, all of one module at once, and says how much is left.

One ``go build`` of several programs keeps every processor busy: while one is linked, which takes a
single processor, packages of the others are compiled.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.controlplane.errors import ControlPlaneError, tail

Report = Callable[[str], None]

REPORT_SECONDS: Final = 15.0
MIN_FRACTION: Final = 0.05
"""Of the work, to be done before the time of the rest is estimated from it."""
# Lists what is not in Go's cache: a line with path, folder and files, separated by tabs.
LIST: Final = (
    '-f={{if .Stale}}{{.ImportPath}}\t{{.Dir}}\t{{join .GoFiles "\t"}}\t{{join .CgoFiles "\t"}}'
    "{{end}}"
)


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages that programs need and Go's cache lacks.

    A folder tells a package in two versions apart, and says that two modules share one.
    """

    folders: Mapping[str, str]
    """By import path, as ``go build -v`` prints it."""
    size_bytes: Mapping[str, int]
    """Source, by folder."""


def packages(listed: str) -> Packages:
    """Read what ``go list`` printed for ``LIST``."""
    folders, size_bytes = {}, {}
    for line in listed.splitlines():
        path, folder, *files = line.split("\t")
        folders[path] = folder
        size_bytes[folder] = sum((Path(folder) / file).stat().st_size for file in files if file)
    return Packages(folders, size_bytes)


class Progress:
    """How much source is compiled, of all that a bundle needs."""

    def __init__(self, needed: Iterable[Packages]) -> None:
        self._left: dict[str, int] = {}
        for each in needed:
            self._left.update(each.size_bytes)
        self.count = len(self._left)
        self._total_bytes = sum(self._left.values())
        self._began_seconds = time.monotonic()

    def compiled(self, folders: Iterable[str]) -> None:
        for folder in folders:
            self._left.pop(folder, None)

    def text(self) -> str:
        """Return such as ``42% of the source is compiled, 2:10 so far, about 3:00 left``."""
        took_seconds = time.monotonic() - self._began_seconds
        done = 1 - sum(self._left.values()) / max(1, self._total_bytes)
        line = f"{done:4.0%} of the source is compiled, {minutes(took_seconds)} so far"
        if MIN_FRACTION <= done < 1:
            line += f", about {minutes(took_seconds * (1 - done) / done)} left"
        return line


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def run_build(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    timeout_seconds: float,
    told: Callable[[str], None],
    tick: Callable[[], None],
) -> None:
    """Run ``go build -v``; ``told`` gets each line that it prints, ``tick`` is called now and then.

    Raises:
        ControlPlaneError: it failed or took too long; carries the end of its output.
    """
    lines: list[str] = []
    deadline_seconds = time.monotonic() + timeout_seconds
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:

        def read() -> None:
            for line in child.stdout or ():
                lines.append(line)
                told(line.rstrip())

        reader = threading.Thread(target=read, name="go-build", daemon=True)
        reader.start()
        try:
            while _runs(child):
                tick()
                if time.monotonic() > deadline_seconds:
                    raise ControlPlaneError(
                        f"{' '.join(command)} takes longer than {timeout_seconds:g} s"
                    )
        except BaseException:  # Ctrl-C as well: nothing may be left running
            child.kill()
            raise
        reader.join()
    if child.returncode != 0:
        raise ControlPlaneError(
            f"{' '.join(command)} failed with status {child.returncode}; "
            f"run it in {folder} to repeat it\n{tail(''.join(lines))}"
        )


def _runs(child: subprocess.Popen[str]) -> bool:
    """Return after ``REPORT_SECONDS``, or when the program has ended: whether it still runs."""
    try:
        child.wait(REPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False
