"""Placements: replica numbering and the smallest domain that holds a gang."""

import numpy as np
import pytest

from bireme.core.nodes import NodeTable
from bireme.core.placement import make_placement, smallest_domain
from bireme.core.settings import SchedulingSettings
from bireme.testing import a_gang, a_node, a_task

LEVELS = SchedulingSettings().topology_levels
NODES = NodeTable(
    [
        a_node("a0", rack="r0", zone="z"),
        a_node("a1", rack="r0", zone="z"),
        a_node("b0", rack="r1", zone="z"),
        a_node("c0"),
        a_node("c1"),
    ],
    LEVELS,
)


@pytest.mark.parametrize(
    ("rows", "level", "name"),
    [
        pytest.param([1], "kubernetes.io/hostname", "a1", id="node"),
        pytest.param([0, 1], "topology.bireme.dev/rack", "r0", id="rack"),
        pytest.param([0, 2], "topology.kubernetes.io/zone", "z", id="zone"),
        pytest.param([0, 3], "cluster", "", id="across"),
        pytest.param([3, 4], "cluster", "", id="two-nodes-without-labels-share-nothing"),
    ],
)
def test_the_smallest_domain_holds_all_rows(rows: list[int], level: str, name: str) -> None:
    assert smallest_domain(NODES, np.array(rows)) == (level, name)


def test_a_placement_numbers_replicas_along_the_nodes() -> None:
    gang = a_gang("g", a_task(3), a_task(1, name="ps"))
    counts = {"worker": np.array([2, 0, 1, 0, 0]), "ps": np.array([0, 1, 0, 0, 0])}
    placement = make_placement(gang, NODES, counts)
    assert placement.by_task(NODES) == {"worker": ("a0", "a0", "b0"), "ps": ("a1",)}
    assert placement.node_rows().tolist() == [0, 1, 2]
    assert (placement.level, placement.domain) == ("topology.kubernetes.io/zone", "z")
    for task in placement.tasks:
        assert (task.counts > 0).all()
