"""Results that the core computes over arrays, in plain loops over nodes and replicas.

They follow from the Kubernetes API and from the promises of the scheduling cycle.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bireme.core.decision import Admit, Decision, Hold, Resize
from bireme.core.gangs import AffinityMode, Gang, Role, Task
from bireme.core.nodes import Node
from bireme.core.pod_constraints import (
    HostPort,
    NodeConstraints,
    PodKind,
    PodSelector,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Taint,
)
from bireme.core.snapshot import ClusterSnapshot
from testbed.model.rules import over_limits, overcommitted, wrong_sizes

Spots = dict[str, tuple[str, ...]]
"""Task name to the node name of every replica."""


def may_use(node: Node, constraints: NodeConstraints) -> bool:
    """Return whether a pod with ``constraints`` may run on ``node`` at all."""
    taints = list(node.taints)
    if node.is_cordoned:
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    tolerated = all(any(t.tolerates(taint) for t in constraints.tolerations) for taint in taints)
    selected = all(node.labels.get(key) == value for key, value in constraints.node_selector)
    terms = constraints.affinity_terms
    near = terms is None or any(_term_holds(term, node) for term in terms)
    return node.is_ready and not node.is_leaving and tolerated and selected and near


def _term_holds(term: SelectorTerm, node: Node) -> bool:
    if not term.labels and not term.names:
        return False
    return all(_holds(r, node.labels.get(r.key)) for r in term.labels) and all(
        _holds(r, node.name) for r in term.names
    )


def _holds(requirement: Requirement, value: str | None) -> bool:
    operator, values = requirement.operator, requirement.values
    if operator is SelectorOperator.EXISTS:
        return value is not None
    if operator is SelectorOperator.DOES_NOT_EXIST:
        return value is None
    if operator is SelectorOperator.IN:
        return value in values
    if operator is SelectorOperator.NOT_IN:
        return value not in values
    if value is None or not value.lstrip("-").isdecimal():
        return False
    above = int(value) > int(values[0])
    return above if operator is SelectorOperator.GT else int(value) < int(values[0])


def room(node: Node, free: Mapping[str, int], task: Task) -> int:
    """Count the replicas of ``task`` that fit into ``free`` on ``node``."""
    if not may_use(node, task.constraints):
        return 0
    return max(0, min(free.get(name, 0) // amount for name, amount in task.request))


def free_amounts(snapshot: ClusterSnapshot) -> dict[str, dict[str, int]]:
    """Return what is free on each node, by name."""
    table = snapshot.nodes
    return {
        node.name: {
            name: node.allocatable.get(name, 0) - int(snapshot.used[table.row[node.name], column])
            for column, name in enumerate(table.axis.names)
        }
        for node in table.nodes
    }


def broken_promises(snapshot: ClusterSnapshot, decision: Decision) -> Iterator[str]:
    """Yield every promise of a cycle that ``decision`` breaks."""
    waiting = Counter(gang.uid for gang in snapshot.waiting)
    decided = Counter(a.gang.uid for a in decision.actions if isinstance(a, Admit | Hold))
    decided.update(gang.uid for gang in decision.unreached)
    if waiting != decided:
        yield f"waiting {waiting} but decided {decided}"
    asked = {gang.uid: gang for gang in snapshot.waiting}
    nodes = {node.name: node for node in snapshot.nodes.nodes}
    parents = {name: queue.parent for name, queue in snapshot.queues.items()}
    taken: Counter[tuple[str, str]] = Counter()
    usage = {name: Counter(used) for name, used in snapshot.queue_usage.items()}
    # A node or queue may be too full before: only what a decision adds to can be its fault.
    on_nodes: set[tuple[str, str]] = set()
    in_queues: set[tuple[str, str]] = set()
    attached = {
        (snapshot.nodes.names[row], volume)
        for group in snapshot.occupants.groups
        for row in group.rows.tolist()
        for volume in group.kind.volumes
    }
    for action in decision.actions:
        if not isinstance(action, Admit | Resize):
            continue
        gang, spots, before = action.gang, action.placement.by_task(snapshot.nodes), Spots()
        if isinstance(action, Admit):
            broken = [*_wrong_sizes(gang, asked[gang.uid], spots)]
            broken += _affinity_broken(gang, spots, nodes, snapshot)
        else:
            before = action.running.placement.by_task(snapshot.nodes)
            bounds = {task.name: (task.minimum, task.maximum) for task in gang.tasks}
            broken = [*wrong_sizes(bounds, _sizes(spots), gang.min_available)]
        for task in gang.tasks:
            added = Counter(spots.get(task.name, ()))
            added.subtract(before.get(task.name, ()))
            if added and min(added.values()) < 0 < max(added.values()):
                broken.append(f"replicas of {task.name} moved")
            for node, count in added.items():
                if count > 0 and not may_use(nodes[node], task.constraints):
                    broken.append(f"task {task.name} may not use node {node}")
                for resource, amount in task.request:
                    taken[node, resource] += count * amount
                    usage.setdefault(gang.queue, Counter())[resource] += count * amount
                    if count > 0:
                        on_nodes.add((node, resource))
                        in_queues |= {(name, resource) for name in _up(gang.queue, parents)}
                # Once, whichever replicas use it there.
                volumes = task.pod.volumes if task.pod is not None and count > 0 else ()
                for volume in {each for each in volumes if (node, each) not in attached}:
                    attached.add((node, volume))
                    taken[node, volume[0]] += 1
                    on_nodes.add((node, volume[0]))
        yield from (f"{gang.uid}: {words}" for words in broken)
    yield from overcommitted(free_amounts(snapshot), taken, on_nodes)
    limits = {
        name: {r: most for r, most in queue.limit.items() if (name, r) in in_queues}
        for name, queue in snapshot.queues.items()
    }
    yield from over_limits(limits, parents, usage)
    yield from _over_quotas(snapshot, decision)
    yield from _broken_rules(snapshot, decision)


_Pod = tuple[Node, PodKind]


def _broken_rules(snapshot: ClusterSnapshot, decision: Decision) -> Iterator[str]:
    """Yield rules over pods that an admitted gang breaks, gang after gang as they were admitted."""
    by_name = {node.name: node for node in snapshot.nodes.nodes}
    there: list[_Pod] = []
    for group in snapshot.occupants.groups:
        there += [(snapshot.nodes.nodes[row], group.kind) for row in group.rows.tolist()]
    for action in decision.actions:
        if not isinstance(action, Admit):
            continue
        spots, gang = action.placement.by_task(snapshot.nodes), action.gang
        pods = [(task, by_name[name]) for task in gang.tasks for name in spots.get(task.name, ())]
        placed = [(node, task.pod) for task, node in pods if task.pod is not None]
        for at, (node, kind) in enumerate(placed):
            others = [*there, *placed[:at]]
            clash = [each for each in others if _keeps_apart((node, kind), each)]
            yield from (f"{gang.uid} on {node.name}: {other[1]} is there" for other in clash)
            beside = [*there, *placed[:at], *placed[at + 1 :]]
            if kind.near and not _is_near((node, kind), beside):
                yield f"{gang.uid} on {node.name}: nothing is near it"
        there += placed
        for task, node in pods:
            if task.pod is not None:
                yield from _skewed(task, task.pod, node, by_name.values(), there)


def _keeps_apart(one: _Pod, other: _Pod) -> bool:
    if one[0] is other[0] and _clash(one[1], other[1]):
        return True
    if any(claim in other[1].alone for claim in one[1].alone):
        return True
    return any(
        _selects(term.pods, b[1]) and _is_same(term.key, a[0], b[0])
        for a, b in ((one, other), (other, one))
        for term in a[1].apart
    )


def _is_near(pod: _Pod, others: Sequence[_Pod]) -> bool:
    node, kind = pod
    wanted = [
        (at, other) for at, other in others if all(_selects(t.pods, other) for t in kind.near)
    ]
    # One that matches itself may be the first of them.
    is_first = all(_selects(t.pods, kind) for t in kind.near) and not any(
        term.key in at.labels for at, _ in wanted for term in kind.near
    )
    has_labels = all(term.key in node.labels for term in kind.near)
    return has_labels and (
        is_first or all(any(_is_same(t.key, node, at) for at, _ in wanted) for t in kind.near)
    )


def _skewed(
    task: Task, kind: PodKind, node: Node, nodes: Iterable[Node], pods: Sequence[_Pod]
) -> Iterator[str]:
    plain = replace(task.constraints, demands=())
    for limit in kind.spread:
        counted = []
        asked = plain if limit.honors_affinity else NodeConstraints(tolerations=plain.tolerations)
        for each in nodes:
            taints = each.taints if limit.honors_taints else ()
            untainted = replace(
                each, is_ready=True, is_cordoned=False, is_leaving=False, taints=taints
            )
            if may_use(untainted, asked) and all(one.key in each.labels for one in kind.spread):
                counted.append(each)
        found = Counter({each.labels[limit.key]: 0 for each in counted})
        for at, other in pods:
            if at in counted and _selects(limit.pods, other):
                found[at.labels[limit.key]] += 1
        domain = node.labels.get(limit.key)
        if domain is None:
            yield f"{task.name} on {node.name}: no domain of {limit.key}"
        elif _selects(limit.pods, kind):
            fewest = min(found.values(), default=found[domain])
            skew = found[domain] - (fewest if len(found) >= limit.least_domains else 0)
            if skew > limit.most_skew:
                yield f"{task.name} on {node.name}: {dict(found)} over {limit.key}"


def _selects(pods: PodSelector, kind: PodKind) -> bool:
    labels = dict(kind.labels)
    is_there = bool(kind.namespace) and (
        pods.namespaces is None or kind.namespace in pods.namespaces
    )
    return is_there and all(_holds(each, labels.get(each.key)) for each in pods.requirements)


def _is_same(key: str, one: Node, other: Node) -> bool:
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _clash(left: PodKind, right: PodKind) -> bool:
    """Return whether one node cannot have both: a port on all addresses clashes with any."""
    return any(
        (one.number, one.protocol) == (other.number, other.protocol)
        and (one.address == other.address or HostPort(0).address in (one.address, other.address))
        for one in left.ports
        for other in right.ports
    )


def _over_quotas(snapshot: ClusterSnapshot, decision: Decision) -> Iterator[str]:
    charged: Counter[tuple[str, str, str]] = Counter()
    for action in decision.actions:
        if not isinstance(action, Admit | Resize):
            continue
        sizes = Counter(_sizes(action.placement.by_task(snapshot.nodes)))
        if isinstance(action, Resize):
            sizes.subtract(_sizes(action.running.placement.by_task(snapshot.nodes)))
        for task in action.gang.tasks:
            for name, amounts in task.charges:
                for resource, amount in amounts:
                    charged[action.gang.namespace, name, resource] += sizes[task.name] * amount
    for (namespace, name, resource), amount in charged.items():
        quota = snapshot.quotas[namespace, name]
        if amount > 0 and quota.used.get(resource, 0) + amount > quota.hard[resource]:
            yield f"quota {name} of {namespace}: {amount} more {resource} is too much"


def _up(queue: str, parents: Mapping[str, str]) -> Iterator[str]:
    while queue:
        yield queue
        queue = parents[queue]


def _sizes(spots: Spots) -> dict[str, int]:
    return {task: len(names) for task, names in spots.items()}


def _wrong_sizes(gang: Gang, asked: Gang, spots: Spots) -> Iterator[str]:
    """Yield sizes not between the least and the most that were asked for, or not placed."""
    granted = {task.name: task.replicas for task in gang.tasks}
    yield from wrong_sizes({task: (count, count) for task, count in granted.items()}, _sizes(spots))
    # A sizer may start an elastic gang above the size that it asked for.
    bounds = {
        t.name: (t.minimum, t.maximum if asked.is_elastic else t.replicas) for t in asked.tasks
    }
    whole = sum(task.replicas for task in asked.tasks)
    yield from wrong_sizes(bounds, granted, min(asked.min_available, whole))


def _affinity_broken(
    gang: Gang, spots: Spots, by_name: Mapping[str, Node], snapshot: ClusterSnapshot
) -> Iterator[str]:
    wish = gang.role_affinity
    roles = [task.role for task in gang.tasks]
    if wish.mode is not AffinityMode.REQUIRED or (
        roles.count(Role.PS) != 1 or roles.count(Role.WORKER) != 1
    ):
        return
    levels = snapshot.settings.topology_levels
    names = {task.role: spots[task.name] for task in gang.tasks}
    servers = [_domain(by_name[name], wish.topology_key, levels) for name in names[Role.PS]]
    for name in names[Role.WORKER]:
        if name not in names[Role.PS]:
            own = _domain(by_name[name], wish.topology_key, levels)
            if own is None or own not in servers:
                yield f"worker on {name} has no parameter server in its domain"


def _domain(node: Node, key: str, levels: Sequence[str]) -> tuple[str | None, ...] | None:
    """Return the node's domain at ``key`` with all wider ones, or itself for hosts, or None."""
    if key == "kubernetes.io/hostname" or key not in levels:
        return (node.name,)
    if key not in node.labels:
        return None
    return tuple(node.labels.get(level) for level in levels[levels.index(key) :])
