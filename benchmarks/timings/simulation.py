"""The simulator on a whole trace: processor time and memory, each policy in its own process.

``python -m benchmarks.timings.simulation TRACE NODES ORDERER JOBS`` prints one JSON line. Philly's
trace is no part of this repository: it is looked for in ``BIREME_DATA``, else in ``shared/data``
beside the checkout. Reading it does not count.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import DATA
from benchmarks.machine import peak_mib
from benchmarks.report import Result, Row, at_most
from benchmarks.timings.cases import Run, Skipped, in_child
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.traces.sources import read_trace, window

DATA_VARIABLE: Final = "BIREME_DATA"
TRACE: Final = "philly/philly_2017-09-04_2017-11-14.csv.gz"
AIMS_SECONDS: Final = {"fifo": 60.0, "combined-priority": 180.0}
"""Processor seconds on one core, by orderer."""
AIM_MIB: Final = 1024.0
_LIMIT_SECONDS: Final = 1000.0
_ALL_JOBS: Final = 1_000_000


class Simulated(msgspec.Struct):
    """Finding of the child process; memory is its peak in MiB."""

    jobs: int
    cycles: int
    backfills: int
    preemptions: int
    cpu_seconds: float
    wall_seconds: float
    peak_mib: float


def trace_file() -> Path:
    """Return the path of the trace; Skipped when it is not there."""
    path = Path(os.environ.get(DATA_VARIABLE) or DATA) / TRACE
    if not path.is_file():
        raise Skipped(f"there is no {path}; name the folder of {TRACE} in {DATA_VARIABLE}")
    return path


async def measure_simulation(run: Run) -> Result:
    """Simulate FIFO, and combined priority with backfill and preemption, on 128 nodes."""
    trace, jobs = trace_file(), run.pick(_ALL_JOBS, 300)
    nodes = "16x8" if run.is_quick else "128x8"
    rows: list[Row] = []
    notes = ["Preemption is on, but in this trace no queue and no job ranks above another."]
    for orderer, aim_seconds in AIMS_SECONDS.items():
        found = await asyncio.to_thread(
            in_child,
            "simulation",
            trace,
            nodes,
            orderer,
            jobs,
            kind=Simulated,
            timeout_seconds=_LIMIT_SECONDS,
        )
        what = f"{orderer}, {found.jobs} jobs on {nodes} GPUs"
        run.say(f"{what}: {found.cpu_seconds:.1f} s of processor time")
        rows += [
            Row.alone(f"{what}: processor time", "s", found.cpu_seconds, aim=at_most(aim_seconds)),
            Row.alone(f"{what}: wall clock", "s", found.wall_seconds),
            Row.alone(f"{what}: peak memory", "MiB", found.peak_mib, aim=at_most(AIM_MIB)),
        ]
        notes.append(
            f"{orderer}: {found.cycles} cycles, {found.backfills} backfills, "
            f"{found.preemptions} preemptions."
        )
    return Result(rows=tuple(rows), notes=tuple(notes))


def main(arguments: list[str]) -> None:
    path, nodes, orderer, jobs = arguments
    trace = window(read_trace(f"philly:{path}"), 0.0, int(jobs))
    settings = SchedulingSettings(orderer=orderer)
    machines, policy = parse_nodes(nodes), make_policy(settings)
    wall_began, cpu_began = time.perf_counter(), time.process_time()
    outcome = simulate(trace, machines, policy, settings)
    cpu_seconds, wall_seconds = time.process_time() - cpu_began, time.perf_counter() - wall_began
    found = Simulated(
        jobs=len(outcome.jobs),
        cycles=outcome.counts["cycles"],
        backfills=outcome.counts["backfills"],
        preemptions=outcome.counts["preemptions"],
        cpu_seconds=cpu_seconds,
        wall_seconds=wall_seconds,
        peak_mib=peak_mib(),
    )
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
