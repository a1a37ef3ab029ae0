"""The machine that measures: what it is, and what each process spends on it."""

import datetime
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from benchmarks import ROOT
from benchmarks.report import Report, Result, Table, medians
from testbed.controlplane.binaries import KUBERNETES_VERSION

MIB: Final = 2**20
OTHERS: Final = "(other programs)"
"""Not part of any sum: high numbers say that the machine was not quiet."""

_PACKAGES: Final = ("aiohttp", "numpy", "uvloop")


def report_of(
    case: str,
    question: str,
    command: str,
    began: float,
    result: Result | None,
    *,
    repetitions: int = 1,
    failure: str = "",
) -> Report:
    """Return the report on a case that this machine began to measure at ``began``, monotonic."""
    return Report(
        case=case,
        question=question,
        command=f"python -m benchmarks.{command}",
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),  # noqa: TID251  # the date of the run
        took_seconds=time.monotonic() - began,
        repetitions=repetitions,
        machine=_facts(),
        result=result,
        failure=failure,
    )


def _facts() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    model = re.search(r"(?m)^model name\s*: (.*)$", path.read_text() if path.exists() else "")
    processor = model[1].strip() if model else platform.machine()
    memory_gib = psutil.virtual_memory().total / 2**30
    packages = " ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return {
        "machine": f"{os.cpu_count()} cores ({processor}), {memory_gib:.0f} GiB memory",
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"Kubernetes {KUBERNETES_VERSION}, Python {platform.python_version()}, "
        f"{packages}",
        "revision": revision(),
    }


def revision() -> str:
    """Return the measured commit, marked when files differ from it."""
    if shutil.which("git") is None:
        return "unknown (git is not installed)"
    commit = _git("describe", "--always")
    # The results that a measurement writes change nothing that is measured.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results")
    return f"{commit}-dirty" if changed else commit or "unknown (no git checkout)"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.strip()


class CpuMeter:
    """Processor seconds of processes, and of everything else on the machine, since it was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._before = self._now()
        self._machine_before = _machine_seconds()

    def spent(self) -> dict[str, float]:
        """Return seconds by name, without processes that ended; ``OTHERS`` is all the rest."""
        now = self._now()
        spent = {name: now[name] - self._before[name] for name in now}
        everything = _machine_seconds() - self._machine_before
        return spent | {OTHERS: max(0.0, everything - sum(spent.values()))}

    def _now(self) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for name, process in self._processes.items():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds[name] = times.user + times.system
        return seconds


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    # While it waits for a disk a core is free for others.
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


class CpuTimes:
    """Processor seconds by process, per repetition and side."""

    def __init__(self) -> None:
        self._spent: dict[str, list[dict[str, float]]] = {}

    def add(self, side: str, meter: CpuMeter) -> None:
        self._spent.setdefault(side, []).append(meter.spent())

    def table(self, title: str = "Processor seconds by process, medians") -> Table:
        by_side = {side: medians(found) for side, found in self._spent.items()}
        names = dict.fromkeys(name for found in by_side.values() for name in found)
        sides = sorted(by_side, reverse=True)
        rows: list[tuple[str | float, ...]] = [
            (name, *(by_side[side].get(name, 0.0) for side in sides)) for name in names
        ]
        own = [sum(n for name, n in by_side[side].items() if name != OTHERS) for side in sides]
        return Table(title=title, columns=("process", *sides), rows=(*rows, ("sum", *own)))


def resident_mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / MIB


def peak_mib() -> float:
    """Return the peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB elsewhere
