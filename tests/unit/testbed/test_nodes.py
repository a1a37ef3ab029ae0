"""Fake nodes: the machines every cluster test, benchmark and the demo runs on."""

from collections import Counter
from typing import Any

import pytest

from bireme_lab.embedded.fake_nodes import GPU, GPU_PRODUCT, HOSTNAME_LABEL, RACK
from testbed.controlplane.kwokctl import STAGES
from testbed.controlplane.nodes import fake_nodes, is_usable, nodes_manifest, repelling


def test_nodes_fill_racks_in_equal_shares() -> None:
    sizes = Counter(node["metadata"]["labels"][RACK] for node in fake_nodes(24, racks=8))
    assert list(sizes.values()) == [3] * 8


def test_names_are_unique_sorted_and_equal_to_the_hostname_label() -> None:
    nodes = fake_nodes(1001, prefix="big")
    names = [node["metadata"]["name"] for node in nodes]
    assert names == sorted(set(names))
    assert (names[0], names[-1]) == ("big-0000", "big-1000")
    assert [node["metadata"]["labels"][HOSTNAME_LABEL] for node in nodes] == names


def test_capacity_is_what_was_asked_for() -> None:
    (node,) = fake_nodes(1, gpus=4, racks=1)
    assert node["status"]["capacity"][GPU] == "4"
    assert node["status"]["allocatable"] == node["status"]["capacity"]


def test_node_without_gpus_has_neither_resource_nor_product() -> None:
    (node,) = fake_nodes(1, gpus=0, racks=1)
    assert GPU not in node["status"]["capacity"]
    assert GPU_PRODUCT not in node["metadata"]["labels"]


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ({"count": 3, "racks": 4}, "count=3, racks=4"),
        ({"count": 8, "racks": 0}, "racks=0"),
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
