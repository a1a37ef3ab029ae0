"""Gangs against plain pods: the same pods, made by the operator or by an equally fast client.

The clock runs from the first create request to the last bind. The rival is the stock scheduler
alone, without any gang guarantee, with as many requests in flight as Bireme's operator.
"""

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.machine import CpuMeter, CpuTimes, resident_mib
from benchmarks.report import Pairs, Result, Row, Sample, at_least, at_most
from benchmarks.timings.arena import Arena, arena
from benchmarks.timings.cases import Run
from benchmarks.timings.webhook import webhook
from benchmarks.timings.workloads import NAMESPACE, replica_names

_TOTAL = "first create to last bind"
_RATE = "pods bound per second"
_MEMORY = "operator, extender and second scheduler afterwards, resident"


@dataclass(frozen=True, slots=True)
class Workload:
    """Equal gangs; with ``varied`` no two have the same template."""

    gangs: int
    replicas: int
    gpus: int
    varied: bool = False

    @property
    def pods(self) -> int:
        return self.gangs * self.replicas

    @property
    def names(self) -> list[str]:
        return [f"gang-{number:04d}" for number in range(self.gangs)]


async def measure_gang512(run: Run) -> Result:
    """Measure one large gang."""
    work = Workload(1, run.pick(512, 64), 1)
    pairs, cpu = await _measure(run, run.pick(500, 50), work)
    rows = [
        pairs.row(_TOTAL, "s", at_most(1.05, "upper end of the ratio")),
        pairs.row(_RATE, "pods/s"),
    ]
    return Result(baseline="stock scheduler", rows=tuple(rows), tables=(cpu.table(),))


async def measure_gangs500x4(
    run: Run, *, fairness: bool = False, webhook_seconds: float = 0.0
) -> Result:
    """Measure many small gangs that fill the cluster; ``fairness`` as in :func:`arena`.

    With ``webhook_seconds`` every pod passes an admission webhook of this latency, and every gang
    has a template of its own, so that each needs a dry run.
    """
    slow = webhook_seconds > 0
    work = Workload(run.pick(500, 50), 4, 2, varied=slow)
    pairs, cpu = await _measure(
        run, run.pick(500, 50), work, fairness=fairness, webhook_seconds=webhook_seconds
    )
    rows = [
        pairs.row(_TOTAL, "s"),
        pairs.row("gangs bound per second", "gangs/s", None if slow else at_least(0.9, "ratio")),
        pairs.row("mean", "s", None if slow else at_most(5.0), "submit to whole, per gang: mean"),
        pairs.row("p99", "s", None if slow else at_most(10.0), "submit to whole, per gang: p99"),
        Row.alone(_MEMORY, "MiB", *pairs.bireme[_MEMORY], aim=at_most(260)),
    ]
    note = (
        "Plain pods of a gang are created just before they are bound, so their time per gang is "
        "short; all TrainingJobs are submitted at the start."
    )
    return Result(
        baseline="stock scheduler", rows=tuple(rows), tables=(cpu.table(),), notes=(note,)
    )


async def measure_throughput(run: Run) -> Result:
    """Measure pods per second on larger clusters."""
    rows, tables = [], []
    work = Workload(run.pick(100, 10), 30, 1)
    for nodes in (run.pick(1000, 50), run.pick(5000, 100)):
        run.say(f"{nodes} nodes")
        pairs, cpu = await _measure(run, nodes, work)
        name = f"{_RATE}, {nodes} nodes, {work.gangs} gangs of {work.replicas}"
        rows.append(pairs.row(_RATE, "pods/s", at_least(1.2, "ratio"), name))
        tables.append(cpu.table(f"Processor seconds by process at {nodes} nodes, medians"))
    return Result(baseline="stock scheduler", rows=tuple(rows), tables=tuple(tables))


async def _measure(
    run: Run,
    nodes: int,
    work: Workload,
    *,
    fairness: bool = False,
    webhook_seconds: float = 0.0,
) -> tuple[Pairs, CpuTimes]:
    """Measure both sides in alternation on one cluster."""
    pairs, cpu, folder = Pairs(), CpuTimes(), run.workdir / f"nodes-{nodes}"
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(arena(nodes, folder, fairness=fairness))
        if webhook_seconds:
            slow = webhook(place.cluster, NAMESPACE, webhook_seconds, folder)
            await stack.enter_async_context(slow)
        for side in run.sides():
            await place.prepare(side)
            meter = CpuMeter({**place.pids(), "measuring client": os.getpid()})
            found = await _once(place, side, work)
            cpu.add(side, meter)
            if side == "bireme":
                found[_MEMORY] = sum(resident_mib(p.pid) for p in place.stack.processes if p.pid)
            pairs.add(side, found)
            run.say(f"{side}: {work.pods} pods bound in {found[_TOTAL]:.2f} s")
            await place.clear()
    return pairs, cpu


async def _once(place: Arena, side: str, work: Workload) -> dict[str, float]:
    began = time.monotonic()
    await place.submit(side, work.names, work.replicas, work.gpus, varied=work.varied)
    await place.have_bound(work.pods)
    total = max(place.observer.bound.values()) - began
    per_gang = _seconds_per_gang(place, work)
    return {
        _TOTAL: total,
        _RATE: work.pods / total,
        "gangs bound per second": work.gangs / total,
        "mean": statistics.mean(per_gang),
        "p99": Sample.of(per_gang).percentile(99),
    }


def _seconds_per_gang(place: Arena, work: Workload) -> Sequence[float]:
    """Return seconds from a gang's first create request to the bind of its last replica."""
    seconds = []
    for gang in work.names:
        members = replica_names(gang, work.replicas)
        # Plain pods have no job: their gang is submitted with the first of them.
        submitted = place.submitted.get(gang) or min(place.submitted[name] for name in members)
        seconds.append(max(place.observer.bound[name] for name in members) - submitted)
    return seconds
