"""Gandiva's affinity by size, Tetris' alignment with nodes, and the lottery of places."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from bireme.core.gangs import Gang
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Placer
from bireme.core.resources import IntArray
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.simple_placers import RandomPlacement
from bireme.heuristics.tetris import TetrisPlacement
from bireme.testing import GPU, a_gang, a_node, a_task
from bireme_lab.heuristics.gandiva import GandivaPlacement


def nodes_of(
    placer: Placer, gang: Gang, nodes: Sequence[Node], busy: dict[str, int] | None = None
) -> list[str]:
    """Node names of all replicas, sorted; ``busy`` GPUs are taken, by node name."""
    table = NodeTable(nodes, SchedulingSettings().topology_levels)
    used: IntArray = np.zeros_like(table.allocatable)
    for name, gpus in (busy or {}).items():
        used[table.row[name], table.axis.names.index(GPU)] = gpus
    placement = placer.place(gang, FreeCapacity(table, used))
    assert placement is not None
    return sorted(name for names in placement.by_task(table).values() for name in names)


def used(*gpus: int) -> tuple[list[Node], dict[str, int]]:
    """Nodes of 16 GPUs called after how many of them are in use."""
    return [a_node(f"{n:02}", 16) for n in gpus], {f"{n:02}": n for n in gpus}


@pytest.mark.parametrize(
    ("size", "in_use", "chosen"),
    [
        pytest.param(2, (0, 4, 6, 12), "06", id="its-own-size"),
        pytest.param(2, (0, 3, 4, 8), "04", id="the-closest-larger-size"),
        pytest.param(2, (0, 3, 13), "00", id="an-idle-node-before-another-size"),
        pytest.param(2, (3, 13), "13", id="another-size-at-last-the-fullest"),
        pytest.param(1, (0, 2, 3, 8), "03", id="single-devices-to-single-devices"),
        pytest.param(4, (0, 4, 12), "12", id="the-fullest-among-equals"),
        pytest.param(3, (0, 4, 9), "09", id="three"),
    ],
)
def test_gandiva_keeps_nodes_for_one_size(size: int, in_use: Sequence[int], chosen: str) -> None:
    nodes, busy = used(*in_use)
    gang = a_gang("g", a_task(1, size))
    assert nodes_of(GandivaPlacement(), gang, nodes, busy) == [chosen]


def test_gandiva_fills_what_it_opened_before_it_opens_more() -> None:
    nodes, busy = used(0, 3, 5)
    assert nodes_of(GandivaPlacement(), a_gang("g", a_task(4, 4)), nodes, busy) == ["00"] * 4
    assert nodes_of(GandivaPlacement(), a_gang("g", a_task(2, 0)), nodes, busy) == ["05"] * 2


def test_tetris_places_where_what_is_asked_for_is_abundant() -> None:
    nodes = [a_node("cores", 8), a_node("gpus", 8, cpu_millis=8000)]
    cores = a_gang("g", a_task(1, 0, cpu_millis=6000, memory_bytes=0))
    assert nodes_of(TetrisPlacement(), cores, nodes) == ["gpus"], "a larger part of what it offers"
    gpus = a_gang("g", a_task(1, 1, cpu_millis=0, memory_bytes=0))
    assert nodes_of(TetrisPlacement(), gpus, nodes, {"cores": 6}) == ["gpus"]
    assert nodes_of(TetrisPlacement(), gpus, nodes, {"gpus": 6}) == ["cores"]


def test_tetris_sees_what_its_own_replicas_take() -> None:
    nodes = [a_node("a"), a_node("b")]
    gang = a_gang("g", a_task(4, 2))
    assert nodes_of(TetrisPlacement(), gang, nodes) == ["a", "a", "b", "b"]


def test_chance_favours_no_place() -> None:
    nodes = [a_node("a"), a_node("b"), a_node("c", 16), a_node("d")]
    busy = {"d": 8}
    drawn = Counter(
        name
        for number in range(400)
        for name in nodes_of(RandomPlacement(), a_gang(f"g{number}", a_task(12)), nodes, busy)
    )
    assert set(drawn) == {"a", "b", "c"}
    # Twelve of the gang's places lie on c, eight on each of the others.
    assert drawn["c"] / 4800 == pytest.approx(12 / 28, abs=0.03)
    assert drawn["a"] / 4800 == pytest.approx(8 / 28, abs=0.03)


def test_the_same_gang_draws_the_same_places_and_another_seed_others() -> None:
    nodes = [a_node(f"n{number:02}") for number in range(50)]
    gang = a_gang("g", a_task(4))
    first = nodes_of(RandomPlacement(), gang, nodes)
    assert nodes_of(RandomPlacement(), gang, nodes) == first
    assert nodes_of(RandomPlacement(seed=1), gang, nodes) != first
