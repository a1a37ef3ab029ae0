"""Elastic gangs make room before others do, and places are kept for whom they were made."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bireme.core.decision import Decision, Hold, Preempt, Resize
from bireme.core.gangs import Gang
from bireme.core.policy import Canary, GangSizes, Policy, Ranked
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.testing import GPU, a_gang, a_node, a_running, a_task, with_running
from testbed.decisions import hold_of
from tests.unit.core.elastic_cases import elastic
from tests.unit.core.preemption_cases import (
    AT_ONCE,
    COMBINED,
    NODES,
    InOrder,
    a_world,
    decide,
    runs,
    stopped,
    urgent,
)


def shrunk(decision: Decision) -> dict[str, int]:
    """Replicas left, by uid."""
    return {
        action.running.gang.uid: sum(int(task.counts.sum()) for task in action.placement.tasks)
        for action in decision.resized
        if action.reason is Reason.SHRUNK
    }


# --- elastic gangs --------------------------------------------------------------------------------


def test_lent_replicas_are_given_back_to_anybody_before_others_are_touched() -> None:
    """The borrower has the higher claim, and gives back no more than it was lent."""
    borrower = elastic("borrower", 2, 1, 6, priority=1000)
    snapshot = a_world(a_gang("low", a_task(4)), nodes=NODES[:1])
    snapshot = runs(snapshot, "equal", {"n0": 2}, started=-1.0)
    decision = decide(runs(snapshot, borrower, {"n0": 6}))
    assert (shrunk(decision), stopped(decision)) == ({"borrower": 2}, [])
    assert hold_of(decision, "low").reason is Reason.WAITING_FOR_PREEMPTION


def test_lent_replicas_are_given_back_without_claims_and_without_the_setting_too() -> None:
    policy = Policy(InOrder(first=None, borrower=None), Packing())
    settings = replace(AT_ONCE, preemption=False)
    snapshot = a_world(a_gang("first", a_task(4)), nodes=NODES[:1], settings=settings)
    decision = decide(runs(snapshot, elastic("borrower", 2, 1, 8), {"n0": 8}), policy)
    assert shrunk(decision) == {"borrower": 2}


def test_lent_replicas_are_given_back_before_an_elastic_gang_is_shrunk() -> None:
    snapshot = runs(a_world(urgent(2), nodes=NODES[:1]), elastic("low", 4, 1, 4), {"n0": 4})
    borrower = elastic("borrower", 2, 1, 4, priority=1000)
    assert shrunk(decide(runs(snapshot, borrower, {"n0": 4}))) == {"borrower": 2}


class Sized:
    """A sizer with a fixed answer."""

    def __init__(self, **sizes: int) -> None:
        self._sizes = {uid: {"worker": size} for uid, size in sizes.items()}

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        return self._sizes


@pytest.mark.parametrize(("waits", "left"), [(2, {"big": 4}), (4, {"big": 3, "small": 1})])
def test_what_the_sizer_takes_is_given_up_before_anybody_shrinks_to_the_minimum(
    waits: int, left: dict[str, int]
) -> None:
    """``urgent`` may shrink both, yet gets what the sizer takes from ``big`` where that will do."""
    snapshot = runs(a_world(urgent(waits), nodes=NODES[:1]), elastic("small", 2, 1, 2), {"n0": 2})
    snapshot = runs(snapshot, elastic("big", 6, 3, 6), {"n0": 6})
    policy = Policy(CombinedPriority(), Packing(), Sized(big=4, small=2, urgent=waits))
    decision = decide(snapshot, policy)
    assert (shrunk(decision), stopped(decision)) == (left, [])


def test_a_lower_elastic_gang_is_shrunk_to_its_minimum_before_another_is_stopped() -> None:
    snapshot = runs(a_world(urgent(3), nodes=NODES[:1]), elastic("elastic", 4, 1, 4), {"n0": 4})
    decision = decide(runs(snapshot, "stiff", {"n0": 4}))
    assert (shrunk(decision), stopped(decision)) == ({"elastic": 1}, [])
    (resize,) = decision.resized
    assert resize.message == "shrunk to make room for default/urgent"


def test_an_equal_elastic_gang_is_not_shrunk_below_what_it_asked_for() -> None:
    snapshot = a_world(a_gang("low", a_task(4)), nodes=NODES[:1])
    decision = decide(runs(snapshot, elastic("equal", 8, 1, 8), {"n0": 8}))
    assert (shrunk(decision), stopped(decision)) == ({}, [])


def test_an_elastic_gang_is_stopped_when_shrinking_it_is_not_enough() -> None:
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1]), elastic("elastic", 8, 1, 8), {"n0": 8})
    decision = decide(snapshot)
    assert (shrunk(decision), stopped(decision)) == ({}, ["elastic"])


class Reluctant(InOrder):
    """Lower claims against gangs that would stop, of the gangs in ``stops``."""

    def __init__(self, stops: dict[str, float], **claims: float | None) -> None:
        super().__init__(**claims)
        self.stops = stops

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        ranked = super().order(gangs, snapshot)
        return [replace(each, stop_priority=self.stops.get(each.gang.uid)) for each in ranked]


@pytest.mark.parametrize(
    ("waits", "made_room"), [(7, ({"elastic": 1}, [])), (8, ({}, [])), (9, ({}, ["stiff"]))]
)
def test_who_may_shrink_others_and_not_stop_them_yet_does_only_that(
    waits: int, made_room: tuple[dict[str, int], list[str]]
) -> None:
    """8 would need the elastic gang to stop; 9 may do that to the other one, which is lower."""
    nodes = [a_node("n0"), a_node("n1", 9)]
    snapshot = runs(a_world(urgent(waits), nodes=nodes), elastic("elastic", 8, 1, 8), {"n0": 8})
    snapshot = runs(snapshot, "stiff", {"n1": 9})
    lowest = -1.0 if waits == 9 else 0.5
    policy = Policy(Reluctant({"urgent": 0.2}, urgent=1.0, elastic=0.5, stiff=lowest), Packing())
    decision = decide(snapshot, policy)
    assert (shrunk(decision), stopped(decision)) == made_room


def test_a_canary_that_may_not_stop_gangs_yet_stops_none_of_its_own() -> None:
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1]), "low", {"n0": 8})
    for stops, gone in (({"urgent": 0.0}, []), ({}, ["low"])):
        own = Policy(Reluctant(stops, urgent=1.0, low=0.5), Packing())
        canaries = (Canary("new", frozenset({"default"}), own),)
        assert stopped(decide(snapshot, replace(COMBINED, canaries=canaries))) == gone
        # The active policy's word holds for the canary's gangs as well.
        active = Policy(Reluctant(stops, urgent=1.0, low=0.5), Packing())
        own = Policy(InOrder(urgent=1.0, low=0.5), Packing())
        canaries = (Canary("new", frozenset({"default"}), own),)
        assert stopped(decide(snapshot, replace(active, canaries=canaries))) == gone


def test_a_shrink_that_a_stop_makes_unnecessary_is_not_asked_for() -> None:
    """Shrinking is asked first, but only the stiff gang's node can hold eight."""
    small = [a_node("n0", 4), a_node("n1")]
    snapshot = a_world(urgent(8), nodes=small)
    snapshot = runs(snapshot, elastic("elastic", 4, 1, 4), {"n0": 4})
    decision = decide(runs(snapshot, "stiff", {"n1": 8}))
    assert (shrunk(decision), stopped(decision)) == ({}, ["stiff"])


@pytest.mark.parametrize(("resized", "is_shrunk"), [(-59.0, False), (-60.0, True)])
def test_a_gang_whose_size_has_just_changed_is_left_alone(resized: float, is_shrunk: bool) -> None:
    snapshot = a_world(urgent(4), nodes=NODES[:1])
    gang = elastic("elastic", 8, 1, 8)
    decision = decide(runs(snapshot, gang, {"n0": 8}, resized=resized))
    assert shrunk(decision) == ({"elastic": 1} if is_shrunk else {})
    assert stopped(decision) == []


# --- the room reaches the right one ---------------------------------------------------------------


def afterwards(snapshot: ClusterSnapshot, *arrived: Gang) -> ClusterSnapshot:
    """The next snapshot: victims are being stopped, ``arrived`` wait too."""
    victims = {action.running.gang.uid for action in decide(snapshot).preempted}
    assert victims
    return replace(
        snapshot,
        now=snapshot.now + 1,
        waiting=(*snapshot.waiting, *arrived),
        running=tuple(
            replace(r, is_leaving=True) if r.gang.uid in victims else r for r in snapshot.running
        ),
    )


def gone(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The one after: the victims have left."""
    bare = replace(snapshot, running=(), used=snapshot.used * 0, queue_usage={})
    return with_running(bare, *(r for r in snapshot.running if not r.is_leaving))


def test_a_gang_that_waits_for_victims_to_leave_stops_nobody_else() -> None:
    snapshot = runs(a_world(urgent(8)), "a", {"n0": 8})
    snapshot = afterwards(runs(snapshot, "b", {"n1": 8}))
    decision = decide(snapshot)
    assert stopped(decision) == []
    assert hold_of(decision, "urgent").reason is Reason.WAITING_FOR_PREEMPTION


def test_nobody_behind_takes_the_places_while_the_victims_leave_or_afterwards() -> None:
    """A short gang would fit as soon as a part of the victims has left."""
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1]), "a", {"n0": 4})
    short = a_gang("short", a_task(4), estimated_seconds=1.0)
    leaving = afterwards(snapshot, short)
    first = decide(leaving)
    assert [admit.gang.uid for admit in first.admitted] == []
    assert hold_of(first, "short").reason is Reason.WAITING_FOR_CAPACITY
    assert [admit.gang.uid for admit in decide(gone(leaving)).admitted] == ["urgent"]


def test_the_limit_of_the_queue_is_kept_for_it_too() -> None:
    """Its queue may hold eight; n1 is free, but not for those of its queue that come later."""
    queues = [Queue("default"), Queue("full", limit={GPU: 8})]
    snapshot = a_world(urgent(8, queue="full"), queues=queues)
    snapshot = runs(snapshot, a_gang("low", a_task(4), queue="full"), {"n0": 4})
    snapshot = runs(snapshot, a_gang("high", a_task(4), priority=1000), {"n1": 4})
    leaving = afterwards(snapshot, a_gang("small", a_task(1), queue="full"))
    decision = decide(leaving)
    assert [admit.gang.uid for admit in decision.admitted] == []
    assert hold_of(decision, "small").reason is Reason.OVER_QUEUE_LIMIT


# --- queues ---------------------------------------------------------------------------------------


def test_a_gang_over_its_queue_limit_stops_only_those_of_its_queue() -> None:
    queues = [Queue("default"), Queue("full", limit={GPU: 8})]
    snapshot = a_world(urgent(4, queue="full"), queues=queues)
    snapshot = runs(snapshot, a_gang("other", a_task(4)), {"n1": 4}, started=-1.0)
    for index in range(2):
        gang = a_gang(f"full{index}", a_task(4), queue="full")
        snapshot = runs(snapshot, gang, {"n0": 4}, started=-100.0 - index)
    decision = decide(snapshot)
    assert stopped(decision) == ["full0"]
    assert hold_of(decision, "urgent").reason is Reason.WAITING_FOR_PREEMPTION


def test_a_limit_further_up_is_made_room_under_by_any_queue_below_it() -> None:
    queues = [
        Queue("org", limit={GPU: 8}),
        Queue("a", parent="org"),
        Queue("b", parent="org"),
    ]
    snapshot = a_world(urgent(4, queue="a"), queues=queues)
    snapshot = runs(snapshot, a_gang("low", a_task(8), queue="b"), {"n0": 8})
    assert stopped(decide(snapshot)) == ["low"]


def test_a_queue_takes_back_its_guarantee_from_a_higher_gang_that_borrows() -> None:
    queues = [Queue("poor", guaranteed={GPU: 8}), Queue("rich")]
    asks = a_gang("asks", a_task(8), queue="poor")
    snapshot = a_world(asks, nodes=NODES[:1], queues=queues)
    borrows = a_gang("borrows", a_task(8), queue="rich", priority=1000)
    assert stopped(decide(runs(snapshot, borrows, {"n0": 8}))) == ["borrows"]


def test_a_queue_beyond_its_guarantee_takes_nothing_back() -> None:
    queues = [Queue("poor", guaranteed={GPU: 7}), Queue("rich")]
    asks = a_gang("asks", a_task(8), queue="poor")
    snapshot = a_world(asks, nodes=NODES[:1], queues=queues)
    borrows = a_gang("borrows", a_task(8), queue="rich", priority=1000)
    assert stopped(decide(runs(snapshot, borrows, {"n0": 8}))) == []


def test_guarantees_hold_against_all_victims_together() -> None:
    """The poor queue may lose one of its two, not both: then it would fall below what is its own.

    One that is being stopped already counts as lost.
    """
    queues = [Queue("poor", guaranteed={GPU: 4}), Queue("rich")]
    snapshot = a_world(urgent(8, queue="rich"), nodes=NODES[:1], queues=queues)
    for index in range(2):
        gang = a_gang(f"poor{index}", a_task(4), queue="poor")
        snapshot = runs(snapshot, gang, {"n0": 4}, started=-100.0 - index)
    assert stopped(decide(snapshot)) == []
    four = replace(snapshot, waiting=(urgent(4, queue="rich"),))
    assert stopped(decide(four)) == ["poor0"]
    first, second = four.running
    leaving = replace(four, running=(replace(first, is_leaving=True), second))
    both = replace(leaving, waiting=(urgent(4, "a", queue="rich"), urgent(4, "b", queue="rich")))
    assert stopped(decide(both)) == []


def test_the_gang_of_a_queue_that_is_gone_is_stopped_like_others() -> None:
    snapshot = a_world(urgent(8), nodes=NODES[:1])
    decision = decide(runs(snapshot, a_gang("low", a_task(8), queue="deleted"), {"n0": 8}))
    assert decision.fallback == ""
    assert stopped(decision) == ["low"]


def test_a_gang_without_places_left_is_no_victim_and_no_obstacle() -> None:
    """All its nodes are gone; its status still says that it runs."""
    snapshot = a_world(urgent(8), nodes=NODES[:1])
    lost = a_running(a_gang("lost", a_task(8)), snapshot.nodes, {"n0": 8})
    empty = replace(lost, placement=replace(lost.placement, tasks=()))
    decision = decide(replace(snapshot, running=(empty,)))
    assert [admit.gang.uid for admit in decision.admitted] == ["urgent"]


def test_victims_are_named_before_anybody_is_held_for_them() -> None:
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1]), "low", {"n0": 8})
    kinds = [type(action) for action in decide(snapshot).actions]
    assert kinds == [Preempt, Hold]
    assert Resize not in kinds
