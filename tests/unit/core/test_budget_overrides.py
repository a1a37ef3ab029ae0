"""Budgets of tenants: kept where others can go, and no answer to a guarantee or a high priority."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.queues import Queue
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GPU, a_gang, a_node, a_task
from testbed.examples import examples
from tests.unit.core.preemption_cases import AT_ONCE, NODES, a_world, decide, runs, stopped, urgent

SYSTEM = AT_ONCE.budget_override_priority
GUARANTEED = (Queue("ours", guaranteed={GPU: 8}), Queue("theirs"))


def overridden(decision: Decision) -> list[str]:
    return sorted(p.running.gang.uid for p in decision.preempted if p.overrides_budget)


def kept(
    snapshot: ClusterSnapshot, name: str, places: Mapping[str, int], queue: str = "default"
) -> ClusterSnapshot:
    """``snapshot`` in which a gang runs that a budget keeps."""
    gang = a_gang(name, a_task(sum(places.values())), queue=queue)
    return runs(snapshot, gang, places, kept_by_budget=True)


@pytest.mark.parametrize(("priority", "victims"), [(1000, []), (SYSTEM - 1, []), (SYSTEM, ["low"])])
def test_budgets_hold_below_the_priority_from_which_they_do_not(
    priority: int, victims: list[str]
) -> None:
    asks = a_gang("asks", a_task(8), priority=priority)
    decision = decide(kept(a_world(asks, nodes=NODES[:1]), "low", {"n0": 8}))
    assert stopped(decision) == overridden(decision) == victims


def test_a_budget_does_not_keep_a_queue_from_its_guarantee() -> None:
    asks = a_gang("asks", a_task(8), queue="ours")
    world = a_world(asks, nodes=NODES[:1], queues=GUARANTEED)
    decision = decide(kept(world, "low", {"n0": 8}, "theirs"))
    assert stopped(decision) == overridden(decision) == ["low"]


def test_a_budget_holds_against_a_queue_that_borrows_and_within_a_guarantee() -> None:
    above = a_gang("asks", a_task(8), queue="theirs", priority=1000)
    world = a_world(above, nodes=NODES[:1], queues=GUARANTEED)
    assert stopped(decide(kept(world, "low", {"n0": 8}, "ours"))) == []
    assert stopped(decide(kept(world, "low", {"n0": 8}, "theirs"))) == []


@pytest.mark.parametrize("is_reclaim", [True, False])
def test_who_has_no_budget_in_the_way_goes_first(is_reclaim: bool) -> None:
    """Also where it started long before, has a higher priority, and more of it must go."""
    asks = replace(urgent(8), priority=SYSTEM)
    queues: tuple[Queue, ...] = (Queue("default"), Queue("theirs"))
    if is_reclaim:
        asks = a_gang("urgent", a_task(1, 8), queue="ours")
        queues = GUARANTEED
    world = kept(a_world(asks, queues=queues), "kept", {"n0": 8}, "theirs")
    for number in range(4):
        free = a_gang(f"free{number}", a_task(2), queue="theirs", priority=100)
        world = runs(world, free, {"n1": 2}, started=-9000.0)
    decision = decide(world)
    assert stopped(decision) == [f"free{number}" for number in range(4)]
    assert overridden(decision) == []


def test_only_as_many_budgets_as_needed_are_overridden() -> None:
    asks = a_gang("asks", a_task(12), priority=SYSTEM)
    world = runs(a_world(asks), "free", {"n0": 6})
    world = kept(kept(world, "one", {"n0": 2}), "two", {"n1": 4})
    world = kept(world, "three", {"n1": 4})
    decision = decide(world)
    assert len(stopped(decision)) == 3
    assert "free" in stopped(decision)
    assert len(overridden(decision)) == 2
    assert set(overridden(decision)) < {"one", "two", "three"}


def test_an_elastic_gang_shrinks_before_a_budget_is_overridden() -> None:
    asks = a_gang("asks", a_task(4), priority=SYSTEM)
    worker = replace(a_task(8), min_replicas=4)
    elastic = replace(a_gang("elastic", worker), is_elastic=True)
    world = runs(a_world(asks, nodes=NODES[:1]), elastic, {"n0": 8}, kept_by_budget=True)
    decision = decide(world)
    assert stopped(decision) == []
    assert [r.gang.uid for r in decision.resized] == ["elastic"]


@examples(50)
@given(
    running=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 2), st.booleans(), st.sampled_from("ab")),
        min_size=1,
        max_size=8,
    ),
    asked=st.integers(1, 12),
    is_high=st.booleans(),
    is_guaranteed=st.booleans(),
)
def test_where_others_are_enough_it_is_as_if_kept_gangs_could_not_be_stopped_at_all(
    running: list[tuple[int, int, bool, str]], asked: int, is_high: bool, is_guaranteed: bool
) -> None:
    nodes = [a_node(f"n{number}", 4) for number in range(3)]
    room = {node.name: 4 for node in nodes}
    queues = (Queue("a", guaranteed={GPU: 8} if is_guaranteed else {}), Queue("b"))
    asks = a_gang("asks", a_task(asked), queue="a", priority=SYSTEM if is_high else 500)
    worlds = [a_world(asks, nodes=nodes, queues=queues) for _ in range(2)]
    kept_uids = set()
    for number, (gpus, row, is_kept, queue) in enumerate(running):
        where = f"n{row}"
        if room[where] < gpus:
            continue
        room[where] -= gpus
        gang: Gang = a_gang(f"g{number}", a_task(gpus), queue=queue, priority=number)
        started = -1000.0 * number
        kept_uids |= {gang.uid} if is_kept else set()
        untouchable = replace(gang, is_preemptible=not is_kept)
        worlds = [
            runs(worlds[0], gang, {where: gpus}, started=started, kept_by_budget=is_kept),
            runs(worlds[1], untouchable, {where: gpus}, started=started),
        ]
    found, without = decide(worlds[0]), decide(worlds[1])
    assert set(overridden(found)) == set(stopped(found)) & kept_uids
    if stopped(without) or without.admitted:
        assert (stopped(found), overridden(found)) == (stopped(without), [])
    elif not (is_high or is_guaranteed):
        assert stopped(found) == []
    elif stopped(found):
        assert overridden(found), "the others alone were not enough"
