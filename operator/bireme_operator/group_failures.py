"""Failed starts of PodGroups: pods that nobody binds, that are refused, or that never run."""

from dataclasses import dataclass

from bireme.core.reasons import Reason
from bireme.kube.allocations import GangView
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme_operator import starts
from bireme_operator.reconcile_context import ReconcileContext


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A failed start, with its node and cause."""

    reason: Reason
    node: str
    message: str
    is_silence: bool = False
    """True if kube-scheduler reported nothing about the gang and served other gangs."""


def start_failure(
    group: GroupFacts, view: GangView, context: ReconcileContext
) -> FailedStart | None:
    """Return the failure for which a gang gives its places back and pauses; None without one."""
    return (
        _refusal_failure(group, view, context)
        or _silence_failure(group, view, context)
        or _timeout_failure(group, view, context)
    )


def silence_message(group: GroupFacts, view: GangView, context: ReconcileContext) -> str | None:
    """Return a message if kube-scheduler reports nothing about pods for too long, else None."""
    if not view.unbound or starts.is_judged(view):
        return None
    waited = context.seconds_since(group.key, view.plan.planned)
    if waited <= starts.silence_seconds(view, context):
        return None
    silence = starts.silence(group, view, waited, context)
    return f"{len(view.unbound)} of {len(view.members)} pods {silence}"


def _silence_failure(
    group: GroupFacts, view: GangView, context: ReconcileContext
) -> FailedStart | None:
    """Return a failure if kube-scheduler ignores the gang's pods while it serves other gangs."""
    message = silence_message(group, view, context)
    if message is None or not starts.is_passed_over(group, view, context):
        return None
    return FailedStart(Reason.GANG_NOT_BOUND_IN_TIME, view.unbound[0].node, message, True)


def _refusal_failure(
    group: GroupFacts, view: GangView, context: ReconcileContext
) -> FailedStart | None:
    """Return a failure with kube-scheduler's verdict that it cannot bind a pod to its node."""
    for member, pod in view.members:
        if verdict := starts.refusal(group.key, view.plan, member, pod, context):
            name = pod.key[1] if pod is not None else member.uid
            suffix = "" if view.plan.mode == "Score" else f" on node {member.node}"
            message = f"kube-scheduler cannot bind pod {name}{suffix}: {verdict[:700]}"
            return FailedStart(Reason.UNSCHEDULABLE, member.node, message)
    return None


def _timeout_failure(
    group: GroupFacts, view: GangView, context: ReconcileContext
) -> FailedStart | None:
    """Return a failure if pods of the gang do not run within the start timeout.

    The timeout ends when the gang runs, even if replacements of lost members join later.
    """
    if (
        group.status.get("phase") != "Inqueue"
        or _has_run(group)
        or not starts.is_late(group, view, context)
    ):
        return None
    members = [(m, pod) for m, pod in view.members if pod is not None]
    stuck = [
        (m, pod)
        for m, pod in members
        if not (has_started(pod) or pod.is_terminal or pod.is_leaving)
    ]
    if not stuck:
        return None  # the gang has too few pods, but none of them is stuck
    member, pod = min(stuck, key=lambda pair: not starts.trouble(pair[1]))
    node = pod.node or member.node
    trouble = starts.trouble(pod) or "its containers have not all started"
    message = (
        f"{len(stuck)} of {len(members)} pods did not run within startTimeoutSeconds "
        f"{context.start_timeout_seconds(group):.0f}; pod {pod.key[1]} on node {node}: "
        f"{trouble[:700]}"
    )
    return FailedStart(Reason.START_TIMED_OUT, node, message)


def _has_run(group: GroupFacts) -> bool:
    """Return whether the gang has run since it last got its places."""
    conditions = group.status.get("conditions") or ()
    return any(
        condition["type"] == "Running" and condition["status"] == "True" for condition in conditions
    )


def has_started(pod: PodFacts) -> bool:
    """Return whether all containers of a pod have started and none of them is stuck.

    Readiness probes do not count: they concern the pod and its controller only.
    """
    if pod.phase == "Running":
        return pod.obstacles is None or not pod.obstacles.waiting
    return pod.is_ready or pod.phase == "Succeeded"
