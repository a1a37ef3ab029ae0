"""The rule that training starts from: the best site for what lasts least on it."""

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import Node
from bireme.core.placement import FreeCapacity
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_lab.training.das.baselines import BestSite

RULE = BestSite()


def machine(name: str, product: str, rack: str = "r0") -> Node:
    return a_node(name, 4, rack=rack, labels={GPU_MODEL_LABEL: product})


def nodes_for(gang: Gang, *nodes: Node) -> list[str]:
    """The nodes of the gang's replicas on these nodes, empty."""
    snapshot = a_snapshot(nodes, gang)
    capacity = FreeCapacity(snapshot.nodes, np.zeros_like(snapshot.used))
    placement = RULE.place(gang, capacity)
    assert placement is not None
    return [name for names in placement.by_task(snapshot.nodes).values() for name in names]


def a_job(name: str, gpus: int, minutes: float) -> Gang:
    return a_gang(name, a_task(gpus, 1), estimated_seconds=60 * minutes)


def test_a_gang_that_fits_a_fast_machine_goes_there_whole() -> None:
    machines = (machine("a", "T4"), machine("b", "A100"), machine("c", "T4"))
    assert nodes_for(a_job("job", 4, 60), *machines) == ["b"] * 4


def test_a_gang_too_large_for_one_machine_stays_in_a_rack_of_one_model() -> None:
    machines = (
        *(machine("a0", "V100", "left"), machine("a1", "T4", "left")),
        *(machine("b0", "V100", "right"), machine("b1", "V100", "right")),
    )
    assert nodes_for(a_job("job", 8, 60), *machines) == ["b0"] * 4 + ["b1"] * 4


def test_the_shorter_of_two_alike_goes_first() -> None:
    gangs = [a_job("long", 2, 600), a_job("short", 2, 5)]
    snapshot = a_snapshot([machine("a", "V100")], *gangs)
    assert [entry.gang.name for entry in RULE.order(gangs, snapshot)] == ["short", "long"]


def test_nobody_is_ordered_where_nobody_waits() -> None:
    assert RULE.order([], a_snapshot([machine("a", "V100")])) == []


def test_what_does_not_fit_is_not_placed() -> None:
    gang = a_job("job", 8, 60)
    snapshot = a_snapshot([machine("a", "V100")], gang)
    assert RULE.place(gang, FreeCapacity(snapshot.nodes, snapshot.used)) is None
