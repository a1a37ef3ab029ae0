"""Cases (a name, a question, and a coroutine with the answer), and the programs they start."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from benchmarks.report import Result
from tools.controlplane.process import Process, free_ports

ROOT: Final = Path(__file__).parents[2]
T = TypeVar("T")


class Skipped(Exception):  # noqa: N818  # no error: the text says what is missing
    """A case that cannot be measured here; the results of an earlier run stay."""


@dataclass(frozen=True, slots=True)
class Run:
    """Circumstances of one run of a case: where it logs, how large and how often it runs."""

    workdir: Path
    is_quick: bool
    repetitions: int
    say: Callable[[str], None]

    def pick(self, full: int, quick: int) -> int:
        return quick if self.is_quick else full

    def sides(self) -> list[str]:
        """Alternate the sides, each first as often as the other, give or take one."""
        pairs = [("stock", "bireme"), ("bireme", "stock")]
        return [side for number in range(self.repetitions) for side in pairs[number % 2]]


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement; ``question`` is the heading of its table."""

    name: str
    question: str
    measure: Callable[[Run], Awaitable[Result]]


def in_child(module: str, *arguments: object, kind: type[T], timeout_seconds: float = 300.0) -> T:
    """Run a module of this package in a process of its own, one thread; decode what it prints."""
    command = [sys.executable, "-m", f"benchmarks.timings.{module}", *map(str, arguments)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        timeout=timeout_seconds,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr.decode()[-2000:]}")
    return msgspec.json.decode(done.stdout, type=kind)


PORTS: Final = {"operator": "BIREME_METRICS_PORT", "extender": "BIREME_EXTENDER_PORT"}


def program(kind: str, workdir: Path, kubeconfig: Path, name: str = "") -> Process:
    """Return ``operator`` or ``extender``, not yet started; its log is called ``name``."""
    (port,) = free_ports(1)
    return Process(
        kind,
        [sys.executable, "-m", f"bireme_{kind}"],
        log_path=workdir / f"{name or kind}.log",
        ready_url=f"http://127.0.0.1:{port}/readyz",
        env={"KUBECONFIG": str(kubeconfig), PORTS[kind]: str(port)},
    )
