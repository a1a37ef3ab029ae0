"""Kubernetes objects as they come off the wire, cut down to what Bireme reads.

Decoding straight into these structs skips every other field: a list of 5000 nodes decodes about
forty times faster than through the generated client models and keeps a tenth of the memory.
Unknown fields are ignored, so a newer API server changes nothing. Quantities stay strings (or
numbers) here and become integers in :mod:`bireme.kube.quantity`.
"""

from typing import Any

import msgspec

Quantities = dict[str, str | int | float]


class Wire(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Base of every wire type: camelCase on the wire, immutable, no cycle collector."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None


class Taint(Wire, frozen=True):
    key: str
    value: str | None = None
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Condition(Wire, frozen=True):
    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None


class NodeStatus(Wire, frozen=True):
    allocatable: Quantities | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(Wire, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ResourceRequirements(Wire, frozen=True):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(Wire, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class SelectorRequirement(Wire, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: tuple[SelectorRequirement, ...] | None = None
    match_fields: tuple[SelectorRequirement, ...] | None = None


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None


class Toleration(Wire, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class SchedulingGate(Wire, frozen=True):
    name: str


class PodSpec(Wire, frozen=True):
    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    restart_policy: str | None = None


class Terminated(Wire, frozen=True):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None


class ContainerState(Wire, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    ready: bool = False
    state: ContainerState | None = None


class PodStatus(Wire, frozen=True):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Wire, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Namespace(Wire, frozen=True):
    metadata: ObjectMeta


class Service(Wire, frozen=True):
    metadata: ObjectMeta


class PriorityClass(Wire, frozen=True):
    metadata: ObjectMeta
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class Custom(Wire, frozen=True):
    """A custom resource: metadata typed, spec and status as plain dictionaries.

    They are validated by the pydantic models afterwards, each object alone, so that one bad
    object becomes a condition on itself and nothing else stops.
    """

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
