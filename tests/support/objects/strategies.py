"""Hypothesis strategies that draw :class:`tests.support.objects.worlds.World`: nodes, gangs, their
pods."""

from hypothesis import strategies as st

from bireme.core.gangs import (
    ANYWHERE,
    AffinityMode,
    Gang,
    NodeConstraints,
    Operator,
    Requirement,
    Role,
    RoleAffinity,
    SelectorTerm,
    Taint,
    Task,
    Toleration,
)
from bireme.core.nodes import Node
from bireme.core.resources import Request, request_of
from bireme.core.settings import SchedulingSettings
from tests.support.objects.worlds import NOW, World
from tools.controlplane.nodes import GPU, HOSTNAME_LABEL, RACK, ZONE

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
    """What a replica asks, the pod itself included: mostly modest, sometimes anything."""
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
    return st.builds(
        Node,
        st.just(name),
        st.one_of(roomy, roomy, anything),
        labels,
        st.one_of(st.just(()), st.just(()), taints),
        is_ready=st.sampled_from((True, True, True, False)),
        is_cordoned=st.sampled_from((False, False, False, True)),
    )


def nodes() -> st.SearchStrategy[tuple[Node, ...]]:
    """Up to five nodes n0, n1, ..."""
    return st.sampled_from((0, 1, 2, 3, 4, 5, 5)).flatmap(
        lambda n: st.tuples(*(_node(f"n{i}") for i in range(n)))
    )


def _requirements() -> st.SearchStrategy[Requirement]:
    keys = st.sampled_from(sorted(LABELS))
    values = st.lists(st.sampled_from(("ssd", "8", "r0", "z1")), min_size=1, max_size=2)
    listed = st.sampled_from((Operator.IN, Operator.NOT_IN))
    bare = st.sampled_from((Operator.EXISTS, Operator.DOES_NOT_EXIST))
    bounds = st.sampled_from((Operator.GT, Operator.LT))
    return st.one_of(
        st.builds(Requirement, keys, listed, values.map(tuple)),
        st.builds(Requirement, keys, bare),
        st.builds(Requirement, st.just("size"), bounds, st.sampled_from((("8",), ("12",), ("x",)))),
    )


def _names() -> st.SearchStrategy[Requirement]:
    operators = st.sampled_from((Operator.IN, Operator.NOT_IN))
    values = st.sampled_from((("n0",), ("n1",)))
    return st.builds(Requirement, st.just("metadata.name"), operators, values)


def _tolerations() -> st.SearchStrategy[Toleration]:
    effects = st.sampled_from(("", "NoSchedule", "NoExecute"))
    keys = st.sampled_from(("dedicated", "maintenance"))
    return st.one_of(
        st.builds(Toleration, keys, st.just("Equal"), st.sampled_from(("training", "")), effects),
        st.builds(Toleration, keys, st.just("Exists"), st.just(""), effects),
        st.builds(Toleration, st.just(""), st.just("Exists"), st.just(""), effects),
    )


def constraints() -> st.SearchStrategy[NodeConstraints]:
    """Any hard demand; often none."""
    terms = st.builds(
        SelectorTerm,
        st.lists(_requirements(), max_size=2).map(tuple),
        st.lists(_names(), max_size=1).map(tuple),
    )
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
    )


def settings() -> st.SearchStrategy[SchedulingSettings]:
    """Both orderers, and topology levels of every kind."""
    return st.builds(
        SchedulingSettings,
        orderer=st.sampled_from(("combined-priority", "fifo")),
        topology_levels=st.sampled_from(LEVELS),
    )


@st.composite
def worlds(draw: st.DrawFn, most: int = 5) -> World:
    """A cluster with up to ``most`` gangs in any state of their life, and pods of strangers."""
    from tests.support.objects import inhabitants

    world = World(draw(nodes()), draw(settings()))
    for index in range(draw(st.integers(0, most))):
        draw(st.sampled_from(inhabitants.KINDS))(draw, world, index)
    return world
