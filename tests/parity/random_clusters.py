"""Gangs that hold places in a random world, summed up by hand: replica by replica, node by node."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from bireme.core.gangs import AffinityMode, Gang, Key, Role, RoleAffinity, Task
from bireme.core.nodes import HOSTNAME_LABEL, Node, NodeTable
from bireme.core.placement import CLUSTER_LEVEL, Placement, TaskPlacement
from bireme.core.pod_constraints import (
    ANYWHERE,
    NO_PREFERENCES,
    NodeConstraints,
    NodePreference,
    PodPreference,
    PodSelector,
    PodTerm,
    Preferences,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Taint,
    Toleration,
)
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.resources import Request, request_of
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import names, plans, quantities, training_jobs, wire
from bireme.kube.allocations import AssumedPlan
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.training_jobs import JobFacts
from bireme.testing import a_node
from bireme_lab.embedded.fake_nodes import GPU, RACK, ZONE
from testbed.objects import facts
from testbed.objects.facts import node_manifest, served, through_the_wire
from testbed.scenario.manifests import Manifest, pod_group, priority_class
from tests.parity import encoding


@dataclass
class Held:
    """A gang and the node of each of its replicas; the nodes need not exist."""

    gang: Gang
    started: float
    is_leaving: bool
    anchor: str = ""
    places: dict[str, list[str]] = field(default_factory=dict)
    """Task name to nodes, one entry per replica that holds room."""

    def add_place(self, task: str, node: str) -> None:
        """One more replica of ``task`` holds room on ``node``."""
        self.places.setdefault(task, []).append(node)

    @property
    def nodes(self) -> set[str]:
        """All nodes it holds room on, or would."""
        return {node for nodes in self.places.values() for node in nodes}

    def running(self, nodes: Sequence[Node], levels: Sequence[str]) -> RunningGang | None:
        """The gang as it runs in a cluster of ``nodes``; None when it holds nothing there."""
        ordered = sorted(nodes, key=lambda node: node.name)
        row = {node.name: number for number, node in enumerate(ordered)}
        tasks = []
        for task in self.gang.tasks:
            on = [row[name] for name in self.places.get(task.name, ()) if name in row]
            rows = sorted(set(on))
            counts = [on.count(each) for each in rows]
            if on:
                tasks.append(TaskPlacement(task.name, np.array(rows), np.array(counts)))
        if not tasks:
            return None
        there = [ordered[r] for r in sorted({int(r) for task in tasks for r in task.rows})]
        return RunningGang(
            gang=self.gang,
            placement=Placement(tuple(tasks), *_narrowest(there, levels)),
            started=self.started,
            is_leaving=self.is_leaving,
            anchor_row=row.get(self.anchor, -1),
        )


def _narrowest(nodes: Sequence[Node], levels: Sequence[str]) -> tuple[str, str]:
    """The first level at which ``nodes`` share a domain, and the domain's name.

    Equal names are one domain only below equal names, or none, of all wider levels.
    """
    for index, level in enumerate(levels):
        if level == HOSTNAME_LABEL:
            if len(nodes) == 1:
                return level, nodes[0].name
            continue
        wider = [key for key in levels[index:] if key != HOSTNAME_LABEL]
        paths = {tuple(node.labels.get(key) for key in wider) for node in nodes}
        name = nodes[0].labels.get(level)
        if len(paths) == 1 and name is not None:
            return level, name
    return CLUSTER_LEVEL, ""


NOW = 1_000_000.0
SATURATED = 2**47
"""What one pod counts at most on a node, see :mod:`bireme.core.resources`."""
QUEUES = (
    Queue("free"),
    Queue("small", {"nvidia.com/gpu": 6, "cpu": 9000}, 90, 40),
    Queue("closed", is_open=False),
    Queue("team", namespaces=frozenset({"team"})),
)
CLASSES: Mapping[str, int] = {"low": -5, "high": 1000}


@dataclass
class RandomCluster:
    """A cluster under construction: every ``add_*`` adds to both descriptions."""

    nodes: tuple[Node, ...]
    settings: SchedulingSettings
    queues: tuple[Queue, ...] = QUEUES
    objects: list[tuple[str, Manifest]] = field(default_factory=list)
    """(collection, manifest); the collection names the ``put_*`` that takes it."""
    reserved: dict[Key, AssumedPlan] = field(default_factory=dict)
    waiting: list[Gang] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    queue_usage: dict[str, dict[str, int]] = field(default_factory=dict)
    _taken: list[tuple[str, Request]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node in self.nodes:
            self.objects.append(("node", node_manifest(node)))
        self.objects += [("queue", encoding.queue(queue)) for queue in self.queues]
        for name in ("default", "team"):
            self.objects.append(("namespace", encoding.namespace(name, self.queues)))
        for name, value in CLASSES.items():
            self.objects.append(("priority_class", priority_class(name, value)))

    def add_object(self, collection: str, manifest: Manifest) -> None:
        """Something the API server has."""
        self.objects.append((collection, manifest))

    def add_usage(self, node: str, request: Request) -> None:
        """A pod's worth taken from ``node``, if it exists."""
        self._taken.append((node, request))

    def add_demand(self, queue: str, request: Request) -> None:
        """A replica's worth taken from ``queue``."""
        held = self.queue_usage.setdefault(queue, {})
        for name, units in request:
            held[name] = held.get(name, 0) + units

    def snapshot(self) -> ClusterSnapshot:
        """The cluster as summed up by hand."""
        levels = self.settings.topology_levels
        table = NodeTable(self.nodes, levels)
        used = np.zeros_like(table.allocatable)
        for node, request in self._taken:
            for name, units in request:
                if node in table.row and name in table.axis.names:
                    used[table.row[node], table.axis.names.index(name)] += min(units, SATURATED)
        return ClusterSnapshot(
            now=NOW,
            nodes=table,
            used=used,
            waiting=tuple(self.waiting),
            queues={queue.name: queue for queue in self.queues},
            queue_usage=self.queue_usage,
            settings=self.settings,
            running=tuple(r for held in self.held if (r := held.running(self.nodes, levels))),
        )


def feed(state: ClusterState, collection: str, manifest: Manifest, *, delete: bool = False) -> None:
    """Hand one object to ``state`` as its reflector would."""
    kinds: dict[str, tuple[Any, str, type[Any]]] = {
        "node": (state.nodes, "", wire.V1Node),
        "member": (state.objects, "_member", wire.V1Pod),
        "other_pod": (state.objects, "_other_pod", wire.V1Pod),
        "job": (state.objects, "_job", wire.CustomObject),
        "group": (state.objects, "_group", wire.CustomObject),
        "queue": (state.tenancy, "_queue", wire.CustomObject),
        "namespace": (state.tenancy, "_namespace", wire.MetadataOnly),
        "priority_class": (state.tenancy, "_priority_class", wire.V1PriorityClass),
    }
    owner, suffix, kind = kinds[collection]
    meta = manifest["metadata"]
    key = (meta.get("namespace", ""), meta["name"])
    if delete:
        getattr(owner, f"delete{suffix}")(key)
    else:
        getattr(owner, f"put{suffix}")(key, through_the_wire(manifest, kind))


def job_manifest(
    gang: Gang, style: int, class_name: str | None, status: Mapping[str, Any], waited: int = 0
) -> Manifest:
    """The TrainingJob that waits as ``gang`` does, having waited before for ``waited`` seconds.

    A gang that is parked joined the line before.
    """
    made = encoding.training_job(gang, style)
    if class_name is not None:
        made["spec"]["priorityClassName"] = class_name
    created = quantities.format_timestamp(gang.arrived - 7 if waited else gang.arrived)
    queued = quantities.format_timestamp(gang.arrived + waited)
    again: dict[str, Any] = {"queuedTime": queued, "waitSeconds": waited} if waited else {}
    if gang.parked is not None:
        again["parkedTime"] = quantities.format_timestamp(gang.parked)
    made = served(made, gang.uid, namespace=gang.namespace, creationTimestamp=created)
    return {**made, "status": {**status, **again}}


LABELS = {
    "disk": ("ssd", "hdd"),
    "size": ("8", "16", "large"),
    RACK: ("r0", "r1"),
    ZONE: ("z0", "z1"),
}
TAINTS = (
    Taint("dedicated", "training", "NoSchedule"),
    Taint("dedicated", "", "NoExecute"),
    Taint("maintenance", "soon", "NoSchedule"),
)
LEVELS = (SchedulingSettings().topology_levels, (HOSTNAME_LABEL,), (RACK,), (RACK, ZONE))


def requests() -> st.SearchStrategy[Request]:
    """Requests of a replica, the pod itself included: mostly modest, sometimes anything."""
    modest = st.fixed_dictionaries(
        {"pods": st.just(1), "cpu": st.sampled_from((500, 1000)), GPU: st.sampled_from((0, 1, 2))}
    )
    anything = st.fixed_dictionaries(
        {"pods": st.just(1)},
        optional={
            "cpu": st.sampled_from((1, 1999, 4000)),
            "memory": st.sampled_from((1, 2**30, 10**9, 2**53)),
            GPU: st.sampled_from((4, 8)),
            "hugepages-2Mi": st.just(2**21),
            "example.com/fpga": st.just(1),
        },
    )
    return st.one_of(modest, modest, anything).map(request_of)


def _node(name: str) -> st.SearchStrategy[Node]:
    roomy = st.fixed_dictionaries(
        {
            "cpu": st.sampled_from((4000, 96_000)),
            "memory": st.sampled_from((4 * 2**30, 64 * 2**30)),
            "pods": st.sampled_from((3, 110)),
            GPU: st.sampled_from((4, 8)),
        }
    )
    anything = st.fixed_dictionaries(
        {
            "cpu": st.sampled_from((0, 1, 4000)),
            "memory": st.sampled_from((2**30, 2**53)),
            "pods": st.sampled_from((1, 3)),
        },
        optional={
            GPU: st.sampled_from((0, 1)),
            "ephemeral-storage": st.just(10**9),
            "hugepages-2Mi": st.just(2**22),
        },
    )
    labels = st.fixed_dictionaries(
        {HOSTNAME_LABEL: st.just(name)},
        optional={key: st.sampled_from(values) for key, values in LABELS.items()},
    )
    taints = st.lists(st.sampled_from(TAINTS), max_size=2, unique=True).map(tuple)
    soft = Taint("maintenance", "soon", "PreferNoSchedule")
    return st.builds(
        Node,
        st.just(name),
        st.one_of(roomy, roomy, anything),
        labels,
        st.one_of(st.just(()), st.just(()), taints),
        soft_taints=st.sampled_from(((), (), (soft,))),
        is_ready=st.sampled_from((True, True, True, False)),
        is_cordoned=st.sampled_from((False, False, False, True)),
        is_leaving=st.sampled_from((False, False, False, True)),
    )


def nodes() -> st.SearchStrategy[tuple[Node, ...]]:
    """Up to five nodes n0, n1, ..."""
    return st.sampled_from((0, 1, 2, 3, 4, 5, 5)).flatmap(
        lambda n: st.tuples(*(_node(f"n{i}") for i in range(n)))
    )


def _requirements() -> st.SearchStrategy[Requirement]:
    keys = st.sampled_from(sorted(LABELS))
    values = st.lists(st.sampled_from(("ssd", "8", "r0", "z1")), min_size=1, max_size=2)
    listed = st.sampled_from((SelectorOperator.IN, SelectorOperator.NOT_IN))
    bare = st.sampled_from((SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST))
    bounds = st.sampled_from((SelectorOperator.GT, SelectorOperator.LT))
    return st.one_of(
        st.builds(Requirement, keys, listed, values.map(tuple)),
        st.builds(Requirement, keys, bare),
        st.builds(Requirement, st.just("size"), bounds, st.sampled_from((("8",), ("12",), ("x",)))),
    )


def _names() -> st.SearchStrategy[Requirement]:
    operators = st.sampled_from((SelectorOperator.IN, SelectorOperator.NOT_IN))
    values = st.sampled_from((("n0",), ("n1",)))
    return st.builds(Requirement, st.just("metadata.name"), operators, values)


def _tolerations() -> st.SearchStrategy[Toleration]:
    effects = st.sampled_from(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    keys = st.sampled_from(("dedicated", "maintenance"))
    return st.one_of(
        st.builds(Toleration, keys, st.just("Equal"), st.sampled_from(("training", "")), effects),
        st.builds(Toleration, keys, st.just("Exists"), st.just(""), effects),
        st.builds(Toleration, st.just(""), st.just("Exists"), st.just(""), effects),
    )


def _terms() -> st.SearchStrategy[SelectorTerm]:
    return st.builds(
        SelectorTerm,
        st.lists(_requirements(), max_size=2).map(tuple),
        st.lists(_names(), max_size=1).map(tuple),
    )


def _preferences() -> st.SearchStrategy[Preferences]:
    """Any preference of nodes, and of pods that do not exist; often none."""
    weights = st.sampled_from((2, 100, 200))  # of the plugins, two, times 1 to 100
    on = st.lists(st.builds(NodePreference, weights, _terms()), max_size=3).map(tuple)
    nobody = PodSelector(("nowhere",), (), (Requirement("app", SelectorOperator.EXISTS),))
    near = st.builds(PodPreference, weights, near=st.just(PodTerm(RACK, nobody)))
    apart = st.builds(PodPreference, weights, apart=st.just(PodTerm(HOSTNAME_LABEL, nobody)))
    pods = st.sampled_from(((), (), (near,), (apart,), (near, apart))).flatmap(
        lambda drawn: st.tuples(*drawn)
    )
    return st.just(NO_PREFERENCES) | st.builds(Preferences, on, pods)


def constraints() -> st.SearchStrategy[NodeConstraints]:
    """Any hard demand; often none."""
    terms = _terms()
    return st.one_of(
        st.just(ANYWHERE),
        st.just(ANYWHERE),
        st.builds(
            NodeConstraints,
            st.sampled_from(((), (("disk", "ssd"),), (("disk", "ssd"), (ZONE, "z0")))),
            st.none() | st.lists(terms, max_size=2).map(tuple),
            st.lists(_tolerations(), max_size=2).map(tuple),
        ),
    )


@st.composite
def tasks(draw: st.DrawFn, name: str, role: Role, most: int = 4) -> Task:
    """A task of up to ``most`` replicas, sometimes elastic; one replica of those who lead."""
    replicas = 1 if role in (Role.MASTER, Role.CHIEF) else draw(st.integers(1, most))
    extra = draw(st.sampled_from((0, 0, 1, 2))) if role is Role.WORKER else 0
    priority = draw(st.sampled_from((role.default_priority, 0, 70)))
    return Task(
        name=name,
        replicas=replicas,
        request=draw(requests()),
        role=role,
        min_replicas=draw(st.sampled_from((0, 1, replicas))),
        priority=priority,
        constraints=draw(constraints()),
        preferences=draw(_preferences()),
        max_replicas=replicas + extra if extra else 0,
    )


ROLES = (
    (Role.WORKER,),
    (Role.PS, Role.WORKER),
    (Role.MASTER, Role.WORKER),
    (Role.WORKER, Role.CHIEF, Role.PS, Role.EVALUATOR),
)
PAIRED = (ROLES[1], ROLES[3])
"""Those with one task of parameter servers and one of workers."""


@st.composite
def gangs(draw: st.DrawFn, name: str, levels: tuple[str, ...], most: int = 4) -> Gang:
    """The gang of a TrainingJob without a class, which never waited before."""
    roles = draw(st.sampled_from(ROLES))
    given = tuple(draw(tasks(f"t{i}", role, most)) for i, role in enumerate(roles))
    modes = [m for m in AffinityMode if m is not AffinityMode.REQUIRED or roles in PAIRED]
    wish = RoleAffinity(
        draw(st.sampled_from(modes)), draw(st.sampled_from((HOSTNAME_LABEL, *levels)))
    )
    flexible = [task.role for task in given if task.minimum < task.maximum]
    may_flex = flexible == [Role.WORKER] and not {Role.PS, Role.CHIEF} & set(roles)
    namespace = draw(st.sampled_from(("default", "team")))
    resumes = draw(st.booleans())
    return Gang(
        uid=f"{name}-uid",
        name=name,
        namespace=namespace,
        queue=draw(
            st.sampled_from(("free", "free", "free", "small", "small", "closed", "team", "unknown"))
        ),
        tasks=given,
        arrived=NOW - draw(st.sampled_from((0, 10, 50, 100_000))),
        min_available=draw(st.sampled_from((0, 0, sum(task.replicas for task in given)))),
        role_affinity=wish,
        user=namespace,
        estimated_seconds=draw(st.sampled_from((None, None, 60, 5000))),
        min_runtime_seconds=draw(st.sampled_from((None, 0, 0))),
        is_elastic=may_flex and draw(st.booleans()),
        is_resumable=resumes,
        resume_source=f"spec.runPolicy.resumable is {str(resumes).lower()}",
    )


def settings() -> st.SearchStrategy[SchedulingSettings]:
    """Both orderers, and topology levels of every kind."""
    return st.builds(
        SchedulingSettings,
        orderer=st.sampled_from(("combined-priority", "fifo")),
        topology_levels=st.sampled_from(LEVELS),
    )


@st.composite
def worlds(draw: st.DrawFn, most: int = 5) -> RandomCluster:
    """A cluster with up to ``most`` gangs in any state of their life, and pods of strangers."""

    world = RandomCluster(draw(nodes()), draw(settings()))
    for index in range(draw(st.integers(0, most))):
        draw(st.sampled_from(KINDS))(draw, world, index)
    return world


STYLES = st.integers(0, encoding.STYLES - 1)
PLANNED_NODES = st.sampled_from(("n0", "n1", "n2", "gone"))


@dataclass(frozen=True)
class _Shape:
    """Equal pods of one task label."""

    label: str
    role: Role
    request: Request
    spec: Manifest
    task: Task


def _shapes(draw: st.DrawFn) -> list[_Shape]:
    roles = draw(st.sampled_from(ROLES))
    shapes = []
    for index, role in enumerate(roles):
        task = draw(tasks(f"t{index}", role))
        task = replace(task, priority=role.default_priority, min_replicas=0, max_replicas=0)
        spec = encoding.pod_spec(task.request, task.constraints, draw(STYLES), task.preferences)
        shapes.append(_Shape(task.name, role, task.request, spec, task))
    return shapes


def _foreign_pod(group: str, shape: _Shape, number: int, node: str, is_gated: bool) -> Manifest:
    labels = {names.TASK_LABEL: shape.label, names.ROLE_LABEL: shape.role.value}
    pod = facts.gated_pod(f"{group}-{shape.label}-{number}", group, labels=labels)
    pod["spec"] |= shape.spec
    pod["metadata"]["creationTimestamp"] = quantities.format_timestamp(_made(number))
    if not is_gated:
        pod["spec"]["schedulingGates"] = []
    if node:
        pod["spec"]["nodeName"] = node
    return pod


def _made(number: int) -> float:
    """The creation time of the pod of that number: some before that of their group."""
    return NOW - 90 + 30 * number


def foreign_group(draw: st.DrawFn, world: RandomCluster, index: int) -> None:
    """A user's PodGroup: some members planned, in any state, and some waiting behind the gate."""
    name, queue = (
        f"group{index}",
        draw(st.sampled_from(("free", "free", "free", "small", "unknown"))),
    )
    shapes = _shapes(draw)
    plan, there, lost = None, 0, Counter[str]()
    if draw(st.booleans()):
        plan, there, lost = _planned_members(draw, world, name, queue, shapes)
    gated = _gated_tasks(draw, world, name, shapes)
    least = draw(st.sampled_from((1, 1, 2, 3, 5)))
    has_minima = draw(st.booleans()) and bool(gated)
    minima = {gated[0].name: draw(st.integers(1, 3))} if has_minima else {}
    status: Manifest = {"phase": draw(st.sampled_from(("Pending", "Interrupted")))}
    if plan is not None:
        status["plan"] = plans.to_manifest(plan)
    spec = pod_group(name, least, queue=queue, minTaskMember=minima, priorityClassName="high")
    is_leaving = draw(st.sampled_from((False, False, False, True)))
    stamps = {"deletionTimestamp": quantities.format_timestamp(NOW)} if is_leaving else {}
    group = served(
        spec, f"{name}-uid", creationTimestamp=quantities.format_timestamp(NOW - 60), **stamps
    )
    world.add_object("group", {**group, "status": status})
    if plan is not None:
        world.held[-1].is_leaving = is_leaving
    if not is_leaving and (gated or not there):
        interrupted = status["phase"] == "Interrupted"
        gang = _foreign_gang(name, queue, gated, least, there, {} if there else minima)
        gang = replace(gang, interrupted=interrupted)
        needed = gang.at_minimum
        if there and least > there and not gang.fault and Counter(needed.demand) <= lost:
            gang = replace(needed, displaced=True)
        world.waiting.append(gang)


def _foreign_gang(
    name: str, queue: str, gated: list[Task], least: int, there: int, minima: dict[str, int]
) -> Gang:
    count = sum(task.replicas for task in gated)
    fault = None
    if least - there > count:
        words = (
            f"{count + there} of minMember {least} pods exist with label bireme.dev/pod-group, "
            "schedulerName bireme and gate bireme.dev/plan"
        )
        fault = (Reason.WAITING_FOR_PODS, words)
    few = next((task for task in gated if task.replicas < minima.get(task.name, 0)), None)
    if fault is None and few is not None:
        words = f"{few.replicas} of minTaskMember {minima[few.name]} pods exist with label "
        fault = (Reason.WAITING_FOR_PODS, f"{words}bireme.dev/task: {few.name}")
    tasks = tuple(
        replace(task, min_replicas=min(minima.get(task.name, 1), task.replicas)) for task in gated
    )
    needed = max(least - there, 1)
    made = sorted(_made(number) for task in gated for number in range(task.replicas))
    return Gang(
        uid=f"{name}-uid",
        name=name,
        namespace="default",
        queue=queue,
        tasks=tasks,
        arrived=max([NOW - 60, *made[:needed]]),
        priority=CLASSES["high"],
        kind="PodGroup",
        user="default",
        min_available=needed,
        fault=fault,
        is_resumable=False,
        resume_source="annotation bireme.dev/resumable is not set",
    )


def _foreign_holder(name: str, queue: str) -> Gang:
    """The group as far as it holds places, which a gang of higher priority may take from it."""
    return Gang(
        uid=f"{name}-uid",
        name=name,
        namespace="default",
        queue=queue,
        tasks=(),
        arrived=NOW - 60,
        priority=CLASSES["high"],
        kind="PodGroup",
        user="default",
        is_resumable=False,
        resume_source="annotation bireme.dev/resumable is not set",
    )


def _held_tasks(shapes: Sequence[_Shape], counts: Counter[str]) -> tuple[Task, ...]:
    return tuple(
        Task(s.label, counts[s.label], s.request, s.role, priority=s.role.default_priority)
        for s in shapes
        if counts[s.label]
    )


def _gated_tasks(
    draw: st.DrawFn, world: RandomCluster, group: str, shapes: Sequence[_Shape]
) -> list[Task]:
    tasks = []
    for shape in shapes:
        count = draw(st.integers(0, 3))
        pods = [_foreign_pod(group, shape, number, "", True) for number in range(count)]
        for pod in pods:
            world.add_object("member", pod)
        uids = tuple(pod["metadata"]["uid"] for pod in pods)
        if count:
            tasks.append(replace(shape.task, replicas=count, members=uids))
    if draw(st.booleans()):  # gated, but another scheduler's
        stray = facts.gated_pod(f"{group}-stray", group, schedulerName="default-scheduler")
        world.add_object("member", stray)
    return tasks


def _planned_members(
    draw: st.DrawFn, world: RandomCluster, group: str, queue: str, shapes: Sequence[_Shape]
) -> tuple[PlanFacts, int, Counter[str]]:
    """The plan, how many of its members are alive, and what those asked that are gone."""
    members, there, lost = [], 0, Counter[str]()
    held = Held(_foreign_holder(group, queue), started=NOW, is_leaving=False)
    world.held.append(held)
    counts = Counter[str]()
    for shape in shapes:
        for number in range(7, 7 + draw(st.integers(0, 2))):
            node = draw(PLANNED_NODES)
            members.append(Member(shape.label, node, uid=f"{group}-{shape.label}-{number}-uid"))
            state = draw(st.sampled_from(("gone", "gated", "released", "bound", "Succeeded")))
            if state == "gone":
                lost.update(dict(shape.request))
                continue
            where = node if state in ("bound", "Succeeded") else ""
            pod = _foreign_pod(group, shape, number, where, state == "gated")
            pod["status"] = {"phase": "Succeeded" if state == "Succeeded" else "Pending"}
            world.add_object("member", pod)
            counts[shape.label] += 1
            held.anchor = held.anchor or node
            if state != "Succeeded":
                there += 1
                held.add_place(shape.label, node)
                world.add_usage(node, shape.request)
                world.add_demand(queue, shape.request)
    world.add_demand(queue, ())
    held.gang = replace(held.gang, tasks=_held_tasks(shapes, counts))
    requests = {shape.label: shape.request for shape in shapes}
    roles = {shape.label: shape.role.value for shape in shapes}
    plan = PlanFacts(1, 0, "", "Pinned", NOW, requests, roles, tuple(members), queue=queue)
    return plan, there, lost


Inhabitant = Callable[[st.DrawFn, RandomCluster, int], None]
MEMBER_STATES = ("missing", "pending", "bound", "elsewhere", "Succeeded", "Failed")
CLASS_NAMES = (None, None, "low", "low", "high", "high", "missing")
FATES = ("", "", "", "", "suspended", "leaving", "Failed", "again", "gone")
"""Why a job gives its places up; mostly it does not."""


def job_facts(manifest: Manifest) -> JobFacts:
    """A TrainingJob manifest as the operator reads it; for making its pods only."""
    return training_jobs.from_manifest(through_the_wire(manifest, wire.CustomObject))


# --- TrainingJobs -----------------------------------------------------------------------------


def waiting_job(draw: st.DrawFn, world: RandomCluster, index: int) -> None:
    """A job without a plan: fresh, interrupted, or with pods left over."""
    gang = draw(gangs(f"job{index}", world.settings.topology_levels))
    phase = draw(st.sampled_from(("", "Pending", "Restarting")))
    class_name = draw(st.sampled_from(CLASS_NAMES))
    status = {"phase": phase} if phase else {}
    waited = draw(st.sampled_from((0, 30)))
    if draw(st.integers(0, 3)) == 0:
        gang = replace(gang, parked=gang.arrived + waited + draw(st.sampled_from((0, 5, 90_000))))
    manifest = job_manifest(gang, draw(STYLES), class_name, status, waited)
    world.add_object("job", manifest)
    has_leftovers = draw(st.sampled_from((False, False, False, True)))
    left = _leftovers(draw, world, gang, manifest) if has_leftovers else 0
    world.waiting.append(
        replace(
            gang,
            priority=CLASSES.get(class_name or "", 0),
            interrupted=phase == "Restarting",
            fault=_fault(class_name, left),
        )
    )


def _fault(class_name: str | None, left: int) -> tuple[Reason, str] | None:
    if class_name == "missing":
        return (
            Reason.PRIORITY_CLASS_NOT_FOUND,
            "PriorityClass 'missing' does not exist; create it or change spec.priorityClassName",
        )
    return (Reason.STOPPING, f"{left} pods of the last start are still ending") if left else None


def _leftovers(draw: st.DrawFn, world: RandomCluster, gang: Gang, manifest: Manifest) -> int:
    job = job_facts(manifest)
    plan = facts.a_plan(job, ("n0", "n1"))
    left, runs = plan.members[: draw(st.integers(1, 2))], []
    for member in left:
        phase = draw(st.sampled_from(("Running", "Succeeded")))
        stamp = quantities.format_timestamp(NOW)
        pod = facts.pod_manifest(job, plan, member, phase, deletionTimestamp=stamp)
        world.add_object("member", pod)
        if phase == "Running":
            runs.append(member)
    _add_leaving(world, gang, plan, runs)
    return len(left)


def _add_leaving(world: RandomCluster, gang: Gang, plan: PlanFacts, left: Sequence[Member]) -> None:
    """Pods that no plan names any more go, and count where they are until then."""
    tasks = tuple(
        Task(name, sum(m.task == name for m in left), plan.requests[name])
        for name in sorted({member.task for member in left})
    )
    leaving = Gang(
        uid=f"{gang.uid}/leaving",
        name=gang.name,
        namespace=gang.namespace,
        queue=gang.queue,
        tasks=tasks,
        arrived=0.0,
        user=gang.user,
    )
    held = Held(leaving, started=0.0, is_leaving=True)
    for member in left:
        world.add_usage(member.node, plan.requests[member.task])
        world.add_demand(gang.queue, plan.requests[member.task])
        held.add_place(member.task, member.node)
    world.held.append(held)


def with_plan(manifest: Manifest, plan: PlanFacts) -> Manifest:
    """``manifest`` of a job with ``plan`` in its status."""
    return {**manifest, "status": {**manifest["status"], "plan": plans.to_manifest(plan)}}


def planned_job(draw: st.DrawFn, world: RandomCluster, index: int) -> None:
    """A job that holds places: promised, planned or running, its pods in any state."""
    gang = draw(gangs(f"job{index}", world.settings.topology_levels, most=3))
    fate, class_name = draw(st.sampled_from(FATES)), draw(st.sampled_from(CLASS_NAMES))
    waited = draw(st.sampled_from((0, 30)))
    manifest = job_manifest(gang, draw(STYLES), class_name, _status_of(draw, fate), waited)
    job = job_facts(manifest)
    planned = NOW - draw(st.sampled_from((0, 10, 10_000)))
    where = draw(st.lists(PLANNED_NODES, min_size=1, max_size=4))
    plan = facts.a_plan(job, where, attempt=0, planned=planned)
    is_reserved = draw(st.booleans())
    if is_reserved:  # it is being written
        world.reserved[gang.key] = AssumedPlan(gang.uid, plan)
    states = draw(st.sampled_from((MEMBER_STATES, ("bound", "bound", "elsewhere"))))
    if fate == "gone":
        _orphaned(draw, world, gang, job, plan, states)
        return
    is_written = not is_reserved or draw(st.booleans())
    stopped = _struck(manifest, fate)
    world.add_object("job", with_plan(stopped, plan) if is_written else stopped)
    world.add_demand(gang.queue, ())
    held = Held(_holder(gang, class_name, fate), planned, is_leaving=bool(fate))
    world.held.append(held)
    drawn = [(m, own_member(draw, world, job, plan, m, states, held)) for m in plan.members]
    is_steady = job.phase == "Running" and {state for _, state in drawn} <= {"bound", "elsewhere"}
    if not is_steady or not held.nodes <= {node.name for node in world.nodes}:
        held.gang = replace(held.gang, is_elastic=False)
    if draw(st.booleans()):
        _impostor(world, job, plan, [m for m, state in drawn if state == "missing"])


def _orphaned(
    draw: st.DrawFn,
    world: RandomCluster,
    gang: Gang,
    job: JobFacts,
    plan: PlanFacts,
    states: Sequence[str],
) -> None:
    """The pods of a job that is gone, and its plan with it; unless that is being written."""
    if gang.key in world.reserved:
        nobody = Held(gang, NOW, is_leaving=True)
        for member in plan.members:
            own_member(draw, world, job, plan, member, states, nobody)
        return
    left = []
    for member in plan.members:
        state = draw(st.sampled_from(states))
        if state == "missing":
            continue
        node = {"pending": "", "elsewhere": "n3"}.get(state, member.node)
        phase = state if state in ("Succeeded", "Failed") else "Pending"
        world.add_object("member", facts.pod_manifest(job, plan, member, phase, node=node))
        if phase == "Pending" and node:
            left.append(replace(member, node=node))
    _add_leaving(world, gang, plan, left)


def _status_of(draw: st.DrawFn, fate: str) -> dict[str, Any]:
    if fate == "Failed":
        return {"phase": "Failed"}
    if fate == "again":
        return {"phase": "Restarting", "attempt": 1}
    return {"phase": draw(st.sampled_from(("Starting", "Running")))}


def _struck(manifest: Manifest, fate: str) -> Manifest:
    """``manifest`` of a job that its user stops, if that is its fate."""
    if fate == "suspended":
        manifest["spec"].setdefault("runPolicy", {})["suspend"] = True
    if fate == "leaving":
        manifest["metadata"]["deletionTimestamp"] = quantities.format_timestamp(NOW)
    return manifest


def _holder(gang: Gang, class_name: str | None, fate: str) -> Gang:
    """The gang as it would wait now."""
    return replace(
        gang,
        priority=CLASSES.get(class_name or "", 0),
        interrupted=fate == "again",
        is_preemptible=fate != "Failed",
    )


def own_member(
    draw: st.DrawFn,
    world: RandomCluster,
    job: JobFacts,
    plan: PlanFacts,
    member: Member,
    states: Sequence[str],
    held: Held,
) -> str:
    """One replica in a state that is drawn from ``states`` and returned."""
    request = plan.requests[member.task]
    state = draw(st.sampled_from(states))
    node = {"missing": member.node, "pending": "", "elsewhere": "n3"}.get(state, member.node)
    if state != "missing":
        phase = state if state in ("Succeeded", "Failed") else "Pending"
        world.add_object("member", facts.pod_manifest(job, plan, member, phase, node=node))
    if member == plan.members[0]:
        held.anchor = node or member.node
    if state != "Succeeded":  # what failed keeps its room until the gang starts again, or ends
        world.add_usage(node or member.node, request)
        world.add_demand(job.gang(0).queue, request)
        held.add_place(member.task, node or member.node)
    return state


def _impostor(
    world: RandomCluster, job: JobFacts, plan: PlanFacts, missing: Sequence[Member]
) -> None:
    """A bound pod of a stranger with the gang's labels, under a replica's name if one is free."""
    pod = facts.pod_manifest(job, plan, plan.members[0], node="n0", uid="impostor")
    owners = [{"kind": "TrainingJob", "name": job.key[1], "uid": "somebody"}]
    name = f"impostor-of-{job.key[1]}"
    if missing:
        name = names.pod_name(job.key[1], missing[0].task, missing[0].index)
    pod["metadata"] |= {"name": name, "ownerReferences": owners}
    world.add_object("member", pod)
    world.add_usage("n0", plan.requests[plan.members[0].task])
    world.add_demand(plan.queue, plan.requests[plan.members[0].task])  # by its label, as forged
    orphan = Gang(
        uid=f"{job.key[0]}/{job.key[1]}/orphans/{plan.queue}",
        name=job.key[1],
        namespace=job.key[0],
        queue=plan.queue,
        tasks=(Task("0", 1, plan.requests[plan.members[0].task]),),
        arrived=NOW,
        kind="PodGroup",
        user=job.key[0],
        is_resumable=False,
    )
    world.held.append(Held(orphan, NOW, is_leaving=False, places={"0": ["n0"]}))


def idle_job(draw: st.DrawFn, world: RandomCluster, index: int) -> None:
    """A job that wants nothing: finished, suspended or going away."""
    gang = draw(gangs(f"job{index}", world.settings.topology_levels))
    why = draw(st.sampled_from(("Succeeded", "Failed", "suspended", "leaving")))
    status = {"phase": why} if why in training_jobs.FINISHED else {}
    manifest = job_manifest(gang, draw(STYLES), None, status)
    if why == "suspended":
        manifest["spec"].setdefault("runPolicy", {})["suspend"] = True
    if why == "leaving":
        manifest["metadata"]["deletionTimestamp"] = quantities.format_timestamp(NOW)
    world.add_object("job", manifest)


# --- strangers --------------------------------------------------------------------------------


def stranger(draw: st.DrawFn, world: RandomCluster, index: int) -> None:
    """A pod that is nobody's member, bound or not, perhaps ended."""
    request = draw(requests())
    spec = encoding.pod_spec(request, draw(constraints()), draw(STYLES))
    node = draw(st.sampled_from(("", "n0", "n1", "gone")))
    phase = draw(st.sampled_from(("Running", "Failed")))
    if node:
        spec["nodeName"] = node
    pod = served({"metadata": {"name": f"stranger{index}"}, "spec": spec}, f"s{index}")
    world.add_object("other_pod", {**pod, "status": {"phase": phase}})
    if phase == "Running":
        world.add_usage(node, request)


KINDS: Final[tuple[Inhabitant, ...]] = (
    waiting_job,
    waiting_job,
    waiting_job,
    planned_job,
    foreign_group,
    stranger,
    idle_job,
)


CONTEST_QUEUES = (Queue("free"), Queue("small", {GPU: 12}, 90))
NODES = ("n0", "n1")
REQUEST = request_of({"pods": 1, "cpu": 1000, GPU: 2})


@st.composite
def _plain_gangs(draw: st.DrawFn, name: str) -> Gang:
    replicas, is_elastic = draw(st.integers(1, 4)), draw(st.booleans())
    most = replicas + draw(st.integers(0, 2)) if is_elastic else 0
    worker = Task("worker", replicas, REQUEST, min_replicas=int(is_elastic), max_replicas=most)
    return Gang(
        uid=f"{name}-uid",
        name=name,
        namespace="default",
        queue=draw(st.sampled_from(("free", "free", "small"))),
        tasks=(worker,),
        arrived=NOW - draw(st.sampled_from((0, 10, 1000))),
        user="default",
        estimated_seconds=draw(st.sampled_from((None, 12_000, 20_000))),
        is_elastic=is_elastic and worker.minimum < worker.maximum,
        resume_source="spec.runPolicy.resumable is true",
    )


def _run(draw: st.DrawFn, world: RandomCluster, gang: Gang) -> None:
    """``gang`` runs on both nodes, all its pods bound; now and then it is being stopped."""
    class_name = draw(st.sampled_from((None, "low")))
    attempt = draw(st.sampled_from((0, 0, 0, 0, 1)))
    status = {"phase": "Restarting" if attempt else "Running", "attempt": attempt}
    manifest = job_manifest(gang, 0, class_name, status)
    job = job_facts(manifest)
    planned = NOW - draw(st.sampled_from((10, 10_000)))
    where = draw(st.permutations(NODES))
    plan = facts.a_plan(job, where, attempt=0, planned=planned)
    world.add_object("job", with_plan(manifest, plan))
    holder = replace(
        gang,
        priority=CLASSES.get(class_name or "", 0),
        interrupted=bool(attempt),
        is_elastic=gang.is_elastic and not attempt,
    )
    held = Held(holder, planned, is_leaving=bool(attempt))
    world.held.append(held)
    for member in plan.members:
        own_member(draw, world, job, plan, member, ("bound",), held)


@st.composite
def contests(draw: st.DrawFn) -> RandomCluster:
    """Two nodes of eight GPUs, running gangs as far as there is room, and some that wait."""
    nodes = tuple(a_node(name) for name in NODES)
    orderer = draw(st.sampled_from(("combined-priority", "combined-priority", "fifo")))
    world = RandomCluster(nodes, SchedulingSettings(orderer=orderer), CONTEST_QUEUES)
    free = dict.fromkeys(NODES, 4)
    for index in range(draw(st.integers(1, 5))):
        gang = draw(_plain_gangs(f"run{index}"))
        each = (gang.replicas + 1) // 2
        if each <= min(free.values()):
            _run(draw, world, gang)
            free = {name: room - each for name, room in free.items()}
    for index in range(draw(st.integers(1, 3))):
        gang = draw(_plain_gangs(f"wait{index}"))
        class_name = draw(st.sampled_from((None, "high", "high")))
        world.add_object("job", job_manifest(gang, 0, class_name, {}))
        world.waiting.append(replace(gang, priority=CLASSES.get(class_name or "", 0)))
    return world
