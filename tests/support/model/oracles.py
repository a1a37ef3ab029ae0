"""Results that the core computes over arrays, in plain loops over nodes and replicas.

They follow from the Kubernetes API and from the promises of the scheduling cycle.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bireme.core.decision import Decision
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
from tests.support.model.rules import Amounts, over_limits, overcommitted, wrong_sizes

Spots = dict[str, list[str]]
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
    """Count the replicas of ``task`` that fit into ``free`` on ``node``."""
    if not may_use(node, task.constraints):
        return 0
    return max(0, min(free.get(name, 0) // amount for name, amount in task.request))


def free_amounts(nodes: Sequence[Node], snapshot: ClusterSnapshot) -> dict[str, dict[str, int]]:
    """Return what is free on each node, by name."""
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
    """Yield every promise of a cycle that ``decision`` breaks."""
    waiting = Counter(gang.uid for gang in snapshot.waiting)
    decided = Counter(action.gang.uid for action in decision.actions)
    if waiting != decided:
        yield f"waiting {waiting} but decided {decided}"
    asked = {gang.uid: gang for gang in snapshot.waiting}
    free = free_amounts(nodes, snapshot)
    taken: Counter[tuple[str, str]] = Counter()
    usage = {name: Counter(used) for name, used in snapshot.queue_usage.items()}
    by_name = {node.name: node for node in nodes}
    for admit in decision.admitted:
        gang, placed = admit.gang, admit.placement.by_task(snapshot.nodes)
        spots = {task: list(names) for task, names in placed.items()}
        broken = [*_wrong_sizes(gang, asked[gang.uid], spots)]
        broken += _not_allowed(gang, spots, by_name)
        broken += _over_committed(gang, spots, free, taken)
        broken += _over_limit(gang, snapshot, usage.setdefault(gang.queue, Counter()))
        broken += _affinity_broken(gang, spots, by_name, snapshot)
        yield from (f"{gang.uid}: {words}" for words in broken)


def _wrong_sizes(gang: Gang, asked: Gang, spots: Spots) -> Iterator[str]:
    """Yield sizes not between the least and the most that were asked for, or not placed."""
    granted = {task.name: task.replicas for task in gang.tasks}
    placed = {task: len(names) for task, names in spots.items()}
    yield from wrong_sizes({task: (count, count) for task, count in granted.items()}, placed)
    bounds = {t.name: (t.min_replicas or t.replicas, t.replicas) for t in asked.tasks}
    whole = sum(most for _, most in bounds.values())
    yield from wrong_sizes(bounds, granted, min(asked.min_available, whole))


def _not_allowed(gang: Gang, spots: Spots, by_name: Mapping[str, Node]) -> Iterator[str]:
    for task in gang.tasks:
        for name in set(spots[task.name]):
            if not may_use(by_name[name], task.constraints):
                yield f"task {task.name} may not use node {name}"


def _over_committed(
    gang: Gang, spots: Spots, free: Mapping[str, Amounts], taken: Counter[tuple[str, str]]
) -> Iterator[str]:
    """Add ``spots`` to ``taken``; only what this gang asks can be its fault."""
    own: Counter[tuple[str, str]] = Counter()
    for task in gang.tasks:
        for name in spots[task.name]:
            for resource, amount in task.request:
                own[name, resource] += amount
    taken.update(own)
    yield from overcommitted(free, taken, own.keys())


def _over_limit(gang: Gang, snapshot: ClusterSnapshot, used: Counter[str]) -> Iterator[str]:
    """Add the demand of ``gang`` to what its queue has used."""
    for task in gang.tasks:
        for resource, amount in task.request:
            used[resource] += task.replicas * amount
    asked = {resource for task in gang.tasks for resource, _ in task.request}
    limit = {r: most for r, most in snapshot.queues[gang.queue].limit.items() if r in asked}
    yield from over_limits({gang.queue: limit}, {}, {gang.queue: used})


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
