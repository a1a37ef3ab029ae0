"""Learned policies beside the rules: a cycle's order and places, and the extender's scores.

Both sides decide in this process, in alternation, on the same cluster and the same questions.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from bench.cases import Run, Skipped
from bench.decision import problem
from bench.measurements import Pairs, Result, Row, at_most
from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang, Role
from bireme.core.policy import Orderer, Placer
from bireme.core.scores import Scorer
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.scoring import BestFit
from bireme.registry import ORDERERS, make_orderer, make_placer
from bireme.rl import shipped
from bireme.rl.scorers import LearnedScorer
from bireme.testing import a_gang, a_task
from bireme_extender.plan_waits import PlanWaits
from bireme_extender.testing import (
    FixedFreshness,
    a_body,
    a_group,
    a_node,
    a_pod,
    a_state,
    make_metrics,
)
from bireme_extender.verbs import Verbs

PLACER: Final = "das"
FILLS: Final = (97, 10)
"""Percent of GPUs in use: a queue that waits, and one that starts at once."""
_RULES: Final = SchedulingSettings()
_MOST_MILLISECONDS: Final = 50.0
_MOST_RATIO: Final = 2.0
_CALLS: Final = 200


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
    rows.append(await _prioritize(run, nodes))
    note = (
        "Every gang is offered to the placer; where little is in use, all of them start. "
        "prioritize is the extender's verb without its HTTP server."
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


async def _prioritize(run: Run, nodes: int) -> Row:
    """The extender's verb with the learned scorer and with the rules, at ``nodes`` names."""
    names = [f"n{number:04d}" for number in range(nodes)]
    racks = (f"r{number // 25}" for number in range(nodes))
    places = [("worker", name, str(index)) for index, name in enumerate(names[:8])]
    state = a_state(
        [a_node(name, rack=rack) for name, rack in zip(names, racks, strict=True)],
        [a_group(places=places, mode="Score")],
        [a_pod(index, node=names[index], phase="Running") for index in range(4)],
    )
    body, pairs = a_body(a_pod(5), names), Pairs()
    scorers: dict[str, Callable[[], Scorer]] = {
        "bireme": lambda: LearnedScorer(shipped.checkpoint(PLACER)),
        "rules": BestFit,
    }
    verbs = {
        side: Verbs(state, PlanWaits(1.0), make_metrics(), FixedFreshness(), make())
        for side, make in scorers.items()
    }
    for _ in range(run.repetitions):
        for side, asked in verbs.items():
            pairs.add(side, {"p50": await _p50_milliseconds(asked, body)})
    row = pairs.row("p50", "ms", at_most(_MOST_RATIO, "ratio"))
    return row.titled(f"{PLACER}: prioritize, pod in score mode, {nodes} names: p50")


async def _p50_milliseconds(verbs: Verbs, body: bytes) -> float:
    seconds = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        await verbs.prioritize(body)
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(0)
    return 1000 * sorted(seconds)[_CALLS // 2]
