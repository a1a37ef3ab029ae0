"""Affinity, anti-affinity and spread in a cycle: between a gang's pods, and towards those there."""

from collections import Counter
from dataclasses import replace

import pytest

from bireme.core.nodes import Node
from bireme.core.pod_constraints import (
    NodeConstraints,
    PodKind,
    PodSelector,
    PodTerm,
    Requirement,
    SelectorOperator,
    SpreadLimit,
)
from bireme.core.reasons import Reason
from bireme.testing import a_gang, a_node, a_task
from testbed.decisions import hold_of
from testbed.random_snapshots import RACK
from tests.unit.core.preemption_cases import a_world, decide, runs, stopped, urgent
from tests.unit.core.test_host_ports import decided, with_pods


def pods(app: str) -> PodSelector:
    return PodSelector(("default",), (), (Requirement("app", SelectorOperator.IN, (app,)),))


def of(app: str, **rules: object) -> PodKind:
    """Return the kind of pods with this label and these rules."""
    return PodKind(namespace="default", labels=(("app", app),), **rules)  # type: ignore[arg-type]


def racks(**sizes: int) -> list[Node]:
    """Return nodes of the racks that their names begin with, of these numbers of GPUs."""
    return [a_node(name, gpus, rack=name[0]) for name, gpus in sizes.items()]


NEAR_A = (PodTerm(RACK, pods("a")),)
OVER_RACKS = (SpreadLimit(RACK, 1, pods("a")),)


def used_racks(places: list[str]) -> Counter[str]:
    return Counter(name[0] for name in places)


def test_a_gang_near_itself_goes_where_one_rack_holds_it_whole() -> None:
    """The tightest nodes are of racks that are too small."""
    nodes = racks(a0=1, b0=2, b1=1, c0=4, c1=4)
    world = a_world(a_gang("g", a_task(6, pod=of("a", near=NEAR_A))), nodes=nodes)
    assert used_racks(decided(world)["g"]) == {"c": 6}


def test_a_gang_near_itself_that_no_rack_holds_never_fits() -> None:
    gang = a_gang("g", a_task(9, pod=of("a", near=NEAR_A)))
    hold = hold_of(decide(a_world(gang, nodes=racks(a0=8, b0=8))), "g")
    assert (hold.reason, "holds at most 8" in hold.message) == (Reason.NEVER_FITS, True)


def test_a_gang_near_itself_follows_those_that_are_there() -> None:
    world = a_world(a_gang("g", a_task(2, pod=of("a", near=NEAR_A))), nodes=racks(a0=8, b0=8))
    assert decided(with_pods(world, (of("a"), "b0", ""))) == {"g": ["b0", "b0"]}


def test_workers_near_their_server_go_where_there_is_room_for_both() -> None:
    servers = a_task(1, 8, name="ps", pod=of("a"))
    workers = a_task(2, pod=of("w", near=NEAR_A))
    world = a_world(a_gang("g", workers, servers), nodes=racks(a0=8, b0=8, b1=2))
    assert decided(world) == {"g": ["b0", "b1", "b1"]}


def test_a_gang_near_pods_that_do_not_exist_waits_for_them_in_words() -> None:
    gang = a_gang("g", a_task(1, pod=of("w", near=NEAR_A)))
    hold = hold_of(decide(a_world(gang, nodes=racks(a0=8))), "g")
    assert hold.reason is Reason.WAITING_FOR_CAPACITY
    assert f"required pod affinity on {RACK}" in hold.message


def test_affinity_is_to_gangs_that_start_in_the_same_cycle_too() -> None:
    first = a_gang("first", a_task(1, pod=of("a")))
    then = a_gang("then", a_task(1, pod=of("w", near=NEAR_A)), arrived=1.0)
    assert decided(a_world(first, then, nodes=racks(a0=2, b0=8))) == {
        "first": ["a0"],
        "then": ["a0"],
    }


def test_anti_affinity_of_a_pod_that_is_there_closes_its_domain_to_a_gang_without_rules() -> None:
    away = of("x", apart=(PodTerm(RACK, pods("a")),))
    world = a_world(a_gang("g", a_task(2, pod=of("a"))), nodes=racks(a0=8, a1=8, b0=8))
    assert decided(with_pods(world, (away, "a0", ""))) == {"g": ["b0", "b0"]}


def test_replicas_apart_by_rack_leave_nodes_without_a_rack_open() -> None:
    kind = of("a", apart=(PodTerm(RACK, pods("a")),))
    nodes = [*racks(a0=8, a1=8), a_node("n0", 8), a_node("n1", 8)]
    found = decided(a_world(a_gang("g", a_task(4, pod=kind)), nodes=nodes))["g"]
    # Nodes without the label are in no domain, so that any number may be there.
    assert used_racks(found)["a"] <= 1


@pytest.mark.parametrize(("replicas", "per_rack"), [(4, [2, 2]), (5, [2, 3])])
def test_a_spread_is_kept_over_domains(replicas: int, per_rack: list[int]) -> None:
    gang = a_gang("g", a_task(replicas, pod=of("a", spread=OVER_RACKS)))
    found = decided(a_world(gang, nodes=racks(a0=8, b0=8)))["g"]
    assert sorted(used_racks(found).values()) == per_rack


def test_a_spread_counts_pods_that_are_there_but_none_that_leave() -> None:
    gang = a_gang("g", a_task(1, pod=of("a", spread=OVER_RACKS)))
    world = with_pods(a_world(gang, nodes=racks(a0=1, b0=8)), (of("a"), "a0", ""))
    assert decided(world) == {"g": ["b0"]}
    (there,) = world.occupants.groups
    leaving = type(world.occupants)([replace(there, are_leaving=True)])
    assert decided(replace(world, occupants=leaving)) == {"g": ["a0"]}


def test_a_spread_of_one_task_is_kept_when_those_of_another_have_come_first() -> None:
    """A server counts for it and has none: whether it or the worker comes first is not planned."""
    server, worker = a_task(1, 0, name="ps", pod=of("a")), a_task(1, pod=of("a", spread=OVER_RACKS))
    world = a_world(a_gang("g", server, worker), nodes=racks(a0=8, b0=8))
    assert used_racks(decided(world)["g"]) == {"a": 1, "b": 1}


def test_a_domain_that_the_template_excludes_does_not_count_for_its_spread() -> None:
    only = NodeConstraints(node_selector=((RACK, "a"),))
    task = a_task(4, pod=of("a", spread=OVER_RACKS), constraints=only)
    found = decided(a_world(a_gang("g", task), nodes=racks(a0=8, b0=8)))["g"]
    assert used_racks(found) == {"a": 4}


@pytest.mark.parametrize(("least", "replicas", "fits"), [(2, 4, True), (3, 2, True), (3, 3, False)])
def test_with_fewer_domains_than_least_an_empty_one_counts_for_a_spread(
    least: int, replicas: int, fits: bool
) -> None:
    limit = replace(OVER_RACKS[0], least_domains=least)
    gang = a_gang("g", a_task(replicas, pod=of("a", spread=(limit,))))
    found = decided(a_world(gang, nodes=racks(a0=8, b0=8)))
    assert bool(found) is fits


@pytest.mark.parametrize(("honors", "replicas"), [(True, 4), (False, 1)])
def test_a_domain_that_the_template_excludes_counts_where_its_spread_ignores_that(
    honors: bool, replicas: int
) -> None:
    limit = replace(OVER_RACKS[0], honors_affinity=honors)
    only = NodeConstraints(node_selector=((RACK, "a"),))
    tasks = [a_task(n, pod=of("a", spread=(limit,)), constraints=only) for n in (4, 1)]
    world = a_world(*(a_gang(f"g{t.replicas}", t) for t in tasks), nodes=racks(a0=8, b0=8))
    found = {name: used_racks(places) for name, places in decided(world).items()}
    assert found[f"g{replicas}"] == {"a": replicas}
    assert ("g4" in found) is honors


def test_the_victim_is_who_closes_the_rack_even_if_its_place_is_not_taken() -> None:
    kind = of("a", apart=(PodTerm(RACK, pods("x")),))
    gang = urgent(1)
    gang = replace(gang, tasks=tuple(replace(task, pod=kind) for task in gang.tasks))
    world = runs(a_world(gang, nodes=racks(a0=4, a1=4)), "holder", {"a0": 1})
    assert stopped(decide(with_pods(world, (of("x"), "a0", "holder")))) == ["holder"]


def test_a_gang_whose_stay_breaks_a_spread_is_not_spared() -> None:
    """One of the two in rack a must leave: rack b is full of pods of nobody."""
    kind = of("a", spread=(SpreadLimit(RACK, 1, pods("a")),))
    gang = urgent(1)
    gang = replace(gang, tasks=tuple(replace(task, pod=kind) for task in gang.tasks))
    world = a_world(gang, nodes=racks(a0=8, b0=0))
    world = runs(world, "one", {"a0": 1})
    decision = decide(with_pods(world, (of("a"), "a0", "one")))
    assert stopped(decision) == ["one"]
