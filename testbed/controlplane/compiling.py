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
MIN_MEASURED_SECONDS: Final = 60.0
"""Time of compiling before the time of the rest is estimated from it."""

# Costs in seconds of one processor, fitted to the action graph of a build of the control plane. A
# compiler reads what it knows of all packages below, so that a small one above many takes long.
# Only proportions count: the build measures how fast a machine is.
COST_PER_MEGABYTE: Final = 1.4
COST_PER_DEPENDENCY: Final = 0.0004
LINK_COST: Final = 2.5

# Lists what is not in Go's cache: a line with path, folder, number of packages below, and files,
# separated by tabs.
LIST: Final = (
    "-f={{if .Stale}}{{.ImportPath}}\t{{.Dir}}\t{{len .Deps}}"
    '\t{{join .GoFiles "\t"}}\t{{join .CgoFiles "\t"}}{{end}}'
)


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages that programs need and Go's cache lacks.

    A folder tells a package in two versions apart, and says that two modules share one.
    """

    folders: Mapping[str, str]
    """By import path, as ``go build -v`` prints it."""
    costs: Mapping[str, float]
    """By folder."""


def packages(listed: str) -> Packages:
    """Read what ``go list`` printed for ``LIST``."""
    folders, costs = {}, {}
    for line in listed.splitlines():
        path, folder, dependencies, *files = line.split("\t")
        folders[path] = folder
        size_bytes = sum((Path(folder) / file).stat().st_size for file in files if file)
        costs[folder] = package_cost(size_bytes, int(dependencies))
    return Packages(folders, costs)


def package_cost(source_bytes: int, dependencies: int) -> float:
    return COST_PER_MEGABYTE * source_bytes / 1e6 + COST_PER_DEPENDENCY * dependencies


class Progress:
    """How much is compiled and linked, of all that a bundle needs.

    The time of the rest follows from the rate of this build on this machine so far.
    """

    def __init__(self, needed: Iterable[Packages], programs: Iterable[str]) -> None:
        self._packages: dict[str, float] = {}
        for each in needed:
            self._packages.update(each.costs)
        self._programs = set(programs)
        self.count = len(self._packages)
        self._total = self._cost()
        self._began_seconds = time.monotonic()

    def compile(self, folders: Iterable[str]) -> None:
        """Count packages as compiled."""
        for folder in folders:
            self._packages.pop(folder, None)

    def link(self, programs: Iterable[str]) -> None:
        """Count programs as linked."""
        self._programs.difference_update(programs)

    def text(self) -> str:
        """Return such as ``42% of the source is compiled, 2:10 so far, about 3:00 left``."""
        took_seconds = time.monotonic() - self._began_seconds
        cost = self._cost()
        share = 1 - cost / self._total if self._total else 1.0
        line = f"{share:4.0%} of the source is compiled, {minutes(took_seconds)} so far"
        if took_seconds >= MIN_MEASURED_SECONDS and 0 < share < 1:
            line += f", about {minutes(took_seconds * (1 - share) / share)} left"
        return line

    def _cost(self) -> float:
        """Return the cost of what remains."""
        return sum(self._packages.values()) + LINK_COST * len(self._programs)


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
