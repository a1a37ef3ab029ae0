"""Preferences in a cycle: they choose places among those that are left, and decide nothing else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core import preferences
from bireme.core.cycle import run_cycle
from bireme.core.decision import Action, Admit, Hold
from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity, Task
from bireme.core.nodes import Node, score
from bireme.core.placement import CLUSTER_LEVEL, FreeCapacity, Placement
from bireme.core.pod_constraints import (
    NO_PREFERENCES,
    NodeConstraints,
    NodePreference,
    PodPreference,
    PodTerm,
    Preferences,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    SpreadLimit,
    Toleration,
)
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.registry import make_policy
from bireme.testing import a_gang, a_node, a_task, racks
from testbed import random_snapshots
from testbed.decisions import hold_of
from testbed.examples import examples
from testbed.random_snapshots import HOST, RACK, SLOW, SnapshotCase
from tests.unit.core.preemption_cases import InOrder, a_world, decide, runs
from tests.unit.core.test_host_ports import decided, with_pods
from tests.unit.core.test_pod_affinity import of, pods


def label(key: str, value: str, weight: int = 100) -> NodePreference:
    term = SelectorTerm((Requirement(key, SelectorOperator.IN, (value,)),))
    return NodePreference(2 * weight, term)


FAST = label("disk", "ssd")


def fast(name: str, gpus: int = 8, **facts: object) -> Node:
    return a_node(name, gpus, labels={"disk": "ssd"}, **facts)  # type: ignore[arg-type]


def wishing(replicas: int, *nodes: NodePreference, gpus: int = 1, **facts: object) -> Task:
    return a_task(replicas, gpus, preferences=Preferences(nodes), **facts)  # type: ignore[arg-type]


def wishing_pods(replicas: int, *given: PodPreference, app: str = "a") -> Task:
    return a_task(replicas, pod=of(app), preferences=Preferences(pods=given))


def where(*waiting: Gang, nodes: Sequence[Node]) -> dict[str, list[str]]:
    return decided(a_world(*waiting, nodes=nodes))


# --- nodes ---


def test_a_gang_goes_to_the_nodes_it_prefers_although_others_are_tighter() -> None:
    nodes = [a_node("a", 2), fast("b", 8)]
    assert where(a_gang("g", wishing(2, FAST)), nodes=nodes) == {"g": ["b", "b"]}


def test_a_preference_that_no_node_meets_keeps_no_other_from_counting() -> None:
    nodes = [a_node("a", 2), fast("b", 8)]
    nowhere = label("zone", "moon")
    assert where(a_gang("g", wishing(2, nowhere, FAST)), nodes=nodes) == {"g": ["b", "b"]}


def test_a_gang_that_does_not_fit_on_the_nodes_it_prefers_starts_on_others() -> None:
    nodes = [a_node("a", 8), fast("b", 2)]
    assert where(a_gang("g", wishing(8, FAST)), nodes=nodes) == {"g": ["a"] * 8}


def test_of_a_gang_that_needs_more_nodes_as_few_as_can_be_are_others() -> None:
    nodes = [a_node("a0", 3), a_node("a1", 3), fast("b0", 2), fast("b1", 2)]
    found = Counter(where(a_gang("g", wishing(6, FAST)), nodes=nodes)["g"])
    assert (found["b0"], found["b1"], found["a0"] + found["a1"]) in [
        (2, 2, 2),
        (1, 2, 3),
        (2, 1, 3),
    ]


def test_weights_of_a_node_add_up() -> None:
    nodes = [
        a_node("a", labels={"disk": "ssd"}),
        a_node("b", labels={"net": "ib", "zone": "here"}),
        a_node("c"),
    ]
    wishes = label("disk", "ssd", 50), label("net", "ib", 30), label("zone", "here", 30)
    assert where(a_gang("g", wishing(1, *wishes)), nodes=nodes) == {"g": ["b"]}


def test_each_task_goes_to_the_nodes_that_it_prefers_itself() -> None:
    nodes = [
        a_node("a", rack="r"),
        fast("b", rack="r"),
        *(a_node(name, rack="r", labels={"kind": "large"}) for name in ("c", "d")),
    ]
    servers = wishing(1, FAST, name="ps", gpus=0)
    workers = wishing(2, label("kind", "large"), name="w", gpus=8)
    assert where(a_gang("g", servers, workers), nodes=nodes) == {"g": ["b", "c", "d"]}


def test_a_preference_stretches_no_gang_over_a_wider_domain() -> None:
    """Only across racks are there enough of the nodes that it prefers."""
    nodes = [
        a_node(f"{rack}{n}", 8, rack=rack, labels={"disk": "ssd"} if n == 0 else {})
        for rack in ("r", "s")
        for n in range(2)
    ]
    found = where(a_gang("g", wishing(2, FAST, gpus=8)), nodes=nodes)["g"]
    assert len({name[0] for name in found}) == 1


def test_it_moves_as_a_whole_to_another_domain_as_narrow() -> None:
    nodes = [*racks(1, 2), *(fast(f"s{n}", rack="s") for n in range(2))]
    found = where(a_gang("g", wishing(2, FAST, gpus=8)), nodes=nodes)
    assert found == {"g": ["s0", "s1"]}


def test_of_two_domains_the_one_is_taken_where_more_replicas_get_what_they_prefer() -> None:
    nodes = [
        a_node("r0", rack="r"),
        a_node("r1", rack="r"),
        a_node("s0", rack="s"),
        fast("s1", rack="s"),
    ]
    found = where(a_gang("g", wishing(2, FAST, gpus=8)), nodes=nodes)
    assert found == {"g": ["s0", "s1"]}


@pytest.mark.parametrize("tolerates", [False, True])
def test_nodes_with_a_soft_taint_are_avoided_unless_it_is_tolerated(tolerates: bool) -> None:
    nodes = [a_node("a", 1, soft_taints=(SLOW,)), a_node("b", 8)]
    task = a_task(1)
    if tolerates:
        given = replace(task.constraints, tolerations=(Toleration("slow", "Exists"),))
        task = replace(task, constraints=given)
    assert where(a_gang("g", task), nodes=nodes) == {"g": ["a" if tolerates else "b"]}


def test_a_toleration_of_another_effect_is_none_of_a_soft_taint() -> None:
    nodes = [a_node("a", 1, soft_taints=(SLOW,)), a_node("b", 8)]
    hard = Toleration("slow", "Exists", effect="NoSchedule")
    task = a_task(1)
    task = replace(task, constraints=replace(task.constraints, tolerations=(hard,)))
    assert where(a_gang("g", task), nodes=nodes) == {"g": ["b"]}


def test_a_soft_taint_outweighs_the_heaviest_node_preference() -> None:
    nodes = [fast("a", 8, soft_taints=(SLOW,)), a_node("b", 8)]
    assert where(a_gang("g", wishing(1, FAST)), nodes=nodes) == {"g": ["b"]}


def test_a_node_with_a_soft_taint_is_used_rather_than_waited_for() -> None:
    nodes = [a_node("a", 8, soft_taints=(SLOW,)), a_node("b", 8, soft_taints=(SLOW,))]
    assert len(where(a_gang("g", a_task(2, 8)), nodes=nodes)["g"]) == 2


# --- other pods ---


def test_replicas_that_would_rather_be_apart_are_on_as_many_nodes() -> None:
    apart = PodPreference(200, apart=PodTerm(HOST, pods("a")))
    nodes = [a_node(f"n{n}", 8) for n in range(4)]
    found = where(a_gang("g", wishing_pods(4, apart)), nodes=nodes)["g"]
    assert set(Counter(found).values()) == {1}


def test_more_replicas_than_nodes_that_would_rather_be_apart_are_spread_evenly() -> None:
    apart = PodPreference(200, apart=PodTerm(HOST, pods("a")))
    nodes = [a_node("full", 1), *(a_node(f"n{n}", 8) for n in range(3))]
    found = Counter(where(a_gang("g", wishing_pods(7, apart)), nodes=nodes)["g"])
    assert found == {"full": 1, "n0": 2, "n1": 2, "n2": 2}


def test_a_soft_spread_goes_round_domains_that_are_full() -> None:
    even = PodPreference(200, spread=SpreadLimit(RACK, 1, pods("a")))
    nodes = [
        a_node(f"{name}0", gpus, rack=name) for name, gpus in zip("abc", (0, 8, 8), strict=True)
    ]
    found = Counter(where(a_gang("g", wishing_pods(6, even)), nodes=nodes)["g"])
    assert found == {"b0": 3, "c0": 3}


def test_a_gang_keeps_away_from_pods_it_would_rather_not_meet() -> None:
    away = PodPreference(200, apart=PodTerm(RACK, pods("x")))
    world = a_world(
        a_gang("g", wishing_pods(2, away)), nodes=[a_node("a", 2, rack="a"), a_node("b", rack="b")]
    )
    assert decided(world) == {"g": ["a", "a"]}
    assert decided(with_pods(world, (of("x"), "a", ""))) == {"g": ["b", "b"]}
    everywhere = with_pods(world, (of("x"), "a", ""), (of("x"), "b", ""))
    assert decided(everywhere) == {"g": ["a", "a"]}


def test_a_gang_goes_near_pods_it_prefers_and_anywhere_without_them() -> None:
    near = PodPreference(200, near=PodTerm(RACK, pods("x")))
    world = a_world(
        a_gang("g", wishing_pods(2, near)), nodes=[a_node("a", 2, rack="a"), a_node("b", rack="b")]
    )
    assert decided(world) == {"g": ["a", "a"]}
    assert decided(with_pods(world, (of("x"), "b", ""))) == {"g": ["b", "b"]}


def test_gangs_that_start_in_the_same_cycle_see_each_other() -> None:
    away = PodPreference(200, apart=PodTerm(HOST, pods("a")))
    gangs = [a_gang(name, wishing_pods(1, away)) for name in ("one", "two")]
    found = where(*gangs, nodes=[a_node("n0", 8), a_node("n1", 8)])
    assert found["one"] != found["two"]


def test_of_wishes_that_exclude_each_other_the_heavier_counts_and_a_lighter_beside_it() -> None:
    near, away = PodTerm(RACK, pods("x")), PodTerm(RACK, pods("y"))
    wishes = (
        PodPreference(40, near=near),
        PodPreference(200, apart=away),
        PodPreference(20, apart=near),
    )
    nodes = [a_node("a", 1, rack="a"), a_node("b", 2, rack="b"), a_node("c", 4, rack="c")]
    world = a_world(a_gang("g", wishing_pods(1, *wishes)), nodes=nodes)
    # The heaviest closes rack a, where it would be near x; then it keeps away from x in rack b.
    there = with_pods(world, (of("y"), "a", ""), (of("x"), "a", ""), (of("x"), "b", ""))
    assert decided(there) == {"g": ["b"]}


def test_many_wishes_take_no_more_than_the_tries() -> None:
    asked = 0

    class Counting(Packing):
        def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
            nonlocal asked
            asked += 1
            return super().place(gang, capacity)

    wishes = [PodPreference(n, near=PodTerm(RACK, pods(f"x{n}"))) for n in range(1, 60)]
    labels = [label(f"l{n}", "yes", n) for n in range(1, 60)]
    task = replace(wishing_pods(8, *wishes), preferences=Preferences(tuple(labels), tuple(wishes)))
    nodes = [
        a_node(f"n{n:02}", 1, rack="abcd"[n % 4], labels={f"l{m}": "yes" for m in range(n)})
        for n in range(40)
    ]
    decide(a_world(a_gang("g", task), nodes=nodes), Policy(CombinedPriority(), Counting()))
    assert 4 < asked <= 1 + preferences.MAX_TRIES


def test_nodes_go_before_other_pods() -> None:
    apart = PodPreference(200, apart=PodTerm(HOST, pods("a")))
    task = a_task(5, pod=of("a"), preferences=Preferences((FAST,), (apart,)))
    found = Counter(where(a_gang("g", task), nodes=[a_node("a0", 3), fast("b0", 4)])["g"])
    assert found == {"b0": 4, "a0": 1}


# --- what goes before ---


class Declining:
    """Finds no places for anybody."""

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        return None


def test_that_others_would_rather_be_near_it_gives_no_gang_places_its_placer_does_not_find() -> (
    None
):
    world = a_world(a_gang("g", a_task(1, pod=of("a"))))
    assert decide(world, Policy(CombinedPriority(), Declining())).admitted == ()


def test_a_server_stays_beside_its_workers_where_that_is_required() -> None:
    nodes = [a_node("a", 8), fast("b", 1)]
    servers = wishing(1, FAST, name="ps", role=Role.PS, gpus=0)
    workers = a_task(8, role=Role.WORKER)
    required = RoleAffinity(AffinityMode.REQUIRED, HOST)
    gang = a_gang("g", servers, workers, role_affinity=required)
    assert set(where(gang, nodes=nodes)["g"]) == {"a"}


def test_a_hard_rule_goes_before_a_preference() -> None:
    kind = of("a", apart=(PodTerm(HOST, pods("x")),))
    task = replace(wishing(1, FAST), pod=kind)
    world = a_world(a_gang("g", task), nodes=[a_node("a", 8), fast("b", 8)])
    assert decided(world) == {"g": ["b"]}
    assert decided(with_pods(world, (of("x"), "b", ""))) == {"g": ["a"]}


def test_a_hard_spread_counts_nodes_without_the_label_of_a_soft_one() -> None:
    hard = SpreadLimit("zone", 1, pods("a"))
    soft = PodPreference(200, spread=SpreadLimit(RACK, 1, pods("a")))
    task = a_task(4, pod=of("a", spread=(hard,)), preferences=Preferences(pods=(soft,)))
    nodes = [
        a_node("a0", rack="r", labels={"zone": "a"}),
        a_node("a1", rack="s", labels={"zone": "a"}),
        a_node("b0", labels={"zone": "b"}),  # in no rack
    ]
    found = Counter(name[0] for name in where(a_gang("g", task), nodes=nodes)["g"])
    assert found == {"a": 2, "b": 2}


def test_who_is_followed_in_the_same_cycle_stays() -> None:
    leader = a_gang("leader", wishing(1, FAST, pod=of("a")), arrived=0.0)
    near = (PodTerm(RACK, pods("a")),)
    follower = a_gang("follower", a_task(1, pod=of("w", near=near)), arrived=1.0)
    nodes = [a_node("a0", 2, rack="a"), fast("b0", 8, rack="b")]
    assert where(leader, follower, nodes=nodes) == {"leader": ["a0"], "follower": ["a0"]}
    alone = replace(leader, uid="alone")
    assert where(alone, nodes=nodes) == {"leader": ["b0"]}


def test_a_gang_gets_nothing_that_another_got_after_it() -> None:
    nodes = [a_node("a", 4), fast("b", 8)]
    first = a_gang("first", wishing(4, FAST))
    then = a_gang("then", a_task(8, gpus=1), arrived=1.0)
    found = where(first, then, nodes=nodes)
    assert (found["first"], found["then"]) == (["a"] * 4, ["b"] * 8)


def test_a_gang_does_not_go_to_places_that_are_reserved() -> None:
    """What is blocked is to have the node that the other would rather have half of."""
    nodes = [a_node("a", 2), fast("b", 8)]
    others = a_gang("blocked", a_task(1, 8)), a_gang("long", wishing(2, FAST), arrived=1.0)
    world = runs(a_world(*others, nodes=nodes), "holder", {"b": 4})
    found = decide(world)
    assert hold_of(found, "blocked").reservation is not None
    (start,) = found.admitted
    assert set(start.placement.by_task(world.nodes)["worker"]) == {"a"}


def test_a_gang_stays_where_others_are_stopped_because_of_it() -> None:
    """Elsewhere it would leave room for the second, and the victim would be stopped in vain."""
    here = NodeConstraints(node_selector=((HOST, "a"),))
    gangs = a_gang("first", wishing(4, FAST)), a_gang("second", a_task(1, 4, constraints=here))
    world = a_world(*gangs, nodes=[a_node("a", 8), fast("b", 8, cpu_millis=10**9)])
    world = runs(world, a_gang("victim", a_task(1, 4)), {"a": 1})
    for claims, node in (((2.0, 2.0), "a"), ((2.0, 0.0), "b")):
        order = InOrder(first=claims[0], second=claims[1])
        found = decide(world, Policy(order, Packing()))
        assert len(found.preempted) == (claims[1] > 0)
        (start,) = found.admitted
        assert set(start.placement.by_task(world.nodes)["worker"]) == {node}


def test_a_gang_stays_possible_where_pods_are_to_come_that_must_be_apart_from_its_own() -> None:
    """The reservation of the overdue one counts on the end of all, also of who starts before it."""
    away = of("b", apart=(PodTerm(HOST, pods("a")),))
    first = a_gang("first", wishing(2, FAST, pod=of("a")), arrived=-1e6)
    overdue = a_gang("overdue", a_task(1, 8, pod=away), arrived=-1e5)
    nodes = [a_node("a", 8), fast("b", 1)]
    world = a_world(first, overdue, nodes=nodes)
    world = replace(world, settings=replace(world.settings, overdue_share=1.0))
    found = decide(world)
    assert hold_of(found, "overdue").reservation is not None
    (start,) = found.admitted
    assert set(start.placement.by_task(world.nodes)["worker"]) == {"a"}


def test_the_message_names_the_places_that_it_gets() -> None:
    world = a_world(a_gang("g", wishing(2, FAST)), nodes=[a_node("a", 2), fast("b", 8)])
    (start,) = decide(world).admitted
    assert start.message.endswith("on node b")


# --- properties ---


def bare(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """``snapshot`` in which nobody prefers anything."""
    gangs = [
        replace(g, tasks=tuple(replace(t, preferences=NO_PREFERENCES) for t in g.tasks))
        for g in snapshot.waiting
    ]
    nodes = [replace(node, soft_taints=()) for node in snapshot.nodes.nodes]
    table = type(snapshot.nodes)(nodes, snapshot.nodes.topology_levels)
    return replace(snapshot, waiting=tuple(gangs), nodes=table)


def verdict(action: Action) -> tuple[object, ...]:
    """All that a decision says of a gang but where it starts."""
    sizes = [(t.name, t.replicas) for t in action.gang.tasks]
    if isinstance(action, Admit):
        passed = action.passed.uid if action.passed is not None else None
        return "Admit", action.gang.uid, sizes, passed
    kept = action.reservation if isinstance(action, Hold) else None
    start = kept and (kept.start, kept.is_closed, kept.placement.node_rows().tolist())
    return type(action).__name__, action.gang.uid, action.reason, action.message, start


@examples(40)
@given(random_snapshots.cases())
def test_with_preferences_the_same_is_decided_but_for_the_places(case: SnapshotCase) -> None:
    policy = make_policy(case.snapshot.settings)
    found = run_cycle(case.snapshot, policy)
    without = run_cycle(bare(case.snapshot), policy)
    assert list(map(verdict, found.actions)) == list(map(verdict, without.actions))


def value(start: Admit, snapshot: ClusterSnapshot) -> int:
    by_name = {task.task: task for task in start.placement.tasks}
    total = 0
    for task in start.gang.tasks:
        known = score(task.preferences.nodes, task.constraints.tolerations, snapshot.nodes)
        total += int(known[by_name[task.name].rows] @ by_name[task.name].counts)
    return total


def width(start: Admit, snapshot: ClusterSnapshot) -> int:
    levels = (*snapshot.nodes.topology_levels, CLUSTER_LEVEL)
    return levels.index(start.placement.level)


@examples(40)
@given(random_snapshots.cases())
def test_no_gang_gets_nodes_it_likes_less_or_that_are_further_apart(case: SnapshotCase) -> None:
    policy = make_policy(case.snapshot.settings)
    found = run_cycle(case.snapshot, policy).admitted
    without = run_cycle(bare(case.snapshot), policy).admitted
    for start, plain in zip(found, without, strict=True):
        same = replace(plain, gang=start.gang)
        assert value(start, case.snapshot) >= value(same, case.snapshot)
        if not any(task.preferences.pods for task in start.gang.tasks):
            assert width(start, case.snapshot) <= width(plain, case.snapshot)


@examples(25)
@given(random_snapshots.clusters(), st.integers(1, 6), st.sampled_from(random_snapshots.LEVELS))
def test_a_gang_that_fits_in_a_domain_as_narrow_of_what_it_prefers_is_there(
    nodes: tuple[Node, ...], replicas: int, levels: tuple[str, ...]
) -> None:
    gang = a_gang("g", wishing(replicas, FAST))
    chosen = replace(gang.tasks[0].constraints, node_selector=(("disk", "ssd"),))
    only = a_gang("g", replace(a_task(replicas), constraints=chosen))
    world = a_world(gang, nodes=[replace(n, soft_taints=()) for n in nodes])
    table = type(world.nodes)(world.nodes.nodes, levels)
    world = replace(world, nodes=table)
    plain, demanded = (
        decide(replace(world, waiting=(g,))).admitted for g in (bare(world).waiting[0], only)
    )
    (*found,) = decide(world).admitted
    if demanded and width(demanded[0], world) <= width(plain[0], world):
        assert value(found[0], world) == replicas * FAST.weight
