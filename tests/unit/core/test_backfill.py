"""Backfill: who passes the blocked gang, where, and what it costs that gang: nothing."""

from collections.abc import Sequence
from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import GPU, a_gang, a_node, a_running, a_snapshot, a_task, with_running

NODES = [a_node("n0"), a_node("n1")]
NOW = 10.0


def half_full(
    *waiting: Gang,
    queues: Sequence[Queue] = (Queue("default"),),
    displaced: bool = False,
    settings: SchedulingSettings | None = None,
    now: float = NOW,
    ends: float | None = 100.0,
) -> ClusterSnapshot:
    """n0 is free, n1 is used until ``ends``, and the first in line wants six GPUs on each."""
    first = a_gang("wide", a_task(2, 6), arrived=0.0, displaced=displaced)
    snapshot = a_snapshot(NODES, first, *waiting, queues=queues, now=now, settings=settings)
    busy = a_gang("busy", a_task(8), queue=queues[-1].name, estimated_seconds=ends)
    return with_running(snapshot, a_running(busy, snapshot.nodes, {"n1": 8}))


def decide(snapshot: ClusterSnapshot, explain: bool = True) -> Decision:
    return run_cycle(snapshot, Policy(Fifo(), Packing()), explain)


def admitted(snapshot: ClusterSnapshot) -> list[str]:
    return [admit.gang.uid for admit in decide(snapshot).admitted]


def reason(snapshot: ClusterSnapshot, uid: str, explain: bool = True) -> Reason:
    return next(h.reason for h in decide(snapshot, explain).held if h.gang.uid == uid)


def gang(name: str, gpus: int, estimate: float | None, **more: Any) -> Gang:
    return a_gang(name, a_task(gpus), arrived=1.0, estimated_seconds=estimate, **more)


@pytest.mark.parametrize("estimate", [1.0, 89.0, 90.0])
def test_a_gang_that_ends_before_the_reserved_start_takes_the_places(estimate: float) -> None:
    snapshot = half_full(gang("short", 8, estimate))
    (admit,) = decide(snapshot).admitted
    assert admit.gang.uid == "short"
    assert admit.passed is not None
    assert admit.passed.uid == "wide"
    assert admit.message == (
        "8 worker planned on node n0, ahead of default/wide without delaying it"
    )


@pytest.mark.parametrize("estimate", [90.5, 1e9, float("nan"), None])
def test_a_gang_that_may_run_longer_takes_only_what_is_left_beside_them(
    estimate: float | None,
) -> None:
    assert admitted(half_full(gang("long", 2, estimate))) == ["long"]
    snapshot = half_full(gang("long", 3, estimate))
    assert admitted(snapshot) == []
    assert reason(snapshot, "long") is Reason.WAITING_BEHIND


def test_what_is_left_beside_the_reservation_is_given_away_once() -> None:
    assert admitted(half_full(gang("a", 1, None), gang("b", 1, None), gang("c", 1, None))) == [
        "a",
        "b",
    ]


def test_short_gangs_may_sit_on_both_and_leave_less_beside() -> None:
    """Seven of eight free places go to the short one; of two beside, a long one then finds one."""
    gangs = gang("a-short", 7, 50.0), gang("b-long", 2, None), gang("c-long", 1, None)
    assert admitted(half_full(*gangs)) == ["a-short", "c-long"]


def test_a_gang_that_fits_but_must_wait_is_held_with_or_without_words() -> None:
    snapshot = half_full(gang("long", 8, 500.0))
    assert reason(snapshot, "long", explain=True) is Reason.WAITING_BEHIND
    assert reason(snapshot, "long", explain=False) is Reason.WAITING_BEHIND
    (_, hold) = decide(snapshot).held
    assert hold.message == (
        "fits now, but would take places kept for default/wide from 1970-01-01T00:01:40Z on; it "
        "may start with a spec.estimatedDuration that ends before then; 1 ahead"
    )


def test_nobody_is_told_to_end_before_a_moment_that_is_not_known() -> None:
    (_, hold) = decide(half_full(gang("long", 8, 500.0), ends=None)).held
    assert hold.message == (
        "fits now, but would take places kept for default/wide, which become free at an unknown "
        "time; 1 ahead"
    )


def test_who_passes_or_waits_does_not_read_names_of_another_namespace() -> None:
    ours = {"namespace": "ours"}
    snapshot = half_full(gang("short", 8, 1.0, **ours), gang("long", 8, 500.0, **ours))
    decision = decide(snapshot)
    for message in (decision.admitted[0].message, decision.held[1].message):
        assert "a job of another namespace" in message
        assert "wide" not in message


def test_nobody_passes_a_gang_whose_wait_is_over_its_bound_through_its_places() -> None:
    settings = SchedulingSettings(wait_bound_seconds=5)
    short = a_gang("short", a_task(8), arrived=9.0, estimated_seconds=1.0)
    beside = a_gang("beside", a_task(2), arrived=9.5)
    assert admitted(half_full(short, settings=settings)) == []
    assert admitted(half_full(short, beside, settings=settings)) == ["beside"]


def test_the_hole_of_a_displaced_gang_is_not_given_away() -> None:
    short = gang("short", 8, 1.0)
    assert admitted(half_full(short, displaced=True)) == []
    assert admitted(half_full(short)) == ["short"]


def test_a_displaced_gang_goes_before_one_that_is_overdue() -> None:
    settings = SchedulingSettings(wait_bound_seconds=5)
    lost = a_gang("lost", a_task(8), arrived=9.0, displaced=True)
    overdue = a_gang("overdue", a_task(8), arrived=0.0)
    snapshot = a_snapshot(NODES[:1], overdue, lost, now=NOW, settings=settings)
    assert [action.gang.uid for action in decide(snapshot).held] == ["overdue"]
    assert admitted(snapshot) == ["lost"]


# --- limits of queues -------------------------------------------------------------------------


LIMITED = (Queue("default", limit={GPU: 13}), Queue("other"))


def test_a_long_gang_leaves_the_blocked_one_its_part_of_the_limit() -> None:
    """The queue may hold 13: 12 are the blocked gang's as soon as it has its places."""
    assert admitted(half_full(gang("long", 1, None), queues=LIMITED)) == ["long"]
    snapshot = half_full(gang("long", 2, None), queues=LIMITED)
    assert admitted(snapshot) == []
    assert reason(snapshot, "long") is Reason.WAITING_BEHIND


def test_not_even_a_short_gang_takes_that_part_of_the_limit() -> None:
    """With the limit in its way, the blocked gang could not keep its places."""
    snapshot = half_full(gang("short", 2, 50.0), queues=LIMITED)
    assert admitted(snapshot) == []
    assert decide(snapshot).held[1].message == (
        "fits now, but the rest of the limit of its queue is kept for default/wide; 1 ahead"
    )


def test_a_gang_of_another_queue_does_not_count_against_that_limit() -> None:
    assert admitted(half_full(gang("long", 2, None, queue="other"), queues=LIMITED)) == ["long"]


def test_the_limit_of_a_queue_above_is_kept_too() -> None:
    queues = (
        Queue("org", limit={GPU: 13}),
        Queue("default", parent="org"),
        Queue("team", parent="org"),
        Queue("other"),
    )
    assert admitted(half_full(gang("long", 2, None, queue="team"), queues=queues)) == []
    assert admitted(half_full(gang("long", 1, None, queue="team"), queues=queues)) == ["long"]
