"""Node failures: a schedule of its own for every node."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.testing import a_node
from bireme_lab.simulator.physics.model import NodeChange, Physics

DAY = 86_400.0
PHYSICS = Physics(node_mtbf_seconds=DAY, node_repair_seconds=3600.0)
NODES = [a_node(f"n{index}") for index in range(20)]


def changes(names: list[str], horizon: float = 30 * DAY, seed: int = 0) -> list[NodeChange]:
    return PHYSICS.failures([a_node(name) for name in names], horizon, seed)


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 9))
def test_a_nodes_fate_depends_neither_on_the_others_nor_on_their_order(
    names: list[str], seed: int
) -> None:
    together = changes(names, seed=seed)
    alone = sorted(change for name in "abcd" for change in changes([name], seed=seed))
    assert together == alone


@given(st.floats(0, 30 * DAY))
def test_a_longer_horizon_only_adds_failures(horizon: float) -> None:
    long = changes(["a", "b"])
    failed = {(c.time, c.node) for c in long if not c.is_up and c.time < horizon}
    short = changes(["a", "b"], horizon)
    assert {(c.time, c.node) for c in short if not c.is_up} == failed
    assert set(short) <= set(long)


def test_every_failure_is_followed_by_its_repair_before_the_next() -> None:
    for node in NODES:
        own = changes([node.name])
        assert [change.is_up for change in own] == [False, True] * (len(own) // 2)
        for down, up in zip(own[::2], own[1::2], strict=True):
            assert up.time == down.time + 3600.0


def test_failures_come_as_often_as_they_should() -> None:
    count = sum(not change.is_up for change in PHYSICS.failures(NODES, 1000 * DAY, 3))
    expected = 20 * 1000 * DAY / (DAY + 3600)
    assert count == pytest.approx(expected, abs=4 * np.sqrt(expected))


def test_by_default_no_node_fails() -> None:
    assert Physics().failures(NODES, inf, 5) == []


def test_another_seed_is_another_schedule() -> None:
    assert changes(["a"], seed=1) != changes(["a"], seed=2)
