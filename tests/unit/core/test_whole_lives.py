"""Whole lives of small clusters: gangs of every kind come, then none, and the line still moves.

``BIREME_WHOLE_LIVES`` is the number of lives that are played; ``make verify`` plays more.
"""

import os
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bireme.core.decision import Admit, Decision
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import GPU, a_gang, a_node, a_snapshot, a_task, with_running
from testbed.small_cluster import SmallCluster

LIVES = int(os.environ.get("BIREME_WHOLE_LIVES", "20"))
MODELS = ("Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3")
SETTINGS = SchedulingSettings(placer="packing?moves=0")
ARRIVALS_SECONDS, STEP_SECONDS, SLACK_SECONDS = 3600.0, 600.0, 1200.0
ENDLESS_SECONDS = 1e6
"""The run time of guests: far beyond the end of the life."""
LIFE_SECONDS = 25_000.0


@dataclass
class Life(SmallCluster):
    """A cluster whose guests (``PodGroup``) run on for ever.

    ``keeps_lent_places`` plants a bug: guests are lent reserved places and do not give them back.
    """

    keeps_lent_places: bool = False
    first: str = ""
    due: float = 0.0
    """When all have ended, by their estimates too, that ran when ``first`` became first in line."""
    stops: list[tuple[Gang, Gang]] = field(default_factory=list)

    def snapshot(self) -> ClusterSnapshot:
        usage: dict[str, dict[str, int]] = {}
        for held in self.running.values():
            of_queue = usage.setdefault(held.gang.queue, {GPU: 0})
            of_queue[GPU] += held.current.demand[GPU]
        bare = a_snapshot(
            self.nodes,
            *self.waiting.values(),
            queues=self.queues,
            queue_usage=usage,
            now=self.now,
            settings=self.settings,
        )
        return with_running(bare, *self.running.values())

    def decide(self) -> Decision:
        decision = super().decide()
        self.stops += [(stop.gang, stop.beneficiary) for stop in decision.preempted]
        self._judge(decision)
        return decision

    def _judge(self, decision: Decision) -> None:
        kept = [hold for hold in decision.held if hold.reservation is not None]
        first = min(kept, key=lambda hold: hold.position or 0).gang.uid if kept else ""
        if first != self.first:
            self.first = first
            # Short gangs may start ahead that end before the others should, by their estimates.
            ends = (
                held.started + max(self.seconds[uid], held.gang.estimated_seconds or 0.0)
                for uid, held in self.running.items()
                if not held.is_leaving
            )
            self.due = max([*ends, *self.leaves.values()], default=self.now)
        elif first and self.now > self.due + SLACK_SECONDS:
            self.problems.append(f"{first} is first, and what ran then ended at {self.due:.0f}")

    def _start(self, action: Admit) -> None:
        super()._start(action)
        held = self.running[action.gang.uid]
        if self.keeps_lent_places and held.gang.kind == "PodGroup":
            gang = replace(held.gang, is_preemptible=False)
            self.running[gang.uid] = replace(held, gang=gang)


def live(seed: int, *, keeps_lent_places: bool = False) -> Life:
    """Play the life of ``seed``, up to the end of all but guests."""
    chance = random.Random(seed)  # noqa: S311  # a reproducible life, not a secret
    models = chance.sample(MODELS, chance.randint(1, 3))
    nodes = [
        a_node(f"n{at}", labels={GPU_MODEL_LABEL: chance.choice(models)})
        for at in range(chance.randint(1, 5))
    ]
    limit = {GPU: 8 * len(nodes) - 4} if chance.random() < 0.3 else {}
    guaranteed = {GPU: 8} if chance.random() < 0.5 else {}
    queues = (Queue("default", limit=limit), Queue("owed", guaranteed=guaranteed))
    policy = make_policy(SETTINGS)
    life = Life(
        nodes,
        policy,
        SETTINGS,
        queues,
        stop_seconds=30.0,
        keeps_lent_places=keeps_lent_places,
    )
    moments = sorted(chance.uniform(0, ARRIVALS_SECONDS) for _ in range(chance.randint(8, 16)))
    for number, moment in enumerate(moments):
        _pass_time(life, moment)
        life.submit(*_gang(chance, f"g{number:02}", len(nodes), keeps_lent_places))
        life.settle()
    while life.now < LIFE_SECONDS and (life.waiting or life.next_end < LIFE_SECONDS):
        _pass_time(life, life.now + STEP_SECONDS)
        if life.problems:
            break
    return life


def _pass_time(life: Life, until: float) -> None:
    while life.now < until:
        life.advance(min(until, max(life.next_end, life.now + 1e-3)))
        life.settle()


def _gang(
    chance: random.Random, name: str, nodes: int, keeps_lent_places: bool
) -> tuple[Gang, float]:
    kinds = ("job", "lasting", "guest", "exempt")
    (kind,) = chance.choices(kinds, (8, 4, 2, 0.5))
    wide = chance.random() < 0.4
    gpus = chance.choice((2, 4, 8)) if not wide else 8 * chance.randint(1, nodes)
    seconds = chance.uniform(60, 3600)
    estimate = chance.choice((None, seconds, 2 * seconds))
    gang = a_gang(name, a_task(gpus), queue=chance.choice(("default", "default", "owed")))
    gang = replace(gang, estimated_seconds=estimate, priority=chance.choice((0, 0, 0, 100)))
    if kind in ("guest", "exempt"):
        # Small ones, so that they do not take the whole cluster for ever.
        gang = replace(gang, tasks=(a_task(min(gpus, 2)),), kind="PodGroup", priority=0)
        consent: dict[str, Any] = {"is_preemptible": kind == "guest", "is_resumable": False}
        if keeps_lent_places:
            consent = {"is_preemptible": True, "is_resumable": True}
        return replace(gang, estimated_seconds=None, **consent), ENDLESS_SECONDS
    return replace(gang, is_resumable=kind == "job"), seconds


def _wrong_stops(life: Life) -> list[str]:
    """Return stops of gangs that nobody may stop, or that did not consent to a stop for equals."""
    wrong = []
    for gang, other in life.stops:
        is_equal = gang.priority >= other.priority and gang.queue == other.queue
        if not gang.is_preemptible or (is_equal and not gang.is_resumable):
            wrong.append(f"{gang.uid} is stopped for {other.uid}")
    return wrong


@pytest.mark.parametrize("seed", range(20, 20 + LIVES))
def test_the_first_in_line_starts_when_all_that_ran_before_it_has_ended(seed: int) -> None:
    life = live(seed)
    assert life.problems == []
    assert _wrong_stops(life) == []


@pytest.mark.parametrize("seed", [27, 34, 39])
def test_a_guest_that_keeps_the_places_it_was_lent_is_found(seed: int) -> None:
    """The fault: gangs were preemptible as they waited, and were not once they ran."""
    assert live(seed, keeps_lent_places=True).problems
