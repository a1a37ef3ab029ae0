"""Who is stopped for an equal: only a gang that can resume, whatever asks for the stop."""

from dataclasses import replace
from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Orderer, Policy
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.tiresias import TiresiasGittins, TiresiasLas
from bireme.testing import GPU, a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running

HOUR = 3600.0
QUEUES = (Queue("default"), Queue("high", user_priority=60))


def decide(
    new: Gang, orderer: Orderer, queues: tuple[Queue, ...] = QUEUES, **running: Any
) -> Decision:
    """Decide on a full node, whose gang has run for ten hours, and a gang that came an hour ago."""
    usage = {"default": {GPU: 8}}
    snapshot = a_snapshot(
        [a_node("n0")], new, now=11 * HOUR, queues=queues, queue_usage=usage, settings=SETTINGS
    )
    old = replace(a_gang("old", a_task(8)), **{"is_resumable": False, **running})
    held = a_running_gang(old, snapshot.nodes, started=HOUR)
    return run_cycle(with_running(snapshot, held), Policy(orderer, Packing()))


SETTINGS = SchedulingSettings()
EQUAL = a_gang("new", a_task(8), arrived=10 * HOUR)
ORDERERS = [CombinedPriority(), TiresiasLas(), TiresiasGittins()]


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_gang_stops_for_its_equal_only_if_it_can_resume(orderer: Orderer) -> None:
    assert decide(EQUAL, orderer, is_resumable=True).preempted
    (hold,) = decide(EQUAL, orderer).actions
    assert "may preempt" not in hold.message


@pytest.mark.parametrize(
    "late",
    [{"arrived": -50 * HOUR}, {"displaced": True}],
    ids=["past-its-wait-bound", "that-lost-a-node"],
)
def test_no_haste_of_the_other_replaces_consent(late: dict[str, Any]) -> None:
    new = replace(EQUAL, **late)
    assert decide(new, CombinedPriority(), is_resumable=True).preempted
    assert not decide(new, CombinedPriority()).preempted


def test_classes_queues_and_guarantees_ask_for_no_consent() -> None:
    (stop,) = decide(replace(EQUAL, priority=10), CombinedPriority()).preempted
    assert stop.message.endswith("which has a higher priority class")
    (stop,) = decide(replace(EQUAL, queue="high"), CombinedPriority()).preempted
    assert stop.message.endswith("whose queue has a higher user priority")
    owed = (Queue("default"), Queue("high", guaranteed={GPU: 8}))
    (stop,) = decide(replace(EQUAL, queue="high"), CombinedPriority(), owed).preempted
    assert stop.message.endswith("whose queue reclaims its guarantee")
    negative = decide(EQUAL, CombinedPriority(), priority=-1)
    assert negative.preempted, "a class below 0 is below 0"


def test_an_elastic_gang_shrinks_for_its_equal_and_does_not_stop() -> None:
    decision = decide(
        replace(EQUAL, tasks=(a_task(4),)),
        CombinedPriority(),
        is_elastic=True,
        tasks=(a_task(8, min_replicas=4),),
    )
    assert decision.resized
    assert not decision.preempted
