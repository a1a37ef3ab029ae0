"""Hypothesis strategies: small clusters and gangs that differ in everything the core looks at.

Values are drawn from short lists chosen for their edges, because clashes between gangs are what has
to be found, and those need small numbers.
"""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from bireme.core.gangs import AffinityMode, Gang, Role, RoleAffinity, Task
from bireme.core.nodes import GrowablePool, Node
from bireme.core.pod_constraints import (
    ANYWHERE,
    NO_PREFERENCES,
    HostPort,
    NodeConstraints,
    NodePreference,
    PodKind,
    PodPreference,
    PodSelector,
    PodTerm,
    Preferences,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    SpreadLimit,
    Taint,
    Toleration,
)
from bireme.core.pod_rules import Occupants, PodsOf
from bireme.core.queues import Queue
from bireme.core.quotas import Quota
from bireme.core.resources import ATTACHABLE, PODS, request_of
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GIB, GPU, a_gang, a_node, a_snapshot, a_task

BLOCK = "topology.bireme.dev/block"
RACK = "topology.bireme.dev/rack"
HOST = "kubernetes.io/hostname"
DEDICATED = Taint("dedicated", "training", "NoSchedule")
SLOW = Taint("slow", "", "PreferNoSchedule")
CONSTRAINTS = (
    ANYWHERE,
    NodeConstraints(node_selector=(("disk", "ssd"),)),
    NodeConstraints(tolerations=(Toleration("dedicated", "Equal", "training"),)),
    NodeConstraints(tolerations=(Toleration(operator="Exists"),)),
    NodeConstraints(
        affinity_terms=(
            SelectorTerm((Requirement("disk", SelectorOperator.NOT_IN, ("hdd",)),)),
            SelectorTerm(names=(Requirement("metadata.name", SelectorOperator.IN, ("n0",)),)),
        )
    ),
)
QUEUES = (
    Queue("free"),
    Queue("small", limit={GPU: 6, "cpu": 20_000}, user_priority=90, wait_bound_seconds=40),
    Queue("closed", is_open=False),
    Queue("team", namespaces=frozenset({"team"})),
)
QUOTAS = (
    Quota("team", "gpus", hard={GPU: 5}, used={GPU: 2}),
    Quota("team", "pods", hard={PODS: 4}, used={}),
    Quota("team", "full", hard={"cpu": 10_000}, used={"cpu": 11_000}),
)
SLOTS = f"{ATTACHABLE}disks.example.com"
_ANY_POD = PodSelector(None)
_APP_A = PodSelector(("default",), (), (Requirement("app", SelectorOperator.IN, ("a",)),))
_A = (("app", "a"),)
KINDS = (
    PodKind((HostPort(7000),)),
    PodKind((HostPort(7000, "TCP", "10.0.0.1"), HostPort(7001, "UDP")), "default"),
    PodKind((HostPort(7000, "UDP"), HostPort(7001))),
    PodKind(namespace="default", labels=_A),
    PodKind(namespace="default", labels=_A, near=(PodTerm(RACK, _APP_A),)),
    PodKind(namespace="team", near=(PodTerm(RACK, _APP_A), PodTerm(BLOCK, _APP_A))),
    PodKind(namespace="default", labels=_A, apart=(PodTerm(HOST, _APP_A),)),
    PodKind(namespace="team", apart=(PodTerm(RACK, _ANY_POD),)),
    PodKind(namespace="default", labels=_A, spread=(SpreadLimit(RACK, 1, _APP_A),)),
    PodKind(namespace="default", labels=_A, spread=(SpreadLimit(HOST, 2, _ANY_POD, True),)),
    PodKind(
        namespace="default", labels=_A, spread=(SpreadLimit(RACK, 1, _APP_A, False, False, 2),)
    ),
    PodKind(alone=(("default", "data"),)),
    PodKind((HostPort(7001),), alone=(("default", "data"), ("default", "more"))),
    PodKind(volumes=((SLOTS, "v"),)),
    PodKind((HostPort(7000),), "default", _A, volumes=((SLOTS, "v"), (SLOTS, "w"))),
)
"""Kinds of pods that have rules about each other."""
NODE_PREFERENCES = (
    NodePreference(200, SelectorTerm((Requirement("disk", SelectorOperator.IN, ("ssd",)),))),
    NodePreference(20, SelectorTerm((Requirement(BLOCK, SelectorOperator.EXISTS),))),
    NodePreference(2, SelectorTerm(names=(Requirement("", SelectorOperator.NOT_IN, ("n1",)),))),
)
POD_PREFERENCES = (
    PodPreference(200, near=PodTerm(RACK, _APP_A)),
    PodPreference(40, near=PodTerm(HOST, _ANY_POD)),
    PodPreference(100, apart=PodTerm(HOST, _APP_A)),
    PodPreference(20, apart=PodTerm(RACK, _ANY_POD)),
    PodPreference(200, spread=SpreadLimit(RACK, 1, _APP_A)),
    PodPreference(200, spread=SpreadLimit(HOST, 2, _ANY_POD, True)),
)
LEVELS = (SchedulingSettings().topology_levels, (HOST,), (RACK,), (RACK, BLOCK), (HOST, RACK))


@dataclass(frozen=True)
class SnapshotCase:
    """A snapshot and the nodes it was made of."""

    nodes: tuple[Node, ...]
    snapshot: ClusterSnapshot


@st.composite
def clusters(draw: st.DrawFn, most: int = 6) -> tuple[Node, ...]:
    """Up to ``most`` nodes n0, n1, ... of mixed size, health and place."""
    return tuple(draw(_node(f"n{index}")) for index in range(draw(st.integers(0, most))))


@st.composite
def _node(draw: st.DrawFn, name: str) -> Node:
    labels = {"disk": draw(st.sampled_from(("ssd", "ssd", "hdd", None)))}
    labels[BLOCK] = draw(st.sampled_from((None, "b0", "b1")))
    made = a_node(
        name,
        draw(st.sampled_from((8, 4, 2, 1, 0))),
        cpu_millis=draw(st.sampled_from((96_000, 4000, 1000, 0))),
        memory_bytes=draw(st.sampled_from((64 * GIB, 4 * GIB, 2**60))),
        pods=draw(st.sampled_from((110, 3, 1))),
        rack=draw(st.sampled_from(("r0", "r1", None))),
        zone=draw(st.sampled_from((None, "z0", "z1"))),
        labels={key: value for key, value in labels.items() if value is not None},
        taints=draw(st.sampled_from(((), (), (), (DEDICATED,)))),
        soft_taints=draw(st.sampled_from(((), (), (), (SLOW,)))),
        is_ready=draw(st.sampled_from((True, True, True, False))),
        is_cordoned=draw(st.sampled_from((False, False, False, True))),
        is_leaving=draw(st.sampled_from((False, False, False, True))),
    )
    slots = draw(st.sampled_from((2, 1, 0)))
    return replace(made, allocatable={**made.allocatable, SLOTS: slots})


@st.composite
def pools(draw: st.DrawFn) -> tuple[GrowablePool, ...]:
    """Up to two pools of mixed nodes, of which some are coming, and some of these are late."""
    return tuple(
        GrowablePool(
            name,
            template=draw(_node("template")),
            room=draw(st.integers(0, 4)),
            coming=draw(st.integers(0, 2)),
            asked_at=draw(st.sampled_from((90.0, 90.0, -5000.0))),
            patience_seconds=1200,
        )
        for name in ("p0", "p1")[: draw(st.integers(0, 2))]
    )


@st.composite
def tasks(draw: st.DrawFn, role: Role = Role.WORKER, most: int = 8) -> Task:
    """One task, sometimes elastic, rarely of an absurd size."""
    replicas = draw(st.one_of(st.integers(1, most), st.sampled_from((1, 2, 10**9))))
    gpus = (0,) if role is Role.PS else (1, 2, 4, 0, 8)
    return a_task(
        replicas,
        draw(st.sampled_from(gpus)),
        role=role,
        cpu_millis=draw(st.sampled_from((1000, 500, 2000, 0))),
        memory_bytes=draw(st.sampled_from((GIB, 2 * GIB, 0, 2**60))),
        min_replicas=draw(st.sampled_from((0, 0, 1, replicas))),
        constraints=draw(st.sampled_from(CONSTRAINTS)),
    )


@st.composite
def gangs(draw: st.DrawFn, uid: str) -> Gang:
    """A gang of one to four tasks with different roles."""
    roles = draw(
        st.sampled_from(
            (
                (Role.WORKER,),
                (Role.PS, Role.WORKER),
                (Role.WORKER, Role.PS),
                (Role.MASTER, Role.WORKER),
                (Role.CHIEF, Role.PS, Role.WORKER, Role.EVALUATOR),
            )
        )
    )
    return a_gang(
        uid,
        *(draw(tasks(role)) for role in roles),
        queue=draw(st.sampled_from(("free", "free", "small", "closed", "team", "unknown"))),
        namespace=draw(st.sampled_from(("team", "default"))),
        arrived=float(draw(st.integers(0, 100))),
        priority=draw(st.sampled_from((0, 100, 1000, -5))),
        min_available=draw(st.sampled_from((0, 0, 3))),
        role_affinity=RoleAffinity(
            draw(st.sampled_from(list(AffinityMode))), draw(st.sampled_from((HOST, RACK, "other")))
        ),
        interrupted=draw(st.booleans()),
    )


@st.composite
def with_rules(draw: st.DrawFn, gang: Gang) -> Gang:
    """``gang``, some of whose tasks have rules about other pods."""
    kinds = st.sampled_from((None, None, None, *KINDS))
    return replace(gang, tasks=tuple(replace(task, pod=draw(kinds)) for task in gang.tasks))


@st.composite
def with_preferences(draw: st.DrawFn, gang: Gang) -> Gang:
    """``gang``, some of whose tasks would rather have some places than others."""
    nodes = st.lists(st.sampled_from(NODE_PREFERENCES), max_size=3, unique=True)
    pods = st.lists(st.sampled_from(POD_PREFERENCES), max_size=2, unique=True)
    wishes = st.builds(Preferences, nodes.map(tuple), st.just(()) | pods.map(tuple))
    drawn = st.just(NO_PREFERENCES) | wishes
    return replace(gang, tasks=tuple(replace(t, preferences=draw(drawn)) for t in gang.tasks))


def charged(gang: Gang) -> Gang:
    """``gang`` as :data:`QUOTAS` count it: the full one counts parameter servers alone."""
    if gang.namespace != "team":
        return gang
    tasks = []
    for task in gang.tasks:
        used = {GPU: dict(task.request).get(GPU, 0), PODS: 1, "cpu": 1000}
        counted = (("gpus", GPU), ("pods", PODS), *((("full", "cpu"),) * (task.role is Role.PS)))
        charges = tuple((name, request_of({what: used[what]})) for name, what in counted)
        tasks.append(replace(task, charges=charges))
    return replace(gang, tasks=tuple(tasks))


@st.composite
def cases(draw: st.DrawFn, most_gangs: int = 6) -> SnapshotCase:
    """A cluster with something running on it and gangs waiting for it."""
    nodes = draw(clusters())
    waiting = [draw(gangs(f"g{index}")) for index in range(draw(st.integers(0, most_gangs)))]
    settings = SchedulingSettings(
        orderer=draw(st.sampled_from(("combined-priority", "fifo"))),
        wait_bound_seconds=draw(st.sampled_from((60, 100_000))),
        topology_levels=draw(st.sampled_from(LEVELS)),
    )
    usage = {"small": {GPU: draw(st.integers(0, 7)), "cpu": 1000}}
    waiting = [draw(with_preferences(draw(with_rules(gang)))) for gang in waiting]
    quotas = draw(st.sampled_from(((), QUOTAS)))
    if quotas:
        waiting = [charged(gang) for gang in waiting]
    bare = a_snapshot(nodes, queues=QUEUES, settings=settings)
    shares = st.sampled_from((0.0, 0.0, 0.5, 1.0, 1.5))
    used = np.array([draw(shares) for _ in nodes])[:, None] * np.minimum(
        bare.nodes.allocatable, 2**40
    )
    snapshot = a_snapshot(
        nodes,
        *waiting,
        queues=QUEUES,
        queue_usage=usage,
        used=used.astype(np.int64).reshape(bare.used.shape),
        now=100.0,
        settings=settings,
        quotas=quotas,
    )
    there = [
        PodsOf(kind, np.array([draw(st.integers(0, len(nodes) - 1))]))
        for kind in KINDS
        if draw(st.booleans()) and nodes
    ]
    return SnapshotCase(nodes, replace(snapshot, occupants=Occupants(there)))
