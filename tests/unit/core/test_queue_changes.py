"""Queues that change while gangs run in them: a lower limit, closed, deleted, a parent deleted."""

from dataclasses import replace

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.obstacles import queue_obstacle
from bireme.core.queue_tree import QueueTree
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import GPU, a_gang, a_task
from tests.unit.core.elastic_cases import a_world, elastic, runs


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, make_policy(snapshot.settings))


LOWERED = Queue("lab", limit={GPU: 4})
WITH_LAB = (Queue("default"), LOWERED)


def test_a_limit_below_what_runs_stops_nothing_and_lets_nothing_start_or_grow() -> None:
    waiting = (
        a_gang("small", a_task(1), queue="lab", priority=9),
        a_gang("other", a_task(8), queue="default"),
    )
    snapshot = a_world(*waiting, queues=WITH_LAB)
    snapshot = runs(snapshot, elastic("e", 4, 2, 8, queue="lab"), {"n0": 4})
    snapshot = runs(snapshot, a_gang("whole", a_task(4), queue="lab"), {"n1": 4})
    found = decide(snapshot)
    assert [each.gang.name for each in found.admitted] == ["other"]
    assert (found.preempted, found.resized) == ((), ())
    (held,) = found.held
    assert (held.reason, held.message) == (
        Reason.OVER_QUEUE_LIMIT,
        "queue 'lab': asks 1 nvidia.com/gpu, 8 nvidia.com/gpu of 4 nvidia.com/gpu in use",
    )


@pytest.mark.parametrize(
    "queues", [(Queue("lab", is_open=False),), (), (Queue("lab", parent="gone"),)]
)
def test_a_gang_in_a_queue_that_admits_nothing_runs_on_and_does_not_grow(
    queues: tuple[Queue, ...],
) -> None:
    snapshot = a_world(a_gang("other", a_task(8)), queues=(Queue("default"), *queues))
    snapshot = runs(snapshot, elastic("e", 4, 2, 8, queue="lab"), {"n0": 4})
    found = decide(snapshot)
    assert [each.gang.name for each in found.admitted] == ["other"]
    assert (found.preempted, found.resized, found.held) == ((), (), ())
    opened = replace(snapshot, queues={"default": Queue("default"), "lab": Queue("lab")})
    assert [each.gang.name for each in decide(opened).resized] == ["e"]


def test_a_guarantee_takes_back_what_runs_in_a_deleted_queue_and_the_rest_starts_beside_it() -> (
    None
):
    queues = (Queue("default"), Queue("team", guaranteed={GPU: 16}))
    entitled = a_gang("entitled", a_task(16), queue="team")
    snapshot = a_world(entitled, a_gang("beside", a_task(8), arrived=1.0), queues=queues)
    for at in ("n0", "n1"):
        snapshot = runs(snapshot, a_gang(f"old-{at}", a_task(8), queue="gone"), {at: 8})
    found = decide(snapshot)
    assert [each.gang.name for each in found.preempted] == ["old-n0"]
    assert {each.gang.name: each.reason for each in found.held} == {
        "entitled": Reason.WAITING_FOR_PREEMPTION,
        "beside": Reason.WAITING_FOR_CAPACITY,
    }


def test_a_queue_says_why_it_admits_nothing_and_how_much_it_holds_beyond_its_limit() -> None:
    queues = (
        Queue("org", limit={GPU: 8, "cpu": 4000}),
        Queue("team", parent="org"),
        Queue("closed", is_open=False),
        Queue("orphan", parent="gone"),
        LOWERED,
    )
    usage = {"team": {GPU: 12, "cpu": 4000}, "lab": {GPU: 4}, "gone": {GPU: 4}}
    tree = QueueTree({each.name: each for each in queues}, usage, {GPU: 100})
    gone = "which does not exist; create that queue or change the parent"
    over = "uses 12 nvidia.com/gpu of limit 8 nvidia.com/gpu: no gang starts until it uses less"
    assert {each.name: queue_obstacle(each, tree) for each in queues} == {
        "org": (Reason.OVER_QUEUE_LIMIT, f"{over}, and running gangs continue"),
        "team": (
            Reason.OVER_QUEUE_LIMIT,
            f"queue 'org' above it {over}, and running gangs continue",
        ),
        "closed": (
            Reason.QUEUE_CLOSED,
            "spec.state is Closed: no gang starts, and running gangs continue",
        ),
        "orphan": (
            Reason.QUEUE_INVALID,
            f"parent of queue 'orphan' is 'gone', {gone}",
        ),
        "lab": None,
    }
