"""Turns: lines of namespaces that end somewhere, and cycles that end before all had a turn."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision, NodeRequest
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.turns import MIN_VISITS, CycleBudget
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_pool, a_running_gang, a_snapshot, a_task, racks, with_running
from testbed.decisions import hold_of

FIFO = Policy(Fifo(), Packing())
BEYOND = Reason.OVER_NAMESPACE_LIMIT


def gangs(namespace: str, *gpus: int, arrived: float = 0.0) -> list[Gang]:
    """Gangs ``a0, a1, ...`` of one namespace, in this order, of one replica each."""
    return [
        a_gang(f"{namespace}{at}", a_task(1, each), namespace=namespace, arrived=arrived + at / 100)
        for at, each in enumerate(gpus)
    ]


def seen(*waiting: Gang, nodes: int = 2, **limits: Any) -> ClusterSnapshot:
    return a_snapshot(racks(1, nodes), *waiting, now=10.0, settings=SchedulingSettings(**limits))


def visits(count: int) -> Callable[[], bool]:
    left = iter(range(count))
    return lambda: next(left, None) is not None


def started(decision: Decision) -> list[str]:
    return [admit.gang.uid for admit in decision.admitted]


def uids(found: Iterable[Gang]) -> list[str]:
    return [gang.uid for gang in found]


# --- the line of a namespace ---


def test_gangs_beyond_the_pending_limit_wait_with_their_number_and_stand_in_no_way() -> None:
    waiting = [*gangs("a", 1, 1, 1, 1), *gangs("b", 1, arrived=5.0)]
    decision = run_cycle(seen(*waiting, namespace_pending_limit=2), FIFO)
    assert started(decision) == ["a0", "a1", "b0"]
    third, fourth = hold_of(decision, "a2"), hold_of(decision, "a3")
    assert (third.reason, third.position, fourth.position) == (BEYOND, 1, 2)
    assert third.message == (
        "number 3 of the waiting gangs of its namespace; a cycle considers the first 2: "
        "at most 2 of one namespace"
    )


def test_a_shape_counts_once_and_as_the_square_of_its_tasks() -> None:
    wide = a_gang("a3", a_task(1, 1), a_task(1, 1, name="second"), namespace="a", arrived=0.03)
    waiting = [*gangs("a", 1, 1, 2), wide, *gangs("b", 1)]
    for limit, looked_at in ((5, 3), (6, 4)):
        decision = run_cycle(seen(*waiting, namespace_shape_limit=limit), FIFO)
        assert started(decision) == ["a0", "b0", "a1", "a2", "a3"][: looked_at + 1]
    hold = hold_of(run_cycle(seen(*waiting, namespace_shape_limit=5), FIFO), "a3")
    assert hold.message == (
        "number 4 of the waiting gangs of its namespace; a cycle considers the first 3: "
        "the cost of their different shapes is at most 5"
    )


def test_the_first_of_a_namespace_is_in_line_whatever_its_shape() -> None:
    tasks = (a_task(1, 1, name=f"task-{at}") for at in range(4))
    decision = run_cycle(
        seen(a_gang("wide", *tasks), a_gang("next", arrived=1.0), namespace_shape_limit=1), FIFO
    )
    assert started(decision) == ["wide"]
    assert hold_of(decision, "next").reason is BEYOND


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 20)), max_size=12),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_a_limit_lets_no_gang_pass_a_higher_one_of_its_namespace(
    asked: list[tuple[str, int]], pending: int, shapes: int
) -> None:
    waiting = [
        a_gang(f"{at:02}", a_task(1, gpus), namespace=name, arrived=float(at))
        for at, (name, gpus) in enumerate(asked)
    ]
    limits = {"namespace_pending_limit": pending, "namespace_shape_limit": shapes}
    decision = run_cycle(seen(*waiting, **limits), FIFO)
    beyond = {hold.gang.uid for hold in decision.held if hold.reason is BEYOND}
    for name in "ab":
        line = [gang.uid in beyond for gang in waiting if gang.namespace == name]
        assert line == sorted(line)
        assert not line or not line[0]


def test_gangs_past_their_wait_bound_are_first_in_the_line() -> None:
    late = replace(gangs("a", 1)[0], uid="late", queue="default", arrived=-100.0)
    waiting = [*(replace(g, priority=9) for g in gangs("a", 1, 1)), late]
    limits = {"namespace_pending_limit": 1, "wait_bound_seconds": 50}
    assert started(run_cycle(seen(*waiting, **limits), FIFO)) == ["late"]


def test_gangs_that_never_fit_stand_at_the_end_of_a_line_that_is_too_long() -> None:
    snapshot = seen(*gangs("a", 9, 1), namespace_pending_limit=1)
    first = run_cycle(snapshot, FIFO)
    assert [hold.reason for hold in first.held] == [Reason.NEVER_FITS, BEYOND]
    turns = CycleBudget().after(first, snapshot.now)
    parked = replace(snapshot.waiting[0], parked=snapshot.now)
    snapshot = replace(snapshot, waiting=(parked, *snapshot.waiting[1:]))
    second = run_cycle(snapshot, FIFO, turns=turns)
    assert started(second) == ["a1"]
    assert second.held[0].message == first.held[0].message
    assert second.held[0].is_parked
    assert not turns.after(Decision(), snapshot.now + 301).never_fit


def test_nobody_grows_while_gangs_wait_beyond_the_line() -> None:
    snapshot = seen(*gangs("a", 1, 1), namespace_pending_limit=1)
    elastic = a_gang("elastic", a_task(1, 1, max_replicas=4), is_elastic=True)
    snapshot = with_running(snapshot, a_running_gang(elastic, snapshot.nodes, started=-1e6))
    assert not run_cycle(snapshot, FIFO).resized
    assert run_cycle(replace(snapshot, settings=SchedulingSettings()), FIFO).resized


# --- the time of a cycle ---


def test_what_a_cycle_does_not_reach_comes_after_all_that_it_reached() -> None:
    snapshot = seen(*gangs("a", 1, 1, 1), *gangs("b", 1, arrived=1.0))
    decision = run_cycle(snapshot, FIFO, turns=CycleBudget(visits(3)))
    assert started(decision) == ["a0", "a1", "a2"]
    assert uids(decision.unreached) == ["b0"]
    assert not decision.held


def test_each_namespace_has_its_turn_though_no_cycle_has_time_for_all() -> None:
    names = "abcdefgh"
    waiting = [g for name in names for g in gangs(name, *[16] * 5, arrived=float(ord(name)))]
    snapshot = seen(*waiting, nodes=4)
    snapshot = replace(snapshot, used=snapshot.nodes.allocatable // 2)
    turns, reached = CycleBudget(), list[str]()
    for _ in range(len(names)):
        decision = run_cycle(snapshot, FIFO, turns=replace(turns, is_time_left=visits(0)))
        turns = turns.after(decision, snapshot.now)
        reached += sorted({hold.gang.namespace for hold in decision.held})
        assert len(decision.held) == MIN_VISITS
    assert set(reached) == set(names)


def test_the_gang_with_the_reservation_keeps_it_while_namespaces_take_turns() -> None:
    wide = a_gang("wide", a_task(2, 8), namespace="a", estimated_seconds=60.0)
    small = [g for name in "bcdef" for g in gangs(name, 1, 1, arrived=1.0)]
    snapshot = seen(wide, *small)
    runs = a_running_gang(a_gang("runs", a_task(1, 1), estimated_seconds=60.0), snapshot.nodes)
    snapshot = with_running(snapshot, runs)
    turns = CycleBudget()
    for _ in range(6):
        decision = run_cycle(snapshot, FIFO, turns=replace(turns, is_time_left=visits(0)))
        turns = turns.after(decision, snapshot.now)
        assert not decision.admitted  # they would take its places, for nobody knows how long
        assert hold_of(decision, "wide").reservation is not None


def test_a_cycle_with_time_for_all_is_followed_by_one_in_plain_order() -> None:
    snapshot = seen(*gangs("a", 1), *gangs("b", 1, arrived=-1.0), nodes=1)
    turns = CycleBudget(missed_cycles={"a": 1})
    decision = run_cycle(snapshot, FIFO, turns=turns)
    assert started(decision) == ["a0", "b0"]
    after = turns.after(decision, snapshot.now)
    assert started(run_cycle(snapshot, FIFO, turns=after)) == ["b0", "a0"]


def test_no_node_is_given_up_that_an_unreached_gang_may_count_on() -> None:
    snapshot = replace(seen(*gangs("a", 1, 1, 1, 1)), growable=(a_pool("p", coming=2),))
    decision = run_cycle(snapshot, FIFO, turns=CycleBudget(visits(3)))
    (unreached,) = decision.unreached
    assert decision.node_requests == (NodeRequest("p", 0, unreached),)
    assert decision.kept_nodes == set(snapshot.nodes.names)
