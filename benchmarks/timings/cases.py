"""Cases (a name, a question, and a coroutine with the answer), and the programs they start."""

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from benchmarks import ROOT
from benchmarks.report import Result
from testbed.controlplane.process import Process, free_ports
from testbed.internals import command

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
    """Run a module of this package in a process of its own; decode what it prints."""
    program = ["-m", f"benchmarks.timings.{module}", *map(str, arguments)]
    return msgspec.json.decode(python(program, timeout_seconds), type=kind)


def python(arguments: Sequence[str], timeout_seconds: float, **env: str) -> str:
    """Return the output of a Python process with one thread; RuntimeError when it fails."""
    # Threads of numerical libraries would compete with what is measured beside them.
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | alone | env,
        capture_output=True,
        timeout=timeout_seconds,
        check=False,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


ADDRESSES: Final = {"operator": "BIREME_METRICS_ADDRESS", "extender": "BIREME_EXTENDER_ADDRESS"}


def program(
    kind: str, workdir: Path, kubeconfig: Path, name: str = "", **internals: float
) -> Process:
    """Return ``operator`` or ``extender``, not yet started; its log is called ``name``."""
    (port,) = free_ports(1)
    return Process(
        kind,
        command(f"bireme_{kind}", internals),
        log_path=workdir / f"{name or kind}.log",
        ready_url=f"http://127.0.0.1:{port}/readyz",
        env={"KUBECONFIG": str(kubeconfig), ADDRESSES[kind]: f"127.0.0.1:{port}"},
    )


@asynccontextmanager
async def running(*programs: Process, ready_seconds: float = 60.0) -> AsyncIterator[None]:
    """Run ``programs`` within the block, which begins once all of them are ready."""
    try:
        for each in programs:
            await asyncio.to_thread(each.start)
        for each in programs:
            await asyncio.to_thread(each.wait_ready, ready_seconds)
        yield
    finally:
        for each in programs:
            await asyncio.to_thread(each.terminate)


def metrics_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
