"""Read pods and pod templates: requests, node constraints, state; and pin a pod to a node.

Requests follow the scheduler's own rule (``k8s.io/component-helpers/resource``): the larger of
(a) the sum of all containers and sidecars and (b) the peak while an init container runs beside the
sidecars before it. A pod-level request overrides that sum; overhead is added. During a resize in
place a pod counts with the larger of its actual and its desired request.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeVar

import msgspec

from bireme.core.gangs import Key
from bireme.core.pod_constraints import (
    NodeConstraints,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    Toleration,
)
from bireme.core.resources import PODS, Request, add, request_of
from bireme.kube import names, node_features, wire
from bireme.kube.endings import UNEXPLAINED, describe_ending, describe_last_ending
from bireme.kube.quantities import LARGEST, QuantityError, parse_quantity, parse_timestamp

T = TypeVar("T")
TERMINAL = ("Succeeded", "Failed")
_DISRUPTIONS = ("NodeLost", "Preempting", "NodeShutdown")

PATH: Final = "/api/v1/pods"
MEMBERS: Final = {"labelSelector": names.POD_GROUP_LABEL}
"""Selects members of gangs in every phase: the state of the gang depends on all of them."""
_NOT_ENDED: Final = tuple(f"status.phase!={phase}" for phase in TERMINAL)
NON_MEMBERS: Final = {
    "labelSelector": f"!{names.POD_GROUP_LABEL}",
    "fieldSelector": ",".join(("spec.nodeName!=", *_NOT_ENDED)),
}
"""Selects all other bound pods that have not ended: only their usage matters."""
NOMINATED: Final = {
    "labelSelector": f"!{names.POD_GROUP_LABEL}",
    "fieldSelector": ",".join(("spec.nodeName=", "status.nominatedNodeName!=", *_NOT_ENDED)),
}
"""Selects unbound other pods for which a scheduler has chosen a node, as after a preemption."""


HEALING_REFUSALS: Final = (
    "NoPlan: ",
    "UnknownPodGroup: ",
    "ForeignPod: ",
    "StalePlan: ",
    "NotInPlan: ",
    "RequestAbovePlan: ",
    "InternalError: ",
)
"""Prefixes of transient refusals of the extender. Its cache will catch up, or the gang is planned
again with the actual requests of its pods."""
_CREATING: Final = ("ContainerCreating", "PodInitializing")


DEFAULT_GRACE_SECONDS: Final = 30
"""Default of ``terminationGracePeriodSeconds`` in Kubernetes."""


@dataclass(frozen=True, slots=True)
class Obstacles:
    """The obstacles of a pod that does not run yet. Times are POSIX seconds, 0 for none."""

    unschedulable: str = ""
    """Message of kube-scheduler when it finds no node; empty without one."""
    unschedulable_since: float = 0.0
    has_claims: bool = False
    """It has volumes that may have to be provisioned before it is bound."""
    waiting: str = ""
    """Message about its first stuck container: ErrImagePull, CrashLoopBackOff and the like."""
    pull_began: float = 0.0
    """The start of the pull of its images; 0 if it has not started, or failed."""
    pull_ended: float = 0.0


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod as the operator and the extender use it."""

    key: Key
    uid: str
    node: str
    phase: str
    request: Request
    labels: dict[str, str]
    owner_uids: frozenset[str]
    job_uid: str
    """UID of its only owner, if that is a TrainingJob: it is deleted with the job; else empty."""
    is_gated: bool
    is_ready: bool
    is_leaving: bool
    is_disrupted: bool
    """It failed or is being deleted for a reason outside the pod: evicted, preempted, node lost."""
    is_rejected: bool
    """It failed before any of its containers ran: its kubelet rejected it."""
    disruption: str
    """Reason and message of its condition DisruptionTarget; empty unless it is disrupted."""
    failure: str
    """Message of :mod:`bireme.kube.endings`; empty unless the pod failed."""
    obstacles: Obstacles | None = None
    """None once it runs, or without known obstacles."""
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    """Termination grace period of its spec."""
    ending_grace_seconds: int = 0
    """Grace period of its deletion; 0 for a pod that is not being deleted."""
    runs_forever: bool = False
    """It has restartPolicy Always, so that it never ends."""
    gated_since: float = 0.0
    """Creation time of a gated pod, POSIX seconds; 0 if unknown or not gated."""
    bound_since: float = 0.0
    """Binding time of a bound pod, or else its creation time, POSIX seconds; 0 if unbound."""
    has_finalizers: bool = False
    scheduler: str = ""
    """Name of the scheduler that binds it."""
    is_record: bool = False
    """Its object is deleted: it succeeded before, and is known only from the record of the plan."""
    unready_since: float = 0.0
    """Time since which a pod that has not ended is not ready, POSIX seconds; 0 if ready."""

    @property
    def gang(self) -> Key:
        """Key of the gang that its label names. Anybody may set that label."""
        return self.key[0], self.labels.get(names.POD_GROUP_LABEL, "")

    @property
    def is_terminal(self) -> bool:
        """True if its containers have ended for good."""
        return self.phase in TERMINAL

    @property
    def ending(self) -> str:
        """Message about its end: the disruption and the failure."""
        reason, _, message = self.disruption.partition(": ")
        if not reason or self.failure in ("", UNEXPLAINED):
            return self.disruption or self.failure
        if message in self.failure:
            return f"{reason}: {self.failure}"
        return f"{self.disruption}; {self.failure}"

    @property
    def verdict(self) -> str:
        """Message of kube-scheduler when it finds no node; empty without one."""
        return self.obstacles.unschedulable if self.obstacles is not None else ""

    @property
    def is_only_kept(self) -> bool:
        """True if it has ended and only a finalizer delays its deletion."""
        return self.is_terminal and self.is_leaving and self.has_finalizers


def pod_of_record(key: Key, node: str, request: Request, labels: dict[str, str]) -> PodFacts:
    """Return the facts of a deleted pod whose success is recorded."""
    return PodFacts(
        key=key,
        uid="",
        node=node,
        phase="Succeeded",
        request=request,
        labels=labels,
        owner_uids=frozenset(),
        job_uid="",
        is_gated=False,
        is_ready=False,
        is_leaving=False,
        is_disrupted=False,
        is_rejected=False,
        disruption="",
        failure="",
        is_record=True,
    )


def from_manifest(pod: wire.V1Pod) -> PodFacts:
    """Return the facts of one pod. Never raises: see :func:`request_of_spec`."""
    meta, status = pod.metadata, pod.status
    conditions = {c.type: c for c in status.conditions or ()}
    owners = meta.owner_references or ()
    is_of_job = len(owners) == 1 and names.is_training_job(owners[0].api_version, owners[0].kind)
    is_gated = any(g.name == names.PLAN_GATE for g in pod.spec.scheduling_gates or ())
    # The condition Ready may stay true when a pod ends.
    is_ready = _holds(conditions.get("Ready")) and status.phase not in TERMINAL
    disrupted = conditions.get("DisruptionTarget")
    # The reason Evicted alone does not count: the kubelet also gives it to a pod above its own
    # storage limits, but without DisruptionTarget (pkg/kubelet/eviction, localStorageEviction).
    is_disrupted = _holds(disrupted) or status.reason in _DISRUPTIONS
    created = parse_timestamp(meta.creation_timestamp) if is_gated else None
    grace = pod.spec.termination_grace_period_seconds
    return PodFacts(
        key=(meta.namespace, meta.name),
        uid=meta.uid,
        node=intern(pod.spec.node_name or ""),
        phase=intern(status.phase or "Pending"),
        request=deduplicate(request_of_pod(pod)),
        labels={intern(name): intern(value) for name, value in (meta.labels or {}).items()},
        owner_uids=deduplicate(frozenset(owner.uid for owner in owners)),
        job_uid=intern(owners[0].uid) if is_of_job else "",
        is_gated=is_gated,
        is_ready=is_ready,
        is_leaving=meta.deletion_timestamp is not None,
        is_disrupted=is_disrupted,
        is_rejected=not is_disrupted and _is_rejected(status),
        disruption=deduplicate(_condition_text(disrupted)) if _holds(disrupted) else "",
        failure=describe_ending(pod) if status.phase == "Failed" else "",
        obstacles=None if is_ready or status.phase in TERMINAL else _obstacles(pod, conditions),
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else grace,
        ending_grace_seconds=meta.deletion_grace_period_seconds or 0,
        runs_forever=(pod.spec.restart_policy or "Always") == "Always",
        gated_since=created or 0.0,
        bound_since=_bind_time(pod, conditions.get("PodScheduled")),
        has_finalizers=bool(meta.finalizers),
        scheduler=intern(pod.spec.scheduler_name or ""),
        unready_since=0.0 if status.phase in TERMINAL else _unready_since(conditions.get("Ready")),
    )


def _bind_time(pod: wire.V1Pod, scheduled: wire.V1Condition | None) -> float:
    if not pod.spec.node_name:
        return 0.0
    bind_time = scheduled.last_transition_time if _holds(scheduled) and scheduled else None
    return parse_timestamp(bind_time or pod.metadata.creation_timestamp) or 0.0


def _unready_since(ready: wire.V1Condition | None) -> float:
    if ready is None or _holds(ready):
        return 0.0
    return parse_timestamp(ready.last_transition_time) or 0.0


# Most of a hundred thousand pods belong to a few thousand gangs and differ little. Equal values are
# stored once.
@lru_cache(maxsize=4096)
def deduplicate(value: T) -> T:
    """Return the first value that is equal to ``value``."""
    return value


def _holds(condition: wire.V1Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _condition_text(condition: wire.V1Condition | None) -> str:
    parts = (condition.reason, condition.message) if condition is not None else ()
    return ": ".join(filter(None, parts))


def _is_rejected(status: wire.V1PodStatus) -> bool:
    """Return whether a pod failed before it ran: the kubelet then sets a reason of the pod."""
    # DeadlineExceeded is the reason for the pod's own activeDeadlineSeconds.
    if status.phase != "Failed" or status.reason in (None, "", "DeadlineExceeded"):
        return False
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return not any(map(_has_run, containers))


def _has_run(container: wire.V1ContainerStatus) -> bool:
    state = container.state
    if container.restart_count or state is None:
        return container.restart_count > 0
    # The kubelet sets this state, with an exit code, for containers that it never saw.
    has_ended = state.terminated is not None and state.terminated.reason != "ContainerStatusUnknown"
    return has_ended or state.running is not None


def _obstacles(pod: wire.V1Pod, conditions: Mapping[str, wire.V1Condition]) -> Obstacles | None:
    """Return the obstacles of a pod that is not ready; None without known ones."""
    is_bound, scheduled = bool(pod.spec.node_name), conditions.get("PodScheduled")
    unschedulable, since = "", 0.0
    # kube-scheduler nominates a node while volumes are provisioned there. The message of an earlier
    # attempt stays on the pod, but is outdated.
    is_open = not is_bound and not pod.status.nominated_node_name
    if is_open and scheduled is not None and scheduled.reason == "Unschedulable":
        message = scheduled.message or "no node fits"
        if not any(mark in message for mark in HEALING_REFUSALS):
            unschedulable = message
            since = parse_timestamp(scheduled.last_transition_time) or 0.0
    claims = any(v.persistent_volume_claim or v.ephemeral for v in pod.spec.volumes or ())
    pull_began, pull_ended = _pull(pod, conditions.get("PodReadyToStartContainers"))
    obstacles = Obstacles(
        unschedulable, since, claims and not is_bound, _waiting(pod.status), pull_began, pull_ended
    )
    return None if obstacles == _NO_OBSTACLES else deduplicate(obstacles)


_NO_OBSTACLES = Obstacles()


def _waiting(status: wire.V1PodStatus) -> str:
    """Return a message about the first stuck container; empty while all are being created."""
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting if container.state else None
        if waiting is not None and waiting.reason and waiting.reason not in _CREATING:
            detail = f": {waiting.message}" if waiting.message else ""
            ending = describe_last_ending(container)
            last_ending = f"; it {ending}" if ending else ""
            return f"container {container.name} is in {waiting.reason}{detail}{last_ending}"
    return ""


def _pull(pod: wire.V1Pod, sandbox: wire.V1Condition | None) -> tuple[float, float]:
    """Return the start and end of the pull of the pod's images; 0 if unknown.

    The kubelet does not report the pull. It lies between the start of the sandbox and the start of
    the first container that is still being created.
    """
    nothing = 0.0, 0.0
    if sandbox is None or sandbox.status != "True":
        return nothing
    began = parse_timestamp(sandbox.last_transition_time) or 0.0
    stays = {c.name for c in pod.spec.init_containers or () if c.restart_policy == "Always"}
    for container in pod.status.init_container_statuses or ():
        if container.state and container.state.running and container.name not in stays:
            return nothing  # the other containers wait for this one, not for an image
    started: list[float] = []
    for container in pod.status.container_statuses or ():
        state = container.state or wire.V1ContainerState()
        if state.waiting is not None:
            return (began, 0.0) if state.waiting.reason in _CREATING else nothing
        ran = state.running or state.terminated
        started.append(parse_timestamp(ran.started_at if ran else None) or 0.0)
    return (began, max(started)) if started else nothing


def never_leaves(pod: wire.V1Pod) -> bool:
    """Return whether the pod lives as long as its node: a DaemonSet's pod or a static one."""
    return any(o.kind in ("DaemonSet", "Node") for o in pod.metadata.owner_references or ())


def request_of_spec(spec: wire.V1PodSpec, *, strict: bool = False) -> Request:
    """Return the request of a pod of this spec, including ``pods: 1``.

    An unusable quantity counts as the largest amount, which no node offers. With ``strict``, for
    templates that a person can still correct, it raises.

    Raises:
        QuantityError: only with ``strict``.
    """
    total = _of_containers(spec, lambda container: _requests_of(container.resources, strict))
    if (
        pod_level := spec.resources
    ) is not None:  # a limit counts only for a resource without request
        total = _amounts(pod_level.limits, strict) | total | _amounts(pod_level.requests, strict)
    return request_of(add(total, _amounts(spec.overhead, strict)) | {PODS: 1})


def limits_of_spec(spec: wire.V1PodSpec) -> Request:
    """Return the limits of a pod of this spec, as quotas count them. Never raises."""
    total = _of_containers(
        spec, lambda c: _amounts(c.resources.limits if c.resources else None, False)
    )
    if spec.resources is not None:
        total |= _amounts(spec.resources.limits, False)
    overhead = _amounts(spec.overhead, False)
    return request_of({name: n + overhead.get(name, 0) for name, n in total.items()})


def request_of_pod(pod: wire.V1Pod) -> Request:
    """Return the usage that kube-scheduler counts for a bound pod, including ``pods: 1``.

    During a resize in place each resource counts with the maximum of the spec, the kubelet's
    allocation and the actual containers. A spec that the kubelet found infeasible does not count.
    """
    spec, status = pod.spec, pod.status
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    status_of = {
        item.name: item
        for item in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    }
    pending = next((c for c in status.conditions or () if c.type == "PodResizePending"), None)
    pairs = [(spec.resources, status), *((c.resources, status_of.get(c.name)) for c in containers)]
    if pending is None and all(_is_settled(*pair) for pair in pairs):
        return request_of_spec(spec)  # the common case: no resize
    counts_spec = pending is None or pending.reason != "Infeasible"

    def spec_request(container: wire.V1Container) -> dict[str, int]:
        return _requests_of(container.resources, strict=False) if counts_spec else {}

    def allocation(container: wire.V1Container) -> dict[str, int]:
        item = status_of.get(container.name)
        if item is None or item.allocated_resources is None:
            return spec_request(container)
        return _amounts(item.allocated_resources, strict=False)

    def actual(container: wire.V1Container) -> dict[str, int]:
        item = status_of.get(container.name)
        if item is None or item.resources is None or item.resources.requests is None:
            return allocation(container)
        return _amounts(item.resources.requests, strict=False)

    of_pod = status.resources.requests if status.resources is not None else None
    if of_pod is not None and status.allocated_resources is not None:
        total = _larger(_amounts(status.allocated_resources, False), _amounts(of_pod, False))
    else:
        total = _larger(_of_containers(spec, allocation), _of_containers(spec, actual))
    total = _larger(total, _of_containers(spec, spec_request))
    if (pod_level := spec.resources) is not None and pod_level.requests:
        level = _amounts(pod_level.requests, False)
        if status.resources is not None:
            pod_actual = _larger(
                _amounts(of_pod, False), _amounts(status.allocated_resources, False)
            )
            level = _larger(level, pod_actual) if counts_spec else pod_actual
        total |= level
    return request_of(add(total, _amounts(spec.overhead, False)) | {PODS: 1})


def _is_settled(
    resources: wire.V1ResourceRequirements | None,
    status: wire.V1ContainerStatus | wire.V1PodStatus | None,
) -> bool:
    """Return whether the status shows exactly the requests of the spec."""
    if status is None:
        return True
    requests = (resources.requests if resources is not None else None) or None
    actual = status.resources.requests if status.resources is not None else None
    return status.allocated_resources in (None, requests) and actual in (None, requests)


def _of_containers(
    spec: wire.V1PodSpec, amounts: Callable[[wire.V1Container], dict[str, int]]
) -> dict[str, int]:
    """Return the peak need of all containers; ``amounts`` gives the need of one."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        request = amounts(container)
        if container.restart_policy == "Always":  # a sidecar: it stays
            running = add(running, request)
            peak = _larger(peak, running)
        else:
            peak = _larger(peak, add(running, request))
    for container in spec.containers or ():
        running = add(running, amounts(container))
    return _larger(peak, running)


def _requests_of(resources: wire.V1ResourceRequirements | None, strict: bool) -> dict[str, int]:
    if resources is None:
        return {}
    # A resource with only a limit requests that limit (default of the API).
    return _amounts(resources.limits, strict) | _amounts(resources.requests, strict)


def _amounts(quantities: wire.Quantities | None, strict: bool) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, value in (quantities or {}).items():
        try:
            amounts[name] = parse_quantity(name, value)
        except QuantityError:
            # The largest amount fits on no node: the pod waits instead of starting with too little.
            if strict:
                raise
            amounts[name] = LARGEST
    return amounts


def _larger(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: max(first.get(name, 0), second.get(name, 0)) for name in first | second}


def constraints_of_spec(spec: wire.V1PodSpec) -> NodeConstraints:
    """Return the hard node constraints of a pod of this spec, without a pin."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return NodeConstraints(
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity_terms=selector_terms(required),
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "")
            for t in spec.tolerations or ()
        ),
        demands=node_features.demands(spec),
    )


def selector_terms(selector: wire.V1NodeSelector | None) -> tuple[SelectorTerm, ...] | None:
    """Return the alternative terms of a node selector; None without a selector.

    Raises:
        ValueError: an operator is unknown.
    """
    if selector is None:
        return None
    return tuple(
        SelectorTerm(requirements(term.match_expressions), requirements(term.match_fields))
        for term in selector.node_selector_terms or ()
    )


def requirements(
    expressions: Iterable[wire.V1NodeSelectorRequirement] | None,
) -> tuple[Requirement, ...]:
    """Return the requirements of a selector.

    Raises:
        ValueError: an operator is unknown.
    """
    return tuple(
        Requirement(
            expression.key, SelectorOperator(expression.operator), tuple(expression.values or ())
        )
        for expression in expressions or ()
    )


def images_of_spec(spec: wire.V1PodSpec) -> tuple[str, ...]:
    """Return the distinct images of a pod of this spec."""
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    return tuple(dict.fromkeys(container.image for container in containers if container.image))


def other_gates(spec: wire.V1PodSpec) -> tuple[str, ...]:
    """Return the scheduling gates of a pod of this spec that are not Bireme's."""
    gates = (gate.name for gate in spec.scheduling_gates or ())
    return tuple(name for name in gates if name != names.PLAN_GATE)


def spec_of_template(template: bytes) -> wire.V1PodSpec:
    """Return the typed spec of a pod template in JSON.

    Raises:
        msgspec.ValidationError: a field has the wrong type.
    """
    return msgspec.json.decode(template, type=wire.WirePodTemplate).spec or wire.V1PodSpec()


def pin_terms(node: str, terms: Iterable[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the pod's required node affinity terms, restricted to ``node``.

    With ``matchFields`` on the name kube-scheduler considers only this node.
    """
    return _with_requirement(terms, "matchFields", "metadata.name", node)


def _with_requirement(
    terms: Iterable[dict[str, Any]] | None, part: str, key: str, value: str
) -> list[dict[str, Any]]:
    """Return required node affinity terms with one more requirement in ``part``.

    Every term gets it, because terms are alternatives.
    """
    requirement = {"key": key, "operator": "In", "values": [value]}
    return [{**term, part: [*(term.get(part) or ()), requirement]} for term in terms or ({},)]


def affinity_on_node(spec: dict[str, Any], node: str) -> dict[str, Any]:
    """Return ``spec.affinity`` of a raw pod spec with the pin to ``node`` added."""
    return _on_nodes(spec, "matchFields", "metadata.name", node)


def affinity_within(spec: dict[str, Any], label: str, value: str) -> dict[str, Any]:
    """Return ``spec.affinity`` of a raw pod spec, restricted to nodes with this label value."""
    return _on_nodes(spec, "matchExpressions", label, value)


def _on_nodes(spec: dict[str, Any], part: str, key: str, value: str) -> dict[str, Any]:
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": _with_requirement(required.get("nodeSelectorTerms"), part, key, value)
    }
    return {**affinity, "nodeAffinity": node_affinity}


def affinity_with(spec: dict[str, Any], term: dict[str, Any]) -> dict[str, Any]:
    """Return ``spec.affinity`` of a raw pod spec with ``term`` as a required pod affinity term."""
    affinity = dict(spec.get("affinity") or {})
    pod_affinity = dict(affinity.get("podAffinity") or {})
    required = pod_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []
    pod_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = [*required, term]
    return {**affinity, "podAffinity": pod_affinity}
