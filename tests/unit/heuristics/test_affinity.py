"""Workers beside parameter servers: kept when required, sought when preferred, and found."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing
from bireme.testing import GIB, a_gang, a_node, a_task, racks
from testbed.random_snapshots import BLOCK, HOST, RACK

ZONE = "topology.kubernetes.io/zone"
LEVELS = SchedulingSettings().topology_levels


def capacity_of(nodes: Sequence[Node], levels: Sequence[str] = LEVELS) -> FreeCapacity:
    table = NodeTable(nodes, levels)
    return FreeCapacity(table, np.zeros_like(table.allocatable))


def spots(gang: Gang, capacity: FreeCapacity) -> dict[str, Counter[str]]:
    """Task name to replicas per node name."""
    placement = Packing().place(gang, capacity)
    assert placement is not None
    return {task: Counter(names) for task, names in placement.by_task(capacity.nodes).items()}


def pair(
    servers: int,
    workers: int,
    mode: AffinityMode = AffinityMode.REQUIRED,
    key: str = HOST,
    *,
    gpus: int = 1,
    server_millis: int = 1000,
    worker_millis: int = 1000,
) -> Gang:
    return a_gang(
        "job",
        a_task(servers, 0, role=Role.PS, cpu_millis=server_millis),
        a_task(workers, gpus, cpu_millis=worker_millis),
        role_affinity=RoleAffinity(mode, key),
    )


def test_required_on_the_node_puts_a_server_on_every_worker_node() -> None:
    found = spots(pair(4, 32), capacity_of(racks(2, 4)))
    assert found["worker"].keys() <= found["ps"].keys()
    assert sorted(found["ps"].values()) == [1, 1, 1, 1]


def test_required_on_the_node_needs_no_more_nodes_than_there_are_servers() -> None:
    assert Packing().place(pair(3, 32), capacity_of(racks(2, 4))) is None
    assert len(spots(pair(3, 24), capacity_of(racks(2, 4)))["worker"]) == 3


def test_required_on_the_node_refuses_nodes_without_room_for_a_server() -> None:
    full = [a_node(f"n{i}", 4, cpu_millis=4000, rack="r0") for i in range(2)]
    assert Packing().place(pair(2, 8), capacity_of(full)) is None
    roomy = [a_node(f"n{i}", 4, cpu_millis=5000, rack="r0") for i in range(2)]
    found = spots(pair(2, 8), capacity_of(roomy))
    assert found == {"ps": {"n0": 1, "n1": 1}, "worker": {"n0": 4, "n1": 4}}


def test_servers_left_over_may_stand_where_no_worker_is() -> None:
    nodes = [a_node("gpu", 4, cpu_millis=5000, rack="r0"), a_node("cpu", 0, rack="r0")]
    found = spots(pair(3, 4), capacity_of(nodes))
    assert found == {"ps": {"gpu": 1, "cpu": 2}, "worker": {"gpu": 4}}


def test_servers_of_several_nodes_are_dealt_evenly() -> None:
    found = spots(pair(6, 24), capacity_of(racks(1, 4)))
    assert sorted(found["ps"].values()) == [2, 2, 2]


def test_required_on_the_rack_puts_a_server_into_every_worker_rack() -> None:
    found = spots(pair(2, 60, key=RACK), capacity_of(racks(3, 4)))
    racks_used = {name[:2] for name in found["worker"]}
    assert racks_used <= {name[:2] for name in found["ps"]}
    assert len(racks_used) == 2
    assert Packing().place(pair(1, 60, key=RACK), capacity_of(racks(3, 4))) is None


def test_in_a_rack_the_server_stands_where_it_costs_the_fewest_workers() -> None:
    # Both GPU nodes are exactly full of workers; only the third has cores to spare.
    rack = [
        a_node("a", 4, cpu_millis=4000, rack="r0", zone="z"),
        a_node("b", 4, cpu_millis=4000, rack="r0", zone="z"),
        a_node("c", 0, cpu_millis=1000, rack="r0", zone="z"),
    ]
    other = [a_node("d", 8, cpu_millis=9000, rack="r1", zone="z")]
    found = spots(pair(2, 16, key=RACK), capacity_of([*rack, *other]))
    assert found["ps"] == {"c": 1, "d": 1}


def test_a_rack_is_filled_with_the_server_first_where_nothing_else_holds_all() -> None:
    # Workers fill "wide" first, and the server prefers "narrow", where it costs two of them.
    nodes = [
        a_node("narrow", 0, cpu_millis=3000, rack="r0"),
        a_node("wide", 0, cpu_millis=16_000, pods=4, rack="r0"),
    ]
    found = spots(pair(1, 6, key=RACK, gpus=0, server_millis=2000), capacity_of(nodes))
    assert found == {"ps": {"wide": 1}, "worker": {"narrow": 3, "wide": 3}}


def test_required_passes_over_a_tight_rack_that_holds_the_gang_only_apart() -> None:
    nodes = [a_node(f"t{i}", 4, cpu_millis=4000, rack="tight") for i in range(2)]
    nodes += [a_node("t2", 0, cpu_millis=4000, rack="tight")]
    nodes += [a_node(f"w{i}", 4, rack="wide") for i in range(2)]
    apart = spots(pair(2, 8, AffinityMode.NONE), capacity_of(nodes))
    assert apart["ps"] == {"t2": 2}
    together = spots(pair(2, 8), capacity_of(nodes))
    assert together["ps"] == {"w0": 1, "w1": 1}


def test_required_on_the_rack_does_not_take_a_node_without_a_rack_for_one() -> None:
    nodes = [a_node("a0"), a_node("a1"), a_node("r0", rack="r0")]
    assert Packing().place(pair(3, 24, key=RACK), capacity_of(nodes)) is None
    alone = spots(pair(1, 8, key=RACK), capacity_of(nodes[:2]))  # one node is near enough
    assert alone["ps"].keys() == alone["worker"].keys()


def test_equal_rack_names_in_two_zones_need_a_server_each() -> None:
    nodes = [a_node(f"{z}{i}", rack="r", zone=f"z{z}") for z in "ab" for i in range(2)]
    assert Packing().place(pair(1, 32, key=RACK), capacity_of(nodes)) is None
    found = spots(pair(2, 32, key=RACK), capacity_of(nodes))
    assert {name[0] for name in found["ps"]} == {"a", "b"}


@pytest.mark.parametrize("levels", [(RACK,), (RACK, ZONE), (HOST, RACK, ZONE)], ids=str)
def test_required_on_the_rack_means_the_rack_over_any_list_of_levels(
    levels: tuple[str, ...],
) -> None:
    found = spots(pair(2, 60, key=RACK), capacity_of(racks(3, 4), levels))
    assert {name[:2] for name in found["worker"]} == {name[:2] for name in found["ps"]}


def test_a_key_that_is_no_level_means_the_node_itself() -> None:
    found = spots(pair(4, 32, key="example.com/switch"), capacity_of(racks(2, 4)))
    assert found["worker"].keys() <= found["ps"].keys()


def test_preferred_keeps_the_affinity_when_it_can() -> None:
    found = spots(pair(4, 32, AffinityMode.PREFERRED), capacity_of(racks(2, 4)))
    assert found["worker"].keys() <= found["ps"].keys()


def test_preferred_places_the_gang_anyway_when_it_cannot() -> None:
    nodes = [a_node(f"n{i}", 4, cpu_millis=4000) for i in range(2)] + [a_node("cpu", 0)]
    found = spots(pair(1, 8, AffinityMode.PREFERRED), capacity_of(nodes))
    assert found["ps"] == {"cpu": 1}


@pytest.mark.parametrize("mode", [AffinityMode.REQUIRED, AffinityMode.PREFERRED])
def test_on_one_node_the_whole_gang_is_together(mode: AffinityMode) -> None:
    found = spots(pair(2, 6, mode), capacity_of(racks(2, 2)))
    assert len(found["worker"] + found["ps"]) == 1


def test_chief_and_evaluator_are_placed_beside_the_pair_or_near_it() -> None:
    gang = a_gang(
        "job",
        a_task(1, 1, role=Role.CHIEF),
        a_task(2, 0, role=Role.PS),
        a_task(14, 1),
        a_task(1, 0, role=Role.EVALUATOR),
        role_affinity=RoleAffinity(AffinityMode.REQUIRED, HOST),
    )
    found = spots(gang, capacity_of(racks(3, 2)))
    assert found["worker"].keys() <= found["ps"].keys()
    assert len(set().union(*found.values())) == 2


def test_a_chief_without_room_beside_the_pair_goes_to_another_node_of_the_domain() -> None:
    gang = a_gang(
        "job",
        a_task(1, 8, role=Role.CHIEF),
        a_task(2, 0, role=Role.PS),
        a_task(16, 1),
        role_affinity=RoleAffinity(AffinityMode.REQUIRED, HOST),
    )
    found = spots(gang, capacity_of(racks(2, 3)))
    assert found["chief"].keys().isdisjoint(found["worker"])
    assert len({name[:2] for names in found.values() for name in names}) == 1
    assert Packing().place(gang, capacity_of(racks(1, 2))) is None


@pytest.mark.parametrize(
    "tasks",
    [
        pytest.param((a_task(8), a_task(4, 0, name="x", role=Role.MASTER)), id="no-server"),
        pytest.param((a_task(2, 0, role=Role.PS),), id="no-worker"),
        pytest.param(
            (a_task(16), a_task(1, 0, role=Role.PS), a_task(1, 0, name="ps2", role=Role.PS)),
            id="two-server-tasks",
        ),
    ],
)
def test_required_affinity_without_one_pair_of_tasks_is_no_obstacle(
    tasks: tuple[object, ...],
) -> None:
    gang = a_gang("job", *tasks, role_affinity=RoleAffinity(AffinityMode.REQUIRED))  # type: ignore[arg-type]  # parametrize knows objects only
    assert Packing().place(gang, capacity_of(racks(1, 4))) is not None


def divisions(replicas: int, bins: int) -> Iterator[tuple[int, ...]]:
    """Every way to put ``replicas`` into ``bins``."""
    return (
        division
        for division in product(range(replicas + 1), repeat=bins)
        if sum(division) == replicas
    )


def exists(gang: Gang, capacity: FreeCapacity) -> bool:
    """By trying everything: whether any placement keeps the required affinity."""
    nodes = capacity.nodes
    servers, workers = gang.tasks
    one, other = nodes.axis.request(servers.request), nodes.axis.request(workers.request)
    if one is None or other is None:
        return False
    codes = nodes.domains[nodes.topology_levels.index(gang.role_affinity.topology_key)]
    for ps in divisions(servers.replicas, len(nodes)):
        left = nodes.allocatable - np.array(ps)[:, None] * one
        if (left < 0).any():
            continue
        with_server = {int(codes[row]) for row, count in enumerate(ps) if count} - {-1}
        for work in divisions(workers.replicas, len(nodes)):
            on_one = sum(1 for pair_ in zip(ps, work, strict=True) if any(pair_)) == 1
            near = {int(codes[row]) for row, count in enumerate(work) if count} <= with_server
            if (near or on_one) and (left - np.array(work)[:, None] * other >= 0).all():
                return True
    return False


@st.composite
def tight_clusters(draw: st.DrawFn) -> list[Node]:
    """Two or three small nodes, scarce in different resources."""
    return [
        a_node(
            f"n{index}",
            draw(st.sampled_from((0, 1, 2, 4))),
            cpu_millis=draw(st.sampled_from((1000, 2000, 4000))),
            memory_bytes=8 * GIB,
            pods=draw(st.sampled_from((2, 4, 20))),
            rack=draw(st.sampled_from(("r0", "r1", None))),
        )
        for index in range(draw(st.integers(1, 3)))
    ]


@given(
    tight_clusters(),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from((HOST, RACK)),
    st.sampled_from((0, 1, 2)),
    st.sampled_from((500, 1000, 2000)),
    st.sampled_from((500, 1000)),
)
def test_two_servers_and_their_workers_are_placed_whenever_they_can_be(
    nodes: list[Node],
    servers: int,
    workers: int,
    key: str,
    gpus: int,
    server_millis: int,
    worker_millis: int,
) -> None:
    capacity = capacity_of(nodes)
    gang = pair(
        servers,
        workers,
        key=key,
        gpus=gpus,
        server_millis=server_millis,
        worker_millis=worker_millis,
    )
    assert (Packing().place(gang, capacity) is not None) == exists(gang, capacity)


def test_a_wider_level_than_the_rack_holds_the_pair_too() -> None:
    nodes = [
        a_node(f"b{b}r{r}n{n}", rack=f"r{r}", zone="z", labels={BLOCK: f"b{b}"})
        for b in range(2)
        for r in range(2)
        for n in range(2)
    ]
    found = spots(pair(2, 60, key=BLOCK), capacity_of(nodes))
    assert {name[:2] for name in found["ps"]} == {"b0", "b1"}
    assert Packing().place(pair(1, 60, key=BLOCK), capacity_of(nodes)) is None
