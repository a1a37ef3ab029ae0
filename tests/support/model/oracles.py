"""What is right, said slowly: plain loops over nodes and replicas, exact integers, no arrays.

An oracle is worth its independence. These functions take their meaning from the Kubernetes API
and from the promises of the scheduling cycle, and use none of the code under test beyond the
types that carry the facts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bireme.core.decision import Admit, Decision
from bireme.core.gangs import (
    AffinityMode,
    Gang,
    NodeConstraints,
    Requirement,
    Role,
    SelectorOperator,
    SelectorTerm,
    Taint,
    Task,
)
from bireme.core.nodes import Node
from bireme.core.snapshot import ClusterSnapshot

Spots = dict[str, list[str]]
"""Task name to the node name of every replica."""


def may_use(node: Node, constraints: NodeConstraints) -> bool:
    """Whether a pod with ``constraints`` may run on ``node`` at all."""
    taints = list(node.taints)
    if node.is_cordoned:
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    tolerated = all(any(t.tolerates(taint) for t in constraints.tolerations) for taint in taints)
    selected = all(node.labels.get(key) == value for key, value in constraints.node_selector)
    terms = constraints.affinity_terms
    near = terms is None or any(_term_holds(term, node) for term in terms)
    return node.is_ready and tolerated and selected and near


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
    """How many replicas of ``task`` fit into ``free`` on ``node``, counted one by one."""
    if not may_use(node, task.constraints):
        return 0
    return max(0, min(free.get(name, 0) // amount for name, amount in task.request))


def free_amounts(nodes: Sequence[Node], snapshot: ClusterSnapshot) -> dict[str, dict[str, int]]:
    """Node name to what is free on it."""
    axis = snapshot.nodes.axis
    return {
        node.name: {
            name: node.allocatable.get(name, 0)
            - int(snapshot.used[snapshot.nodes.row[node.name], column])
            for column, name in enumerate(axis.names)
        }
        for node in nodes
    }


def broken_promises(
    nodes: Sequence[Node], snapshot: ClusterSnapshot, decision: Decision
) -> Iterator[str]:
    """Every promise of a cycle that ``decision`` breaks, in words; empty when all is well."""
    waiting = Counter(gang.uid for gang in snapshot.waiting)
    decided = Counter(action.gang.uid for action in decision.actions)
    if waiting != decided:
        yield f"waiting {waiting} but decided {decided}"
    asked = {gang.uid: gang for gang in snapshot.waiting}
    free = free_amounts(nodes, snapshot)
    usage = {name: dict(used) for name, used in snapshot.queue_usage.items()}
    by_name = {node.name: node for node in nodes}
    for admit in decision.admitted:
        spots = {
            task: list(names) for task, names in admit.placement.by_task(snapshot.nodes).items()
        }
        yield from _not_whole(admit, asked[admit.gang.uid], spots)
        yield from _not_allowed(admit.gang, spots, by_name)
        yield from _over_committed(admit.gang, spots, free)
        yield from _over_limit(admit.gang, snapshot, usage)
        yield from _affinity_broken(admit.gang, spots, by_name, snapshot)


def _not_whole(admit: Admit, asked: Gang, spots: Spots) -> Iterator[str]:
    wanted = {task.name: task.replicas for task in admit.gang.tasks}
    if {task: len(names) for task, names in spots.items()} != wanted:
        yield f"{asked.uid}: {wanted} admitted, {spots} placed"
    for task in asked.tasks:
        fewest = task.min_replicas or task.replicas
        if not fewest <= wanted.get(task.name, 0) <= task.replicas:
            yield f"{asked.uid}: {wanted.get(task.name, 0)} of {task}"
    if sum(wanted.values()) < min(asked.min_available, sum(t.replicas for t in asked.tasks)):
        yield f"{asked.uid}: {wanted} is below minAvailable {asked.min_available}"


def _not_allowed(gang: Gang, spots: Spots, by_name: Mapping[str, Node]) -> Iterator[str]:
    for task in gang.tasks:
        for name in set(spots[task.name]):
            if not may_use(by_name[name], task.constraints):
                yield f"{gang.uid}: task {task.name} may not use node {name}"


def _over_committed(gang: Gang, spots: Spots, free: dict[str, dict[str, int]]) -> Iterator[str]:
    """Takes ``spots`` from ``free``; what was overfull before is nobody's fault, but stays so."""
    for task in gang.tasks:
        for name, replicas in Counter(spots[task.name]).items():
            for resource, amount in task.request:
                left = free[name].get(resource, 0) - replicas * amount
                if left < 0:
                    yield f"{gang.uid}: node {name} lacks {-left} {resource}"
                free[name][resource] = left


def _over_limit(
    gang: Gang, snapshot: ClusterSnapshot, usage: dict[str, dict[str, int]]
) -> Iterator[str]:
    used = usage.setdefault(gang.queue, {})
    for task in gang.tasks:
        for resource, amount in task.request:
            used[resource] = used.get(resource, 0) + task.replicas * amount
    asked = {resource for task in gang.tasks for resource, _ in task.request}
    for resource, limit in snapshot.queues[gang.queue].limit.items():
        if resource in asked and used[resource] > limit:
            yield f"{gang.uid}: queue {gang.queue} holds {used[resource]} {resource} of {limit}"


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
                yield f"{gang.uid}: worker on {name} has no parameter server in its domain"


def _domain(node: Node, key: str, levels: Sequence[str]) -> tuple[str | None, ...] | None:
    """The node's domain at ``key`` with all wider ones; the node itself for hosts; or None."""
    if key == "kubernetes.io/hostname" or key not in levels:
        return (node.name,)
    if key not in node.labels:
        return None
    return tuple(node.labels.get(level) for level in levels[levels.index(key) :])
