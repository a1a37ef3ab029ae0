"""Nodes whose kubelets refused pods: gangs of the same namespace go elsewhere for a while.

It is memory: a new leader learns it anew. One namespace's trouble with a node is its own, as its
pods may be the cause.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bireme.core.gangs import (
    Gang,
    NodeConstraints,
    Requirement,
    SelectorOperator,
    SelectorTerm,
)
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import Transition

_AVOIDED_SECONDS = 600.0


@dataclass(slots=True)
class NodeTroubles:
    """Nodes that refused pods, by namespace; ``clock`` is monotonic seconds."""

    clock: Callable[[], float]
    _until: dict[str, dict[str, float]] = field(default_factory=dict)

    def observe(self, job: JobFacts, move: Transition) -> None:
        """Take note of a change of phase that was recorded."""
        if move.rejections:
            nodes = self._until.setdefault(job.key[0], {})
            nodes[move.node] = self.clock() + _AVOIDED_SECONDS

    def around(self, gang: Gang) -> Gang:
        """Return ``gang`` such that it is not placed on nodes that refused its namespace."""
        if gang.namespace not in self._until:
            return gang
        now = self.clock()
        nodes = {node: end for node, end in self._until[gang.namespace].items() if now < end}
        if not nodes:
            del self._until[gang.namespace]
            return gang
        self._until[gang.namespace] = nodes
        not_there = Requirement("metadata.name", SelectorOperator.NOT_IN, tuple(sorted(nodes)))
        tasks = tuple(
            replace(task, constraints=_without(task.constraints, not_there)) for task in gang.tasks
        )
        return replace(gang, tasks=tasks)

    def forgive(self, namespace: str) -> bool:
        """Forget the troubles of a namespace, because a gang fits nowhere else; say if any were."""
        return self._until.pop(namespace, None) is not None


def _without(given: NodeConstraints, not_there: Requirement) -> NodeConstraints:
    terms = given.affinity_terms
    if terms is None:
        return replace(given, affinity_terms=(SelectorTerm(names=(not_there,)),))
    # A term without any requirement matches no node, and must not come to match some.
    narrowed = (
        replace(term, names=(*term.names, not_there)) if term.labels or term.names else term
        for term in terms
    )
    return replace(given, affinity_terms=tuple(narrowed))
