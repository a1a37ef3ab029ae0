"""Growth on random clusters: it moves nobody, stays within room, and what it asks for is enough."""

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision
from bireme.core.gangs import AffinityMode, Role, RoleAffinity, Task
from bireme.core.nodes import GrowablePool, Node
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from testbed import random_snapshots
from testbed.examples import examples
from testbed.model import oracles
from testbed.random_snapshots import SnapshotCase

thorough = examples(30)
KEYS = ("kubernetes.io/hostname", "topology.bireme.dev/rack")
machines = st.builds(
    a_node,
    st.just("template"),
    st.sampled_from((8, 4, 0)),
    cpu_millis=st.sampled_from((16_000, 4000)),
    rack=st.sampled_from(("r0", "r1", None)),
)


def decide(snapshot: ClusterSnapshot) -> Decision:
    return run_cycle(snapshot, make_policy(snapshot.settings))


def moves(decision: Decision, snapshot: ClusterSnapshot) -> list[object]:
    return [
        (a.gang.uid, a.placement.by_task(snapshot.nodes))
        for a in decision.actions
        if isinstance(a, Admit)
    ]


@thorough
@given(random_snapshots.cases(), random_snapshots.pools())
def test_growth_starts_nobody_and_stays_within_the_room(
    case: SnapshotCase, pools: tuple[GrowablePool, ...]
) -> None:
    fixed = replace(case.snapshot, now=0.0)  # nobody has waited: no queue is barred
    growing = replace(fixed, growable=pools)
    decision = decide(growing)
    assert moves(decision, growing) == moves(decide(fixed), fixed)
    assert decision.fallback == ""
    asked: Counter[str] = Counter()
    for growth in decision.node_requests:
        asked[growth.pool] += growth.nodes
    assert all(asked[pool.name] <= pool.room for pool in pools)
    scaling_up = {h.gang.uid for h in decision.held if h.reason is Reason.SCALING_UP}
    assert scaling_up == {growth.gang.uid for growth in decision.node_requests}
    assert decision.kept_nodes <= set(growing.nodes.names)


@thorough
@given(random_snapshots.cases(), random_snapshots.pools())
def test_growth_does_not_depend_on_what_is_remembered_or_how_pools_are_listed(
    case: SnapshotCase, pools: tuple[GrowablePool, ...]
) -> None:
    growing = replace(case.snapshot, growable=pools)
    first = decide(growing)
    fresh = a_snapshot(case.nodes, settings=growing.settings).nodes
    again = decide(replace(growing, nodes=fresh, growable=pools[::-1]))
    assert [_values(one) for one in (first, decide(growing), again)] == [_values(first)] * 3


def _values(decision: Decision) -> list[object]:
    growth = [(one.gang.uid, one.pool, one.nodes) for one in decision.node_requests]
    return [*growth, *((hold.gang.uid, hold.reason, hold.message) for hold in decision.held)]


def _new(pool: GrowablePool, number: int, first: int) -> list[Node]:
    """Nodes as the provider makes them."""
    names = (f"{pool.name}-{at}" for at in range(first, first + number))
    made = replace(pool.template, is_ready=True, is_cordoned=False, is_leaving=False)
    return [
        replace(made, name=n, labels={**made.labels, "kubernetes.io/hostname": n}) for n in names
    ]


def _one_step(snapshot: ClusterSnapshot, decision: Decision) -> ClusterSnapshot:
    """All nodes that were coming are there, and those that were asked for come."""
    nodes = list(snapshot.nodes.nodes)
    pools = []
    for pool in snapshot.growable:
        asked = sum(growth.nodes for growth in decision.node_requests if growth.pool == pool.name)
        nodes += _new(pool, pool.coming, len(nodes))
        pools.append(replace(pool, coming=asked, room=pool.room - asked))
    return a_snapshot(nodes, *snapshot.waiting, growable=pools)


@st.composite
def growing(draw: st.DrawFn) -> ClusterSnapshot:
    """A gang of several tasks, a few nodes, and pools that most often have room for it."""
    roles = draw(st.sampled_from(((Role.PS, Role.WORKER), (Role.CHIEF, Role.PS, Role.WORKER))))
    tasks = (
        a_task(
            draw(st.integers(1, 8)),
            0 if role is Role.PS else draw(st.sampled_from((1, 2, 4, 0))),
            role=role,
            cpu_millis=draw(st.sampled_from((1000, 3000))),
        )
        for role in roles
    )
    wish = RoleAffinity(draw(st.sampled_from(list(AffinityMode))), draw(st.sampled_from(KEYS)))
    room, coming = st.integers(1, 12), st.integers(0, 2)
    growable = [
        GrowablePool(name, draw(machines), draw(room), draw(coming), patience_seconds=1200)
        for name in ("p0", "p1")[: draw(st.integers(1, 2))]
    ]
    nodes = [replace(draw(machines), name=f"n{at}") for at in range(draw(st.integers(0, 2)))]
    return a_snapshot(nodes, a_gang("g", *tasks, role_affinity=wish), growable=growable)


@thorough
@given(growing())
def test_a_gang_that_waits_for_nodes_starts_once_they_are_there(snapshot: ClusterSnapshot) -> None:
    decision = decide(snapshot)
    waits = bool(decision.node_requests)
    for _ in range(12):
        if not decision.node_requests:
            break
        snapshot = _one_step(snapshot, decision)
        decision = decide(snapshot)
    assert not decision.node_requests
    if waits:
        assert [type(action) for action in decision.actions] == [Admit]


@thorough
@given(random_snapshots.clusters(4), random_snapshots.tasks(most=12), random_snapshots.pools())
def test_a_gang_of_one_task_asks_for_the_least_number_of_nodes_of_one_pool(
    nodes: tuple[Node, ...], task: Task, pools: tuple[GrowablePool, ...]
) -> None:
    assume(dict(task.request).get("memory", 0) <= 2**46)  # absurd amounts never fit
    growable = [replace(pool, asked_at=None) for pool in pools]
    decision = decide(a_snapshot(nodes, a_gang("g", task), growable=growable))
    free = sum(oracles.room(node, node.allocatable, task) for node in nodes)
    each = {
        pool.name: oracles.room(_new(pool, 1, 0)[0], pool.template.allocatable, task)
        for pool in growable
    }
    coming = sum(pool.coming * each[pool.name] for pool in growable)
    missing = (task.min_replicas or task.replicas) - free - coming
    asked = {growth.pool: growth.nodes for growth in decision.node_requests if growth.nodes}
    if missing <= 0:
        assert not asked
        return
    needs = {p.name: -(-missing // each[p.name]) for p in growable if each[p.name]}
    able = sorted((needs[p.name], p.name) for p in growable if needs.get(p.name, 99) <= p.room)
    if able:
        assert asked == {able[0][1]: able[0][0]}
    else:
        assert len(asked) != 1
