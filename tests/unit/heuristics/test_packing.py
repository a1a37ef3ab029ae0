"""Packing: the smallest domain, the tightest that holds the gang, the fewest domains beyond."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity, Task
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.resources import IntArray
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing, pack_by_level
from bireme.testing import GIB, GPU, a_gang, a_node, a_task, racks
from testbed import random_snapshots
from testbed.model import oracles
from testbed.random_snapshots import BLOCK, HOST, RACK

ZONE = "topology.kubernetes.io/zone"
LEVELS = SchedulingSettings().topology_levels
APART = RoleAffinity(AffinityMode.NONE)


def capacity_of(
    nodes: Sequence[Node], levels: Sequence[str] = LEVELS, busy: dict[str, int] | None = None
) -> FreeCapacity:
    """Free capacity of ``nodes`` with ``busy`` GPUs taken, by node name."""
    table = NodeTable(nodes, levels)
    used: IntArray = np.zeros_like(table.allocatable)
    for name, gpus in (busy or {}).items():
        used[table.row[name], table.axis.names.index(GPU)] = gpus
    return FreeCapacity(table, used)


def place(gang: Gang, capacity: FreeCapacity) -> Placement:
    placement = Packing().place(gang, capacity)
    assert placement is not None
    return placement


def nodes_of(gang: Gang, capacity: FreeCapacity) -> dict[str, int]:
    """Node name to replicas of all tasks."""
    spots = place(gang, capacity).by_task(capacity.nodes)
    return dict(Counter(name for names in spots.values() for name in names))


def racks_of(gang: Gang, capacity: FreeCapacity) -> set[str]:
    return {name.split("-")[0] for name in nodes_of(gang, capacity)}


def test_a_gang_that_fits_one_node_gets_one_node() -> None:
    placement = place(a_gang("g", a_task(8)), capacity_of(racks(2, 2)))
    assert (placement.level, len(placement.node_rows())) == (HOST, 1)


def test_a_gang_goes_to_the_tightest_node_that_holds_it() -> None:
    capacity = capacity_of(racks(1, 4), busy={"r0-n1": 5, "r0-n2": 4, "r0-n3": 6})
    assert nodes_of(a_gang("g", a_task(4)), capacity) == {"r0-n2": 4}
    assert nodes_of(a_gang("g", a_task(3)), capacity) == {"r0-n1": 3}


def test_a_gang_goes_to_the_tightest_rack_that_holds_it() -> None:
    capacity = capacity_of(racks(3, 2), busy={"r1-n0": 4, "r2-n0": 6})
    assert racks_of(a_gang("g", a_task(12)), capacity) == {"r1"}
    assert racks_of(a_gang("g", a_task(10)), capacity) == {"r2"}
    assert racks_of(a_gang("g", a_task(16)), capacity) == {"r0"}


def test_inside_its_rack_a_gang_fills_nodes_and_leaves_the_large_hole() -> None:
    capacity = capacity_of(racks(1, 3), busy={"r0-n1": 5})
    assert nodes_of(a_gang("g", a_task(10)), capacity) == {"r0-n0": 8, "r0-n1": 2}


def test_a_gang_wider_than_a_rack_spans_the_fewest_racks() -> None:
    capacity = capacity_of(racks(5, 2), busy={"r0-n0": 8, "r1-n0": 8, "r2-n0": 8})
    assert racks_of(a_gang("g", a_task(28)), capacity) == {"r3", "r4"}
    assert len(racks_of(a_gang("g", a_task(40)), capacity)) == 3


@pytest.mark.parametrize(
    ("replicas", "level", "domain"),
    [(8, HOST, None), (16, RACK, None), (32, BLOCK, None), (64, ZONE, None), (128, "cluster", "")],
)
def test_the_narrowest_of_four_levels_that_holds_the_gang_is_used(
    replicas: int, level: str, domain: str | None
) -> None:
    nodes = [
        a_node(f"z{z}b{b}r{r}n{n}", rack=f"r{r}", zone=f"z{z}", labels={BLOCK: f"b{b}"})
        for z in range(2)
        for b in range(2)
        for r in range(2)
        for n in range(2)
    ]
    placement = place(a_gang("g", a_task(replicas)), capacity_of(nodes))
    assert placement.level == level
    assert len(placement.node_rows()) == replicas // 8
    assert domain is None or placement.domain == domain


def test_equal_rack_names_in_two_zones_are_not_mistaken_for_one_rack() -> None:
    nodes = [a_node("a", rack="r", zone="za"), a_node("b", rack="r", zone="zb")]
    placement = place(a_gang("g", a_task(16)), capacity_of(nodes))
    assert placement.level == "cluster"


def test_two_nodes_without_a_rack_are_not_a_rack() -> None:
    nodes = [a_node("a0"), a_node("a1"), a_node("z0", rack="r0"), a_node("z1", rack="r0")]
    placement = place(a_gang("g", a_task(16)), capacity_of(nodes))
    assert (placement.level, placement.domain) == (RACK, "r0")


def test_nodes_without_labels_are_used_when_nothing_else_holds_the_gang() -> None:
    nodes = [a_node("a0"), a_node("a1"), a_node("z0", rack="r0", zone="z")]
    capacity = capacity_of(nodes)
    assert nodes_of(a_gang("g", a_task(24)), capacity) == {"a0": 8, "a1": 8, "z0": 8}


@pytest.mark.parametrize(
    "levels", [(HOST, RACK), (RACK,), (RACK, ZONE), (HOST, RACK, BLOCK, ZONE)], ids=str
)
def test_racks_are_filled_one_after_another_over_any_list_of_levels(
    levels: tuple[str, ...],
) -> None:
    # In bare node order the best-fitting nodes alternate between the racks.
    nodes = [a_node(f"n{i}", rack=f"r{i % 3}", zone="z") for i in range(12)]
    capacity = capacity_of(nodes, levels)
    spots = nodes_of(a_gang("g", a_task(56)), capacity)
    by_rack = Counter(f"r{int(name[1:]) % 3}" for name in spots)
    assert sorted(by_rack.values()) == [3, 4]


def test_packing_by_level_fills_the_rack_that_holds_the_rest_exactly() -> None:
    capacity = capacity_of(racks(3, 2), busy={"r2-n0": 4})
    room = capacity.replicas(a_task())
    counts = pack_by_level(room, 28, capacity, level=2)
    assert counts.tolist() == [8, 8, 0, 0, 4, 8]


def test_tasks_of_one_gang_share_nodes_before_they_use_more() -> None:
    gang = a_gang("g", a_task(7), a_task(1, 1, name="chief", role=Role.CHIEF))
    assert nodes_of(gang, capacity_of(racks(1, 2))) == {"r0-n0": 8}


def test_the_demand_of_all_tasks_together_must_fit() -> None:
    gang = a_gang("g", a_task(1, 5), a_task(1, 5, name="other"))
    spots = nodes_of(gang, capacity_of([a_node("a"), a_node("b")]))
    assert spots == {"a": 1, "b": 1}
    assert Packing().place(gang, capacity_of([a_node("a", 9)])) is None


def test_parameter_servers_stand_on_distinct_nodes_of_a_gang_of_several_nodes() -> None:
    gang = a_gang("g", a_task(32), a_task(4, 0, role=Role.PS), role_affinity=APART)
    spots = place(gang, capacity := capacity_of(racks(1, 4))).by_task(capacity.nodes)
    assert sorted(spots["ps"]) == ["r0-n0", "r0-n1", "r0-n2", "r0-n3"]


def test_replicas_are_numbered_along_the_topology() -> None:
    capacity = capacity_of(racks(2, 2))
    names = place(a_gang("g", a_task(20)), capacity).by_task(capacity.nodes)["worker"]
    assert list(names) == sorted(names)
    assert sum(a[:2] != b[:2] for a, b in pairwise(names)) == 1


@pytest.mark.parametrize(
    ("gang", "fits"),
    [
        pytest.param(a_gang("g", a_task(17)), False, id="one-replica-too-many"),
        pytest.param(a_gang("g", a_task(16)), True, id="exactly-all"),
        pytest.param(a_gang("g", a_task(3, 5)), False, id="fragments"),
        pytest.param(
            a_gang("g", a_task(1), a_task(1, 0, name="x", memory_bytes=2**60)), False, id="absurd"
        ),
        pytest.param(a_gang("g", a_task(10**9)), False, id="a-thousand-million"),
    ],
)
def test_a_gang_is_placed_whole_or_not_at_all(gang: Gang, fits: bool) -> None:
    assert (Packing().place(gang, capacity_of(racks(1, 2))) is not None) == fits


def test_where_the_scarcest_kind_first_fails_the_other_way_round_is_tried() -> None:
    # Workers first would fill the one node that is large enough for the evaluators.
    nodes = [a_node("large", 0, cpu_millis=6000, pods=2)]
    nodes += [a_node(name, 0, cpu_millis=1000) for name in ("small", "tiny")]
    evaluators = a_task(2, 0, cpu_millis=3000, role=Role.EVALUATOR)
    for name in ("evaluator", "z"):  # whichever comes first by name
        gang = a_gang("g", a_task(2, 0), replace(evaluators, name=name))
        assert nodes_of(gang, capacity_of(nodes)) == {"large": 2, "small": 1, "tiny": 1}


def test_placing_the_same_gang_twice_gives_the_same_placement() -> None:
    gang = a_gang("g", a_task(20), a_task(3, 0, role=Role.PS))
    capacity = capacity_of(racks(3, 3))
    assert nodes_of(gang, capacity) == nodes_of(gang, capacity)


@given(
    random_snapshots.clusters(),
    random_snapshots.tasks(most=12),
    st.sampled_from(random_snapshots.LEVELS),
)
def test_no_narrower_domain_would_have_held_a_gang_of_one_task(
    nodes: tuple[Node, ...], task: Task, levels: tuple[str, ...]
) -> None:
    capacity = capacity_of(nodes, levels)
    assume(dict(task.request).get("memory", 0) < 2**46)
    placement = Packing().place(a_gang("g", task), capacity)
    room = {node.name: oracles.room(node, node.allocatable, task) for node in nodes}
    assert (placement is not None) == (sum(room.values()) >= task.replicas)
    if placement is None:
        return
    named = [*levels, "cluster"].index(placement.level)
    for level in range(named):
        domains: Counter[int] = Counter()
        for name, code in zip(capacity.nodes.names, capacity.nodes.domains[level], strict=True):
            if code >= 0:
                domains[int(code)] += room[name]
        assert all(total < task.replicas for total in domains.values())


def test_memory_is_counted_beside_devices() -> None:
    gang = a_gang("g", a_task(8, 1, memory_bytes=200 * GIB))
    assert sorted(nodes_of(gang, capacity_of(racks(1, 2))).values()) == [3, 5]


# --- models of GPUs ---

FAST, LIKE_FAST, SLOW = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "Tesla-V100-SXM2-32GB"


def a_node_of(model: str, name: str, gpus: int = 8) -> Node:
    return a_node(name, gpus, labels={GPU_MODEL_LABEL: model})


def test_a_gang_goes_to_the_fastest_gpus_before_the_tightest_node_or_rack() -> None:
    nodes = [a_node_of(SLOW, "slow"), *(a_node_of(FAST, f"fast-{i}") for i in range(2))]
    capacity = capacity_of(nodes, busy={"slow": 4})
    assert nodes_of(a_gang("g", a_task(4)), capacity) == {"fast-0": 4}
    assert nodes_of(a_gang("g", a_task(12)), capacity) == {"fast-0": 8, "fast-1": 4}


def test_a_gang_that_needs_slower_gpus_leaves_the_faster_ones_to_others() -> None:
    nodes = [a_node_of(FAST, "fast"), *(a_node_of(SLOW, f"slow-{i}") for i in range(2))]
    assert set(nodes_of(a_gang("g", a_task(12)), capacity_of(nodes))) == {"slow-0", "slow-1"}
    assert nodes_of(a_gang("g", a_task(24)), capacity_of(nodes)) == {
        "fast": 8,
        "slow-0": 8,
        "slow-1": 8,
    }


def test_models_of_nearly_the_same_speed_count_alike() -> None:
    nodes = [a_node_of(LIKE_FAST, "faster"), a_node_of(FAST, "fast")]
    capacity = capacity_of(nodes, busy={"fast": 4})
    assert nodes_of(a_gang("g", a_task(4)), capacity) == {"fast": 4}
    strict = Packing(least_speedup=1.0).place(a_gang("g", a_task(4)), capacity)
    assert strict is not None
    assert strict.by_task(capacity.nodes)["worker"] == ("faster",) * 4


@given(
    st.lists(
        st.tuples(
            st.sampled_from((FAST, SLOW, "Tesla-T4")),
            st.integers(0, 8),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_within_some_nodes_a_gang_fits_exactly_when_it_fits_these_alone(
    drawn: list[tuple[str, int, bool, bool]],
) -> None:
    """A placer looks at one model after the other, or at one pool, of the nodes it was given."""
    nodes = [a_node_of(model, f"n{at}") for at, (model, *_) in enumerate(drawn)]
    capacity = capacity_of(nodes, busy={f"n{at}": each[1] for at, each in enumerate(drawn)})
    given, pool = np.array([each[2:] for each in drawn]).T
    view = capacity.only_on(given, GPU)
    free = np.array([8 - busy for _, busy, *_ in drawn])
    for room, inside in ((view, given), (view.inside(pool), given & pool)):
        for replicas in (1, 4, 12):
            found = Packing().place(a_gang("g", a_task(replicas)), room)
            assert (found is not None) == (free[inside].sum() >= replicas)
            assert found is None or inside[found.node_rows()].all()


def test_what_asks_for_no_gpu_goes_where_it_went() -> None:
    nodes = [a_node_of(FAST, "fast"), a_node_of(SLOW, "slow")]
    capacity = capacity_of(nodes, busy={"slow": 7})
    gang = a_gang("g", a_task(1, gpus=0))
    plain = Packing(least_speedup=1000).place(gang, capacity)
    assert plain is not None
    assert nodes_of(gang, capacity) == dict(
        Counter(name for names in plain.by_task(capacity.nodes).values() for name in names)
    )


@given(
    st.lists(st.tuples(st.sampled_from((FAST, SLOW, "", "A100")), st.integers(0, 8)), min_size=1),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_whether_a_gang_fits_depends_on_no_model(
    machines: list[tuple[str, int]], replicas: int, gpus: int
) -> None:
    nodes = [a_node_of(model, f"n{i}", n) for i, (model, n) in enumerate(machines)]
    gang, capacity = a_gang("g", a_task(replicas, gpus=gpus)), capacity_of(nodes)
    alike = Packing(least_speedup=1000).place(gang, capacity)
    assert (alike is None) == (Packing().place(gang, capacity) is None)
