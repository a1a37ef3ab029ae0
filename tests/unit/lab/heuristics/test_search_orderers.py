"""MALO, MOSA and RIFLING: what they find, and that they find it again."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang
from bireme.core.policy import Orderer
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_node, a_snapshot
from bireme_lab.heuristics.search_orderers import (
    Malo,
    Mosa,
    Rifling,
    RiflingState,
    arrival_keys,
    costs,
    decode,
    problem_of,
)
from testbed.decisions import uids
from testbed.examples import examples
from testbed.workloads import timed

SEARCHES = [Malo, Mosa]
ALL = [Malo, Mosa, Rifling]
CLUSTER = a_snapshot([a_node("a", 4), a_node("b", 4)], now=100.0)


def least_cost(gangs: Sequence[Gang], order: Sequence[int] | None) -> float:
    """Completion time plus fee, relative to arrival order, on the best machines for ``order``.

    The least over all orders when ``order`` is None.
    """
    problem = problem_of(gangs, CLUSTER)
    orders = [order] if order is not None else list(itertools.permutations(range(len(gangs))))
    machines = list(itertools.product(range(problem.machines), repeat=len(gangs)))
    every = [(list(one), list(other)) for one in orders for other in machines]
    found = costs(problem, *(np.array(part) for part in zip(*every, strict=True)))
    base = costs(problem, *decode(problem, arrival_keys(problem)[None]))
    return float((found / base).sum(axis=1).min())


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "gangs",
    [
        [timed("long", 900.0, 8), timed("short", 10.0), timed("middle", 300.0, 4)],
        [timed("a", 500.0, 5), timed("b", 100.0, 4), timed("c", 60.0, 3), timed("d", 900.0, 2)],
        [timed("wide", 50.0, 8), timed("x", 400.0, 3), timed("y", 300.0, 3), timed("z", 20.0, 6)],
    ],
    ids=["three", "four", "mixed"],
)
def test_no_order_of_a_few_gangs_is_better(
    search: Callable[[], Orderer], gangs: list[Gang]
) -> None:
    gangs = sorted(gangs, key=lambda gang: gang.uid)
    names = [gang.uid for gang in gangs]
    found = [names.index(uid) for uid in uids(search().order(gangs, CLUSTER))]
    assert least_cost(gangs, found) == pytest.approx(least_cost(gangs, None))


GANGS = st.lists(
    st.tuples(st.floats(1, 1e5), st.integers(1, 8), st.floats(0, 99)), min_size=2, max_size=5
)


@pytest.mark.parametrize("search", SEARCHES)
@examples(20)
@given(facts=GANGS)
def test_a_short_search_is_never_worse_than_arrival_order(
    search: Callable[..., Orderer], facts: list[tuple[float, int, float]]
) -> None:
    gangs = [timed(f"g{n}", *fact) for n, fact in enumerate(facts)]
    gangs.sort(key=lambda gang: (gang.arrived, gang.uid))
    names = [gang.uid for gang in gangs]
    found = uids(search(generations=4, population=8).order(gangs, CLUSTER))
    order = [names.index(uid) for uid in found]
    assert least_cost(gangs, order) <= 2.0 + 1e-9


@pytest.mark.parametrize("orderer", ALL)
@examples(20)
@given(facts=GANGS, data=st.data())
def test_equal_seeds_give_equal_orders_however_the_gangs_are_listed(
    orderer: Callable[[], Orderer], facts: list[tuple[float, int, float]], data: st.DataObject
) -> None:
    gangs = [timed(f"g{n}", *fact) for n, fact in enumerate(facts)]
    order = uids(small(orderer).order(gangs, CLUSTER))
    assert uids(small(orderer).order(data.draw(st.permutations(gangs)), CLUSTER)) == order
    assert sorted(order) == sorted(gang.uid for gang in gangs)


def small(orderer: Callable[..., Orderer]) -> Orderer:
    return Rifling() if orderer is Rifling else orderer(generations=4, population=8)


@pytest.mark.parametrize("orderer", ALL)
@pytest.mark.parametrize("snapshot", [CLUSTER, a_snapshot([])], ids=["nodes", "no-nodes"])
def test_few_gangs_and_no_nodes_are_no_difficulty(
    orderer: Callable[[], Orderer], snapshot: ClusterSnapshot
) -> None:
    assert orderer().order([], snapshot) == []
    assert uids(orderer().order([a_gang("only")], snapshot)) == ["only"]
    both = small(orderer).order([a_gang("b"), a_gang("a")], snapshot)
    assert sorted(uids(both)) == ["a", "b"]


ONE_GPU = a_snapshot([a_node("node", 1)])
"""Two gangs here run one after the other; mean completion time is 20 s in order of arrival."""
SHORT, LONG = timed("a-short", 10.0), timed("b-long", 20.0)
BOTH_WAIT, LONG_WAITS = (3, 3, 0b11), (3, 3, 0b10)
SHORT_KIND, LONG_KIND = 0, 1


def test_one_lesson_writes_the_rewards_into_the_table() -> None:
    """Ends after 10 and 30 s are rewards of -1/2 and -3/2; a tenth of each is learnt."""
    state = RiflingState()
    Rifling(state, episodes=1, exploration=0.0).order([SHORT, LONG], ONE_GPU)
    assert state.values[BOTH_WAIT].tolist() == [pytest.approx(-0.05), 0.0, 0.0, 0.0]
    assert state.values[LONG_WAITS].tolist() == [0.0, pytest.approx(-0.15), 0.0, 0.0]


def test_values_of_later_states_flow_back() -> None:
    """The states that follow are worth -0.15, of which the discount leaves -0.1425."""
    state = RiflingState()
    state.values[BOTH_WAIT] = np.array([0.0, -9.0, 0.0, 0.0])
    state.values[LONG_WAITS] = np.array([0.0, -0.15, 0.0, 0.0])
    Rifling(state, episodes=1, exploration=0.0).order([SHORT, LONG], ONE_GPU)
    learnt = state.values[BOTH_WAIT][SHORT_KIND]
    assert learnt == pytest.approx(0.1 * (-0.5 + 0.95 * -0.15))


def test_the_table_decides_the_order() -> None:
    state = RiflingState()
    state.values[BOTH_WAIT] = np.array([-1.0, 0.0, 0.0, 0.0])
    orderer = Rifling(state, episodes=0)
    assert uids(orderer.order([SHORT, LONG], ONE_GPU)) == ["b-long", "a-short"]


def test_after_enough_lessons_the_short_one_goes_first() -> None:
    orderer = Rifling(RiflingState(seed=3), exploration=0.5)
    late = [replace(SHORT, arrived=1.0), replace(LONG, arrived=0.0)]
    for now in range(100):
        ranked = orderer.order(late, replace(ONE_GPU, now=float(now)))
    assert uids(ranked) == ["a-short", "b-long"]


def test_the_same_snapshot_teaches_only_once() -> None:
    state = RiflingState()
    orderer = Rifling(state)
    first = orderer.order([SHORT, LONG], ONE_GPU)
    values = {key: row.tolist() for key, row in state.values.items()}
    assert orderer.order([LONG, SHORT], ONE_GPU) == first
    assert {key: row.tolist() for key, row in state.values.items()} == values
    orderer.order([LONG, SHORT], replace(ONE_GPU, now=1.0))
    assert {key: row.tolist() for key, row in state.values.items()} != values
