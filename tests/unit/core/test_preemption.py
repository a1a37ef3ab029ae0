"""Preemption: who makes room for whom, how little, and that the room reaches the right one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bireme.core.decision import Preempt
from bireme.core.gangs import Gang
from bireme.core.policy import Policy, Ranked, ScoreFactor
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.testing import GPU, a_gang, a_task
from testbed.decisions import hold_of
from tests.unit.core.preemption_cases import (
    AT_ONCE,
    NODES,
    InOrder,
    a_world,
    decide,
    runs,
    stopped,
    urgent,
)

ROOM = "stopped to make room for default/urgent"
HIGHER = "which has a higher priority class"

AFTER: dict[str, Any] = {"min_runtime_seconds": 0.0}
"""It has run for 100 s in this start, and may be stopped after any."""

# --- who ----------------------------------------------------------------------------------------


def test_a_gang_of_a_higher_class_stops_a_lower_one_and_waits_for_its_places() -> None:
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1]), "low", {"n0": 8})
    decision = decide(snapshot)
    (action,) = decision.preempted
    assert action == Preempt(snapshot.running[0], snapshot.waiting[0], f"{ROOM}, {HIGHER}")
    hold = hold_of(decision, "urgent")
    assert hold.reason is Reason.WAITING_FOR_PREEMPTION
    assert hold.reservation is not None
    assert hold.reservation.placement.by_task(snapshot.nodes) == {"worker": ("n0",)}
    assert hold.message == "1 worker start when the gangs that make room have stopped: default/low"


class Explains(InOrder):
    """Its order, with other reasons."""

    def __init__(self, why: Callable[[Gang], tuple[ScoreFactor, ...]]) -> None:
        super().__init__(urgent=1.0, low=0.0)
        self.why = why

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        ranked = super().order(gangs, snapshot)
        return [replace(each, explain=partial(self.why, each.gang)) for each in ranked]


def short_ones_first(gang: Gang) -> tuple[ScoreFactor, ...]:
    width = ScoreFactor("width", "replicas", gang.replicas, 1.0)  # it stops nobody
    return width, ScoreFactor("left", "s", gang.replicas, -0.5, "which has less left to do")


def unsound(gang: Gang) -> tuple[ScoreFactor, ...]:
    raise RuntimeError(gang.name)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (InOrder(urgent=1.0, low=0.0), ROOM),
        (Explains(short_ones_first), f"{ROOM}, which has less left to do"),
        (Explains(lambda gang: short_ones_first(gang)[: gang.name != "low"]), ROOM),
        (Explains(unsound), ROOM),
    ],
    ids=["unexplained", "explained", "one of two", "unsound"],
)
def test_a_victim_reads_by_what_the_other_one_may_stop_it_if_the_policy_says(
    policy: InOrder, expected: str
) -> None:
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1]), "low", {"n0": 8})
    decision = decide(snapshot, Policy(policy, Packing()))
    assert [action.message for action in decision.preempted] == [expected]


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ((Queue("ours", user_priority=9), Queue("theirs", user_priority=8)), "user priority"),
        ((Queue("ours", guaranteed={GPU: 8}), Queue("theirs")), "reclaims its guarantee"),
    ],
)
def test_a_victim_reads_of_the_queue_where_that_may_stop_it(
    queues: tuple[Queue, ...], expected: str
) -> None:
    waits = a_gang("waits", a_task(8), queue="ours")
    low = a_gang("low", a_task(8), queue="theirs", priority=1 if "guarantee" in expected else 0)
    decision = decide(runs(a_world(waits, nodes=NODES[:1], queues=queues), low, {"n0": 8}))
    (action,) = decision.preempted
    assert action.message.startswith("stopped to make room for default/waits, whose queue ")
    assert action.message.endswith(expected)


def test_neither_side_of_a_preemption_reads_names_of_another_namespace() -> None:
    mine = a_gang("mine", a_task(4))
    theirs = a_gang("theirs", a_task(4), namespace="theirs")
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1]), mine, {"n0": 4})
    decision = decide(runs(snapshot, theirs, {"n0": 4}))
    assert {action.gang.uid: action.message for action in decision.preempted} == {
        "mine": f"{ROOM}, {HIGHER}",
        "theirs": f"stopped to make room for a job of another namespace, {HIGHER}",
    }
    message = hold_of(decision, "urgent").message
    assert message.endswith("that make room have stopped: default/mine, 1 of other namespaces")


@pytest.mark.parametrize("claim", [0.4, 0.5, 0.6])
def test_only_a_strictly_lower_claim_makes_room(claim: float) -> None:
    policy = Policy(InOrder(first=0.5, second=claim), Packing())
    snapshot = a_world(a_gang("first", a_task(8)), nodes=NODES[:1])
    decision = decide(runs(snapshot, "second", {"n0": 8}), policy)
    assert stopped(decision) == (["second"] if claim < 0.5 else [])


def test_a_lower_claim_that_comes_earlier_in_the_order_makes_no_room() -> None:
    policy = Policy(InOrder(second=0.1, first=0.5), Packing())
    snapshot = a_world(a_gang("first", a_task(8)), nodes=NODES[:1])
    assert stopped(decide(runs(snapshot, "second", {"n0": 8}), policy)) == []


def test_an_order_without_claims_stops_nobody() -> None:
    policy = Policy(InOrder(first=None, second=None), Packing())
    snapshot = a_world(a_gang("first", a_task(8)), nodes=NODES[:1])
    assert stopped(decide(runs(snapshot, "second", {"n0": 8}), policy)) == []


def test_waiting_long_or_being_wide_stops_nobody() -> None:
    wide = a_gang("wide", a_task(16), arrived=-80_000.0)
    assert stopped(decide(runs(a_world(wide), "low", {"n0": 1}))) == []


def test_a_class_that_never_preempts_waits() -> None:
    polite = replace(urgent(8), may_preempt=False)
    decision = decide(runs(a_world(polite, nodes=NODES[:1]), "low", {"n0": 8}))
    assert stopped(decision) == []
    assert hold_of(decision, "urgent").reason is Reason.WAITING_FOR_CAPACITY


def test_a_polite_gang_does_not_stand_for_a_less_polite_one_of_its_shape() -> None:
    """The first in line keeps the places of the older one; the second stops the other."""
    gangs = replace(urgent(8, "a"), may_preempt=False), urgent(8, "b")
    snapshot = runs(a_world(*gangs), "old", {"n0": 8}, started=-900.0)
    decision = decide(runs(snapshot, "young", {"n1": 8}, started=-300.0))
    assert [(p.running.gang.uid, p.beneficiary.uid) for p in decision.preempted] == [("young", "b")]


def test_without_the_setting_nobody_is_stopped() -> None:
    settings = replace(AT_ONCE, preemption=False)
    snapshot = runs(a_world(urgent(8), nodes=NODES[:1], settings=settings), "low", {"n0": 8})
    assert stopped(decide(snapshot)) == []


@pytest.mark.parametrize(
    ("traits", "is_stopped"),
    [
        pytest.param({}, False, id="below-the-setting"),
        pytest.param({"min_runtime_seconds": 99.0}, True, id="its-own-is-shorter"),
        pytest.param({"min_runtime_seconds": 100.0}, True, id="its-own-is-just-over"),
        pytest.param({"min_runtime_seconds": 101.0}, False, id="its-own-is-longer"),
        pytest.param({"min_runtime_seconds": 0.0}, True, id="none-at-all"),
        pytest.param({"min_runtime_seconds": 0.0, "evictions": 2}, True, id="budget-left"),
        pytest.param({"min_runtime_seconds": 0.0, "evictions": 3}, False, id="budget-spent"),
        pytest.param({"min_runtime_seconds": 0.0, "is_preemptible": False}, False, id="never"),
        pytest.param(AFTER | {"attained_seconds": 899.9, "evictions": 3}, False, id="backs-off"),
        pytest.param(AFTER | {"attained_seconds": 900.0, "evictions": 3}, True, id="has-run"),
        pytest.param(AFTER | {"attained_seconds": 1899.9, "evictions": 4}, False, id="for-longer"),
        pytest.param(AFTER | {"attained_seconds": 1900.0, "evictions": 4}, True, id="twice"),
        pytest.param(AFTER | {"attained_seconds": 3800.0, "evictions": 5}, False, id="four-times"),
    ],
)
def test_run_time_budget_and_owner_protect_a_gang(traits: dict[str, Any], is_stopped: bool) -> None:
    settings = SchedulingSettings(
        min_runtime_seconds=300, eviction_budget=3, eviction_backoff_seconds=1000
    )
    low = replace(a_gang("low", a_task(8)), **traits)
    snapshot = a_world(urgent(8), nodes=NODES[:1], settings=settings, now=100.0)
    decision = decide(runs(snapshot, low, {"n0": 8}, started=0.0))
    assert stopped(decision) == (["low"] if is_stopped else [])


@pytest.mark.parametrize(
    ("general", "own", "above", "least"),
    [
        pytest.param(200, None, None, 200.0, id="the-setting"),
        pytest.param(200, 100, None, 100.0, id="the-queue-says-less"),
        pytest.param(200, None, 100, 100.0, id="the-queue-above-says-less"),
        pytest.param(200, 100, 50, 50.0, id="both-do"),
        pytest.param(200, 300, None, 200.0, id="the-queue-cannot-say-more"),
        pytest.param(200, 0, None, 0.0, id="none-counts"),
    ],
)
def test_of_a_minimum_run_time_only_as_much_counts_as_administrators_let_it(
    general: int, own: int | None, above: int | None, least: float
) -> None:
    """The job asks for a day: more than any of them grants."""
    settings = SchedulingSettings(min_runtime_seconds=200, max_min_runtime_seconds=general)
    queues = (
        Queue("default"),
        Queue("low", parent="above", max_min_runtime_seconds=own),
        Queue("above", max_min_runtime_seconds=above),
    )
    low = replace(a_gang("low", a_task(8), queue="low"), min_runtime_seconds=86_400.0)
    for now in {max(0.0, least - 1.0), least}:
        world = a_world(urgent(8), nodes=NODES[:1], queues=queues, settings=settings, now=now)
        decision = decide(runs(world, low, {"n0": 8}, started=0.0))
        assert stopped(decision) == (["low"] if now >= least else [])


def test_a_job_that_asks_for_a_day_does_not_keep_a_queue_from_its_guarantee_for_longer() -> None:
    queues = (Queue("ours", guaranteed={GPU: 8}), Queue("theirs"))
    low = replace(a_gang("low", a_task(8), queue="theirs"), min_runtime_seconds=86_400.0)
    asks = a_gang("asks", a_task(8), queue="ours")
    for now, victims in ((3599.0, []), (3600.0, ["low"])):
        settings = SchedulingSettings()
        world = a_world(asks, nodes=NODES[:1], queues=queues, settings=settings, now=now)
        assert stopped(decide(runs(world, low, {"n0": 8}, started=0.0))) == victims


@pytest.mark.parametrize(
    ("waited", "stops"), [(50.0, True), (100.0, True), (101.0, False), (300.0, True)]
)
def test_a_gang_that_started_past_its_bound_is_stopped_only_for_one_longer_past_its_own(
    waited: float, stops: bool
) -> None:
    """It would go before all others again. Both bounds are 100; the low one waited for 250."""
    settings = replace(AT_ONCE, wait_bound_seconds=100)
    arrived = 0.0 if waited == 300.0 else 200.0
    low_waited = 250.0 if waited == 300.0 else waited
    asks = urgent(8, arrived=arrived)
    snapshot = a_world(asks, nodes=NODES[:1], settings=settings, now=300.0)
    low = a_gang("low", a_task(8), arrived=280.0 - low_waited)
    assert bool(stopped(decide(runs(snapshot, low, {"n0": 8}, started=280.0)))) is stops


# --- how little -----------------------------------------------------------------------------------


def test_no_more_are_stopped_than_the_gang_needs() -> None:
    snapshot = a_world(urgent(2), nodes=NODES[:1])
    for index in range(8):
        snapshot = runs(snapshot, f"low{index}", {"n0": 1})
    assert len(stopped(decide(snapshot))) == 2


def test_what_is_free_already_spares_a_victim() -> None:
    snapshot = a_world(urgent(6), nodes=NODES[:1])
    for index in range(4):
        snapshot = runs(snapshot, f"low{index}", {"n0": 1})
    assert len(stopped(decide(snapshot))) == 2


def test_the_most_recent_start_goes_first_among_equals() -> None:
    snapshot = a_world(urgent(4), nodes=NODES[:1])
    snapshot = runs(snapshot, "old", {"n0": 4}, started=-900.0)
    snapshot = runs(snapshot, "young", {"n0": 4}, started=-300.0)
    assert stopped(decide(snapshot)) == ["young"]


def test_the_lowest_claim_goes_first_whatever_its_age() -> None:
    snapshot = a_world(urgent(4), nodes=NODES[:1])
    snapshot = runs(snapshot, a_gang("low", a_task(4)), {"n0": 4}, started=-900.0)
    middle = a_gang("middle", a_task(4), priority=10)
    assert stopped(decide(runs(snapshot, middle, {"n0": 4}, started=-300.0))) == ["low"]


def test_a_lower_claim_in_the_wrong_place_is_spared_after_all() -> None:
    """Both low ones are asked first, but only the middle one's node makes room for eight."""
    snapshot = a_world(urgent(8))
    snapshot = runs(snapshot, "low", {"n0": 2})
    snapshot = runs(snapshot, a_gang("high", a_task(6), priority=1000), {"n0": 6})
    snapshot = runs(snapshot, a_gang("middle", a_task(8), priority=10), {"n1": 8})
    assert stopped(decide(snapshot)) == ["middle"]


def test_nobody_is_stopped_when_the_whole_gang_would_not_fit_even_then() -> None:
    snapshot = runs(a_world(a_gang("urgent", a_task(2, 8), priority=1000)), "low", {"n0": 8})
    snapshot = runs(snapshot, a_gang("high", a_task(1), priority=1000), {"n1": 1})
    decision = decide(snapshot)
    assert stopped(decision) == []
    assert hold_of(decision, "urgent").reason is Reason.WAITING_FOR_CAPACITY


def test_pods_of_others_are_no_victims() -> None:
    bare = a_world(urgent(8), nodes=NODES[:1])
    used = bare.used.copy()
    used[0, 4] = 1
    assert stopped(decide(runs(replace(bare, used=used), "low", {"n0": 7}))) == []


def test_several_gangs_are_stopped_for_several_each_once() -> None:
    snapshot = a_world(urgent(8, "a"), urgent(8, "b"))
    snapshot = runs(snapshot, "low0", {"n0": 8})
    decision = decide(runs(snapshot, "low1", {"n1": 8}))
    assert stopped(decision) == ["low0", "low1"]
    assert {action.beneficiary.uid for action in decision.preempted} == {"a", "b"}


def test_what_a_victim_leaves_over_spares_another_one() -> None:
    snapshot = a_world(urgent(4, "a"), urgent(4, "b"))
    snapshot = runs(snapshot, "low0", {"n0": 8}, started=-2.0)
    decision = decide(runs(snapshot, "low1", {"n1": 8}, started=-1.0))
    assert stopped(decision) == ["low1"]
    for uid in ("a", "b"):
        reservation = hold_of(decision, uid).reservation
        assert reservation is not None
        assert reservation.placement.by_task(snapshot.nodes) == {"worker": ("n1",)}


def test_what_a_victim_leaves_over_is_for_those_too_who_may_stop_nobody() -> None:
    polite = a_gang("polite", a_task(1, 4))
    decision = decide(runs(a_world(urgent(4), polite, nodes=NODES[:1]), "low", {"n0": 8}))
    assert stopped(decision) == ["low"]
    assert hold_of(decision, "polite").reason is Reason.WAITING_FOR_PREEMPTION


def test_what_victims_leave_over_counts_beside_new_ones() -> None:
    first = a_gang("first", a_task(1, 4), priority=9000)
    snapshot = a_world(first, a_gang("second", a_task(3, 4), priority=1000))
    snapshot = runs(snapshot, "low0", {"n0": 8}, started=-2.0)
    decision = decide(runs(snapshot, "low1", {"n1": 8}, started=-1.0))
    assert {action.running.gang.uid: action.beneficiary.uid for action in decision.preempted} == {
        "low1": "first",
        "low0": "second",
    }
    assert hold_of(decision, "second").reason is Reason.WAITING_FOR_PREEMPTION


def test_a_gang_behind_the_blocked_one_stops_nobody_for_the_places_kept_for_it() -> None:
    """The first in line counts on the victim's node, which the urgent one may not have then."""
    overdue = a_gang("overdue", a_task(1, 8), arrived=-100.0)
    settings = replace(AT_ONCE, wait_bound_seconds=50)
    snapshot = a_world(overdue, urgent(8), nodes=NODES[:1], settings=settings)
    decision = decide(runs(snapshot, "low", {"n0": 8}))
    assert hold_of(decision, "overdue").reservation is not None
    assert stopped(decision) == []
