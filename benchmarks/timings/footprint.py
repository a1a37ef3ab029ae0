"""Memory of operator and extender with a large cluster in their caches, and what a shadow adds.

A fake API server holds it: 50000 pods would take a real one longer than all other cases together.
"""

import asyncio
import re
import time
from contextlib import suppress
from typing import Final

import psutil

from benchmarks.machine import MIB, CpuMeter, resident_mib
from benchmarks.report import Pairs, Result, Row, Table, at_most
from benchmarks.timings.cases import ADDRESSES, Run, metrics_of, program, running
from benchmarks.timings.populated_api import PopulatedApi
from benchmarks.timings.workloads import NAMESPACE
from bireme.kube import names
from testbed.fakeapi import FakeApi

_AIM_MIB: Final = 300.0
_SETTLE_SECONDS: Final = 30
_WIDEST: Final = 4
"""Jobs that wait have up to so many replicas of 8 GPUs."""
_EAGER: Final = {"shadow_interval_seconds": 1.0}
"""Moments are played as often as the bound on their processor time lets them."""
_SAMPLES: Final = re.compile(
    r'^bireme_shadow_samples_total\{.*outcome="(\w+)".*\} (\S+)$', re.MULTILINE
)


async def measure_memory(run: Run) -> Result:
    """Measure resident memory after everything was listed and swept a few times."""
    nodes, gangs, others = run.pick(5000, 50), run.pick(1000, 10), run.pick(30_000, 300)
    rows = []
    async with FakeApi() as api:
        for name in ADDRESSES:
            empty = await _resident(run, api, name, "empty")
            rows.append(Row.alone(f"{name}, empty cluster", "MiB", empty))
        cluster = _full_cluster(api, nodes, gangs)
        cluster.add_others(others)
        what = f"{nodes} nodes, {gangs} gangs, {20 * gangs + others} pods"
        run.say(what)
        for name in ADDRESSES:
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


async def measure_shadow(run: Run) -> Result:
    """Measure what the learned shadow costs the leader beside whose decisions it makes its own."""
    nodes, gangs, waiting = run.pick(5000, 50), run.pick(1000, 10), run.pick(50, 5)
    found, outcomes = Pairs(), dict[str, float]()
    async with FakeApi() as api:
        cluster = _full_cluster(api, nodes, gangs)
        for number in range(waiting):
            cluster.add_waiting(f"waits-{number:02d}", 1 + number % _WIDEST, 8)
        policies = names.path("schedulingpolicies")
        spec = {"checkpoint": {"name": "learned-index"}, "stage": "Shadow"}
        for number, side in enumerate(run.sides()):
            if side == "bireme":
                api.put(f"{policies}/learned", {"spec": spec})
            costs, played = await _costs(run, cluster, f"{side}-{number}")
            found.add(side, costs)
            run.say(f"{side}: {costs}")
            if side == "bireme":
                outcomes = played
                api.store.delete(policies, ("", "learned"), {})
    rows = [
        found.row("memory", "MiB", at_most(_AIM_MIB), "leader, memory"),
        found.row("cpu", "s", what="leader, processor time per minute in which 60 jobs come"),
        Row.alone("play, memory at most", "MiB", *found.bireme["play memory"]),
        Row.alone("play, processor time per minute", "s", *found.bireme["play cpu"]),
    ]
    note = (
        f"{nodes} nodes, all in use by {gangs} gangs, and {waiting} gangs that wait. The shadow is "
        "`learned-index`, which the chart installs. It decides in the leader; moments are played "
        "forward by a process of its own (play), as often as its share of a core lets it, usually "
        "one in ten minutes."
    )
    samples = tuple(sorted((outcome, str(int(count))) for outcome, count in outcomes.items()))
    return Result(
        rows=tuple(rows),
        baseline="no shadow",
        tables=(
            Table(title="Moments of the last run", columns=("outcome", "moments"), rows=samples),
        ),
        notes=(note,),
    )


def _full_cluster(api: FakeApi, nodes: int, gangs: int) -> PopulatedApi:
    """Return a cluster with 20 pods of each gang, four to a node."""
    cluster = PopulatedApi(api, nodes)
    for number in range(gangs):
        places = [cluster.nodes[(20 * number + at) // 4 % nodes] for at in range(20)]
        cluster.add_gang(f"gang-{number:04d}", places, 2)
    return cluster


async def _costs(
    run: Run, cluster: PopulatedApi, label: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Return what a leader costs while a job a second comes, and how many moments were played."""
    seconds = run.pick(120, 10)
    kubeconfig = cluster.api.kubeconfig(run.workdir)
    process = program("operator", run.workdir, kubeconfig, label, **_EAGER)
    async with running(process, ready_seconds=180):
        await asyncio.sleep(_SETTLE_SECONDS if not run.is_quick else 3)
        leader, highest = psutil.Process(process.pid), 0.0
        before, end = leader.cpu_times(), time.monotonic() + seconds
        came: list[str] = []
        while time.monotonic() < end:
            came.append(f"{label}-{len(came):03d}")
            cluster.add_waiting(came[-1], 1, 8)
            for _ in range(10):
                await asyncio.sleep(0.1)
                for child in leader.children():
                    with suppress(psutil.NoSuchProcess):
                        highest = max(highest, child.memory_info().rss / MIB)
        after, minutes = leader.cpu_times(), seconds / 60
        played = after.children_user + after.children_system
        played -= before.children_user + before.children_system
        spent = after.user + after.system - before.user - before.system
        costs = {
            "memory": resident_mib(process.pid),
            "cpu": spent / minutes,
            "play memory": highest,
            "play cpu": played / minutes,
        }
        for name in came:
            cluster.api.store.delete(names.path("trainingjobs"), (NAMESPACE, name), {})
        port = process.port
        text = await asyncio.to_thread(metrics_of, port)
    return costs, {outcome: float(count) for outcome, count in _SAMPLES.findall(text)}
