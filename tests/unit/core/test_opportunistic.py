"""Opportunistic starts: who runs in reserved places, and who gets them back, at once."""

from dataclasses import replace
from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Preempt
from bireme.core.gangs import Gang
from bireme.core.policy import Orderer, Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.heuristics.tiresias import TiresiasGittins, TiresiasLas
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_pool,
    a_running,
    a_snapshot,
    a_task,
    with_running,
)
from tests.unit.core.growth_cases import asked

NODES = [a_node("n0"), a_node("n1")]
NOW = 1000.0
SETTINGS = SchedulingSettings(service_threshold=0)
STOPS_OTHERS = Policy(CombinedPriority(), Packing())


def wide(**more: Any) -> Gang:
    """Return the first in line: it wants both nodes, and stops nobody by its rank."""
    return a_gang("wide", a_task(16), **{"arrived": 0.0, "priority": 10, **more})


def small(name: str = "small", estimate: float | None = None, **more: Any) -> Gang:
    asked = {"arrived": 900.0, "estimated_seconds": estimate, "priority": 10}
    return a_gang(name, a_task(8), **{**asked, **more})


def half_full(
    *waiting: Gang,
    ends: float | None = None,
    lent: RunningGang | None = None,
    has_left: bool = False,
    **more: Any,
) -> ClusterSnapshot:
    """n0 is free, unless it is lent; n1 is used by a gang of the same rank, unless it has left."""
    snapshot = a_snapshot(NODES, *waiting, **{"now": NOW, "settings": SETTINGS, **more})
    estimate = None if ends is None else ends + 500.0
    busy = a_gang("busy", a_task(8), priority=10, estimated_seconds=estimate, arrived=-600.0)
    running = [] if has_left else [a_running(busy, snapshot.nodes, {"n1": 8}, started=-500.0)]
    return with_running(snapshot, *running, *([lent] if lent else []))


def lent_to(gang: Gang, **more: Any) -> RunningGang:
    nodes = a_snapshot(NODES).nodes
    return a_running(gang, nodes, {"n0": 8}, **{"started": 990.0, "is_opportunistic": True, **more})


def decide(snapshot: ClusterSnapshot, policy: Policy = STOPS_OTHERS) -> Decision:
    return run_cycle(snapshot, policy)


def starts(snapshot: ClusterSnapshot, policy: Policy = STOPS_OTHERS) -> list[Admit]:
    return list(decide(snapshot, policy).admitted)


@pytest.mark.parametrize(
    "orderer",
    [CombinedPriority(), TiresiasLas(1e6), TiresiasGittins(quantum_device_seconds=1e6)],
)
def test_a_gang_that_can_be_stopped_runs_in_reserved_places_until_the_blocked_one_fits(
    orderer: Orderer,
) -> None:
    """Also by orderers that keep running gangs of a level ahead of those that wait."""
    policy = Policy(orderer, Packing())
    # 1. Nobody knows when the other gang ends: the free node is reserved, and lent.
    (admit,) = starts(half_full(wide(), small()), policy)
    assert admit.gang.uid == "small"
    assert admit.is_opportunistic
    assert admit.passed is not None
    assert admit.passed.uid == "wide"
    assert admit.message == (
        "8 worker planned on node n0, in places reserved for default/wide; stops when that gang "
        "fits"
    )
    # 2. While the other gang runs, it runs.
    snapshot = half_full(wide(), lent=lent_to(small()))
    assert [action.reason for action in decide(snapshot, policy).actions] == [
        Reason.WAITING_FOR_CAPACITY
    ]
    # 3. Once that has left it is stopped at once, seconds after its start.
    (stop, hold) = decide(half_full(wide(), lent=lent_to(small()), has_left=True), policy).actions
    assert isinstance(stop, Preempt)
    assert stop.gang.uid == "small"
    assert stop.message == (
        "stopped to make room for default/wide, for which its places were reserved"
    )
    assert hold.reason is Reason.WAITING_FOR_PREEMPTION


def test_lent_places_are_no_reason_to_reserve_others() -> None:
    """The blocked gang of one node counts on the places that were lent, not on those of others."""
    narrow = a_gang("narrow", a_task(8), arrived=0.0, priority=10)
    (stop, _) = decide(half_full(narrow, lent=lent_to(small()))).actions
    assert stop.gang.uid == "small"
    kept = wide()
    (hold,) = decide(half_full(kept, ends=5000.0, lent=lent_to(small(estimate=1e6)))).held
    assert hold.reservation is not None
    assert hold.reservation.start == 5000.0


def test_it_yields_to_nobody_that_comes_after_it_and_only_if_it_was_lent_its_places() -> None:
    lower = a_gang("narrow", a_task(8), arrived=0.0, priority=0)
    assert not decide(half_full(lower, lent=lent_to(small(priority=100)))).preempted
    by_right = lent_to(small(), is_opportunistic=False)
    narrow = a_gang("narrow", a_task(8), arrived=0.0, priority=10)
    assert not decide(half_full(narrow, lent=by_right)).preempted


def test_a_budget_makes_nobody_the_owner_of_lent_places() -> None:
    narrow = a_gang("narrow", a_task(8), arrived=0.0, priority=10)
    (stop,) = decide(half_full(narrow, lent=lent_to(small(), kept_by_budget=True))).preempted
    assert (stop.gang.uid, stop.overrides_budget) == ("small", True)


def test_past_its_wait_bound_a_gang_lends_its_places_too_and_gets_them_back() -> None:
    settings = SchedulingSettings(service_threshold=0, wait_bound_seconds=500)
    # a higher priority comes before it in the policy's order, but not before the wait bound
    urgent = small(priority=100, may_preempt=False)
    (admit,) = starts(half_full(wide(), urgent, settings=settings))
    assert admit.is_opportunistic
    narrow = a_gang("narrow", a_task(8), arrived=0.0, priority=0)
    (stop, _) = decide(half_full(narrow, lent=lent_to(urgent), settings=settings)).actions
    assert stop.gang.uid == "small"


@pytest.mark.parametrize(
    ("ends", "estimate", "runs"),
    [
        (1600.0, 1200.0, True),  # half of its estimate is left
        (1600.0, 1201.0, False),
        (1600.0, None, True),
        (900.0, 1e6, True),  # the other has outrun its estimate: nobody knows when it ends
    ],
)
def test_a_gang_that_would_hardly_get_anywhere_waits(
    ends: float, estimate: float | None, runs: bool
) -> None:
    snapshot = half_full(wide(arrived=-700.0), small(estimate=estimate), ends=ends)
    assert [admit.is_opportunistic for admit in starts(snapshot)] == [True] * runs


@pytest.mark.parametrize(
    "cannot",
    [
        {"is_preemptible": False},
        {"min_runtime_seconds": 60.0},
        {"evictions": 3},
    ],
)
def test_a_gang_that_may_not_be_stopped_at_once_waits(cannot: dict[str, Any]) -> None:
    assert starts(half_full(wide(), small(**cannot))) == []


def test_nobody_runs_in_the_places_of_a_gang_that_stops_nobody() -> None:
    assert starts(half_full(wide(may_preempt=False), small())) == []
    assert starts(half_full(wide(), small()), Policy(Fifo(), Packing())) == []
    never = replace(SETTINGS, preemption=False)
    assert starts(half_full(wide(), small(), settings=never)) == []


def test_what_it_would_use_of_a_limit_or_guarantee_is_not_lent() -> None:
    """Only room comes back at once: a queue's shares are looked at before anybody is stopped."""
    limited = (Queue("default", limit={GPU: 31}),)
    assert starts(half_full(wide(), small(), queues=limited)) == []
    guaranteed = (Queue("default", guaranteed={GPU: 16}), Queue("other", guaranteed={GPU: 1}))
    (admit,) = starts(half_full(wide(), small(), queues=guaranteed))
    assert admit.is_opportunistic
    assert starts(half_full(wide(), small(queue="other"), queues=guaranteed)) == []


def test_nobody_starts_where_a_node_comes_in_minutes() -> None:
    in_time = a_pool(room=0, coming=1, asked_at=NOW - 99.0)
    assert starts(half_full(wide(), small(), growable=(in_time,))) == []
    late = replace(in_time, asked_at=NOW - 101.0)
    (admit,) = starts(half_full(wide(), small(), growable=(late,)))
    assert admit.is_opportunistic


def test_what_was_lent_is_not_asked_for_anew() -> None:
    """The node of the other gang is gone: the blocked one needs that again, and no second one."""
    lone = a_snapshot(
        NODES[:1], wide(), now=NOW, settings=SETTINGS, growable=(a_pool("pool", room=1),)
    )
    there = a_running(small(), lone.nodes, {"n0": 8}, started=990.0, is_opportunistic=True)
    decision = decide(with_running(lone, there))
    assert asked(decision) == [("wide", "pool", 1)]
    assert not decision.preempted


def test_the_last_eviction_that_the_backoff_grants_lets_it_start() -> None:
    settings = replace(SETTINGS, eviction_backoff_seconds=3600)
    worn = small(evictions=3, attained_seconds=3600.0)
    (admit,) = starts(half_full(wide(), worn, settings=settings))
    assert admit.is_opportunistic
