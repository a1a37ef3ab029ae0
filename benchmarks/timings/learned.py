"""Learned policies beside the rules: order, sizes and places of a cycle, and extender scores."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from benchmarks.report import Pairs, Result, Row, at_most
from benchmarks.timings import round_trips
from benchmarks.timings.cases import Run, Skipped, metrics_of, program, running
from benchmarks.timings.decision import problem
from benchmarks.timings.extender_calls import percentiles, timed
from benchmarks.timings.populated_api import PopulatedApi
from bireme.core.gangs import Gang, Role, TrainingProgress
from bireme.core.placement import FreeCapacity
from bireme.core.policy import PARTS, PartName, Policy, placer_on
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import names
from bireme.policy_names import checkpoint_folder, checkpoint_folders
from bireme.registry import make_policy
from bireme.rl import builtin
from bireme.rl.components import parts_of
from bireme.testing import a_gang, a_task
from testbed.controlplane.process import Process
from testbed.fakeapi import FakeApi

PLACER: Final = "das"
FILLS: Final = (97, 10)
"""Percent of GPUs in use: a queue that waits, and one that starts at once."""
_RULES: Final = SchedulingSettings()
_MAX_MILLISECONDS: Final = 50.0
_MAX_RATIO: Final = 2.0
_LOADED_SECONDS: Final = 60.0


async def measure_learned(run: Run) -> Result:
    """Measure 256 waiting gangs on 500 nodes, and prioritize at 500 names."""
    if checkpoint_folder(PLACER) is None:
        raise Skipped(f"there is no checkpoint {PLACER!r} to place with")
    nodes, gangs = run.pick(500, 40), run.pick(256, 12)
    rows = []
    for fill in FILLS:
        snapshot = queue(nodes, gangs, fill)
        for parts in _learned():
            rows += _cycles(run, parts, snapshot, f"{gangs} gangs, {nodes} nodes, {fill} % in use")
    rows += await _prioritize(run, nodes)
    note = (
        "Every gang is offered to the placer; where little is in use, all of them start. "
        "prioritize is the round trip to two extenders over equal clusters."
    )
    return Result(baseline=f"{_RULES.orderer}/{_RULES.placer}", rows=tuple(rows), notes=(note,))


def queue(nodes: int, gangs: int, percent: int) -> ClusterSnapshot:
    """Return elastic gangs of 1 to 8 replicas with progress, every fifth with a PS."""
    waiting = tuple(_gang(number) for number in range(gangs))
    return replace(problem(nodes, 0, percent), waiting=waiting)


def _gang(number: int) -> Gang:
    workers = 2 ** (number % 4)
    tasks = [
        a_task(workers, (1, 2, 4)[number % 3], min_replicas=1, max_replicas=workers + number % 3)
    ]
    if number % 5 == 0:
        tasks.append(a_task(1, 0, role=Role.PS, cpu_millis=4000))
    hours = 1 + number % 7
    arrived = float(number % 97)
    gang = a_gang(f"gang-{number:04d}", *tasks, arrived=arrived, estimated_seconds=3600.0 * hours)
    progress = TrainingProgress(0.0, fraction=0.1, accuracy=0.5, accuracy_gain=0.01)
    return replace(gang, is_elastic=True, progress=progress)


def _learned() -> Iterator[dict[PartName, str]]:
    """Yield every shipped checkpoint as names by part, completed by rules or the learned placer."""
    for name in checkpoint_folders():
        parts = dict.fromkeys(parts_of(builtin.checkpoint(name).card), name)
        if "orderer" in parts:
            yield {"placer": PLACER, **parts}
        else:
            yield {"orderer": _RULES.orderer, "placer": _RULES.placer, **parts}


def _cycles(
    run: Run, parts: dict[PartName, str], snapshot: ClusterSnapshot, where: str
) -> list[Row]:
    settings = SchedulingSettings(**parts)  # type: ignore[arg-type]  # fields of text
    policies = {"bireme": make_policy(settings), "rules": make_policy(_RULES)}
    pairs, started = Pairs(), {}
    for _ in range(1 + 5 * run.repetitions):
        for side, policy in policies.items():
            # A chooser answers once for each snapshot, so every turn gets its own.
            milliseconds, started[side] = _timed(policy, replace(snapshot))
            pairs.add(side, milliseconds)
    name = "/".join(parts.get(part, "") for part in PARTS).rstrip("/")
    run.say(f"{name}, {where}: {started}")
    what = "order, size and place" if "sizer" in parts else "order and place"
    return [
        pairs.row("order", "ms", what=f"{parts['orderer']}: order {where}"),
        pairs.row("all", "ms", at_most(_MAX_MILLISECONDS), f"{name}: {what} {where}"),
    ]


def _timed(policy: Policy, snapshot: ClusterSnapshot) -> tuple[dict[str, float], int]:
    """Return milliseconds to order, and to order, size and place; and how many were placed."""
    capacity, placed = FreeCapacity(snapshot.nodes, snapshot.used), 0
    placer = placer_on(policy.placer, snapshot)
    began = time.perf_counter()
    ranked = policy.orderer.order(snapshot.waiting, snapshot)
    ordered = time.perf_counter()
    sizes = policy.sizer.sizes(ranked, snapshot) if policy.sizer is not None else {}
    for entry in ranked:
        wanted = sizes.get(entry.gang.uid)
        gang = entry.gang if wanted is None else entry.gang.with_sizes(dict(wanted))
        placement = placer.place(gang, capacity)
        if placement is not None:
            capacity.take(gang, placement)
            placed += 1
    whole = time.perf_counter() - began
    return {"order": 1000 * (ordered - began), "all": 1000 * whole}, placed


async def _prioritize(run: Run, nodes: int) -> list[Row]:
    """Ask two extenders over equal clusters, one of them with the learned placer."""
    async with FakeApi() as learned, FakeApi() as ruled:
        programs, pods = [], []
        for side, api in (("bireme", learned), ("rules", ruled)):
            cluster = PopulatedApi(api, nodes)
            for number in range(nodes // 10):
                cluster.add_gang(f"gang-{number}", cluster.nodes[number :: nodes // 10][:8], 2)
            pods += cluster.plan_gang("asked", [cluster.nodes[0]], 1, "Score")
            workdir = run.workdir / side
            workdir.mkdir()
            programs.append(program("extender", workdir, api.kubeconfig(workdir), side))
        if pods[0] != pods[1]:
            raise RuntimeError("the two clusters are not equal, so one request cannot serve both")
        spec = {"checkpoint": {"name": PLACER}}
        learned.put(names.path("schedulingpolicies", name=PLACER), {"spec": spec})
        body = {"Pod": pods[0], "Nodes": None, "NodeNames": cluster.nodes}
        sent = round_trips.request("/prioritize", msgspec.json.encode(body))
        async with running(*programs):
            await asyncio.to_thread(_wait_for_checkpoint, programs[0].port, sent)
            return await asyncio.to_thread(_asked, run, programs, sent, nodes)


def _wait_for_checkpoint(port: int, sent: bytes) -> None:
    until = time.monotonic() + _LOADED_SECONDS
    while time.monotonic() < until:
        round_trips.reply_of(port, sent)
        if "\nbireme_extender_learned_scorer 1.0" in metrics_of(port):
            return
        time.sleep(0.2)
    raise RuntimeError(f"no learned placer answered within {_LOADED_SECONDS:g} s; see its log")


def _asked(run: Run, programs: list[Process], sent: bytes, nodes: int) -> list[Row]:
    pairs = Pairs()
    for _ in range(run.repetitions):
        ours, theirs = timed(run, programs, [sent])
        pairs.add("bireme", percentiles(ours))
        pairs.add("rules", percentiles(theirs))
    what = f"{PLACER}: prioritize, pod in score mode, {nodes} names"
    middle = pairs.row("p50", "ms", at_most(_MAX_RATIO, "ratio"), f"{what}: p50")
    run.say(f"{middle.what}: ratio {middle.ratio:.2f}")
    return [middle, pairs.row("p99", "ms", what=f"{what}: p99")]
