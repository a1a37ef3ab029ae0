"""The life cycle of a TrainingJob after its admission: pure functions over facts.

Three questions, asked again whenever something changed. :func:`transition`: is it time for another
phase? The answer is recorded by one conditional status write. :func:`pending_action`: what remains
to be done for the recorded phase (create what is missing, delete what is in the way, clear the
plan)? :func:`lost`: which replicas does a running elastic gang go on without? Every answer follows
from recorded state alone, so a crash between any two writes loses nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bireme.core.decision import VACATED
from bireme.core.gangs import Key, Role, Toleration
from bireme.core.reasons import Reason
from bireme.core.resources import Request
from bireme.core.times import clock_time
from bireme.kube import quantities
from bireme.kube.allocations import GangView
from bireme.kube.api.training_job import RunPolicy
from bireme.kube.conditions import disruption_target
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts, pause_seconds

ACTIVE = ("Starting", "Running")
# For so long after a stop by eviction its pods are evicted. Whatever the stop was for, the rest are
# deleted after that although a budget keeps them: it has shrunk since it was read, and a gang
# without some pods does not run.
EVICTING_SECONDS = 300.0
_EVICTING = (Reason.PREEMPTED, *VACATED)
# kube-scheduler's "no" counts once it is so old: it asks again at once when a pod has left a node.
VERDICT_SECONDS = 5.0
# What explains a "no", or silence, and goes away by itself is waited for so long; it is the time
# that kube-scheduler itself grants a volume.
_PROVISIONING_SECONDS = 600.0
_PROVISIONING = "unbound immediate PersistentVolumeClaims"
# A job that so many nodes have refused pauses before it is tried again, as after other failures.
MAX_REFUSING_NODES = 5
_MAX_PULL_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Situation:
    """Facts besides the job itself that a verdict may depend on. ``now`` is POSIX seconds."""

    now: float
    bind_timeout_seconds: float
    start_timeout_seconds: Callable[[JobFacts | GroupFacts], float]
    """Gives how long a gang may take from its plan until it runs."""
    lost_node: Callable[[str], str]
    """Gives the reason for which a node counts as lost; empty when it does not."""
    unusable_node: Callable[[str, Sequence[Toleration] | None], str]
    """Gives the obstacle between a planned, unbound replica with such tolerations (None where they
    are not known) and its node; empty for none."""
    taken_node: Callable[[str], str]
    """Says that others have taken the room planned on a node; empty where they have not."""
    is_emptying: Callable[[str], bool]
    """Tells whether pods of gangs are still leaving a node."""
    label_drift: Callable[[JobFacts, GangView], Mapping[str, Mapping[str, str]]]
    """Gives by task the labels of pods by which rules over pods see them other than planned."""
    serves_others: Callable[[JobFacts | GroupFacts, PlanFacts], bool]
    """Tells whether kube-scheduler has bound or judged a pod of another gang that was planned no
    sooner than this one, or than the first of its starts in a row of which it said nothing."""
    seconds_since: Callable[[Key, float], float]
    """The age of a time written for a gang (POSIX seconds), whether clocks were set back or not."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of phase to be recorded. Counters are increments.

    ``yields`` are the preemptions by which it gave back places that it was lent.
    """

    phase: str
    reason: Reason
    message: str
    restarts: int = 0
    interruptions: int = 0
    preemptions: int = 0
    yields: int = 0
    start_failures: int = 0
    """With it the gang gives its places back until :func:`retry_time`."""
    node: str = ""
    """The node on which it began, if it began on one: of failures, that of the first replica."""
    rejections: int = 0
    silent_plan: float | None = None
    """The time of the plan, POSIX seconds, where kube-scheduler said nothing of its pods."""

    @property
    def starts_again(self) -> bool:
        """True if the gang gives its place back and queues again."""
        return bool(self.restarts or self.interruptions or self.preemptions)


def transition(job: JobFacts, view: GangView | None, at: Situation) -> Transition | None:
    """Return the change to the next phase of ``job``, or None to stay."""
    if job.is_leaving or job.is_finished or job.spec is None:
        return None
    if job.is_suspended:
        if job.phase == "Suspended":
            return None
        return Transition("Suspended", Reason.SUSPENDED, "suspended by spec.runPolicy.suspend")
    if job.phase == "Suspended":
        if view is not None:
            return None  # its plan is cleared first, or it would be started from it once more
        return Transition("Pending", Reason.STOPPING, "resumed; waiting to be ordered")
    if view is None or view.plan.attempt != job.attempt:
        return _overridden(job, view, at)
    return (
        _succeeded(job, view)
        or _deadline(job, at)
        or _failed(job, view, at)
        or _changed(job, view, at)
        or _interrupted(job, view, at)
        or _edited(job, view)
        or _progress(job, view)
        or _late(job, view, at)
    )


def _overridden(job: JobFacts, view: GangView | None, at: Situation) -> Transition | None:
    """Give up asking the budgets that keep pods of a gang which was stopped, for any cause."""
    if view is None or job.status.get("reason") not in _EVICTING:
        return None
    kept = [pod for pod in existing_pods(view) if not (pod.is_leaving or pod.is_terminal)]
    if not kept or at.seconds_since(job.key, job.queue_time) < EVICTING_SECONDS:
        return None
    words = f"{job.status.get('message', '')[:800]}; {len(kept)} of its pods were kept by a budget"
    message = f"{words} for {EVICTING_SECONDS:.0f} s, and half a gang does not run"
    return Transition("Restarting", Reason.BUDGET_OVERRIDDEN, message)


def _succeeded(job: JobFacts, view: GangView) -> Transition | None:
    """End the job well once the replicas have that decide it, by ``successPolicy``.

    Whatever the others do, also in the same moment, a leader that has ended well has the last
    word. Before it has, a failure of any replica is a failure of the gang.
    """
    leader = _leader(job, view)
    if leader is not None:
        member, pod = leader
        if not _has_succeeded(pod):
            return None
        message = f"replica {member.index} of {member.task} succeeded, which decides for the gang"
        return Transition("Succeeded", Reason.SUCCEEDED, message)
    # Parameter servers never end by themselves.
    training = [pod for m, pod in view.members if view.plan.roles.get(m.task) != Role.PS]
    if not training or not all(_has_succeeded(pod) for pod in training):
        return None
    return Transition("Succeeded", Reason.SUCCEEDED, f"all {len(training)} replicas succeeded")


def _has_succeeded(pod: PodFacts | None) -> bool:
    """Return whether a replica has ended well by itself.

    One that is deleted may save a checkpoint and end with exit code 0. A view says of none that was
    seen to end well before that it is leaving.
    """
    return pod is not None and pod.phase == "Succeeded" and not pod.is_leaving


def _leader(job: JobFacts, view: GangView) -> tuple[Member, PodFacts | None] | None:
    """Return the replica whose success is that of the job; None where all that train decide.

    Of an elastic gang it is the one where the others meet. It ends when the training has, and one
    that was added too late for it never would.
    """
    policy = job.spec.run_policy.success_policy if job.spec is not None else None
    if policy == "AllReplicas":
        return None
    if job.spec is not None and job.spec.is_elastic:
        return view.members[0]
    deciding = [
        task.name
        for task in job.tasks_by_rank
        if task.role.is_leading or (policy == "Leader" and task.role is Role.WORKER)
    ]
    places = {(member.task, member.index): (member, pod) for member, pod in view.members}
    return places.get((deciding[0], 0)) if deciding else None


def _deadline(job: JobFacts, at: Situation) -> Transition | None:
    limit = job.spec.run_policy.active_deadline_seconds if job.spec else None
    admitted = quantities.parse_timestamp(job.status.get("admittedTime"))
    if limit is None or admitted is None or job.earlier_run_seconds + at.now - admitted < limit:
        return None
    message = f"held its places for more than activeDeadlineSeconds {limit}"
    return Transition("Failed", Reason.DEADLINE_EXCEEDED, message)


def _failed(job: JobFacts, view: GangView, at: Situation) -> Transition | None:
    # A pod that is deleted ends as Failed too; it was not the job that failed.
    failed = [
        (m, pod)
        for m, pod in view.members
        if pod is not None and pod.phase == "Failed" and not pod.is_leaving
    ]
    if not failed:
        return None
    own = [(m, pod) for m, pod in failed if not (pod.is_disrupted or pod.is_rejected)]
    rejected = [(m, pod) for m, pod in failed if pod.is_rejected]
    member, pod = (own or rejected or failed)[0]
    what = f"replica {member.index} of {member.task}: {pod.ending}"[:700]
    if not own and rejected:
        return _rejected(job, member, pod, at)
    if not own:
        return Transition("Restarting", Reason.POD_LOST, f"disrupted: {what}", interruptions=1)
    # Where several have failed by now, it cannot be told which was the first.
    first = pod.node if len(own) == 1 else ""
    limit = job.spec.run_policy.backoff_limit if job.spec else 0
    restarts = int(job.status.get("restarts") or 0)
    if restarts >= limit:
        message = f"{what}; it was restarted {restarts} of at most {limit} times (backoffLimit)"
        return Transition("Failed", Reason.BACKOFF_LIMIT_EXCEEDED, message, node=first)
    message = f"{what}; restart {restarts + 1} of at most {limit}"
    return Transition("Restarting", Reason.POD_FAILED, message, restarts=1, node=first)


def _rejected(job: JobFacts, member: Member, pod: PodFacts, at: Situation) -> Transition:
    """Start again elsewhere; pause where there is no better node, or many nodes have refused it."""
    reason, nodes = Reason.POD_REJECTED, job.rejecting_nodes
    what = f"node {pod.node} refused replica {member.index} of {member.task}: {pod.failure}"[:700]
    others = len({*nodes} - {pod.node})
    if others + 1 >= MAX_REFUSING_NODES:
        what += f"; {others} other nodes refused it before"
    elif pod.node not in nodes:
        return Transition("Restarting", reason, what, interruptions=1, node=pod.node, rejections=1)
    return replace(_failed_start(job, reason, what, pod.node, at), rejections=1)


def _changed(job: JobFacts, view: GangView, at: Situation) -> Transition | None:
    """Plan a gang again whose pods are others than were planned, which is known from now on."""
    if job.phase == "Running":
        return None
    for member, pod in view.members:
        more = _excess(view.plan, member, pod)
        if more:
            message = (
                f"the API server admitted replica {member.index} of {member.task} with {more}; "
                "planned again with that"
            )
            if job.last_stop == Reason.PODS_CHANGED:  # admission makes it ever larger
                return _failed_start(job, Reason.PODS_CHANGED, message, member.node, at)
            return Transition("Restarting", Reason.PODS_CHANGED, message, interruptions=1)
    # Only once: labels may differ from pod to pod, and kube-scheduler keeps most rules itself.
    if not view.unbound or job.last_stop == Reason.PODS_CHANGED:
        return None
    for task, labels in at.label_drift(job, view).items():
        pairs = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        message = (
            f"the API server admitted replicas of {task} with labels {pairs[:600]}, which rules "
            "over pods ask for; planned again with them"
        )
        return Transition("Restarting", Reason.PODS_CHANGED, message, interruptions=1)
    return None


def _excess(plan: PlanFacts, member: Member, pod: PodFacts | None) -> str:
    """Return what an unbound pod asks beyond its plan, in words; empty for nothing."""
    planned = plan.requests.get(member.task, ())
    if pod is None or pod.node or pod.request == planned:
        return ""
    known = dict(planned)
    return ", ".join(
        f"{quantities.format_quantity(name, amount)} {name} where "
        f"{quantities.format_quantity(name, known.get(name, 0))} was planned"
        for name, amount in pod.request
        if amount > known.get(name, 0)
    )


def changed_requests(view: GangView) -> dict[str, Request]:
    """Return by task what a pod asks that asks for more than was planned."""
    return {
        member.task: pod.request
        for member, pod in view.members
        if pod is not None and _excess(view.plan, member, pod)
    }


def _interrupted(job: JobFacts, view: GangView, at: Situation) -> Transition | None:
    tolerations = {task.name: task.constraints.tolerations for task in job.tasks}
    for member, pod in view.members:
        where = pod.node if pod is not None and pod.node else member.node
        bound = pod is not None and bool(pod.node)
        if pod is not None and pod.is_terminal and not pod.is_leaving:
            continue
        tolerated = tolerations.get(member.task, ())
        # A pod without a pin may still get to another node than the planned one.
        is_open = not bound and view.plan.mode == "Score"
        why = "" if is_open else at.lost_node(where)
        why = why or ("" if bound or is_open else at.unusable_node(where, tolerated))
        if why:
            message = f"replica {member.index} of {member.task} on node {where}: {why}"
            return Transition("Restarting", Reason.NODE_LOST, message, interruptions=1)
        # One that was on its node may have met the others: they do not go on with another.
        if (pod is not None and pod.is_leaving and bound) or (
            job.phase == "Running" and (pod is None or pod.is_leaving)
        ):
            replica = f"replica {member.index} of {member.task} on node {where}"
            message = f"{replica} {_was_deleted(view, member, pod)}"
            return Transition("Restarting", Reason.POD_LOST, message, interruptions=1)
        if not (bound or is_open) and (why := at.taken_node(where)):
            message = f"replica {member.index} of {member.task} on node {where}: {why}"
            return Transition("Restarting", Reason.GANG_NOT_BOUND_IN_TIME, message, interruptions=1)
    if not view.unbound or view.plan.spec_hash != job.spec_hash:
        return None
    return _unschedulable(job, view, at) or _unbound(job, view, at)


def _was_deleted(view: GangView, member: Member, pod: PodFacts | None) -> str:
    words = view.disruptions.get(member, "") if pod is None else pod.disruption
    return f"was deleted ({words[:600]})" if words else "was deleted"


def _unschedulable(job: JobFacts, view: GangView, at: Situation) -> Transition | None:
    """Give the places back where kube-scheduler has said that a replica cannot have its own."""
    for member, pod in view.members:
        words = refusal(job.key, view.plan, member, pod, at)
        if words:
            where = "" if view.plan.mode == "Score" else f" on node {member.node}"
            message = f"kube-scheduler cannot bind replica {member.index} of {member.task}{where}"
            return _failed_start(job, Reason.UNSCHEDULABLE, f"{message}: {words}", member.node, at)
    return None


def refusal(key: Key, plan: PlanFacts, member: Member, pod: PodFacts | None, at: Situation) -> str:
    """Return kube-scheduler's verdict that a replica cannot be bound; empty while it may be."""
    known = pod.obstacles if pod is not None and not (pod.node or pod.is_leaving) else None
    if known is None or not known.unschedulable:
        return ""
    # Of a pod that was gated, the condition is as old as the pod.
    age = at.seconds_since(key, max(known.unschedulable_since, plan.planned, plan.resized))
    is_explained = _PROVISIONING in known.unschedulable or at.is_emptying(member.node)
    if age < (_PROVISIONING_SECONDS if is_explained else VERDICT_SECONDS):
        return ""
    return known.unschedulable


def is_judged(view: GangView) -> bool:
    """Return whether kube-scheduler has said of a replica that it finds no node for it."""
    return any(pod.obstacles and pod.obstacles.unschedulable for pod in existing_pods(view))


def existing_pods(view: GangView) -> list[PodFacts]:
    """Return the pods of planned members that exist."""
    return [pod for _, pod in view.members if pod is not None]


def _unbound(job: JobFacts, view: GangView, at: Situation) -> Transition | None:
    """Give the places back of a gang of whose pods the scheduler says nothing."""
    waited = at.seconds_since(job.key, view.plan.planned)
    if is_judged(view) or waited <= silence_seconds(view, at):
        return None
    reason, node = Reason.GANG_NOT_BOUND_IN_TIME, view.unbound[0].node
    what = f"{len(view.unbound)} of {len(view.members)} replicas {silence(job, view, waited, at)}"
    if is_passed_over(job, view, at):
        move = _failed_start(job, reason, what, node, at)
    else:
        message = f"{what}; planning the whole gang again"
        move = Transition("Restarting", reason, message, interruptions=1)
    return move if _unseen(view) else replace(move, silent_plan=view.plan.planned)


def silence(gang: JobFacts | GroupFacts, view: GangView, waited: float, at: Situation) -> str:
    """Return in words whom the silence about pods concerns that have waited so many seconds."""
    if held := _unseen(view):
        return f"not on their nodes after {waited:.0f} s, {held} of them not created or gated"
    words = f"not on their nodes after {waited:.0f} s, of which kube-scheduler says nothing"
    if is_passed_over(gang, view, at):
        return f"{words}, although it serves gangs that were planned since"
    return f"{words}; it binds nobody that was planned since"


def is_passed_over(gang: JobFacts | GroupFacts, view: GangView, at: Situation) -> bool:
    """Return whether the scheduler serves others and says nothing of a gang's pods, all made."""
    return not _unseen(view) and at.serves_others(gang, view.plan)


def _unseen(view: GangView) -> int:
    """Return how many members have no pod that kube-scheduler could bind."""
    unbound = {*view.unbound}
    return sum(m in unbound and (pod is None or pod.is_gated) for m, pod in view.members)


def silence_seconds(view: GangView, at: Situation) -> float:
    """Return how long the scheduler may say nothing of pods that are not bound."""
    # While a volume is being provisioned for a pod, kube-scheduler says nothing of it.
    if any(pod.obstacles and pod.obstacles.has_claims for pod in existing_pods(view)):
        return max(at.bind_timeout_seconds, _PROVISIONING_SECONDS)
    return at.bind_timeout_seconds


def _failed_start(job: JobFacts, reason: Reason, what: str, node: str, at: Situation) -> Transition:
    retry = clock_time(retry_time(job.start_failures + 1, at.now))
    return Transition(
        "Restarting",
        reason,
        f"{what[:800]}; tried again at {retry}",
        interruptions=1,
        start_failures=1,
        node=node,
    )


def retry_time(failures: int, now: float) -> float:
    """Return when a gang is tried again whose last ``failures`` starts failed, POSIX seconds."""
    return now + pause_seconds(failures)


def _edited(job: JobFacts, view: GangView) -> Transition | None:
    """Start again where new pods would be made of other templates than those that exist."""
    if job.phase == "Running" or view.is_ready or view.plan.spec_hash == job.spec_hash:
        return None
    message = "spec.tasks was edited before all replicas ran; the gang starts again as it is now"
    return Transition("Restarting", Reason.TASKS_EDITED, message, interruptions=1)


def _progress(job: JobFacts, view: GangView) -> Transition | None:
    if job.phase == "Running":
        return None
    if view.is_ready:
        return Transition("Running", Reason.GANG_RUNNING, running_message(view))
    return None


def starting_message(view: GangView) -> str:
    """Return how far the replicas of a gang have come that has its places and does not run yet."""
    total, counts = len(view.members), _counts(view)
    if not counts["bound"]:
        return f"{total} replicas planned; their pods are being created and bound"
    ready = counts["ready"] + counts["succeeded"]
    return f"{counts['bound']} of {total} replicas are on their nodes, {ready} ready{_hang(view)}"


def running_message(view: GangView) -> str:
    """Return how the replicas of a gang do that has started: the same numbers as its counts."""
    total, counts = len(view.members), _counts(view)
    if counts["ready"] == total:
        return f"all {total} replicas run on {len(set(view.nodes))} node(s)"
    ended = f", {counts['succeeded']} ended well" if counts["succeeded"] else ""
    return f"{counts['ready']} of {total} replicas run{ended}{_hang(view)}"


def _counts(view: GangView) -> Counter[str]:
    total = Counter[str]()
    for task in view.plan.replicas:
        total.update(view.count(task))
    return total


def _hang(view: GangView) -> str:
    """Return, as the end of a message, which replica hangs and why; empty where none says it."""
    for member, pod in view.members:
        if words := trouble(pod):
            return f"; replica {member.index} of {member.task}: {words[:600]}"
    return ""


def _late(job: JobFacts, view: GangView, at: Situation) -> Transition | None:
    """Give the places of a gang back that does not get ready."""
    if job.phase == "Running" or not is_late(job, view, at):
        return None
    hangs = [(m, pod) for m, pod in view.members if pod is None or not _is_there(pod)]
    member, pod = min(hangs, key=lambda hung: not trouble(hung[1]))
    node = pod.node if pod is not None and pod.node else member.node
    message = (
        f"{len(hangs)} of {len(view.members)} replicas did not run within startTimeoutSeconds "
        f"{at.start_timeout_seconds(job):.0f}; replica {member.index} of {member.task} on node "
        f"{node}: {trouble(pod) or 'it is not ready'}"
    )
    return _failed_start(job, Reason.START_TIMED_OUT, message, node, at)


def is_late(gang: JobFacts | GroupFacts, view: GangView, at: Situation) -> bool:
    """Return whether a gang has had its places for longer than its start may take."""
    waited = at.seconds_since(gang.key, view.plan.planned)
    limit = at.start_timeout_seconds(gang)
    return waited > limit and waited - _pull_seconds(view, at.now) > limit


def _is_there(pod: PodFacts) -> bool:
    return pod.is_ready or pod.phase == "Succeeded"


def trouble(pod: PodFacts | None) -> str:
    """Return why a pod does not run, in the words of kubelet or scheduler; empty for nothing."""
    known = pod.obstacles if pod is not None else None
    return known.waiting or known.unschedulable if known is not None else ""


def _pull_seconds(view: GangView, now: float) -> float:
    """Return how long images were pulled for the gang: at most an hour counts."""
    known = [pod.obstacles for pod in existing_pods(view) if pod.obstacles is not None]
    pulls = [(o.pull_began, o.pull_ended or now) for o in known if o.pull_began]
    if not pulls:
        return 0.0
    began, ended = min(begin for begin, _ in pulls), max(end for _, end in pulls)
    return min(max(0.0, ended - began), _MAX_PULL_SECONDS)


@dataclass(frozen=True, slots=True)
class PendingAction:
    """Work that the recorded phase still asks for; done in the order of the fields."""

    delete_pods: tuple[PodFacts, ...] = ()
    evicts: bool = False
    """True if they go by the Eviction API, which asks PodDisruptionBudgets."""
    disruption: Mapping[str, str] | None = None
    """The condition that they get before they are deleted, where a budget is overridden."""
    create: tuple[Member, ...] = ()
    clear_plan: bool = False
    delete_job: bool = False

    def __bool__(self) -> bool:
        return bool(self.delete_pods or self.create or self.clear_plan or self.delete_job)


def pending_action(
    job: JobFacts,
    view: GangView | None,
    own_pods: Sequence[PodFacts],
    now: float,
    lost_node: Callable[[str], str],
    max_grace_seconds: float = math.inf,
) -> PendingAction:
    """Return what remains to be done for ``job`` in its recorded phase.

    A pod that is ending already is left to end, with two exceptions. On a lost node nothing would
    ever confirm its end: there it is deleted again, and the actuator grants it no grace. And one
    that has more grace than ``max_grace_seconds`` is deleted again with that.
    """
    if job.orphans_pods:
        return PendingAction()
    if job.is_finished and not job.is_leaving:
        return _after_the_end(job, own_pods, now, lost_node, max_grace_seconds)
    is_void = view is None or view.plan.attempt != job.attempt or job.phase == "Suspended"
    if is_void or view is None or job.is_leaving:
        # The room is kept until the last pod is gone, or smaller gangs would take it piece by
        # piece from one that was interrupted and waits for all of it. One that has ended is about
        # to go and is waited for, too, but not one that a finalizer keeps, which may be for ever.
        gone = _to_delete(own_pods, lost_node, max_grace_seconds)
        is_over = all(pod.is_only_kept for pod in own_pods)
        reason = "" if job.is_leaving or not gone else str(job.status.get("reason"))
        disruption = None
        if reason == Reason.BUDGET_OVERRIDDEN:
            words = str(job.status.get("message") or "")
            disruption = disruption_target("PreemptionByScheduler", words, now)
        return PendingAction(
            gone,
            evicts=reason in _EVICTING,
            disruption=disruption,
            clear_plan=job.plan is not None and is_over,
        )
    if view.leftovers:
        return PendingAction(delete_pods=_to_delete(view.leftovers, lost_node, max_grace_seconds))
    can_create = job.phase != "Running" and job.spec is not None
    return PendingAction(create=view.missing if can_create else ())


def is_incomplete(job: JobFacts, view: GangView | None) -> bool:
    """Return whether a job is to start by its plan and lacks pods for it."""
    is_current = view is not None and view.plan.attempt == job.attempt
    return is_current and job.phase == "Starting" and view is not None and bool(view.missing)


def _to_delete(
    pods: Sequence[PodFacts], lost_node: Callable[[str], str], max_grace_seconds: float
) -> tuple[PodFacts, ...]:
    return tuple(
        pod
        for pod in pods
        if not pod.is_leaving
        or (pod.node and lost_node(pod.node))
        or outlasts(pod, max_grace_seconds)
    )


def outlasts(pod: PodFacts, max_grace_seconds: float) -> bool:
    """Return whether a pod that is ending has more grace than stops of gangs grant."""
    return not pod.is_terminal and pod.ending_grace_seconds > max_grace_seconds


LEFTOVER_SECONDS = 600.0
"""So long after its job has ended may a pod run on where ``cleanPodPolicy`` keeps it."""


def _after_the_end(
    job: JobFacts,
    own_pods: Sequence[PodFacts],
    now: float,
    lost_node: Callable[[str], str],
    max_grace_seconds: float,
) -> PendingAction:
    policy = job.spec.run_policy if job.spec is not None else RunPolicy()
    unwanted: Sequence[PodFacts] = ()
    if policy.clean_pod_policy == "All":
        unwanted = own_pods
    elif policy.clean_pod_policy == "Running":
        unwanted = [pod for pod in own_pods if not pod.is_terminal]
    ended = quantities.parse_timestamp(job.status.get("completionTime"))
    if policy.clean_pod_policy == "None" and ended is not None and now >= ended + LEFTOVER_SECONDS:
        # Nobody may preempt them: a job that is over would keep others from their guarantees.
        unwanted = [pod for pod in own_pods if not pod.is_terminal]
    ttl = policy.ttl_seconds_after_finished
    expired = ttl is not None and ended is not None and now >= ended + ttl
    gone = _to_delete(unwanted, lost_node, max_grace_seconds)
    clears = job.plan is not None and are_over(own_pods)
    return PendingAction(delete_pods=gone, clear_plan=clears, delete_job=expired)


def are_over(pods: Iterable[PodFacts]) -> bool:
    """Return whether all have ended, so that a finished job needs no plan any more."""
    return all(pod.is_terminal for pod in pods)


# --- elastic gangs -----------------------------------------------------------------------
#
# As long as the first replica of the plan (where the others meet) and as many as the job may start
# with go on, one that is lost or fails is no reason to start again: the plan goes on without it,
# and the core may grow the gang later. A planned replica that is merely not there yet is created,
# and given up when it does not get onto its node in time.
#
# A failure of the training itself reaches the first replica too. Another one may fail alone: its
# node is bad, or it was added while the training ended and found none to join.


def is_resizable(job: JobFacts) -> bool:
    """Return whether the size of the gang may change now."""
    is_stopping = job.is_leaving or job.is_suspended
    is_elastic = job.spec is not None and job.spec.is_elastic
    return is_elastic and job.phase == "Running" and not is_stopping


def going_on(job: JobFacts, view: GangView, at: Situation) -> GangView:
    """Return ``view`` with only the replicas that go on or have ended, if these are enough.

    Return the whole ``view`` of any other gang: it is judged by every replica.
    """
    if not is_resizable(job) or view.plan.attempt != job.attempt:
        return view
    there = tuple((member, pod) for member, pod in view.members if _goes_on(pod, at))
    sizes = Counter(member.task for member, _ in there)
    has_first = there[:1] == view.members[:1]
    least = job.gang(0).at_minimum.tasks
    if not has_first or any(sizes[task.name] < task.replicas for task in least):
        return view
    return view if len(there) == len(view.members) else GangView(view.plan, there, view.leftovers)


def _goes_on(pod: PodFacts | None, at: Situation) -> bool:
    if pod is None or not pod.node or pod.is_leaving:
        return False
    if pod.is_terminal:
        return pod.phase == "Succeeded"
    return not at.lost_node(pod.node)


def lost(job: JobFacts, view: GangView, at: Situation) -> dict[Member, str]:
    """Return the replicas that ``job`` goes on without, and why; none where it cannot."""
    enough = going_on(job, view, at)
    if enough is view:
        return {}
    stays = {member for member, _ in enough.members}
    verdicts = {m: _verdict(job, m, pod, at, view) for m, pod in view.members if m not in stays}
    return {member: why for member, why in verdicts.items() if why}


def _verdict(
    job: JobFacts, member: Member, pod: PodFacts | None, at: Situation, view: GangView
) -> str:
    """Return why a replica that does not go on is given up; empty while it may still come."""
    plan = view.plan
    if pod is not None and pod.node:
        failure = pod.failure and pod.ending
        return at.lost_node(pod.node) or failure or f"it {_was_deleted(view, member, pod)}"
    if pod is not None and pod.is_leaving:
        return f"it {_was_deleted(view, member, pod)}"
    if words := refusal(job.key, plan, member, pod, at):
        return f"kube-scheduler cannot bind it: {words[:600]}"
    waited = at.seconds_since(job.key, max(plan.planned, plan.resized))
    if waited > silence_seconds(view, at):
        return f"not on its node after {waited:.0f} s"
    if plan.mode != "Pinned":
        return ""  # it may still get to another node than the planned one
    tolerated = next((t.constraints.tolerations for t in job.tasks if t.name == member.task), ())
    node = member.node
    return at.lost_node(node) or at.unusable_node(node, tolerated) or at.taken_node(node)
