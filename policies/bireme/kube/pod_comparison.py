"""Compares a pod as Bireme sent it with the one that the API server made of it.

Admission webhooks and policies may change any field. Only those count here by which the pod would
not be bound as planned, or not be known as a replica of its job; requests, tolerations, selectors
and the like are planned with as they come back (:mod:`bireme.kube.mutations`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bireme.core.nodes import NodeTable, selector_nodes
from bireme.kube import names, wire
from bireme.kube.pods import constraints_of_spec

# Pods of equal templates are compared once, by one job's dry run: its own name would be wrong in
# the message of the next.
_GENERAL: Final = {
    names.JOB_LABEL: "the name of the job",
    names.POD_GROUP_LABEL: "the name of the job",
    names.QUEUE_LABEL: "the queue of the job",
    names.INDEX_LABEL: "the index of the replica",
    names.ATTEMPT_LABEL: "the number of the start",
    names.PLAN_LABEL: "the number of the plan",
}
_MAX_TEXT: Final = 128


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that admission changed: its JSON path, and its values before and after, as text."""

    field: str
    before: str
    after: str

    def __str__(self) -> str:
        before, after = self.before[:_MAX_TEXT], self.after[:_MAX_TEXT]
        return f"{self.field} from {before or 'nothing'} to {after or 'nothing'}"


def differences(sent: wire.V1Pod, received: wire.V1Pod) -> tuple[Difference, ...]:
    """Return what admission changed of ``sent`` that its binding or its membership depends on."""
    return tuple(_differences(sent, received))


def _differences(sent: wire.V1Pod, received: wire.V1Pod) -> Iterator[Difference]:
    if received.metadata.name != sent.metadata.name:
        yield Difference("metadata.name", "the name of the replica", received.metadata.name)
    before, after = sent.metadata.labels or {}, received.metadata.labels or {}
    for label in names.POD_LABELS:
        if before.get(label) != after.get(label):
            value = _GENERAL.get(label, before.get(label, ""))
            yield Difference(f"metadata.labels[{label}]", value, after.get(label, ""))
    owners = received.metadata.owner_references or ()
    required = {(owner.kind, owner.uid) for owner in sent.metadata.owner_references or ()}
    if not required <= {(owner.kind, owner.uid) for owner in owners}:
        found = ", ".join(f"{owner.kind} {owner.name}" for owner in owners)
        yield Difference("metadata.ownerReferences", "the TrainingJob", found)
    texts: Iterable[tuple[str, str, str]] = (
        (field, text_of(sent.spec), text_of(received.spec)) for field, text_of in _TEXTS
    )
    yield from (Difference(*text) for text in texts if text[1] != text[2])
    # An API server without the feature drops the field, which holds nothing up.
    group = _group(received.spec)
    if group and group != _group(sent.spec):
        yield Difference("spec.schedulingGroup.podGroupName", _group(sent.spec), group)


def _scheduler(spec: wire.V1PodSpec) -> str:
    return spec.scheduler_name or ""


def _node(spec: wire.V1PodSpec) -> str:
    return spec.node_name or ""


def _gates(spec: wire.V1PodSpec) -> str:
    return ", ".join(f"the scheduling gate {gate.name}" for gate in spec.scheduling_gates or ())


def _group(spec: wire.V1PodSpec) -> str:
    return (spec.scheduling_group.pod_group_name or "") if spec.scheduling_group else ""


_TEXTS: Final = (
    ("spec.schedulerName", _scheduler),
    ("spec.nodeName", _node),
    ("spec.schedulingGates", _gates),
)


def against_pin(
    sent: wire.V1Pod, received: wire.V1Pod, node: str, nodes: NodeTable
) -> tuple[Difference, ...]:
    """Return what admission changed of a pod pinned to ``node`` that keeps it from there.

    Raises:
        ValueError: an operator in its affinity is unknown.
    """
    before, after = constraints_of_spec(sent.spec), constraints_of_spec(received.spec)
    found: list[Difference] = []
    if before.affinity_terms != after.affinity_terms:
        terms = after.affinity_terms or ()
        is_pinned = bool(terms) and all(
            any(requirement.values == (node,) for requirement in term.names) for term in terms
        )
        if not is_pinned:
            found.append(Difference(_AFFINITY, f"node {node} alone", "other nodes"))
    if node in nodes.row and not selector_nodes(after, nodes)[nodes.row[node]]:
        own, other = dict(before.node_selector), dict(after.node_selector)
        found += [
            Difference(f"spec.nodeSelector[{key}]", own.get(key, ""), other.get(key, ""))
            for key in sorted(own.keys() | other.keys())
            if own.get(key) != other.get(key)
        ]
        if not found and before.affinity_terms != after.affinity_terms:
            found.append(Difference(_AFFINITY, f"node {node}", f"nodes without {node}"))
    return tuple(found)


_AFFINITY: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def text_of(task: str, found: Iterable[Difference]) -> str:
    """Return what is said to the owner of a job whose pods of ``task`` admission changes."""
    which = "; ".join(map(str, found))[:600]
    return (
        f"admission changes {which} in pods of task {task}, which would not start as planned; "
        f"exclude pods with schedulerName {names.SCHEDULER_NAME} from that webhook or policy"
    )
