"""Fragmentation gradient descent: the measure against the authors' own numbers, the descent."""

from collections.abc import Sequence

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.core.gangs import Gang
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.fragmentation import (
    FragmentationGradientDescent,
    TypicalTask,
    fragmentation,
)
from bireme.testing import GIB, a_gang, a_node, a_task

# The workload of TestNodeGpuShareFragAmountWithNonGpu in the authors' simulator
# (hkust-adsl/kubernetes-scheduler-simulator), equal answers summed up.
PUBLISHED = (
    TypicalTask(0.0954, 0, 1000),
    TypicalTask(0.8433, 1, 18_710),
    TypicalTask(0.0123, 4, 60_200),
    TypicalTask(0.0107, 8, 64_200),
    TypicalTask(0.0101, 4, 32_200),
    TypicalTask(0.0053, 8, 64_000),
    TypicalTask(0.0048, 8, 120_200),
)


def free(gpus: int) -> Node:
    return a_node(f"free-{gpus}", gpus)


EVEN_WORKLOAD = tuple(TypicalTask(1.0, devices) for devices in (1, 2, 4, 8))


def expected(*devices: int, workload: Sequence[TypicalTask] = EVEN_WORKLOAD) -> list[float]:
    """Expected fragmentation of nodes with so many free devices and plenty of the rest."""
    plenty = np.full(len(devices), 2**40)
    return list(fragmentation(np.array(devices), plenty, plenty, workload))


def chosen(gang: Gang, *nodes: Node, placer: FragmentationGradientDescent | None = None) -> str:
    """The nodes of the replicas, in order of the nodes' names."""
    table = NodeTable(nodes, SchedulingSettings().topology_levels)
    capacity = FreeCapacity(table, np.zeros_like(table.allocatable))
    placement = (placer or FragmentationGradientDescent()).place(gang, capacity)
    assert placement is not None
    return ",".join(name for names in placement.by_task(table).values() for name in names)


@pytest.mark.parametrize(
    ("devices", "cpu_millis", "milli_gpus"),
    [
        pytest.param(8, 64_000, 887.2, id="8xP100_empty"),
        pytest.param(4, 32_000, 554.4, id="8xP100_halved"),
    ],
)
def test_the_measure_gives_the_numbers_of_its_authors(
    devices: int, cpu_millis: int, milli_gpus: float
) -> None:
    found = fragmentation(np.array([devices]), np.array([cpu_millis]), np.array([2**40]), PUBLISHED)
    named = sum(task.share for task in PUBLISHED)  # theirs do not sum to 1; ours are made to
    assert 1000 * found[0] * named == pytest.approx(milli_gpus, abs=0.05)


def test_free_devices_are_fragments_to_the_tasks_that_do_not_fit() -> None:
    # Of tasks of 1, 2, 4 and 8 devices, equally frequent.
    assert expected(0, 1, 2, 3, 4, 7, 8, -1) == [0, 0.75, 1, 1.5, 1, 1.75, 0, 0]


def test_missing_memory_strands_devices_too() -> None:
    workload = [TypicalTask(1, 1, memory_bytes=2 * GIB)]
    memory = np.array([GIB, 2 * GIB])
    found = fragmentation(np.array([4, 4]), np.array([0, 0]), memory, workload)
    assert found.tolist() == [4.0, 0.0]


def test_a_replica_goes_where_fragmentation_falls_most() -> None:
    one, two = a_gang("g", a_task(1, 1)), a_gang("g", a_task(1, 2))
    assert chosen(one, free(8), free(4), free(3), free(1)) == "free-1"
    assert chosen(one, free(8), free(4), free(3), free(2)) == "free-3"
    assert chosen(one, free(8), free(4), free(7)) == "free-7"
    assert chosen(one, free(8), free(4)) == "free-4"
    assert chosen(two, free(8), free(6), free(4), free(3)) == "free-3"


def test_every_replica_sees_the_fragments_of_those_before_it() -> None:
    gang = a_gang("g", a_task(3, 1))
    assert chosen(gang, free(8), free(3), free(1)) == "free-1,free-3,free-3"
    assert chosen(a_gang("g", a_task(4, 1)), free(8), free(4)) == "free-4,free-4,free-4,free-4"


def test_the_target_workload_decides() -> None:
    pairs = FragmentationGradientDescent([TypicalTask(1, 2)])
    assert chosen(a_gang("g", a_task(1, 1)), free(2), free(7), placer=pairs) == "free-7"
    singles = FragmentationGradientDescent([TypicalTask(1, 1)])
    assert chosen(a_gang("g", a_task(1, 1)), free(2), free(7), placer=singles) == "free-2"


def test_a_task_without_devices_stays_away_from_cores_that_devices_need() -> None:
    workload = [TypicalTask(1, 1, cpu_millis=4000)]
    nodes = a_node("gpus", 8, cpu_millis=4000), a_node("plain", 0, cpu_millis=90_000)
    gang = a_gang("g", a_task(1, 0))
    cautious = FragmentationGradientDescent(workload)
    assert chosen(gang, *nodes, placer=cautious) == "plain"


def test_where_no_node_has_devices_the_tightest_is_taken() -> None:
    nodes = a_node("large", 0), a_node("small", 0, cpu_millis=2000)
    assert chosen(a_gang("g", a_task(1, 0)), *nodes) == "small"


@pytest.mark.parametrize("share", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_workload_is_refused(share: float) -> None:
    with pytest.raises(SettingError, match=r"workload is .* share above 0"):
        FragmentationGradientDescent([TypicalTask(share, 1)])
    with pytest.raises(SettingError, match="name at least one task"):
        FragmentationGradientDescent([])
