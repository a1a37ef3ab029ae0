"""The node table: order, columns, topology domains, what it remembers."""

import itertools

import numpy as np
import pytest

from bireme.core.errors import SnapshotError
from bireme.core.nodes import NodeTable, feasible
from bireme.core.pod_constraints import NodeConstraints, Taint
from bireme.testing import GPU, a_node
from testbed.random_snapshots import BLOCK, HOST, RACK

ZONE = "topology.kubernetes.io/zone"
LEVELS = (HOST, RACK, ZONE)


def partition(table: NodeTable, level: int) -> set[frozenset[str]]:
    """The domains of ``level`` as sets of node names; nodes in no domain are left out."""
    domains: dict[int, set[str]] = {}
    for name, code in zip(table.names, table.domains[level].tolist(), strict=True):
        if code >= 0:
            domains.setdefault(code, set()).add(name)
    return {frozenset(names) for names in domains.values()}


def test_rows_are_in_name_order_whatever_order_nodes_come_in() -> None:
    nodes = [a_node("b", 1), a_node("a", 2), a_node("c", 3)]
    for order in itertools.permutations(nodes):
        table = NodeTable(order, LEVELS)
        assert table.names == ("a", "b", "c")
        assert table.allocatable[:, table.axis.names.index(GPU)].tolist() == [2, 1, 3]
        assert table.row == {"a": 0, "b": 1, "c": 2}


def test_two_nodes_with_the_same_name_are_refused() -> None:
    with pytest.raises(SnapshotError, match="same name, 'a'"):
        NodeTable([a_node("a"), a_node("a")], LEVELS)


def test_equal_rack_names_in_two_zones_are_two_racks() -> None:
    nodes = [
        a_node("a0", rack="r1", zone="za"),
        a_node("a1", rack="r1", zone="za"),
        a_node("b0", rack="r1", zone="zb"),
        a_node("lost", rack="r1"),
    ]
    table = NodeTable(nodes, LEVELS)
    assert partition(table, 1) == {
        frozenset({"a0", "a1"}),
        frozenset({"b0"}),
        frozenset({"lost"}),
    }
    assert partition(table, 2) == {frozenset({"a0", "a1"}), frozenset({"b0"})}


def test_a_rack_is_distinguished_by_every_wider_level_not_only_the_next() -> None:
    nodes = [
        a_node("a", rack="r", zone="za", labels={BLOCK: "b"}),
        a_node("b", rack="r", zone="zb", labels={BLOCK: "b"}),
        a_node("c", rack="r", zone="za"),
    ]
    table = NodeTable(nodes, (HOST, RACK, BLOCK, ZONE))
    assert partition(table, 1) == {frozenset("a"), frozenset("b"), frozenset("c")}
    assert partition(table, 2) == {frozenset("a"), frozenset("b")}
    assert partition(table, 3) == {frozenset({"a", "c"}), frozenset("b")}


def test_nodes_without_a_label_belong_to_no_domain_of_that_level() -> None:
    table = NodeTable([a_node("a", rack="r0"), a_node("b"), a_node("c")], LEVELS)
    assert partition(table, 1) == {frozenset("a")}
    assert partition(table, 2) == set()


def test_every_node_is_its_own_host_even_without_a_label() -> None:
    from bireme.core.nodes import Node

    table = NodeTable([Node("a", {"cpu": 1}), Node("b", {"cpu": 1})], LEVELS)
    assert partition(table, 0) == {frozenset("a"), frozenset("b")}
    assert [table.domain_name(0, row) for row in (0, 1)] == ["a", "b"]


def test_a_domain_is_named_by_its_own_label() -> None:
    table = NodeTable([a_node("a", rack="r7", zone="z"), a_node("b")], LEVELS)
    assert [table.domain_name(level, 0) for level in range(3)] == ["a", "r7", "z"]
    assert table.domain_name(1, 1) == ""


def test_domain_codes_stay_below_the_number_of_nodes() -> None:
    nodes = [a_node(f"n{i}", rack=f"r{i % 3}", zone=f"z{i}") for i in range(5)]
    for codes in NodeTable(nodes, LEVELS).domains:
        assert codes.max() < len(nodes)


def test_a_label_column_codes_values_and_marks_missing_ones() -> None:
    nodes = [a_node("a", labels={"k": "x"}), a_node("b"), a_node("c", labels={"k": ""})]
    column = NodeTable(nodes, LEVELS).label("k")
    assert [column.values[code] if code >= 0 else None for code in column.codes] == ["x", None, ""]


def test_nodes_with_the_same_taints_in_any_order_share_one_verdict() -> None:
    one, two = Taint("a", "", "NoSchedule"), Taint("b", "", "NoExecute")
    table = NodeTable(
        [a_node("a", taints=[one, two]), a_node("b", taints=[two, one]), a_node("c")], LEVELS
    )
    assert table.taint_codes[0] == table.taint_codes[1] != table.taint_codes[2]


def test_a_cluster_without_nodes_has_empty_columns() -> None:
    table = NodeTable([], LEVELS)
    assert len(table) == 0
    assert [len(codes) for codes in table.domains] == [0, 0, 0]
    assert table.allocatable.shape == (0, 4)


def test_allocatable_cannot_be_changed() -> None:
    table = NodeTable([a_node("a")], LEVELS)
    with pytest.raises(ValueError, match="read-only"):
        table.allocatable[0, 0] = 1


def test_an_endless_stream_of_templates_does_not_grow_the_memo_without_end() -> None:
    table = NodeTable([a_node("a")], LEVELS)
    for number in range(25_000):
        feasible(NodeConstraints((("k", str(number)),)), table)
    assert len(table.memo) <= 10_000
    assert np.array_equal(feasible(NodeConstraints(), table), [True])
