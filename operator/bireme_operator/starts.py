"""Starts that hang, of jobs and PodGroups: refusals, silence of kube-scheduler, lateness."""

from bireme.core.gangs import Key
from bireme.kube.allocations import GangView
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.reconcile_context import ReconcileContext

# Ignore a FailedScheduling verdict younger than this: kube-scheduler retries after a pod leaves.
VERDICT_SECONDS = 5.0
# Grace for transient causes such as volume provisioning. kube-scheduler grants a volume as long.
_PROVISIONING_SECONDS = 600.0
_PROVISIONING = "unbound immediate PersistentVolumeClaims"
_MAX_PULL_SECONDS = 3600.0


def refusal(
    key: Key, plan: PlanFacts, member: Member, pod: PodFacts | None, context: ReconcileContext
) -> str:
    """Return kube-scheduler's verdict that it cannot bind a replica; empty while it may still."""
    obstacles = pod.obstacles if pod is not None and not (pod.node or pod.is_leaving) else None
    if obstacles is None or not obstacles.unschedulable:
        return ""
    # A gated pod's condition has the age of the pod, so the plan's time counts too.
    age = context.seconds_since(key, max(obstacles.unschedulable_since, plan.planned, plan.resized))
    is_explained = _PROVISIONING in obstacles.unschedulable or context.is_emptying(member.node)
    if age < (_PROVISIONING_SECONDS if is_explained else VERDICT_SECONDS):
        return ""
    return obstacles.unschedulable


def is_judged(view: GangView) -> bool:
    """Return whether kube-scheduler has reported a replica as unschedulable."""
    return any(pod.obstacles and pod.obstacles.unschedulable for pod in existing_pods(view))


def existing_pods(view: GangView) -> list[PodFacts]:
    """Return the pods of planned members that exist."""
    return [pod for _, pod in view.members if pod is not None]


def silence(
    gang: JobFacts | GroupFacts, view: GangView, waited: float, context: ReconcileContext
) -> str:
    """Return a message about pods that have waited ``waited`` seconds without a verdict."""
    if unseen := count_unseen(view):
        return (
            f"are not on their nodes after {waited:.0f} s; {unseen} of them do not exist or "
            "are gated"
        )
    text = (
        f"are not on their nodes after {waited:.0f} s, and kube-scheduler reports nothing "
        "about them"
    )
    if is_passed_over(gang, view, context):
        return f"{text}, although it serves gangs that were planned later"
    return f"{text}; it binds no pod that was planned later"


def is_passed_over(gang: JobFacts | GroupFacts, view: GangView, context: ReconcileContext) -> bool:
    """Return whether the scheduler ignores the gang, whose pods all exist, but serves others."""
    return not count_unseen(view) and context.serves_others(gang, view.plan)


def count_unseen(view: GangView) -> int:
    """Return the number of unbound members without a pod that kube-scheduler could bind."""
    unbound = {*view.unbound}
    return sum(m in unbound and (pod is None or pod.is_gated) for m, pod in view.members)


def silence_seconds(view: GangView, context: ReconcileContext) -> float:
    """Return how long the scheduler may report nothing about unbound pods."""
    # kube-scheduler reports nothing about a pod while its volume is being provisioned.
    if any(pod.obstacles and pod.obstacles.has_claims for pod in existing_pods(view)):
        return max(context.bind_timeout_seconds, _PROVISIONING_SECONDS)
    return context.bind_timeout_seconds


def is_late(gang: JobFacts | GroupFacts, view: GangView, context: ReconcileContext) -> bool:
    """Return whether a gang has had its places for longer than its start may take."""
    waited = context.seconds_since(gang.key, view.plan.planned)
    limit = context.start_timeout_seconds(gang)
    return waited > limit and waited - _pull_seconds(view, context.now) > limit


def trouble(pod: PodFacts | None) -> str:
    """Return why a pod does not run, as reported by kubelet or scheduler; empty for no reason."""
    obstacles = pod.obstacles if pod is not None else None
    return obstacles.waiting or obstacles.unschedulable if obstacles is not None else ""


def _pull_seconds(view: GangView, now: float) -> float:
    """Return the time spent on pulling the gang's images, at most an hour."""
    obstacles = [pod.obstacles for pod in existing_pods(view) if pod.obstacles is not None]
    pulls = [(o.pull_began, o.pull_ended or now) for o in obstacles if o.pull_began]
    if not pulls:
        return 0.0
    first_begin, last_end = min(begin for begin, _ in pulls), max(end for _, end in pulls)
    return min(max(0.0, last_end - first_begin), _MAX_PULL_SECONDS)
