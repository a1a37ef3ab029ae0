"""Verify that a pod is the member of a gang that it claims to be.

A tenant can write anything into a pod, so its labels are only claims. This module checks them
against the plan in the status of a TrainingJob or a PodGroup. It checks replicas of a TrainingJob
by owner, plan label, task, index and name, and pods of other controllers by UID. No pod may request
more than was planned. A pod that cannot be verified gets no node.
"""

from dataclasses import dataclass
from enum import StrEnum

from bireme.core.gangs import Key
from bireme.core.resources import Request
from bireme.kube import names, pods, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts, PlannedGang

# Replicas of a task come one after the other; each task takes about 2 KiB.
_REMEMBERED_TASKS = 1024
# Cache of _request by (group, task): the source parts of the spec, and the request.
_requests: dict[tuple[Key, str], tuple[tuple[object, ...], Request]] = {}


class RefusalReason(StrEnum):
    """Reasons for which a pod gets no node, a metric label; the docstrings say what helps."""

    NODES_NOT_NAMES = "NodesNotNames"
    """The scheduler sends whole nodes instead of names. Set nodeCacheCapable: true for this
    extender in its configuration."""
    NO_POD_GROUP = "NoPodGroup"
    """The pod names Bireme's scheduler but no gang. Label it, or use another scheduler."""
    UNKNOWN_POD_GROUP = "UnknownPodGroup"
    """No PodGroup has the name on the pod's label. Create it in the pod's namespace."""
    NO_PLAN = "NoPlan"
    """The pod's gang is not planned yet: its gate was removed by hand, or is missing. Create the
    pod with the gate."""
    FOREIGN_POD = "ForeignPod"
    """The pod's labels name a TrainingJob, but it has another owner or name. Delete it."""
    STALE_PLAN = "StalePlan"
    """The gang was planned again after the pod was created. You need not act: the operator deletes
    the pod."""
    NOT_IN_PLAN = "NotInPlan"
    """The plan does not name the pod: it was created after the gang was planned, or its gate was
    removed by hand. A pod with the gate joins when there is room."""
    REQUEST_ABOVE_PLAN = "RequestAbovePlan"
    """The pod requests more than was planned, because a webhook or LimitRange raised the request
    after the dry run. You need not act: the gang is planned again with these requests."""
    PLANNED_NODE_NOT_OFFERED = "PlannedNodeNotOffered"
    """The planned node did not pass the scheduler's own filters. The event names the filter (a
    taint, a volume, a port). The gang returns its places and is tried again later."""
    CONSTRAINTS_UNREADABLE = "ConstraintsUnreadable"
    """In score mode: the pod's node affinity cannot be read. Correct the template as the message
    says."""
    NO_FEASIBLE_NODE = "NoFeasibleNode"
    """In score mode: no node has room for the pod beside bound and planned pods. The gang returns
    its places and is tried again later."""
    INTERNAL_ERROR = "InternalError"
    """The extender has a fault. Its log has the error. Please report it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The verdict that the pod gets no node; ``may_heal`` if a newer cache could change it."""

    reason: RefusalReason
    detail: str
    may_heal: bool = False

    @property
    def message(self) -> str:
        """One line for the pod's event, at most 256 characters."""
        return f"{self.reason}: {self.detail}"[:256]


@dataclass(frozen=True, slots=True)
class Membership:
    """A verified pod: its member of ``plan``, and its request."""

    group: Key
    plan: PlanFacts
    member: Member
    request: Request


def group_of(pod: wire.V1Pod) -> Key | None:
    """Return the PodGroup of the pod's label, always in the pod's own namespace."""
    name = (pod.metadata.labels or {}).get(names.POD_GROUP_LABEL)
    return (pod.metadata.namespace, name) if name else None


def membership(pod: wire.V1Pod, state: ClusterState) -> Membership | Refusal:
    """Return the planned member for ``pod``, or the refusal if there is none."""
    key = group_of(pod)
    if key is None:
        return Refusal(
            RefusalReason.NO_POD_GROUP,
            f"the pod has no label {names.POD_GROUP_LABEL}; add it, or use another scheduler",
        )
    planned = state.objects.plan_of(key)
    if planned is None:
        if key in state.objects.groups or names.JOB_LABEL in (pod.metadata.labels or {}):
            detail = f"gang {key[1]} is not planned yet"
            return Refusal(RefusalReason.NO_PLAN, detail, may_heal=True)
        detail = f"no PodGroup {key[1]} in {key[0]}"
        return Refusal(RefusalReason.UNKNOWN_POD_GROUP, detail, may_heal=True)
    plan = planned.plan
    member = _own_member(pod, planned, key[1]) if planned.is_job else _foreign_member(pod, plan)
    if isinstance(member, Refusal):
        return member
    request = _request(key, member.task, pod.spec)
    return _excess(request, plan, member) or Membership(key, plan, member, request)


def _request(group: Key, task: str, spec: wire.V1PodSpec) -> Request:
    """Return the request of the pod; cached, because replicas of one task are equal."""
    parts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
    cached = _requests.get((group, task))
    if cached is not None and cached[0] == parts:
        return cached[1]
    # Clear it as a whole: it refills with the current tasks.
    if len(_requests) >= _REMEMBERED_TASKS:
        _requests.clear()
    request = pods.request_of_spec(spec)
    _requests[group, task] = parts, request
    return request


def _own_member(pod: wire.V1Pod, planned: PlannedGang, job: str) -> Member | Refusal:
    """Verify the pod as a replica of the TrainingJob named ``job``."""
    plan = planned.plan
    if all(owner.uid != planned.uid for owner in pod.metadata.owner_references or ()):
        return Refusal(
            RefusalReason.FOREIGN_POD,
            f"the pod is not owned by TrainingJob {job}",
            may_heal=True,  # a new job of the same name may exist, with a plan not yet seen
        )
    labels = pod.metadata.labels or {}
    pod_label = labels.get(names.PLAN_LABEL, "")
    if pod_label != plan.label:
        return Refusal(
            RefusalReason.STALE_PLAN,
            f"the pod was made from plan {pod_label or '(none)'}, the gang has plan {plan.label}",
            may_heal=_is_newer(pod_label, plan),
        )
    task, index = labels.get(names.TASK_LABEL, ""), labels.get(names.INDEX_LABEL, "")
    # int() also accepts signs, underscores and digits of other scripts, and is slow on long texts.
    number = int(index) if index.isascii() and index.isdigit() and len(index) < 10 else -1
    node = plan.node_by_index.get((task, number))
    if node is None:
        detail = f"plan {plan.label} has no replica {index or '(none)'} of task {task or '(none)'}"
        return Refusal(RefusalReason.NOT_IN_PLAN, detail, may_heal=True)
    name = names.pod_name(job, task, number)
    if pod.metadata.name != name:  # otherwise two pods could take one place
        detail = (
            f"replica {index} of task {task} is pod {name}, not {pod.metadata.name or '(none)'}"
        )
        return Refusal(RefusalReason.FOREIGN_POD, detail)
    return Member(task, node, number)


def _foreign_member(pod: wire.V1Pod, plan: PlanFacts) -> Member | Refusal:
    """Verify the pod as a planned pod of another controller."""
    member = plan.member_by_uid.get(pod.metadata.uid)
    if member is None:
        detail = f"plan {plan.label} does not name pod UID {pod.metadata.uid or '(none)'}"
        return Refusal(RefusalReason.NOT_IN_PLAN, detail, may_heal=True)
    return member


def _is_newer(label: str, plan: PlanFacts) -> bool:
    """Return whether ``label`` names a later plan that the watch has not delivered yet."""
    epoch, _, attempt = label.partition(".")
    if not (label.isascii() and epoch.isdigit() and attempt.isdigit() and len(label) < 40):
        return False
    return (int(epoch), int(attempt)) > (plan.epoch, plan.attempt)


def _excess(request: Request, plan: PlanFacts, member: Member) -> Refusal | None:
    """Return a refusal if the pod requests more of some resource than was planned."""
    planned = dict(plan.requests.get(member.task, ()))
    for name, amount in request:
        if amount > planned.get(name, 0):
            return Refusal(
                RefusalReason.REQUEST_ABOVE_PLAN,
                f"the pod asks {amount} {name}, task {member.task} was planned with"
                f" {planned.get(name, 0)}",
            )
    return None
