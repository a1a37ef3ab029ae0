"""The node of a pool that one more would be like, and the nodes that are not there yet."""

from bireme.core.nodes import Node, NodeTable
from bireme.core.pod_constraints import Taint
from bireme.kube import quantities
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.testing import a_node
from bireme_operator.node_pools import PoolInventory

LABELS = {"pool": "p"}
STARTING = Taint("karpenter.sh/unregistered", "", "NoExecute")
LASTING = Taint("gpu", "only", "NoSchedule")
OFFERED = {"cpu": "95", "memory": "1000Gi", "pods": "110", "nvidia.com/gpu": "8"}


def pool_nodes(*nodes: Node, **spec: object) -> PoolInventory:
    """The pool of ``nodes``; the first was made at second 0, the next at 1, and so on."""
    read, fault = NodePoolScalerSpec.read(
        {"nodeSelector": {"matchLabels": LABELS}, "max": 9} | spec
    )
    assert read is not None, fault
    born = {node.name: quantities.format_timestamp(second) for second, node in enumerate(nodes)}
    return PoolInventory.of("p", read, NodeTable(list(nodes), ()), born.get)


def test_ready_node_that_has_taints_to_lose_is_still_coming() -> None:
    old, new = a_node("old", labels=LABELS), a_node("new", labels=LABELS, taints=[STARTING])
    found = pool_nodes(old, new)
    assert found.unfinished == (1.0,)
    assert found.template is not None
    assert found.template.taints == ()


def test_ready_node_whose_gpus_are_not_there_yet_is_still_coming() -> None:
    found = pool_nodes(a_node("new", 0, labels=LABELS), nodeTemplate={"allocatable": OFFERED})
    assert found.unfinished == (0.0,)
    assert pool_nodes(a_node("new", labels=LABELS)).unfinished == ()


def test_taints_that_the_whole_pool_has_are_those_of_one_more_node() -> None:
    found = pool_nodes(*(a_node(n, labels=LABELS, taints=[LASTING]) for n in ("a", "b")))
    assert found.unfinished == ()
    assert found.template is not None
    assert found.template.taints == (LASTING,)


def test_node_that_is_not_ready_is_still_coming_and_tells_nothing() -> None:
    found = pool_nodes(a_node("late", labels=LABELS, is_ready=False))
    assert (found.unfinished, found.template) == ((0.0,), None)
