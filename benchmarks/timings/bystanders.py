"""Pods of the default scheduler beside Bireme: without it, and while it is well, dead or flooded.

A steady stream of small pods that have nothing to do with Bireme is created at a fixed rate; what
is measured of each is the time from its create request to the event that it is bound. All
surroundings follow one another in every repetition, in changing order.

While Bireme is flooded its gangs come and go, and a maker of these pods would load the API
server with them. So the flood is compared with the same pods made for the default scheduler.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.machine import CpuMeter, CpuTimes
from benchmarks.report import Aim, Result, Row, Sample, at_most
from benchmarks.timings.arena import PODS, Arena, arena
from benchmarks.timings.cases import Run
from benchmarks.timings.workloads import NAMESPACE
from testbed.controlplane.process import Process
from testbed.scenario.manifests import Manifest

_PODS_PER_SECOND: Final = 20.0
_WARM_UP_PODS: Final = 40
_WAIT_SECONDS: Final = 240.0
_GANG_EVERY_SECONDS: Final = 0.5
_WITHOUT: Final = "without"
_CROWDED: Final = "crowded"
_NICE: Final = 19
_AIM: Final[Aim] = at_most(1.05, "upper end of the ratio")


async def measure_bystanders(run: Run) -> Result:
    """Measure p50 and p99 of create to bind in each surrounding."""
    nodes, pods = run.pick(100, 10), run.pick(300, 60)
    found: dict[str, list[Sample]] = {name: [] for name in _SURROUNDINGS}
    cpu = CpuTimes()
    async with arena(nodes, run.workdir) as place:
        for repetition in range(run.repetitions):
            for name in _order(repetition):
                await _SURROUNDINGS[name](place, run)
                side = {_CROWDED: "stock", "flooded": "bireme"}.get(name)
                stream = asyncio.create_task(_gangs(place, side)) if side else None
                await _stream(place, "warm-up", _WARM_UP_PODS)
                meter = CpuMeter(place.pids())
                sample = await _stream(place, "pod", pods)
                cpu.add(name, meter)
                found[name].append(sample)
                if stream is not None:
                    stream.cancel()
                    with suppress(asyncio.CancelledError):
                        await stream
                words = f"p50 {1e3 * sample.median:.1f}, p99 {1e3 * sample.percentile(99):.1f} ms"
                run.say(f"{repetition + 1}/{run.repetitions} {name}: {words}")
                await asyncio.to_thread(place.stack.stop)
                await place.clear()
    rows = [_row(name, percent, found) for name in found for percent in (50, 99)]
    return Result(
        baseline="without Bireme",
        rows=tuple(row for row in rows if row is not None),
        tables=(cpu.table(),),
        notes=tuple(_notes(nodes, pods)),
    )


def _order(repetition: int) -> list[str]:
    """Return all surroundings, each repetition beginning with another, every second backwards."""
    names = list(_SURROUNDINGS)
    turned = names[repetition % len(names) :] + names[: repetition % len(names)]
    return turned[::-1] if repetition % 2 else turned


def _row(name: str, percent: int, found: dict[str, list[Sample]]) -> Row | None:
    if name in (_WITHOUT, _CROWDED):
        return None
    baseline = _CROWDED if name == "flooded" else _WITHOUT

    def of(side: str) -> Sample:
        return Sample.of(1e3 * sample.percentile(percent) for sample in found[side])

    return Row(
        what=f"create to bind, p{percent}, Bireme {name}",
        unit="ms",
        bireme=of(name),
        baseline=of(baseline),
        aim=_AIM if percent == 99 else None,
    )


# --- surroundings ---------------------------------------------------------------------------


async def _without(place: Arena, run: Run) -> None:
    """Nothing of Bireme runs or waits."""


async def _start(place: Arena) -> None:
    """Start Bireme behind everything else, as if it had machines of its own."""
    await asyncio.to_thread(place.stack.start)
    for process in place.stack.processes:
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), _NICE)


async def _well(place: Arena, run: Run) -> None:
    """Bireme runs, and some gangs do."""
    await _start(place)
    await place.submit("bireme", [f"runs-{n}" for n in range(run.pick(20, 2))], 4, 1)
    await place.have_bound(4 * run.pick(20, 2), _WAIT_SECONDS)
    await place.rest()


async def _dead(place: Arena, run: Run) -> None:
    """Gangs were planned and others waited when every program of Bireme was killed."""
    await _start(place)
    place.stack.scheduler.kill()
    gangs = run.pick(20, 2)
    await place.submit("bireme", [f"left-{n}" for n in range(gangs)], 4, 1)
    created = place.observer.created
    await place.observer.until("their pods", lambda: len(created) == 4 * gangs, _WAIT_SECONDS)
    await place.submit("bireme", [f"waits-{n}" for n in range(gangs)], 9999, 8)
    _kill(place.stack.operator())
    _kill(place.stack.extender)
    await place.rest()


async def _flooded(place: Arena, run: Run) -> None:
    """A long line of gangs waits for room that is not there."""
    await _start(place)
    line = run.pick(500, 20)
    await place.submit("bireme", [f"waits-{n}" for n in range(line)], 9999, 8)
    reasons = place.observer.reasons
    await place.observer.until("all verdicts", lambda: len(reasons) == line, _WAIT_SECONDS)


async def _gangs(place: Arena, side: str) -> None:
    """Start gangs without end that run for two seconds."""
    number = 0
    while True:
        await place.submit(side, [f"comes-{number}"], 8, 1, "2s")
        number += 1
        await asyncio.sleep(_GANG_EVERY_SECONDS)


_SURROUNDINGS: Final[dict[str, Callable[[Arena, Run], Awaitable[None]]]] = {
    _WITHOUT: _without,
    _CROWDED: _without,
    "well": _well,
    "dead": _dead,
    "flooded": _flooded,
}


def _kill(process: Process) -> None:
    if process.running:
        process.kill()


# --- the stream -----------------------------------------------------------------------------


async def _stream(place: Arena, prefix: str, count: int) -> Sample:
    """Create pods at a fixed rate and return the seconds from create to bind of each."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    names = [f"{prefix}-{number}" for number in range(count)]
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            await asyncio.sleep(began + number / _PODS_PER_SECOND - loop.time())
            group.create_task(place.create(PODS, [_bystander(name)]))
    bound = place.observer.bound
    await place.observer.until("the pods", lambda: all(n in bound for n in names), _WAIT_SECONDS)
    return Sample.of(bound[name] - place.submitted[name] for name in names)


def _bystander(name: str) -> Manifest:
    container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": "10m"}}}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _notes(nodes: int, pods: int) -> list[str]:
    return [
        (
            f"{pods} pods of the default scheduler at {_PODS_PER_SECOND:g} a second on {nodes} "
            "nodes, after a warm-up. Well: Bireme runs, and 20 gangs do. Dead: its three programs "
            "were killed after 20 gangs had been planned and 20 more had come. Flooded: 500 gangs "
            "wait, and a gang of 8 that runs for two seconds starts every "
            f"{_GANG_EVERY_SECONDS:g} s. The baseline of the flood has the same pods, made for the "
            "default scheduler."
        ),
        (
            "Everything shares the machine's cores here, Bireme with the API server and the "
            "default scheduler; in a cluster it does not. So Bireme's programs run at nice "
            f"{_NICE}. The ratio is that of the percentiles of paired repetitions."
        ),
    ]
