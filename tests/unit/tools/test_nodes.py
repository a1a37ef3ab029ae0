"""Fake nodes: the machines every cluster test, benchmark and the demo runs on."""

from collections import Counter
from typing import Any

import pytest

from tools.controlplane.kwokctl import STAGES
from tools.controlplane.nodes import (
    BLOCK,
    GPU,
    GPU_PRODUCT,
    HOSTNAME_LABEL,
    RACK,
    ZONE,
    fake_nodes,
    is_usable,
    nodes_manifest,
    repelling,
)


def test_nodes_fill_racks_blocks_and_zones_in_equal_shares() -> None:
    nodes = fake_nodes(24, racks=8, blocks=4, zones=2)
    for level, domains in ((RACK, 8), (BLOCK, 4), (ZONE, 2)):
        sizes = Counter(node["metadata"]["labels"][level] for node in nodes)
        assert list(sizes.values()) == [24 // domains] * domains


def test_every_domain_lies_in_one_domain_of_the_next_level() -> None:
    nodes = fake_nodes(23, racks=7, blocks=3, zones=2)
    for inner, outer in ((RACK, BLOCK), (BLOCK, ZONE)):
        pairs = {(n["metadata"]["labels"][inner], n["metadata"]["labels"][outer]) for n in nodes}
        assert len(pairs) == len({pair[0] for pair in pairs})


def test_names_are_unique_sorted_and_equal_to_the_hostname_label() -> None:
    nodes = fake_nodes(1001, prefix="big")
    names = [node["metadata"]["name"] for node in nodes]
    assert names == sorted(set(names))
    assert (names[0], names[-1]) == ("big-0000", "big-1000")
    assert [node["metadata"]["labels"][HOSTNAME_LABEL] for node in nodes] == names


def test_capacity_is_what_was_asked_for() -> None:
    (node,) = fake_nodes(1, gpus=4, racks=1, cpu="8", memory="32Gi", pods="20")
    expected = {"cpu": "8", "memory": "32Gi", "pods": "20", GPU: "4"}
    assert expected.items() <= node["status"]["capacity"].items()
    assert node["status"]["allocatable"] == node["status"]["capacity"]


def test_node_without_gpus_has_neither_resource_nor_product() -> None:
    (node,) = fake_nodes(1, gpus=0, racks=1)
    assert GPU not in node["status"]["capacity"]
    assert GPU_PRODUCT not in node["metadata"]["labels"]


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ({"count": 3, "racks": 4}, "count=3, racks=4"),
        ({"count": 8, "racks": 2, "blocks": 3}, "blocks=3"),
        ({"count": 8, "zones": 0}, "zones=0"),
        ({"count": 8, "gpus": -1}, "gpus=-1"),
    ],
)
def test_impossible_shapes_are_refused_with_their_numbers(
    shape: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        fake_nodes(**shape)


def test_manifest_for_kind_users_is_up_to_date() -> None:
    written = (STAGES.parent / "nodes.yaml").read_text()
    assert written == nodes_manifest(), "run the command in the file's first lines"


def test_a_fake_node_beside_a_real_one_repels_pods_and_is_usable_all_the_same() -> None:
    (node,) = fake_nodes(1, racks=1)
    made = repelling(node)
    assert "spec" not in node
    assert [taint["effect"] for taint in made["spec"]["taints"]] == ["NoSchedule"]
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert is_usable(made)
    made["spec"]["taints"] = [*made["spec"]["taints"], {"key": "node.kubernetes.io/not-ready"}]
    assert not is_usable(made)
