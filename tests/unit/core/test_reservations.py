"""Reservations: for whom, from when on, and where; what an estimate is worth when it is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision, Reservation
from bireme.core.gangs import Gang, Role
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU, a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.decisions import hold_of

NODES = [a_node("n0"), a_node("n1")]
BOUND = SchedulingSettings(wait_bound_seconds=100)


def held(
    snapshot: ClusterSnapshot,
    name: str,
    places: Mapping[str, int],
    estimated_seconds: float | None,
    started: float = 0.0,
    **more: Any,
) -> ClusterSnapshot:
    """``snapshot`` in which a gang of one-GPU workers runs too."""
    gang = a_gang(name, a_task(sum(places.values())), estimated_seconds=estimated_seconds)
    running = a_running(gang, snapshot.nodes, places, started=started, **more)
    return with_running(snapshot, running)


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, Policy(Fifo(), Packing()))


def kept_for(snapshot: ClusterSnapshot, uid: str) -> tuple[float, dict[str, tuple[str, ...]]]:
    """The start of its reservation and its places."""
    reservation = hold_of(decide(snapshot), uid).reservation
    assert reservation is not None
    return reservation.start, reservation.placement.by_task(snapshot.nodes)


def whole_node(name: str = "wide", arrived: float = 1.0) -> Gang:
    return a_gang(name, a_task(1, 8), arrived=arrived)


def test_the_first_blocked_gang_gets_the_earliest_start_and_its_places() -> None:
    snapshot = a_snapshot(NODES, whole_node(), now=10.0)
    snapshot = held(snapshot, "later", {"n0": 8}, 100.0)
    snapshot = held(snapshot, "sooner", {"n1": 8}, 60.0)
    assert kept_for(snapshot, "wide") == (60.0, {"worker": ("n1",)})
    assert hold_of(decide(snapshot), "wide").message.endswith(
        "kept for it: node n1, expected free at 1970-01-01T00:01:00Z"
    )


def test_a_gang_that_needs_all_places_waits_for_the_last_to_end() -> None:
    snapshot = a_snapshot(NODES, a_gang("wide", a_task(16), arrived=1.0), now=10.0)
    snapshot = held(snapshot, "later", {"n0": 8}, 100.0)
    snapshot = held(snapshot, "sooner", {"n1": 8}, 60.0)
    assert kept_for(snapshot, "wide") == (100.0, {"worker": ("n0",) * 8 + ("n1",) * 8})


def test_it_counts_on_the_fewest_that_must_leave() -> None:
    """After two of three n1 is free; n0 would need the third, which ends later."""
    snapshot = a_snapshot(NODES, whole_node(), now=10.0)
    snapshot = held(snapshot, "a", {"n0": 4}, 20.0)
    snapshot = held(snapshot, "b", {"n0": 4}, 50.0)
    snapshot = held(snapshot, "c", {"n1": 8}, 40.0)
    assert kept_for(snapshot, "wide") == (40.0, {"worker": ("n1",)})


@pytest.mark.parametrize("wanted", range(1, 17))
def test_the_fewest_are_found_whatever_their_number(wanted: int) -> None:
    """Sixteen gangs of one GPU end one after another; as many as are asked for must."""
    snapshot = a_snapshot(NODES, a_gang("wide", a_task(wanted), arrived=1.0), now=0.5)
    for index in range(16):
        snapshot = held(snapshot, f"g{index:02}", {f"n{index % 2}": 1}, 1.0 + index)
    assert kept_for(snapshot, "wide")[0] == float(wanted)


def test_the_second_blocked_gang_has_no_reservation() -> None:
    gangs = whole_node("first", 1.0), whole_node("second", 2.0)
    snapshot = held(a_snapshot(NODES, *gangs, now=10.0), "a", {"n0": 8, "n1": 8}, 60.0)
    decision = decide(snapshot)
    assert hold_of(decision, "first").reservation is not None
    assert hold_of(decision, "second").reservation is None
    assert hold_of(decision, "second").reason is Reason.WAITING_FOR_CAPACITY


def test_a_gang_over_its_queue_limit_leaves_the_reservation_to_the_next() -> None:
    queues = [Queue("default"), Queue("full", limit={GPU: 8})]
    gangs = a_gang("over", a_task(8), queue="full", arrived=1.0), whole_node("next", 2.0)
    snapshot = a_snapshot(NODES, *gangs, queues=queues, queue_usage={"full": {GPU: 1}}, now=10.0)
    decision = decide(held(snapshot, "a", {"n0": 8, "n1": 8}, 60.0))
    assert hold_of(decision, "over").reason is Reason.OVER_QUEUE_LIMIT
    assert hold_of(decision, "over").reservation is None
    assert hold_of(decision, "next").reservation is not None


def test_an_overdue_gang_keeps_the_places_of_the_oldest_and_should_start_where_it_fits_first() -> (
    None
):
    snapshot = a_snapshot(NODES, whole_node(arrived=-200.0), now=10.0, settings=BOUND)
    snapshot = held(snapshot, "oldest", {"n0": 8}, 900.0, started=0.0)
    snapshot = held(snapshot, "newest", {"n1": 8}, 60.0, started=5.0)
    reservation = hold_of(decide(snapshot), "wide").reservation
    assert reservation is not None
    assert reservation.is_closed
    assert (reservation.start, reservation.expected) == (900.0, 65.0)
    assert reservation.placement.by_task(snapshot.nodes) == {"worker": ("n0",)}
    silent = run_cycle(snapshot, Policy(Fifo(), Packing()), explain=False)
    unsaid = hold_of(silent, "wide").reservation
    assert unsaid is not None
    assert (unsaid.start, unsaid.sooner) == (900.0, None), "nobody reads it"


def test_a_gang_that_is_not_overdue_should_start_where_its_places_are() -> None:
    snapshot = held(a_snapshot(NODES[:1], whole_node(), now=10.0), "a", {"n0": 8}, 60.0)
    reservation = hold_of(decide(snapshot), "wide").reservation
    assert reservation is not None
    assert reservation.expected == reservation.start == 60.0


@pytest.mark.parametrize("now", [20.0, 50.0, 1000.0])
def test_a_later_gang_that_has_outrun_its_estimate_counts_as_ending_now(now: float) -> None:
    snapshot = a_snapshot(NODES[:1], whole_node(arrived=1.0), now=now)
    snapshot = held(snapshot, "a", {"n0": 8}, 5.0, started=1.0)
    assert kept_for(snapshot, "wide") == (now, {"worker": ("n0",)})
    assert hold_of(decide(snapshot), "wide").message.endswith(
        "kept for it: node n0, free when the gangs there end"
    )


def test_gangs_without_an_estimate_may_end_at_any_moment() -> None:
    snapshot = a_snapshot(NODES, whole_node(), now=10.0)
    snapshot = held(snapshot, "known", {"n0": 8}, 60.0)
    snapshot = held(snapshot, "unknown", {"n1": 8}, None)
    assert kept_for(snapshot, "wide") == (10.0, {"worker": ("n1",)})


def test_gangs_that_are_being_stopped_are_counted_on_first() -> None:
    """The gang needs more than they leave, or it would simply wait for them."""
    snapshot = a_snapshot(NODES, a_gang("wide", a_task(12), arrived=1.0), now=10.0)
    snapshot = held(snapshot, "a", {"n0": 4}, 20.0)
    snapshot = held(snapshot, "b", {"n0": 4}, 30.0)
    snapshot = held(snapshot, "leaving", {"n1": 8}, 500.0, is_leaving=True)
    assert kept_for(snapshot, "wide")[0] == 20.0


def test_pods_that_no_gang_owns_are_expected_to_stay() -> None:
    used = np.zeros((2, 5), dtype=np.int64)
    used[0, 4] = 1
    snapshot = a_snapshot(NODES, whole_node(), used=used, now=10.0)
    snapshot = held(snapshot, "a", {"n0": 7}, 20.0)
    snapshot = held(snapshot, "b", {"n1": 8}, 90.0)
    assert kept_for(snapshot, "wide") == (90.0, {"worker": ("n1",)})


def test_where_only_such_pods_are_in_the_way_nothing_can_be_foreseen() -> None:
    used = np.zeros((2, 5), dtype=np.int64)
    used[:, 4] = 1
    snapshot = a_snapshot(NODES, whole_node(), used=used, now=10.0)
    assert hold_of(decide(snapshot), "wide").reservation is None


class CountingPacking(Packing):
    """Packing that counts how often it is asked."""

    asked = 0

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        self.asked += 1
        return super().place(gang, capacity)


def test_behind_such_pods_a_long_line_asks_no_more_often_than_a_short_one() -> None:
    used = np.zeros((2, 5), dtype=np.int64)
    used[:, 4] = 1

    def asked(line: int) -> int:
        waiting = (whole_node(f"gang-{number}") for number in range(line))
        snapshot = a_snapshot(NODES, *waiting, used=used, now=10.0)
        snapshot = held(snapshot, "held", {"n0": 7}, 20.0)
        placer = CountingPacking()
        decision = run_cycle(snapshot, Policy(Fifo(), placer))
        assert [hold.position for hold in decision.held] == list(range(1, line + 1))
        assert {hold.reservation for hold in decision.held} == {None}
        assert decision.held[-1].message.endswith(f"; {line - 1} ahead")
        return placer.asked

    assert asked(50) == asked(2)


def test_what_cannot_be_foreseen_for_a_gang_that_holds_a_part_may_be_for_its_equals() -> None:
    """The first counts on neither node: it holds n0 itself, and n1 has a pod that no gang owns."""
    used = np.zeros((2, 5), dtype=np.int64)
    used[1, 4] = 1
    waiting = (whole_node("first", arrived=0.0), whole_node("second", arrived=1.0))
    snapshot = held(a_snapshot(NODES, *waiting, used=used, now=10.0), "first", {"n0": 8}, 90.0)
    assert hold_of(decide(snapshot), "first").reservation is None
    assert kept_for(snapshot, "second") == (90.0, {"worker": ("n0",)})


def test_a_gang_past_its_bound_keeps_places_of_such_pods_too() -> None:
    used = np.zeros((2, 5), dtype=np.int64)
    used[:, 4] = 1
    snapshot = a_snapshot(NODES, whole_node(), used=used, now=200.0, settings=BOUND)
    reservation = hold_of(decide(snapshot), "wide").reservation
    assert reservation == Reservation(200.0, reservation.placement, is_closed=True)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("now", "places", "is_closed"), [(90.0, "young", False), (110.0, "old", True)]
)
def test_a_gang_past_its_bound_counts_on_the_oldest_and_not_on_estimates(
    now: float, places: str, is_closed: bool
) -> None:
    nodes = [a_node("old"), a_node("young")]
    snapshot = a_snapshot(nodes, whole_node(arrived=0.0), now=now, settings=BOUND)
    snapshot = held(snapshot, "a", {"old": 8}, 1000.0, started=-5.0)
    snapshot = held(snapshot, "b", {"young": 8}, 200.0, started=0.0)
    reservation = hold_of(decide(snapshot), "wide").reservation
    assert reservation is not None
    assert reservation.placement.by_task(snapshot.nodes) == {"worker": (places,)}
    assert reservation.is_closed is is_closed


def test_all_tasks_of_a_gang_are_kept_together() -> None:
    """Eight GPUs for the workers, and cores for a server beside them."""
    servers = a_task(1, 0, role=Role.PS, cpu_millis=80_000)
    gang = a_gang("wide", servers, a_task(8), arrived=1.0)
    snapshot = a_snapshot(NODES, gang, now=10.0)
    snapshot = held(snapshot, "a", {"n0": 8}, 60.0)
    snapshot = held(snapshot, "b", {"n1": 8}, 90.0)
    start, places = kept_for(snapshot, "wide")
    assert start == 60.0
    assert places["worker"] == ("n0",) * 8
    assert len(places["ps"]) == 1


def test_an_elastic_gang_keeps_places_for_its_minimum() -> None:
    gang = a_gang("wide", a_task(16, min_replicas=10), arrived=1.0)
    snapshot = held(a_snapshot(NODES, gang, now=10.0), "a", {"n0": 8, "n1": 1}, 60.0)
    start, places = kept_for(snapshot, "wide")
    assert (start, len(places["worker"])) == (60.0, 10)


def test_nothing_is_kept_when_enough_is_free_at_the_minimum() -> None:
    gang = a_gang("wide", a_task(16, min_replicas=7), arrived=1.0)
    snapshot = held(a_snapshot(NODES, gang, now=10.0), "a", {"n0": 8, "n1": 1}, 60.0)
    assert [admit.gang.replicas for admit in decide(snapshot).admitted] == [7]


@pytest.mark.parametrize("estimate", [1e13, float("inf")])
def test_an_absurd_estimate_is_shown_like_any_other(estimate: float) -> None:
    snapshot = held(a_snapshot(NODES[:1], whole_node(), now=10.0), "a", {"n0": 8}, estimate)
    hold = hold_of(decide(snapshot), "wide")
    assert hold.message.endswith("kept for it: node n0, expected free at the year 10000")


@pytest.mark.parametrize("displaced", [False, True])
def test_what_a_gang_holds_itself_is_not_counted_on(displaced: bool) -> None:
    """Part of it runs on; the rest waits for a place beside that, or elsewhere."""
    rest = replace(whole_node(), displaced=displaced)
    snapshot = held(a_snapshot(NODES, rest, now=10.0), "wide", {"n0": 8}, 20.0)
    snapshot = held(snapshot, "younger", {"n1": 8}, 5000.0, started=5.0)
    assert kept_for(snapshot, "wide")[1] == {"worker": ("n1",)}


def test_what_a_gang_holds_itself_is_not_taken_for_empty_past_its_bound() -> None:
    rest = replace(whole_node(arrived=0.0), displaced=True)
    snapshot = held(a_snapshot(NODES, rest, now=200.0, settings=BOUND), "wide", {"n0": 8}, None)
    used = snapshot.used.copy()
    used[1] = used[0]  # by pods that no gang owns
    snapshot = replace(snapshot, used=used)
    assert kept_for(snapshot, "wide")[1] == {"worker": ("n1",)}
