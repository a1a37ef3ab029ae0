"""Tables with nodes that do not exist yet: what is kept of them, and what the new nodes are."""

from dataclasses import replace

import numpy as np

from bireme.core.scale_up import extend_nodes
from bireme.testing import GPU, a_node, a_pool, a_snapshot, racks


def test_a_table_is_made_anew_only_when_pools_could_have_other_nodes() -> None:
    nodes = a_snapshot(racks(1, 2)).nodes
    first = extend_nodes(nodes, [a_pool(room=10)], max_new=64)
    assert extend_nodes(nodes, [a_pool(room=7, coming=3)], max_new=128) is first
    assert extend_nodes(nodes, [a_pool(room=11)], max_new=64) is not first
    larger = extend_nodes(nodes, [a_pool(room=11, template=a_node("t", 16))], max_new=64)
    gpus = larger.table.axis.names.index(GPU)
    assert larger.table.allocatable[larger.new["pool"], gpus].tolist() == [16] * 11


def test_no_more_nodes_are_made_of_a_pool_than_could_be_of_use() -> None:
    nodes = a_snapshot(racks(1, 1)).nodes
    assert extend_nodes(nodes, [a_pool(room=5000)], max_new=4).copies == {"pool": 4}


def test_new_nodes_are_ready_and_have_names_of_their_own_wherever_they_sort() -> None:
    template = replace(a_node("t", labels={"a": "b"}), is_ready=False, is_cordoned=True)
    nodes = a_snapshot([a_node("a"), a_node("zebra"), a_node("\N{GREEK SMALL LETTER OMEGA}")]).nodes
    grown = extend_nodes(nodes, [a_pool("p", 2, template)], max_new=8)
    names = [grown.table.names[row] for row in grown.existing]
    assert names == list(nodes.names)
    new = [grown.table.nodes[row] for row in grown.new["p"]]
    assert [node.name for node in new] == ["p/0", "p/1"]
    assert all(node.is_ready and not node.is_cordoned for node in new)
    assert [node.labels for node in new] == [
        {"a": "b", "kubernetes.io/hostname": name} for name in ("p/0", "p/1")
    ]


def test_what_is_free_is_kept_by_resource_and_new_nodes_are_empty_but_for_daemons() -> None:
    template = replace(a_node("t"), allocatable={"cpu": 10, "a.example/fpga": 2}, fixed={"cpu": 1})
    snapshot = a_snapshot([a_node("n0", 4)])
    grown = extend_nodes(snapshot.nodes, [a_pool("p", 1, template)], max_new=8)
    free = np.array([[5, 6, 7, 0, 3]])
    room = grown.with_free(free, snapshot.nodes.axis.names)
    amounts = [dict(zip(grown.table.axis.names, row, strict=True)) for row in room.free.tolist()]
    empty = {"cpu": 0, "memory": 0, "pods": 0, "ephemeral-storage": 0, "a.example/fpga": 0, GPU: 0}
    there = {"cpu": 5, "memory": 6, "pods": 7, GPU: 3}
    assert amounts[grown.existing[0]] == empty | there
    assert amounts[grown.new["p"][0]] == empty | {"cpu": 9, "a.example/fpga": 2}
