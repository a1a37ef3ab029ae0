"""What the eviction budget holds against: classes and equals, and no guarantee that is in turn."""

from dataclasses import replace
from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Preempt
from bireme.core.gangs import Gang
from bireme.core.queues import Queue
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme.testing import GPU, a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from testbed.small_cluster import SmallCluster

HOUR = 3600.0
SETTINGS = SchedulingSettings()


def stops(new: Gang, **running: Any) -> list[Preempt]:
    """Decide on a full node, whose gang has run for 63 hours, and on a gang that has come."""
    queues = (Queue("default"), Queue("owed", guaranteed={GPU: 8}))
    snapshot = a_snapshot(
        [a_node("n0")],
        new,
        now=64 * HOUR,
        queues=queues,
        queue_usage={"default": {GPU: 8}},
        settings=SETTINGS,
    )
    held = a_running_gang(
        replace(a_gang("old", a_task(8)), is_resumable=False, **running),
        snapshot.nodes,
        started=HOUR,
    )
    decision = run_cycle(with_running(snapshot, held), make_policy(SETTINGS))
    return list(decision.preempted)


URGENT = a_gang("urgent", a_task(8), priority=1000, arrived=63 * HOUR)
OWNER = replace(a_gang("owner", a_task(8), arrived=63 * HOUR), queue="owed")


@pytest.mark.parametrize("evictions", [0, 10, 1000])
def test_no_number_of_evictions_keeps_a_queue_from_its_guarantee(evictions: int) -> None:
    (stop,) = stops(OWNER, evictions=evictions)
    assert stop.message.endswith("whose queue reclaims its guarantee")


def test_a_class_waits_until_the_backoff_grants_another_stop() -> None:
    assert stops(URGENT, evictions=9 - 1)  # 3, and 6 more by 63 hours of run time
    assert not stops(URGENT, evictions=10)


def test_what_was_lent_and_given_back_is_no_shield() -> None:
    assert stops(URGENT, evictions=10, yields=7)


def test_a_guarantee_behind_a_wider_gang_of_its_queue_stops_nobody_who_goes_before_it() -> None:
    """Who stops would start again first, so that each stop would be for nothing."""
    nodes = (a_node("n0", 8), a_node("n1", 4))
    queues = (Queue("default"), Queue("owed", guaranteed={GPU: 4}))
    patient = replace(SETTINGS, min_runtime_seconds=0, eviction_backoff_seconds=0)
    world = SmallCluster(nodes, make_policy(patient), patient, queues)
    holder = a_gang("holder", a_task(8), priority=1000, estimated_seconds=100.0)
    world.submit(replace(holder, is_preemptible=False), 100.0)
    world.settle()
    world.advance(1.0)
    world.submit(a_gang("next", a_task(1, gpus=8), priority=1000), 10.0)
    world.submit(replace(a_gang("wide", a_task(12)), queue="owed"), 10.0)
    world.submit(a_gang("urgent", a_task(4), priority=1000), 10.0)
    world.advance(2.0)
    world.submit(replace(a_gang("owner", a_task(4)), queue="owed"), 10.0)
    world.settle()
    assert world.problems == []
    assert world.moves == []
    assert "urgent" in world.running
    world.advance(200.0)
    world.settle()
    assert "owner" in world.running
