"""Read pods and pod templates: requests, node constraints, state; and pin a pod to a node.

Requests follow the scheduler's own rule (``k8s.io/component-helpers/resource``): the larger of
(a) the sum of all containers and sidecars and (b) the peak while an init container runs beside the
sidecars before it. A pod-level request overrides that sum; overhead is added. A pod that is being
resized in place holds the largest of what it has and what it is to have.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeVar

import msgspec

from bireme.core.gangs import (
    Key,
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
"""Selects members of gangs, in every phase: their state is the gang's state."""
OTHERS: Final = {
    "labelSelector": f"!{names.POD_GROUP_LABEL}",
    "fieldSelector": ",".join(("spec.nodeName!=", *(f"status.phase!={end}" for end in TERMINAL))),
}
"""Selects all other pods, only while they hold a node: they matter for free capacity alone."""


HEALING_REFUSALS: Final = (
    "NoPlan: ",
    "UnknownPodGroup: ",
    "ForeignPod: ",
    "StalePlan: ",
    "NotInPlan: ",
    "RequestAbovePlan: ",
    "InternalError: ",
)
"""How refusals of the extender begin that are no verdict on the pod: its cache will be newer, or
the gang is planned again with what its pods ask."""
_CREATING: Final = ("ContainerCreating", "PodInitializing")


DEFAULT_GRACE_SECONDS: Final = 30
"""The grace of a pod that states none, by Kubernetes."""


@dataclass(frozen=True, slots=True)
class Obstacles:
    """What a pod that does not run yet waits for. Times are POSIX seconds, 0 for none."""

    unschedulable: str = ""
    """Why kube-scheduler finds no node for it, in its own words; empty while it says nothing."""
    unschedulable_since: float = 0.0
    has_claims: bool = False
    """It has volumes that may have to be provisioned before it is bound."""
    waiting: str = ""
    """Why its first container that hangs does: ErrImagePull, CrashLoopBackOff and the like."""
    pull_began: float = 0.0
    """The beginning of the pull of its images; 0 if it has not begun, or failed."""
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
    """UID of the TrainingJob that alone owns it, so that it goes with that job; else empty."""
    is_gated: bool
    is_ready: bool
    is_leaving: bool
    is_disrupted: bool
    """It failed, or is about to go, for a reason outside the pod: evicted, preempted, or its node
    is gone."""
    is_rejected: bool
    """It failed before any of its containers ran: its kubelet did not take it."""
    disruption: str
    """Who disrupted it and why, in the words of its condition; empty unless it is disrupted."""
    failure: str
    """Why it ended, as :mod:`bireme.kube.endings` says it; empty unless the pod failed."""
    obstacles: Obstacles | None = None
    """None once it runs, and where nothing is known."""
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    """The time that it asks for between the signal to end and its end."""
    ending_grace_seconds: int = 0
    """The time that its deletion gives it; 0 for a pod that is not being deleted."""
    runs_forever: bool = False
    """Its containers restart whenever they end, so that it has no end to wait for."""
    gated_since: float = 0.0
    """Creation time of a gated pod, POSIX seconds; 0 if unknown or not gated."""
    bound_since: float = 0.0
    """Since when a pod is on its node, or else the time of its creation, POSIX seconds; 0 if
    unknown or on no node."""
    has_finalizers: bool = False
    scheduler: str = ""
    """Name of the scheduler that binds it."""
    is_record: bool = False
    """Its object is gone: it ended well before, and is known from a record alone."""
    unready_since: float = 0.0
    """Since when a pod that has not ended is not ready, POSIX seconds; 0 if it is, or unknown."""

    @property
    def is_terminal(self) -> bool:
        """True if its containers have ended for good."""
        return self.phase in TERMINAL

    @property
    def ending(self) -> str:
        """Why it ended or is about to go: who disrupted it, and how it failed."""
        reason, _, words = self.disruption.partition(": ")
        if not reason or self.failure in ("", UNEXPLAINED):
            return self.disruption or self.failure
        if words in self.failure:
            return f"{reason}: {self.failure}"
        return f"{self.disruption}; {self.failure}"

    @property
    def verdict(self) -> str:
        """Words of kube-scheduler for which it finds no node; empty while it says nothing."""
        return self.obstacles.unschedulable if self.obstacles is not None else ""

    @property
    def is_only_kept(self) -> bool:
        """True if it has ended, is deleted, and stays only because of a finalizer."""
        return self.is_terminal and self.is_leaving and self.has_finalizers


def ended_pod(key: Key, node: str, request: Request, labels: dict[str, str]) -> PodFacts:
    """Return the facts of a pod that ended well, of which only a record is left."""
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
    # Whoever ends a pod may leave its condition as it was.
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
        request=shared(request_of_pod(pod)),
        labels={intern(name): intern(value) for name, value in (meta.labels or {}).items()},
        owner_uids=shared(frozenset(owner.uid for owner in owners)),
        job_uid=intern(owners[0].uid) if is_of_job else "",
        is_gated=is_gated,
        is_ready=is_ready,
        is_leaving=meta.deletion_timestamp is not None,
        is_disrupted=is_disrupted,
        is_rejected=not is_disrupted and _is_rejected(status),
        disruption=shared(_words(disrupted)) if _holds(disrupted) else "",
        failure=describe_ending(pod) if status.phase == "Failed" else "",
        obstacles=None if is_ready or status.phase in TERMINAL else _obstacles(pod, conditions),
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else grace,
        ending_grace_seconds=meta.deletion_grace_period_seconds or 0,
        runs_forever=(pod.spec.restart_policy or "Always") == "Always",
        gated_since=created or 0.0,
        bound_since=_bound_since(pod, conditions.get("PodScheduled")),
        has_finalizers=bool(meta.finalizers),
        scheduler=intern(pod.spec.scheduler_name or ""),
        unready_since=0.0 if status.phase in TERMINAL else _unready_since(conditions.get("Ready")),
    )


def _bound_since(pod: wire.V1Pod, scheduled: wire.V1Condition | None) -> float:
    if not pod.spec.node_name:
        return 0.0
    bound = scheduled.last_transition_time if _holds(scheduled) and scheduled else None
    return parse_timestamp(bound or pod.metadata.creation_timestamp) or 0.0


def _unready_since(ready: wire.V1Condition | None) -> float:
    if ready is None or _holds(ready):
        return 0.0
    return parse_timestamp(ready.last_transition_time) or 0.0


# Of a hundred thousand pods most are members of a few thousand gangs and differ in few words: what
# is equal is kept once.
@lru_cache(maxsize=4096)
def shared(value: T) -> T:
    """Return the first value that was equal to ``value``."""
    return value


def _holds(condition: wire.V1Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _words(condition: wire.V1Condition | None) -> str:
    parts = (condition.reason, condition.message) if condition is not None else ()
    return ": ".join(filter(None, parts))


def _is_rejected(status: wire.V1PodStatus) -> bool:
    """Return whether a pod failed before it ran: the kubelet then gives a reason for the pod."""
    # The reason DeadlineExceeded is that of the pod's own activeDeadlineSeconds.
    if status.phase != "Failed" or status.reason in (None, "", "DeadlineExceeded"):
        return False
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return not any(map(_has_run, containers))


def _has_run(container: wire.V1ContainerStatus) -> bool:
    state = container.state
    if container.restart_count or state is None:
        return container.restart_count > 0
    # The kubelet gives this state, with an exit code, to containers that it never saw.
    ended = state.terminated is not None and state.terminated.reason != "ContainerStatusUnknown"
    return ended or state.running is not None


def _obstacles(pod: wire.V1Pod, conditions: Mapping[str, wire.V1Condition]) -> Obstacles | None:
    """Return what keeps a pod that is not ready; None where nothing is known of it."""
    bound, scheduled = bool(pod.spec.node_name), conditions.get("PodScheduled")
    words, since = "", 0.0
    # kube-scheduler names the node while it has things made there, such as volumes. What it said
    # of a try before stays on the pod, and is overtaken.
    is_open = not bound and not pod.status.nominated_node_name
    if is_open and scheduled is not None and scheduled.reason == "Unschedulable":
        message = scheduled.message or "no node fits"
        if not any(mark in message for mark in HEALING_REFUSALS):
            words = message
            since = parse_timestamp(scheduled.last_transition_time) or 0.0
    claims = any(v.persistent_volume_claim or v.ephemeral for v in pod.spec.volumes or ())
    began, ended = _pull(pod, conditions.get("PodReadyToStartContainers"))
    found = Obstacles(words, since, claims and not bound, _waiting(pod.status), began, ended)
    return None if found == _NO_OBSTACLES else shared(found)


_NO_OBSTACLES = Obstacles()


def _waiting(status: wire.V1PodStatus) -> str:
    """Return why the first container that hangs does; empty while all are being created."""
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting if container.state else None
        if waiting is not None and waiting.reason and waiting.reason not in _CREATING:
            detail = f": {waiting.message}" if waiting.message else ""
            ending = describe_last_ending(container)
            before = f"; it {ending}" if ending else ""
            return f"container {container.name} is in {waiting.reason}{detail}{before}"
    return ""


def _pull(pod: wire.V1Pod, sandbox: wire.V1Condition | None) -> tuple[float, float]:
    """Return when the pull of the pod's images began and ended; 0 each where it did not.

    The kubelet does not say that it pulls. It does between the start of the sandbox and the start
    of the first container that is still being created.
    """
    nothing = 0.0, 0.0
    if sandbox is None or sandbox.status != "True":
        return nothing
    began = parse_timestamp(sandbox.last_transition_time) or 0.0
    stays = {c.name for c in pod.spec.init_containers or () if c.restart_policy == "Always"}
    for container in pod.status.init_container_statuses or ():
        if container.state and container.state.running and container.name not in stays:
            return nothing  # the others wait for it, not for an image
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
    """Return what a pod of this spec requests of a node, ``pods: 1`` included.

    An unusable quantity counts as the largest amount, which no node offers. With ``strict``, for
    templates that a person can still correct, it raises.

    Raises:
        QuantityError: only with ``strict``.
    """
    total = _of_containers(spec, lambda container: _requested(container.resources, strict))
    if (given := spec.resources) is not None:  # a limit counts only for a resource without request
        total = _amounts(given.limits, strict) | total | _amounts(given.requests, strict)
    return request_of(add(total, _amounts(spec.overhead, strict)) | {PODS: 1})


def limits_of_spec(spec: wire.V1PodSpec) -> Request:
    """Return the limits of a pod of this spec, as quotas count them. Never raises."""
    total = _of_containers(
        spec, lambda each: _amounts(each.resources.limits if each.resources else None, False)
    )
    if spec.resources is not None:
        total |= _amounts(spec.resources.limits, False)
    overhead = _amounts(spec.overhead, False)
    return request_of({name: n + overhead.get(name, 0) for name, n in total.items()})


def request_of_pod(pod: wire.V1Pod) -> Request:
    """Return what kube-scheduler counts for a pod on a node, ``pods: 1`` included.

    While a pod is resized in place that is, of each resource, the most of what its spec asks for,
    what the kubelet has allocated and what its containers have. What the kubelet found infeasible
    does not count.
    """
    spec, status = pod.spec, pod.status
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    known = {
        each.name: each
        for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    }
    pending = next((c for c in status.conditions or () if c.type == "PodResizePending"), None)
    pairs = [(spec.resources, status), *((c.resources, known.get(c.name)) for c in containers)]
    if pending is None and all(_is_settled(asked, there) for asked, there in pairs):
        return request_of_spec(spec)  # as of nearly every pod
    counts_spec = pending is None or pending.reason != "Infeasible"

    def asked(container: wire.V1Container) -> dict[str, int]:
        return _requested(container.resources, strict=False) if counts_spec else {}

    def allocated(container: wire.V1Container) -> dict[str, int]:
        found = known.get(container.name)
        if found is None or found.allocated_resources is None:
            return asked(container)
        return _amounts(found.allocated_resources, strict=False)

    def actual(container: wire.V1Container) -> dict[str, int]:
        found = known.get(container.name)
        if found is None or found.resources is None or found.resources.requests is None:
            return allocated(container)
        return _amounts(found.resources.requests, strict=False)

    of_pod = status.resources.requests if status.resources is not None else None
    if of_pod is not None and status.allocated_resources is not None:
        total = _larger(_amounts(status.allocated_resources, False), _amounts(of_pod, False))
    else:
        total = _larger(_of_containers(spec, allocated), _of_containers(spec, actual))
    total = _larger(total, _of_containers(spec, asked))
    if (given := spec.resources) is not None and given.requests:
        level = _amounts(given.requests, False)
        if status.resources is not None:
            there = _larger(_amounts(of_pod, False), _amounts(status.allocated_resources, False))
            level = _larger(level, there) if counts_spec else there
        total |= level
    return request_of(add(total, _amounts(spec.overhead, False)) | {PODS: 1})


def _is_settled(
    asked: wire.V1ResourceRequirements | None,
    there: wire.V1ContainerStatus | wire.V1PodStatus | None,
) -> bool:
    """Return whether what is there is known to be what is asked for, to the letter."""
    if there is None:
        return True
    requests = (asked.requests if asked is not None else None) or None
    actual = there.resources.requests if there.resources is not None else None
    return there.allocated_resources in (None, requests) and actual in (None, requests)


def _of_containers(
    spec: wire.V1PodSpec, amounts: Callable[[wire.V1Container], dict[str, int]]
) -> dict[str, int]:
    """Return what all containers need at most at one time, each of them ``amounts``."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        asked = amounts(container)
        if container.restart_policy == "Always":  # a sidecar: it stays
            running = add(running, asked)
            peak = _larger(peak, running)
        else:
            peak = _larger(peak, add(running, asked))
    for container in spec.containers or ():
        running = add(running, amounts(container))
    return _larger(peak, running)


def _requested(resources: wire.V1ResourceRequirements | None, strict: bool) -> dict[str, int]:
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
            # Counted as the largest amount it waits for a node for ever: better than to start short
            # of it.
            if strict:
                raise
            amounts[name] = LARGEST
    return amounts


def _larger(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left | right}


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
    """Return the terms of a node selector, one of which must match; None without a selector.

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
    given: Iterable[wire.V1NodeSelectorRequirement] | None,
) -> tuple[Requirement, ...]:
    """Return the requirements of a selector.

    Raises:
        ValueError: an operator is unknown.
    """
    return tuple(
        Requirement(each.key, SelectorOperator(each.operator), tuple(each.values or ()))
        for each in given or ()
    )


def images_of_spec(spec: wire.V1PodSpec) -> tuple[str, ...]:
    """Return the images of a pod of this spec, each once."""
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    return tuple(dict.fromkeys(each.image for each in containers if each.image))


def other_gates(spec: wire.V1PodSpec) -> tuple[str, ...]:
    """Return the scheduling gates of a pod of this spec that are not Bireme's."""
    gates = (gate.name for gate in spec.scheduling_gates or ())
    return tuple(name for name in gates if name != names.PLAN_GATE)


def spec_of_template(template: bytes) -> wire.V1PodSpec:
    """Return the typed spec of a pod template, which is given as JSON.

    Raises:
        msgspec.ValidationError: a field has a type no pod can have.
    """
    return msgspec.json.decode(template, type=wire.PodTemplate).spec or wire.V1PodSpec()


def pin_terms(node: str, terms: Iterable[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the pod's own required node affinity terms, narrowed to ``node``.

    With ``matchFields`` on the name the scheduler considers that one node only, instead of all.
    """
    return _narrowed(terms, "matchFields", "metadata.name", node)


def _narrowed(
    terms: Iterable[dict[str, Any]] | None, part: str, key: str, value: str
) -> list[dict[str, Any]]:
    """Return required node affinity terms with one more requirement in this part of each.

    Each one gets it, as they are alternatives.
    """
    wanted = {"key": key, "operator": "In", "values": [value]}
    return [{**term, part: [*(term.get(part) or ()), wanted]} for term in terms or ({},)]


def pinned_affinity(spec: dict[str, Any], node: str) -> dict[str, Any]:
    """Return ``spec.affinity`` of a raw pod spec with the pin to ``node`` added."""
    return _on_nodes(spec, "matchFields", "metadata.name", node)


def affinity_within(spec: dict[str, Any], label: str, value: str) -> dict[str, Any]:
    """Return ``spec.affinity`` of a raw pod spec, on nodes with this value of a label alone."""
    return _on_nodes(spec, "matchExpressions", label, value)


def _on_nodes(spec: dict[str, Any], part: str, key: str, value: str) -> dict[str, Any]:
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": _narrowed(required.get("nodeSelectorTerms"), part, key, value)
    }
    return {**affinity, "nodeAffinity": node_affinity}


def affinity_with(spec: dict[str, Any], term: dict[str, Any]) -> dict[str, Any]:
    """Return ``spec.affinity`` of a raw pod spec with ``term`` added to what pods it must meet."""
    affinity = dict(spec.get("affinity") or {})
    pod_affinity = dict(affinity.get("podAffinity") or {})
    required = pod_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []
    pod_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = [*required, term]
    return {**affinity, "podAffinity": pod_affinity}
