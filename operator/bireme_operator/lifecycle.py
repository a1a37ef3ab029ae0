"""The life cycle of a TrainingJob after its admission: pure functions over facts.

The operator calls three functions after every change. :func:`transition` returns the change to
another phase, which one conditional status write records. :func:`pending_action` returns the work
that the recorded phase still needs: create missing pods, delete leftover ones, clear the plan.
:func:`lost_members` returns the replicas that a running elastic gang goes on without. Every answer
follows from recorded state alone, so a crash between any two writes loses nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bireme.core.decision import VACATED
from bireme.core.gangs import Role
from bireme.core.reasons import Reason
from bireme.core.resources import Request
from bireme.core.times import clock_time
from bireme.kube import quantities
from bireme.kube.allocations import GangView
from bireme.kube.api.training_job import RunPolicy
from bireme.kube.conditions import disruption_target
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_builder import tasks_by_rank
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme.kube.waits import pause_seconds
from bireme_operator import starts
from bireme_operator.reconcile_context import ReconcileContext

ACTIVE = ("Starting", "Running")
# The operator evicts the pods of a stopped gang for this long. Then it deletes the rest, even if a
# budget protects them: a gang without some of its pods does not run.
EVICTING_SECONDS = 300.0
_EVICTING = (Reason.PREEMPTED, *VACATED)
# A job pauses before its next start once this many nodes have refused it.
MAX_REFUSING_NODES = 5


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of phase to be recorded. Counters are increments.

    ``yields`` counts the preemptions that returned borrowed places.
    """

    phase: str
    reason: Reason
    message: str
    restarts: int = 0
    interruptions: int = 0
    preemptions: int = 0
    yields: int = 0
    start_failures: int = 0
    """A failed start; the gang gives its places back until :func:`retry_time`."""
    node: str = ""
    """The node that caused the change, if one did: for failures, that of the first replica."""
    rejections: int = 0
    silent_plan: float | None = None
    """Time of the plan, POSIX seconds, if kube-scheduler reported nothing about its pods."""

    @property
    def starts_again(self) -> bool:
        """True if the gang gives its place back and queues again."""
        return bool(self.restarts or self.interruptions or self.preemptions)


def transition(
    job: JobFacts, view: GangView | None, context: ReconcileContext
) -> Transition | None:
    """Return the change to the next phase of ``job``, or None to stay."""
    if job.is_leaving or job.is_finished or job.spec is None:
        return None
    if job.is_suspended:
        if job.phase == "Suspended":
            return None
        return Transition("Suspended", Reason.SUSPENDED, "suspended by spec.runPolicy.suspend")
    if job.phase == "Suspended":
        if view is not None:
            return None  # clear the old plan first, or the gang would start from it again
        return Transition("Pending", Reason.STOPPING, "resumed; waiting to be ordered")
    if view is None or view.plan.attempt != job.attempt:
        return _override_budgets(job, view, context)
    return (
        _success(job, view)
        or _deadline(job, context)
        or _failure(job, view, context)
        or _pod_change(job, view, context)
        or _interruption(job, view, context)
        or _spec_edit(job, view)
        or _progress(job, view)
        or _start_timeout(job, view, context)
    )


def _override_budgets(
    job: JobFacts, view: GangView | None, context: ReconcileContext
) -> Transition | None:
    """Stop evicting a stopped gang's pods and override the budgets that protect them."""
    if view is None or job.status.get("reason") not in _EVICTING:
        return None
    remaining = [
        pod for pod in starts.existing_pods(view) if not (pod.is_leaving or pod.is_terminal)
    ]
    if not remaining or context.seconds_since(job.key, job.queue_time) < EVICTING_SECONDS:
        return None
    prefix = f"{job.status.get('message', '')[:800]}; a budget kept {len(remaining)} of its pods"
    message = (
        f"{prefix} for {EVICTING_SECONDS:.0f} s, and is overridden, because a part of a "
        "gang cannot run"
    )
    return Transition("Restarting", Reason.BUDGET_OVERRIDDEN, message)


def _success(job: JobFacts, view: GangView) -> Transition | None:
    """Complete the job once the replicas that ``successPolicy`` names have succeeded.

    A leader's success outweighs failures of other replicas, also simultaneous ones. Before it
    succeeds, a failure of any replica is a failure of the gang.
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
    """Return whether a replica has succeeded by itself.

    A deleted replica may save a checkpoint and exit with code 0; that is no success. A view never
    marks a replica as leaving if it succeeded before its deletion.
    """
    return pod is not None and pod.phase == "Succeeded" and not pod.is_leaving


def _leader(job: JobFacts, view: GangView) -> tuple[Member, PodFacts | None] | None:
    """Return the replica whose success completes the job; None if all training replicas must.

    In an elastic gang it is the rendezvous replica, which ends with the training. A replica that
    joined too late would never end.
    """
    policy = job.spec.run_policy.success_policy if job.spec is not None else None
    if policy == "AllReplicas":
        return None
    if job.spec is not None and job.spec.is_elastic:
        return view.members[0]
    deciding = [
        task.name
        for task in tasks_by_rank(job)
        if task.role.is_leading or (policy == "Leader" and task.role is Role.WORKER)
    ]
    places = {(member.task, member.index): (member, pod) for member, pod in view.members}
    return places.get((deciding[0], 0)) if deciding else None


def _deadline(job: JobFacts, context: ReconcileContext) -> Transition | None:
    limit = job.spec.run_policy.active_deadline_seconds if job.spec else None
    admitted = quantities.parse_timestamp(job.status.get("admittedTime"))
    if (
        limit is None
        or admitted is None
        or job.earlier_run_seconds + context.now - admitted < limit
    ):
        return None
    message = f"held its places for more than activeDeadlineSeconds {limit}"
    return Transition("Failed", Reason.DEADLINE_EXCEEDED, message)


def _failure(job: JobFacts, view: GangView, context: ReconcileContext) -> Transition | None:
    # A deleted pod ends as Failed too, although the job did not fail.
    failed = [
        (m, pod)
        for m, pod in view.members
        if pod is not None and pod.phase == "Failed" and not pod.is_leaving
    ]
    if not failed:
        return None
    own_failures = [(m, pod) for m, pod in failed if not (pod.is_disrupted or pod.is_rejected)]
    rejected = [(m, pod) for m, pod in failed if pod.is_rejected]
    member, pod = (own_failures or rejected or failed)[0]
    failure = f"replica {member.index} of {member.task}: {pod.ending}"[:700]
    if not own_failures and rejected:
        return _rejection(job, member, pod, context)
    if not own_failures:
        return Transition("Restarting", Reason.POD_LOST, f"disrupted: {failure}", interruptions=1)
    # If several replicas have failed, the first one is unknown.
    first = pod.node if len(own_failures) == 1 else ""
    limit = job.spec.run_policy.backoff_limit if job.spec else 0
    restarts = int(job.status.get("restarts") or 0)
    if restarts >= limit:
        message = f"{failure}; it was restarted {restarts} of at most {limit} times (backoffLimit)"
        return Transition("Failed", Reason.BACKOFF_LIMIT_EXCEEDED, message, node=first)
    message = f"{failure}; restart {restarts + 1} of at most {limit}"
    return Transition("Restarting", Reason.POD_FAILED, message, restarts=1, node=first)


def _rejection(
    job: JobFacts, member: Member, pod: PodFacts, context: ReconcileContext
) -> Transition:
    """Start again elsewhere; pause if the same node or too many nodes have refused the job."""
    reason, nodes = Reason.POD_REJECTED, job.rejecting_nodes
    replica = f"replica {member.index} of {member.task}"
    message = f"node {pod.node} refused {replica}: {pod.failure}"[:700]
    earlier_nodes = len({*nodes} - {pod.node})
    if earlier_nodes + 1 >= MAX_REFUSING_NODES:
        message += f"; {earlier_nodes} other nodes refused it before"
    elif pod.node not in nodes:
        return Transition(
            "Restarting", reason, message, interruptions=1, node=pod.node, rejections=1
        )
    return replace(_start_failure(job, reason, message, pod.node, context), rejections=1)


def _pod_change(job: JobFacts, view: GangView, context: ReconcileContext) -> Transition | None:
    """Plan the gang again if admission changed its pods; the next plan uses the new values."""
    if job.phase == "Running":
        return None
    for member, pod in view.members:
        excess = _excess(view.plan, member, pod)
        if excess:
            message = (
                f"the API server admitted replica {member.index} of {member.task} with {excess}; "
                "the gang is planned again with these amounts"
            )
            if job.last_stop == Reason.PODS_CHANGED:  # admission raises the request every time
                return _start_failure(job, Reason.PODS_CHANGED, message, member.node, context)
            return Transition("Restarting", Reason.PODS_CHANGED, message, interruptions=1)
    # Only once: labels may differ from pod to pod, and kube-scheduler enforces most rules itself.
    if not view.unbound or job.last_stop == Reason.PODS_CHANGED:
        return None
    for task, labels in context.label_drift(job, view).items():
        pairs = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        message = (
            f"the API server admitted replicas of {task} with labels {pairs[:600]}, which pod "
            "rules select; the gang is planned again with them"
        )
        return Transition("Restarting", Reason.PODS_CHANGED, message, interruptions=1)
    return None


def _excess(plan: PlanFacts, member: Member, pod: PodFacts | None) -> str:
    """Return the resources that an unbound pod requests beyond its plan, as text; empty if none."""
    planned = plan.requests.get(member.task, ())
    if pod is None or pod.node or pod.request == planned:
        return ""
    amounts = dict(planned)
    return ", ".join(
        f"{quantities.format_quantity(name, amount)} {name} where "
        f"{quantities.format_quantity(name, amounts.get(name, 0))} was planned"
        for name, amount in pod.request
        if amount > amounts.get(name, 0)
    )


def excess_requests(view: GangView) -> dict[str, Request]:
    """Return by task the request of a pod that exceeds the plan."""
    return {
        member.task: pod.request
        for member, pod in view.members
        if pod is not None and _excess(view.plan, member, pod)
    }


def _interruption(job: JobFacts, view: GangView, context: ReconcileContext) -> Transition | None:
    tolerations = {task.name: task.constraints.tolerations for task in job.tasks}
    for member, pod in view.members:
        node = pod.node if pod is not None and pod.node else member.node
        is_bound = pod is not None and bool(pod.node)
        if pod is not None and pod.is_terminal and not pod.is_leaving:
            continue
        tolerated = tolerations.get(member.task, ())
        # A pod without a pin may still get to another node than the planned one.
        is_open = not is_bound and view.plan.mode == "Score"
        obstacle = "" if is_open else context.lost_node(node)
        obstacle = obstacle or (
            "" if is_bound or is_open else context.unusable_node(node, tolerated)
        )
        if obstacle:
            message = f"replica {member.index} of {member.task} on node {node}: {obstacle}"
            return Transition("Restarting", Reason.NODE_LOST, message, interruptions=1)
        # A bound replica may have joined the rendezvous; the others cannot go on with a new one.
        if (pod is not None and pod.is_leaving and is_bound) or (
            job.phase == "Running" and (pod is None or pod.is_leaving)
        ):
            replica = f"replica {member.index} of {member.task} on node {node}"
            message = f"{replica} {_was_deleted(view, member, pod)}"
            return Transition("Restarting", Reason.POD_LOST, message, interruptions=1)
        if not (is_bound or is_open) and (obstacle := context.taken_node(node)):
            message = f"replica {member.index} of {member.task} on node {node}: {obstacle}"
            return Transition("Restarting", Reason.GANG_NOT_BOUND_IN_TIME, message, interruptions=1)
    if not view.unbound or view.plan.spec_hash != job.spec_hash:
        return None
    return _unschedulable(job, view, context) or _unbound(job, view, context)


def _was_deleted(view: GangView, member: Member, pod: PodFacts | None) -> str:
    disruption = view.disruptions.get(member, "") if pod is None else pod.disruption
    return f"was deleted ({disruption[:600]})" if disruption else "was deleted"


def _unschedulable(job: JobFacts, view: GangView, context: ReconcileContext) -> Transition | None:
    """Give the places back after kube-scheduler's verdict that a replica does not fit its node."""
    for member, pod in view.members:
        verdict = starts.refusal(job.key, view.plan, member, pod, context)
        if verdict:
            suffix = "" if view.plan.mode == "Score" else f" on node {member.node}"
            message = f"kube-scheduler cannot bind replica {member.index} of {member.task}{suffix}"
            return _start_failure(
                job, Reason.UNSCHEDULABLE, f"{message}: {verdict}", member.node, context
            )
    return None


def _unbound(job: JobFacts, view: GangView, context: ReconcileContext) -> Transition | None:
    """Give the places back if the scheduler reports nothing about the gang's pods for too long."""
    waited = context.seconds_since(job.key, view.plan.planned)
    if starts.is_judged(view) or waited <= starts.silence_seconds(view, context):
        return None
    reason, node = Reason.GANG_NOT_BOUND_IN_TIME, view.unbound[0].node
    silence = starts.silence(job, view, waited, context)
    summary = f"{len(view.unbound)} of {len(view.members)} replicas {silence}"
    if starts.is_passed_over(job, view, context):
        move = _start_failure(job, reason, summary, node, context)
    else:
        message = f"{summary}; the whole gang is planned again"
        move = Transition("Restarting", reason, message, interruptions=1)
    return move if starts.count_unseen(view) else replace(move, silent_plan=view.plan.planned)


def _start_failure(
    job: JobFacts, reason: Reason, message: str, node: str, context: ReconcileContext
) -> Transition:
    retry = clock_time(retry_time(job.start_failures + 1, context.now))
    return Transition(
        "Restarting",
        reason,
        f"{message[:800]}; the next try is at {retry}",
        interruptions=1,
        start_failures=1,
        node=node,
    )


def retry_time(failures: int, now: float) -> float:
    """Return the time of the next start after ``failures`` failed starts, POSIX seconds."""
    return now + pause_seconds(failures)


def _spec_edit(job: JobFacts, view: GangView) -> Transition | None:
    """Start again if an edit changed the pod templates before the gang ran."""
    if job.phase == "Running" or view.is_ready or view.plan.spec_hash == job.spec_hash:
        return None
    message = "spec.tasks was edited before all replicas ran; the gang restarts with the new spec"
    return Transition("Restarting", Reason.TASKS_EDITED, message, interruptions=1)


def _progress(job: JobFacts, view: GangView) -> Transition | None:
    if job.phase == "Running":
        return None
    if view.is_ready:
        return Transition("Running", Reason.GANG_RUNNING, running_message(view))
    return None


def starting_message(view: GangView) -> str:
    """Return a message about the progress of a starting gang's replicas."""
    total, counts = len(view.members), _counts(view)
    if not counts["bound"]:
        return f"{total} replicas planned; their pods are being created and bound"
    ready = counts["ready"] + counts["succeeded"]
    return f"{counts['bound']} of {total} replicas are on their nodes, {ready} ready{_hang(view)}"


def running_message(view: GangView) -> str:
    """Return a message about a running gang's replicas; its numbers equal the status counts."""
    total, counts = len(view.members), _counts(view)
    if counts["ready"] == total:
        return f"all {total} replicas run on {len(set(view.nodes))} node(s)"
    suffix = f", {counts['succeeded']} ended well" if counts["succeeded"] else ""
    return f"{counts['ready']} of {total} replicas run{suffix}{_hang(view)}"


def _counts(view: GangView) -> Counter[str]:
    total = Counter[str]()
    for task in view.plan.replicas:
        total.update(view.count(task))
    return total


def _hang(view: GangView) -> str:
    """Return the first stuck replica and its reason, as the end of a message; empty if none."""
    for member, pod in view.members:
        if reason := starts.trouble(pod):
            return f"; replica {member.index} of {member.task}: {reason[:600]}"
    return ""


def _start_timeout(job: JobFacts, view: GangView, context: ReconcileContext) -> Transition | None:
    """Give the places back if the gang does not get ready in time."""
    if job.phase == "Running" or not starts.is_late(job, view, context):
        return None
    stuck = [(m, pod) for m, pod in view.members if pod is None or not _is_there(pod)]
    member, pod = min(stuck, key=lambda pair: not starts.trouble(pair[1]))
    node = pod.node if pod is not None and pod.node else member.node
    message = (
        f"{len(stuck)} of {len(view.members)} replicas did not run within startTimeoutSeconds "
        f"{context.start_timeout_seconds(job):.0f}; replica {member.index} of {member.task} "
        f"on node {node}: {starts.trouble(pod) or 'it is not ready'}"
    )
    return _start_failure(job, Reason.START_TIMED_OUT, message, node, context)


def _is_there(pod: PodFacts) -> bool:
    return pod.is_ready or pod.phase == "Succeeded"


@dataclass(frozen=True, slots=True)
class PendingAction:
    """Work that the recorded phase still needs, to be done in the order of the fields."""

    delete_pods: tuple[PodFacts, ...] = ()
    evicts: bool = False
    """True if the Eviction API stops the pods, which respects PodDisruptionBudgets."""
    disruption: Mapping[str, str] | None = None
    """Condition to set on the pods before their deletion, if it overrides a budget."""
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
    """Return the work that remains for ``job`` in its recorded phase.

    A pod that is already ending is deleted again in two cases only. On a lost node nothing would
    confirm its end, so the actuator deletes it without grace. A pod with more grace than
    ``max_grace_seconds`` is deleted again with that limit.
    """
    if job.orphans_pods:
        return PendingAction()
    if job.is_finished and not job.is_leaving:
        return _after_the_end(job, own_pods, now, lost_node, max_grace_seconds)
    is_void = view is None or view.plan.attempt != job.attempt or job.phase == "Suspended"
    if is_void or view is None or job.is_leaving:
        # Keep the plan until the last pod has left. Otherwise smaller gangs would take the room
        # piece by piece from the interrupted gang. Wait for terminated pods too, except those held
        # by a finalizer, which may stay for ever.
        deletions = _to_delete(own_pods, lost_node, max_grace_seconds)
        is_over = all(pod.is_only_kept for pod in own_pods)
        reason = "" if job.is_leaving or not deletions else str(job.status.get("reason"))
        disruption = None
        if reason == Reason.BUDGET_OVERRIDDEN:
            message = str(job.status.get("message") or "")
            disruption = disruption_target("PreemptionByScheduler", message, now)
        return PendingAction(
            deletions,
            evicts=reason in _EVICTING,
            disruption=disruption,
            clear_plan=job.plan is not None and is_over,
        )
    if view.leftovers:
        return PendingAction(delete_pods=_to_delete(view.leftovers, lost_node, max_grace_seconds))
    can_create = job.phase != "Running" and job.spec is not None
    return PendingAction(create=view.missing if can_create else ())


def is_incomplete(job: JobFacts, view: GangView | None) -> bool:
    """Return whether a starting job lacks pods of its current plan."""
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
    """Return whether an ending pod has more grace than ``max_grace_seconds``."""
    return not pod.is_terminal and pod.ending_grace_seconds > max_grace_seconds


LEFTOVER_SECONDS = 600.0
"""Longest time that a pod kept by ``cleanPodPolicy`` may run after the end of its job."""


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
    completion_time = quantities.parse_timestamp(job.status.get("completionTime"))
    if (
        policy.clean_pod_policy == "None"
        and completion_time is not None
        and now >= completion_time + LEFTOVER_SECONDS
    ):
        # No gang may preempt these pods: a finished job would block guaranteed capacity.
        unwanted = [pod for pod in own_pods if not pod.is_terminal]
    ttl = policy.ttl_seconds_after_finished
    is_expired = ttl is not None and completion_time is not None and now >= completion_time + ttl
    deletions = _to_delete(unwanted, lost_node, max_grace_seconds)
    clears = job.plan is not None and are_over(own_pods)
    return PendingAction(delete_pods=deletions, clear_plan=clears, delete_job=is_expired)


def are_over(pods: Iterable[PodFacts]) -> bool:
    """Return whether all pods have ended, so that a finished job needs no plan any more."""
    return all(pod.is_terminal for pod in pods)


# --- elastic gangs -----------------------------------------------------------------------
#
# An elastic gang survives the loss of a replica while its first replica (the rendezvous) and its
# minimum size remain. The plan goes on without the lost one, and the core may grow the gang later.
# The operator creates a missing planned replica, and drops it if it is not bound in time.
#
# A failure of the training itself reaches the first replica too. Another replica may fail alone:
# its node is bad, or it joined while the training ended.


def is_resizable(job: JobFacts) -> bool:
    """Return whether the size of the gang may change now."""
    is_stopping = job.is_leaving or job.is_suspended
    is_elastic = job.spec is not None and job.spec.is_elastic
    return is_elastic and job.phase == "Running" and not is_stopping


def surviving_view(job: JobFacts, view: GangView, context: ReconcileContext) -> GangView:
    """Return ``view`` with only the replicas that go on or have succeeded, if these are enough.

    Return the whole ``view`` otherwise: every replica decides the gang's phase then.
    """
    if not is_resizable(job) or view.plan.attempt != job.attempt:
        return view
    survivors = tuple((member, pod) for member, pod in view.members if _goes_on(pod, context))
    sizes = Counter(member.task for member, _ in survivors)
    has_first = survivors[:1] == view.members[:1]
    min_tasks = job.gang(0).at_minimum.tasks
    if not has_first or any(sizes[task.name] < task.replicas for task in min_tasks):
        return view
    return (
        view
        if len(survivors) == len(view.members)
        else GangView(view.plan, survivors, view.leftovers)
    )


def _goes_on(pod: PodFacts | None, context: ReconcileContext) -> bool:
    if pod is None or not pod.node or pod.is_leaving:
        return False
    if pod.is_terminal:
        return pod.phase == "Succeeded"
    return not context.lost_node(pod.node)


def lost_members(job: JobFacts, view: GangView, context: ReconcileContext) -> dict[Member, str]:
    """Return the replicas that ``job`` goes on without, and the causes; none if it cannot."""
    enough = surviving_view(job, view, context)
    if enough is view:
        return {}
    survivors = {member for member, _ in enough.members}
    verdicts = {
        m: _verdict(job, m, pod, context, view) for m, pod in view.members if m not in survivors
    }
    return {member: cause for member, cause in verdicts.items() if cause}


def _verdict(
    job: JobFacts, member: Member, pod: PodFacts | None, context: ReconcileContext, view: GangView
) -> str:
    """Return why a replica is dropped from the plan; empty while it may still get ready."""
    plan = view.plan
    if pod is not None and pod.node:
        failure = pod.failure and pod.ending
        return context.lost_node(pod.node) or failure or f"it {_was_deleted(view, member, pod)}"
    if pod is not None and pod.is_leaving:
        return f"it {_was_deleted(view, member, pod)}"
    if verdict := starts.refusal(job.key, plan, member, pod, context):
        return f"kube-scheduler cannot bind it: {verdict[:600]}"
    waited = context.seconds_since(job.key, max(plan.planned, plan.resized))
    if waited > starts.silence_seconds(view, context):
        return f"not on its node after {waited:.0f} s"
    if plan.mode != "Pinned":
        return ""  # it may still get to another node than the planned one
    tolerated = next((t.constraints.tolerations for t in job.tasks if t.name == member.task), ())
    node = member.node
    return (
        context.lost_node(node)
        or context.unusable_node(node, tolerated)
        or context.taken_node(node)
    )
