"""Clusters from a text, and from pools."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme.core.nodes import Node, NodeTable
from bireme.core.settings import SchedulingSettings
from bireme.testing import GPU, a_node
from bireme_lab.simulator.machines import POOL_LABEL, agent_nodes, parse_nodes, parse_pools

RACK = "topology.bireme.dev/rack"


def gpus(nodes: list[Node]) -> list[int]:
    return [node.allocatable.get(GPU, 0) for node in nodes]


def test_parts_come_in_their_order_and_names_sort_by_number() -> None:
    nodes = parse_nodes("11x8, 2x4")
    assert gpus(nodes) == [8] * 11 + [4] * 2
    assert nodes[0].name == "node-00"
    assert NodeTable(nodes, SchedulingSettings().topology_levels).names == tuple(
        node.name for node in nodes
    )
    assert all(RACK not in node.labels for node in nodes)
    assert [node.labels[POOL_LABEL] for node in nodes] == ["pool-0"] * 11 + ["pool-1"] * 2


@given(st.integers(1, 40), st.data())
def test_racks_are_equal_runs_of_nodes(count: int, data: st.DataObject) -> None:
    racks = data.draw(st.integers(1, count))
    labels = [node.labels[RACK] for node in parse_nodes(f"{count}x8", racks)]
    assert labels == sorted(labels)
    sizes = Counter(labels).values()
    assert len(sizes) == racks
    assert max(sizes) - min(sizes) <= 1


def test_a_node_without_gpus_has_room_for_servers() -> None:
    (node,) = parse_nodes("1x0")
    assert GPU not in node.allocatable
    assert node.allocatable["cpu"] == 96_000


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"),
        ("64", "'64'"),
        ("64x8,", "''"),
        ("0x8", "'0x8'"),
        ("64x-8", "'64x-8'"),
        ("8x64x2", "'8x64x2'"),
        ("two x8", "'two x8'"),
        ("9999999x1", "'9999999x1'"),
    ],
)
def test_a_text_that_names_no_nodes_is_refused_with_the_part(text: str, part: str) -> None:
    with pytest.raises(SettingError, match=f"of which {part} is no COUNTxGPUS"):
        parse_nodes(text)


@pytest.mark.parametrize("racks", [0, -1, 5])
def test_racks_must_have_nodes(racks: int) -> None:
    with pytest.raises(SettingError, match=f"racks is {racks}; give 1 to 4"):
        parse_nodes("4x8", racks)


def test_a_pool_is_one_node_with_its_label() -> None:
    first, second = agent_nodes([(32, 16), (8, 0)])
    assert (first.allocatable["cpu"], first.allocatable[GPU]) == (32_000, 16)
    assert GPU not in second.allocatable
    assert [node.labels[POOL_LABEL] for node in (first, second)] == ["pool-0", "pool-1"]


@pytest.mark.parametrize("pool", [(0, 1), (4, -1)])
def test_a_pool_needs_cores(pool: tuple[int, int]) -> None:
    with pytest.raises(SettingError, match="pool 1 is"):
        agent_nodes([(1, 1), pool])


def test_pools_are_the_parts_of_the_nodes_each_with_its_minimum_and_delay() -> None:
    nodes = parse_nodes("8x8,16x4")
    assert parse_pools("2", nodes) == [("pool-0", 2, 8, 180.0), ("pool-1", 2, 16, 180.0)]
    assert parse_pools("2:60, 0", nodes) == [("pool-0", 2, 8, 60.0), ("pool-1", 0, 16, 180.0)]


@pytest.mark.parametrize("text", ["", "9", "1:", "-1", "1:2:3", "1,1,1", "two"])
def test_pools_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="pools is "):
        parse_pools(text, parse_nodes("8x8,16x4"))


def test_nodes_of_a_trace_are_in_no_pools() -> None:
    with pytest.raises(SettingError, match="in no pools; say which there are with --nodes"):
        parse_pools("1", [a_node("n0")])
