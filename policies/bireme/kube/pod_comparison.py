"""Compares a pod that Bireme sent with the pod that the API server returned.

Admission webhooks and policies may change any field. Only changes count here that keep the pod from
being bound as planned, or from being identified as a replica of its job. Changed requests,
tolerations, selectors and the like become part of the plan (:mod:`bireme.kube.mutations`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bireme.core.nodes import NodeTable, selector_nodes
from bireme.kube import names, wire
from bireme.kube.pods import constraints_of_spec

# Pods of equal templates are compared once, in the dry run of one job. Its name would be wrong in
# the messages of other jobs.
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
class PodDifference:
    """One field that admission changed: its JSON path, and the sent and received values as text."""

    field: str
    sent: str
    received: str

    def __str__(self) -> str:
        sent, received = self.sent[:_MAX_TEXT], self.received[:_MAX_TEXT]
        return f"{self.field} from {sent or 'nothing'} to {received or 'nothing'}"


def differences(sent: wire.V1Pod, received: wire.V1Pod) -> tuple[PodDifference, ...]:
    """Return the changes of admission to ``sent`` that affect its binding or its membership."""
    return tuple(_differences(sent, received))


def _differences(sent: wire.V1Pod, received: wire.V1Pod) -> Iterator[PodDifference]:
    if received.metadata.name != sent.metadata.name:
        yield PodDifference("metadata.name", "the name of the replica", received.metadata.name)
    sent_labels, received_labels = sent.metadata.labels or {}, received.metadata.labels or {}
    for label in names.POD_LABELS:
        if sent_labels.get(label) != received_labels.get(label):
            value = _GENERAL.get(label, sent_labels.get(label, ""))
            yield PodDifference(f"metadata.labels[{label}]", value, received_labels.get(label, ""))
    owners = received.metadata.owner_references or ()
    required = {(owner.kind, owner.uid) for owner in sent.metadata.owner_references or ()}
    if not required <= {(owner.kind, owner.uid) for owner in owners}:
        owner_names = ", ".join(f"{owner.kind} {owner.name}" for owner in owners)
        yield PodDifference("metadata.ownerReferences", "the TrainingJob", owner_names)
    texts: Iterable[tuple[str, str, str]] = (
        (field, text_of(sent.spec), text_of(received.spec)) for field, text_of in _TEXTS
    )
    yield from (PodDifference(*text) for text in texts if text[1] != text[2])
    # An API server without the feature drops the field, which delays no pod.
    group = _group(received.spec)
    if group and group != _group(sent.spec):
        yield PodDifference("spec.schedulingGroup.podGroupName", _group(sent.spec), group)


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
) -> tuple[PodDifference, ...]:
    """Return the changes of admission that keep a pod with a pin to ``node`` off that node.

    Raises:
        ValueError: an operator in its affinity is unknown.
    """
    sent_rules, received_rules = constraints_of_spec(sent.spec), constraints_of_spec(received.spec)
    changes: list[PodDifference] = []
    if sent_rules.affinity_terms != received_rules.affinity_terms:
        terms = received_rules.affinity_terms or ()
        is_pinned = bool(terms) and all(
            any(requirement.values == (node,) for requirement in term.names) for term in terms
        )
        if not is_pinned:
            changes.append(PodDifference(_AFFINITY, f"node {node} alone", "other nodes"))
    if node in nodes.row and not selector_nodes(received_rules, nodes)[nodes.row[node]]:
        sent_selector, received_selector = (
            dict(sent_rules.node_selector),
            dict(received_rules.node_selector),
        )
        changes += [
            PodDifference(
                f"spec.nodeSelector[{key}]",
                sent_selector.get(key, ""),
                received_selector.get(key, ""),
            )
            for key in sorted(sent_selector.keys() | received_selector.keys())
            if sent_selector.get(key) != received_selector.get(key)
        ]
        if not changes and sent_rules.affinity_terms != received_rules.affinity_terms:
            changes.append(PodDifference(_AFFINITY, f"node {node}", f"nodes without {node}"))
    return tuple(changes)


_AFFINITY: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def text_of(task: str, changes: Iterable[PodDifference]) -> str:
    """Return the message for the owner of a job about ``changes`` to the pods of ``task``."""
    which = "; ".join(map(str, changes))[:600]
    return (
        f"admission changes {which} in pods of task {task}, which would not start as planned; "
        f"exclude pods with schedulerName {names.SCHEDULER_NAME} from that webhook or policy"
    )
