"""Learned policies beside the rules: a cycle's order and places, and the extender's scores.

Both sides are asked the same questions in alternation: cycles in this process, scores by round
trips to two extenders.
"""

import asyncio
import time
import urllib.request
from dataclasses import replace
from typing import Final

import msgspec

from bench import round_trips
from bench.cases import Run, Skipped
from bench.decision import problem
from bench.extender_calls import extender_program, percentiles, port_of, timed
from bench.measurements import Pairs, Result, Row, at_most
from bench.populated_api import PopulatedApi
from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang, Role
from bireme.core.policy import Orderer, Placer
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import names
from bireme.registry import ORDERERS, make_orderer, make_placer
from bireme.rl import shipped
from bireme.testing import a_gang, a_task
from controlplane.process import Process
from fakeapi import FakeApi

PLACER: Final = "das"
FILLS: Final = (97, 10)
"""Percent of GPUs in use: a queue that waits, and one that starts at once."""
_RULES: Final = SchedulingSettings()
_MOST_MILLISECONDS: Final = 50.0
_MOST_RATIO: Final = 2.0
_LOADED_SECONDS: Final = 60.0


async def measure_learned(run: Run) -> Result:
    """256 waiting gangs on 500 nodes, and prioritize at 500 names."""
    if not shipped.folder_of(PLACER).is_dir():
        raise Skipped(f"there is no checkpoint {PLACER!r} to place with")
    nodes, gangs = run.pick(500, 40), run.pick(256, 12)
    learned = [name for name in ORDERERS if shipped.folder_of(name).is_dir()]
    rows = []
    for fill in FILLS:
        snapshot = queue(nodes, gangs, fill)
        for name in learned:
            rows += _cycles(run, name, snapshot, f"{gangs} gangs, {nodes} nodes, {fill} % in use")
    rows += await _prioritize(run, nodes)
    note = (
        "Every gang is offered to the placer; where little is in use, all of them start. "
        "prioritize is the round trip to two extenders over equal clusters."
    )
    return Result(baseline=f"{_RULES.orderer}/{_RULES.placer}", rows=tuple(rows), notes=(note,))


def queue(nodes: int, gangs: int, percent: int) -> ClusterSnapshot:
    """Gangs of 1 to 8 replicas, every fifth with a parameter server; ``percent`` % are in use."""
    waiting = tuple(_gang(number) for number in range(gangs))
    return replace(problem(nodes, 0, percent), waiting=waiting)


def _gang(number: int) -> Gang:
    tasks = [a_task(2 ** (number % 4), (1, 2, 4)[number % 3])]
    if number % 5 == 0:
        tasks.append(a_task(1, 0, role=Role.PS, cpu_millis=4000))
    hours = 1 + number % 7
    arrived = float(number % 97)
    return a_gang(f"gang-{number:04d}", *tasks, arrived=arrived, estimated_seconds=3600.0 * hours)


def _cycles(run: Run, name: str, snapshot: ClusterSnapshot, where: str) -> list[Row]:
    """The orderer ``name`` with the learned placer, beside the default rules."""
    sides = {"bireme": (name, PLACER), "rules": (_RULES.orderer, _RULES.placer)}
    policies = {s: (make_orderer(order), make_placer(place)) for s, (order, place) in sides.items()}
    pairs, started = Pairs(), {}
    for _ in range(1 + 5 * run.repetitions):
        for side, policy in policies.items():
            milliseconds, started[side] = _timed(*policy, snapshot)
            pairs.add(side, milliseconds)
    run.say(f"{name}/{PLACER}, {where}: {started}")
    both = pairs.row("both", "ms", at_most(_MOST_MILLISECONDS))
    return [
        pairs.row("order", "ms").titled(f"{name}: order {where}"),
        both.titled(f"{name}/{PLACER}: order and place {where}"),
    ]


def _timed(
    orderer: Orderer, placer: Placer, snapshot: ClusterSnapshot
) -> tuple[dict[str, float], int]:
    """Milliseconds to order all gangs, and to order and place them; and how many were placed."""
    capacity, placed = FreeCapacity(snapshot.nodes, snapshot.used), 0
    began = time.perf_counter()
    ranked = orderer.order(snapshot.waiting, snapshot)
    ordered = time.perf_counter()
    for entry in ranked:
        placement = placer.place(entry.gang, capacity)
        if placement is not None:
            capacity.take(entry.gang, placement)
            placed += 1
    both = time.perf_counter() - began
    return {"order": 1000 * (ordered - began), "both": 1000 * both}, placed


async def _prioritize(run: Run, nodes: int) -> list[Row]:
    """Two extenders over equal clusters, one of them with the learned placer."""
    async with FakeApi() as learned, FakeApi() as ruled:
        programs, pods = [], []
        for side, api in (("bireme", learned), ("rules", ruled)):
            cluster = PopulatedApi(api, nodes)
            for number in range(nodes // 10):
                cluster.add_gang(f"gang-{number}", cluster.nodes[number :: nodes // 10][:8], 2)
            pods += cluster.plan_gang("asked", [cluster.nodes[0]], 1, "Score")
            workdir = run.workdir / side
            workdir.mkdir()
            programs.append(extender_program(workdir, api.kubeconfig(workdir), side))
        if pods[0] != pods[1]:
            raise RuntimeError("the two clusters are not equal, so one request cannot serve both")
        spec = {"checkpoint": {"name": PLACER}}
        learned.put(names.path("schedulingpolicies", name=PLACER), {"spec": spec})
        body = {"Pod": pods[0], "Nodes": None, "NodeNames": cluster.nodes}
        sent = round_trips.request("/prioritize", msgspec.json.encode(body))
        try:
            for program in programs:
                await asyncio.to_thread(program.start)
            for program in programs:
                await asyncio.to_thread(program.wait_ready, 60)
            await asyncio.to_thread(_wait_for_checkpoint, port_of(programs[0]), sent)
            return await asyncio.to_thread(_asked, run, programs, sent, nodes)
        finally:
            for program in programs:
                await asyncio.to_thread(program.terminate)


def _wait_for_checkpoint(port: int, sent: bytes) -> None:
    """Ask until the learned placer answers, which is loaded beside all else."""
    until = time.monotonic() + _LOADED_SECONDS
    while time.monotonic() < until:
        round_trips.reply_of(port, sent)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            if b"\nbireme_extender_learned_scorer 1.0" in page.read():
                return
        time.sleep(0.2)
    raise RuntimeError(f"no learned placer answered within {_LOADED_SECONDS:g} s; see its log")


def _asked(run: Run, programs: list[Process], sent: bytes, nodes: int) -> list[Row]:
    pairs = Pairs()
    for _ in range(run.repetitions):
        ours, theirs = timed(run, programs, [port_of(program) for program in programs], sent)
        pairs.add("bireme", percentiles(ours))
        pairs.add("rules", percentiles(theirs))
    what = f"{PLACER}: prioritize, pod in score mode, {nodes} names"
    middle = pairs.row("p50", "ms", at_most(_MOST_RATIO, "ratio")).titled(f"{what}: p50")
    run.say(f"{middle.what}: ratio {middle.ratio:.2f}")
    return [middle, pairs.row("p99", "ms").titled(f"{what}: p99")]
