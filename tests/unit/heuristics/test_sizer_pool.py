"""The pool that sizers divide, and what holds for every sizer whatever its rule."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role
from bireme.core.policy import Ranked, Sizer
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LinearSpeed
from bireme.heuristics.goodput import Goodput
from bireme.heuristics.simple_sizers import FairSharing, Maximum, Minimum
from bireme.heuristics.sizing import CapacityPool, bounds, hand_out, steps_done, steps_left
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_running_gang,
    a_snapshot,
    a_task,
    with_running,
)
from bireme_lab.heuristics.measured_sizers import Dolphin, Optimus, Slaq
from bireme_lab.heuristics.tradl import TradlSizer
from bireme_lab.simulator.physics.laws import DL2_LAWS

SIZERS = [
    Dolphin(),
    FairSharing(),
    Goodput(),
    Maximum(),
    Minimum(),
    Optimus(),
    Slaq(),
    TradlSizer(),
]


@dataclass(frozen=True)
class Halving:
    """A loss that halves every 100 steps."""

    def loss(self, steps: float) -> float:
        return math.pow(0.5, steps / 100)


def ranked(*gangs: Gang) -> list[Ranked]:
    return [Ranked(gang, 0.0) for gang in gangs]


def elastic(name: str, low: int, asked: int, high: int, **more: object) -> Gang:
    """An elastic gang of one-GPU workers."""
    task = a_task(asked, min_replicas=low, max_replicas=high)
    return replace(a_gang(name, task), is_elastic=True, **more)  # type: ignore[arg-type]


def test_only_elastic_gangs_may_exceed_what_they_ask_for() -> None:
    gang = elastic("job", 2, 4, 8)
    assert bounds(gang) == ({"worker": 2}, {"worker": 8})
    assert bounds(replace(gang, is_elastic=False)) == ({"worker": 2}, {"worker": 4})


def test_the_smallest_size_has_min_available_replicas() -> None:
    tasks = a_task(4, name="a", min_replicas=1), a_task(4, name="b", min_replicas=1, priority=90)
    assert bounds(a_gang("job", *tasks, min_available=4))[0] == {"a": 1, "b": 3}


def test_capacity_is_that_of_ready_nodes_less_what_gangs_of_fixed_size_hold() -> None:
    snapshot = a_snapshot([a_node("a", 8), a_node("b", 8), a_node("c", 4, is_ready=False)])
    fixed = a_running_gang(a_gang("fixed", a_task(3)), snapshot.nodes)
    moving = a_running_gang(elastic("moving", 1, 2, 4), snapshot.nodes, row=1)
    pool = CapacityPool(ranked(fixed.gang, moving.gang), with_running(snapshot, fixed, moving))
    assert (pool.total[GPU], pool.largest[GPU]) == (16, 8)
    assert pool.free[GPU] == 16 - 3 - 1
    assert pool.proposal() == {"moving": {"worker": 1}}


def test_replicas_on_a_lost_node_are_not_counted_as_free() -> None:
    snapshot = a_snapshot([a_node("a", 2), a_node("b", 8, is_ready=False)])
    lost = a_running_gang(elastic("lost", 2, 4, 8), snapshot.nodes, row=1)
    pool = CapacityPool(ranked(lost.gang), with_running(snapshot, lost))
    assert (pool.proposal(), pool.free[GPU]) == ({"lost": {"worker": 2}}, 0)


def test_gangs_that_are_being_stopped_keep_their_size() -> None:
    snapshot = a_snapshot([a_node("a", 4)])
    leaving = a_running_gang(elastic("gone", 1, 2, 4), snapshot.nodes, is_leaving=True)
    pool = CapacityPool(ranked(leaving.gang), with_running(snapshot, leaving))
    assert (pool.proposal(), pool.free[GPU]) == ({}, 2)


def test_running_gangs_get_their_minimum_before_any_that_waits() -> None:
    snapshot = a_snapshot([a_node("a", 4)])
    running = a_running_gang(elastic("running", 3, 4, 4), snapshot.nodes)
    pool = CapacityPool(
        ranked(a_gang("first", a_task(2)), running.gang), with_running(snapshot, running)
    )
    assert pool.proposal() == {"running": {"worker": 3}}


def test_a_gang_that_asks_for_what_no_node_offers_is_left_out() -> None:
    assert CapacityPool(ranked(a_gang("gpu")), a_snapshot([a_node("cpu", 0)])).proposal() == {}


def test_a_size_needs_as_many_nodes_as_its_scarcest_resource_says() -> None:
    gang = elastic("job", 1, 1, 40)
    pool = CapacityPool(ranked(gang), a_snapshot([a_node("a", 8), a_node("b", 4)]))
    assert [pool.nodes(gang, {"worker": size}) for size in (1, 8, 9, 17)] == [1, 1, 2, 3]


def test_the_largest_gain_per_share_comes_first_until_nothing_gains() -> None:
    """Values of 1, 2, ... replicas: a gains 5, 1, 0; b gains 4, 3, 2."""
    worth = {"a": [0, 0, 5, 6, 6, 6], "b": [0, 0, 4, 7, 9, 9]}
    gangs = elastic("a", 1, 1, 5), elastic("b", 1, 1, 5)
    sizes = []
    for gpus in range(2, 9):
        pool = CapacityPool(ranked(*gangs), a_snapshot([a_node("node", gpus)]))
        hand_out(pool, pool.allotments, lambda a, size: worth[a.gang.uid][size["worker"]])
        sizes.append(tuple(size["worker"] for size in pool.proposal().values()))
    assert sizes == [(1, 1), (2, 1), (2, 2), (2, 3), (2, 4), (3, 4), (3, 4)]


def test_equal_gains_go_to_the_cheaper_replica() -> None:
    cheap = a_task(1, 1, name="cheap", max_replicas=4)
    dear = a_task(1, 2, name="dear", max_replicas=4)
    gang = replace(a_gang("job", dear, cheap), is_elastic=True)
    pool = CapacityPool(ranked(gang), a_snapshot([a_node("node", 6)]))
    hand_out(pool, pool.allotments, lambda _, size: size["cheap"] + size["dear"])
    assert pool.proposal() == {"job": {"cheap": 4, "dear": 1}}


def test_steps_of_the_present_run_are_estimated_from_the_present_speed() -> None:
    snapshot = a_snapshot([a_node("a")], now=100.0)
    gang = elastic("job", 1, 1, 4, speed=LinearSpeed(2.0), remaining_steps=1000.0, done_steps=50.0)
    running = a_running_gang(gang, snapshot.nodes, sizes={"worker": 2}, started=40.0)
    assert (steps_left(gang, snapshot), steps_done(gang, snapshot)) == (1000.0, 50.0)
    later = with_running(snapshot, running)
    assert (steps_left(gang, later), steps_done(gang, later)) == (760.0, 290.0)


def test_a_gang_that_should_be_done_has_done_all_its_steps_and_has_one_to_go() -> None:
    snapshot = a_snapshot([a_node("a")], now=100.0)
    gang = elastic("job", 1, 1, 4, speed=LinearSpeed(2.0), remaining_steps=10.0)
    later = with_running(snapshot, a_running_gang(gang, snapshot.nodes))
    assert (steps_left(gang, later), steps_done(gang, later)) == (1.0, 10.0)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ClusterSnapshot, list[Ranked]]:
    """A small cluster, gangs that run and gangs that wait, some measured and some not."""
    nodes = [a_node(f"n{row}", draw(st.integers(1, 8))) for row in range(draw(st.integers(1, 3)))]
    snapshot = a_snapshot(nodes, now=1000.0)
    gangs = [draw(gangs_called(f"g{number}")) for number in range(draw(st.integers(0, 5)))]
    for gang in gangs:
        row = draw(st.integers(-1, len(nodes) - 1))
        free = snapshot.nodes.allocatable[row] - snapshot.used[row]
        held = {task.name: task.minimum for task in gang.tasks}
        demand = snapshot.nodes.axis.usage(gang.at_minimum.demand)
        if row >= 0 and (demand <= free).all():
            one = a_running_gang(gang, snapshot.nodes, row=row, sizes=held, started=500.0)
            snapshot = with_running(snapshot, one)
    return snapshot, ranked(*draw(st.permutations(gangs)))


@st.composite
def gangs_called(draw: st.DrawFn, name: str) -> Gang:
    low = draw(st.integers(1, 3))
    asked = low + draw(st.integers(0, 3))
    high = asked + draw(st.integers(0, 4))
    worker = a_task(asked, min_replicas=low, max_replicas=high)
    ps = a_task(asked, 0, name="ps", role=Role.PS, min_replicas=1, max_replicas=high)
    law = draw(st.sampled_from([None, DL2_LAWS["resnet-50"], DL2_LAWS["vgg-16"]]))
    return replace(
        a_gang(name, ps, worker),
        is_elastic=draw(st.booleans()),
        speed=law,
        remaining_steps=draw(st.sampled_from([None, 0.0, 50.0, 5000.0])),
        done_steps=draw(st.sampled_from([0.0, 300.0])),
        loss=draw(st.sampled_from([None, Halving()])),
    )


@pytest.mark.parametrize("sizer", SIZERS, ids=lambda sizer: type(sizer).__name__)
@given(case=clusters())
def test_every_sizer_stays_within_bounds_and_within_the_cluster(
    sizer: Sizer, case: tuple[ClusterSnapshot, list[Ranked]]
) -> None:
    snapshot, order = case
    proposal = sizer.sizes(order, snapshot)
    gangs = {entry.gang.uid: entry.gang for entry in order}
    for uid, sizes in proposal.items():
        low, high = bounds(gangs[uid])
        assert all(low[name] <= size <= high[name] for name, size in sizes.items())
        assert sizes.keys() == low.keys()
    assert (planned_use(snapshot, gangs, proposal) <= snapshot.nodes.allocatable.sum(axis=0)).all()
    assert sizer.sizes(order, snapshot) == proposal


def planned_use(
    snapshot: ClusterSnapshot, gangs: Mapping[str, Gang], proposal: Mapping[str, Mapping[str, int]]
) -> IntArray:
    """The usage of the cluster, were the proposal carried out; shape (resources,)."""
    use: IntArray = snapshot.used.sum(axis=0)
    for uid, sizes in proposal.items():
        held = snapshot.running_by_uid[uid].sizes if uid in snapshot.running_by_uid else {}
        for task in gangs[uid].tasks:
            change = sizes[task.name] - held.get(task.name, 0)
            use = use + change * snapshot.nodes.axis.usage(task.request)
    return use
