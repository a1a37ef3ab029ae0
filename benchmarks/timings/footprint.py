"""Memory of operator and extender with a large cluster in their caches.

A fake API server holds it: 50000 pods would take a real one longer than all other cases together.
"""

import asyncio
from typing import Final

from benchmarks.machine import CpuMeter, resident_mib
from benchmarks.report import Result, Row, at_most
from benchmarks.timings.cases import PORTS, Run, program, running
from benchmarks.timings.populated_api import PopulatedApi
from tests.support.fakeapi import FakeApi

_AIM_MIB: Final = 300.0
_SETTLE_SECONDS: Final = 30


async def measure_memory(run: Run) -> Result:
    """Measure resident memory after everything was listed and swept a few times."""
    nodes, gangs, others = run.pick(5000, 50), run.pick(1000, 10), run.pick(30_000, 300)
    rows = []
    async with FakeApi() as api:
        for name in PORTS:
            empty = await _resident(run, api, name, "empty")
            rows.append(Row.alone(f"{name}, empty cluster", "MiB", empty))
        cluster = PopulatedApi(api, nodes)
        for number in range(gangs):
            places = [cluster.nodes[(20 * number + at) // 4 % nodes] for at in range(20)]
            cluster.add_gang(f"gang-{number:04d}", places, 2)
        cluster.add_others(others)
        what = f"{nodes} nodes, {gangs} gangs, {20 * gangs + others} pods"
        run.say(what)
        for name in PORTS:
            full = await _resident(run, api, name, "full")
            rows.append(Row.alone(f"{name}, {what}", "MiB", full, aim=at_most(_AIM_MIB)))
            run.say(f"{name}: {full:.0f} MiB")
        cluster.add_gang("scored", cluster.nodes[:1], 2, "Score")
        scored = await _resident(run, api, "extender", "scored")
        what = "extender, the same and one gang in score mode"
        rows.append(Row.alone(what, "MiB", scored, aim=at_most(_AIM_MIB)))
    note = "One process each, from a fake API server. Each program is measured alone."
    return Result(rows=tuple(rows), notes=(note,))


async def _resident(run: Run, api: FakeApi, name: str, label: str) -> float:
    process = program(name, run.workdir, api.kubeconfig(run.workdir), f"{name}-{label}")
    async with running(process, ready_seconds=180):
        # Between sweeps a program is idle; only then has it returned what a sweep needed.
        for _ in range(_SETTLE_SECONDS // 3):
            meter = CpuMeter({name: process.pid})
            await asyncio.sleep(3)
            if meter.spent()[name] < 0.5:
                break
        return resident_mib(process.pid)
