"""Reconciles one TrainingJob: records its next phase, does the work of its phase, or reports.

:mod:`bireme_operator.lifecycle` decides, by pure functions over facts. This module writes: a change
of phase is one conditional status write.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bireme.core.decision import VACATED
from bireme.core.reasons import Reason
from bireme.kube.allocations import GangView
from bireme.kube.cluster_state import ClusterState
from bireme.kube.training_jobs import FINISHED, JobFacts
from bireme_operator import lifecycle, starts, status
from bireme_operator.actuator import Actuator
from bireme_operator.admission import JobAdmission
from bireme_operator.events import Events
from bireme_operator.job_services import ServiceRestorer
from bireme_operator.lifecycle import Transition
from bireme_operator.losses import lost_device_seconds
from bireme_operator.metrics import GangMetrics, UsageMetrics
from bireme_operator.node_troubles import NodeHealthHistory
from bireme_operator.progress_auth import ProgressService
from bireme_operator.reconcile_context import ReconcileContext
from bireme_operator.resizes import Resizes
from bireme_operator.stalls import stall_of, with_stall
from bireme_operator.start_failures import StartFailures
from bireme_operator.status import Status
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue

# Transitions at which the gang's pods have shown all changes by admission.
_TELLING = (Reason.PODS_CHANGED, Reason.GANG_RUNNING)
# Counts are not reported within this time after the creation of pods: the gang may soon run.
_STARTING_SECONDS = 5.0
# Times in objects have whole seconds.
_ROUNDED_SECONDS = 1.0


@dataclass(slots=True)
class JobReconciler:
    """The life cycle of TrainingJobs from their admission on; ``clock`` is monotonic seconds."""

    state: ClusterState
    work: WorkQueue
    actuator: Actuator
    admission: JobAdmission
    resizes: Resizes
    reports: StatusWriter
    progress: ProgressService
    events: Events
    start_failures: StartFailures
    troubles: NodeHealthHistory
    services: ServiceRestorer
    metrics: GangMetrics
    usage: UsageMetrics
    clock: Callable[[], float]
    stalled_after_seconds: float
    _creation_times: dict[str, float] = field(default_factory=dict)
    _judged: dict[str, int] = field(default_factory=dict)

    def reconcile(self, job: JobFacts, context: ReconcileContext) -> None:
        """Start the next step for ``job``; the end of a step reconciles the job again."""
        if self.reports.is_writing(job.uid):
            return  # its status is about to change; the end of the write requeues the job
        view = self.state.views.get(job.key) if job.plan is not None else None
        # 1. Is it time for another phase?
        surviving = None if view is None else lifecycle.surviving_view(job, view, context)
        move = lifecycle.transition(job, surviving, context)
        if move is not None and move.reason in _TELLING and view is not None:
            labels = self.state.demands.label_drift(job, view)
            requests = lifecycle.excess_requests(view)
            self.admission.dry_runs.learn_from_pods(job, requests, labels)
        elif move is not None and move.start_failures:
            self.state.mutations.forget(job)
        if move is not None:
            self.work.start(job.key, self._record(job, move, view, context.now))
            return
        self._await_verdict(job, view)
        # 2. Does a running elastic gang differ from its plan?
        if view is not None and self.resizes.repair(job, view, context):
            return
        # 3. Does the recorded phase need more work?
        pods = self.state.objects.pods_of(job)
        action = lifecycle.pending_action(
            job, view, pods, context.now, context.lost_node, self.actuator.max_grace_seconds
        )
        if action:
            plan = view.plan if view is not None else None
            self.work.start(job.key, self.actuator.perform(job, action, plan))
            return
        # 4. Do its replicas still find each other?
        if view is not None and self.services.restore(job, view):
            return
        # 5. Nothing to do: report counts and progress.
        if view is not None and job.phase in lifecycle.ACTIVE and not self._is_premature(job):
            self._report(job, view, context.now)

    def _report(self, job: JobFacts, view: GangView, now: float) -> None:
        new_status = status.with_counts(dict(job.status), job, view)
        new_status |= self.progress.status_update(job, view)
        new_status |= self.state.objects.resume_of(job).status_fields()
        if lifecycle.is_resizable(job):
            new_status = status.with_size(new_status, view, self.state.nodes.table)
        elif view.plan.mode == "Score":
            new_status = status.with_placement(new_status, view, self.state.nodes.table)
        if job.phase == "Running":
            stall = stall_of(
                job,
                view,
                now,
                self.stalled_after_seconds,
                self.state.settings.known_accelerators,
            )
            new_status = with_stall(new_status, view, stall)
        new_status = self.services.add_obstacle(new_status, job)
        self.reports.submit_job(job, new_status)

    def is_free(self, job: JobFacts) -> bool:
        """Return whether no work on the job and no write of its status is under way."""
        return self.work.is_free(job.key) and not self.reports.is_writing(job.uid)

    async def preempt(
        self,
        job: JobFacts,
        message: str,
        now: float,
        reason: Reason = Reason.PREEMPTED,
        was_lent: bool = False,
    ) -> None:
        """Record that the gang stops for another one, or for the ``reason`` of a Vacate.

        ``was_lent`` is true if it returns borrowed places. Its life cycle stops the pods.
        """
        vacates = int(reason in VACATED)
        move = Transition(
            "Restarting",
            reason,
            message,
            preemptions=1 - vacates,
            interruptions=vacates,
            yields=int(was_lent and not vacates),
        )
        await self._record(job, move, self.state.views.get(job.key), now)

    def _await_verdict(self, job: JobFacts, view: GangView | None) -> None:
        """Reconcile again when kube-scheduler's verdict counts, even without a change by then.

        Once per attempt: a transient cause ends with a change, or lasts for minutes.
        """
        if view is None or not view.unbound or self._judged.get(job.uid) == job.attempt:
            return
        if starts.is_judged(view):
            self._judged[job.uid] = job.attempt
            wait = starts.VERDICT_SECONDS + _ROUNDED_SECONDS
            asyncio.get_running_loop().call_later(wait, self.state.changes.requeue, job.key)

    def _is_premature(self, job: JobFacts) -> bool:
        """Return whether it is too early to report counts, because the gang may soon run."""
        if job.phase != "Starting":
            return False
        # A gang is not reconciled during the creation of its pods, so that has just ended.
        creation_time = self._creation_times.setdefault(job.uid, self.clock())
        wait = creation_time + _STARTING_SECONDS - self.clock()
        if wait <= 0:
            return False
        asyncio.get_running_loop().call_later(wait, self.state.changes.requeue, job.key)
        return True

    async def _record(
        self, job: JobFacts, move: Transition, view: GangView | None, now: float
    ) -> None:
        previous = {**job.status, **self.progress.status_update(job, view, at_once=True)}
        new_status = status.after_transition(previous, job, move, now)
        if view is not None and move.phase in (*lifecycle.ACTIVE, *FINISHED):
            new_status = status.with_counts(new_status, job, view)
        if move.phase in FINISHED and lifecycle.are_over(self.state.objects.pods_of(job)):
            new_status.pop("plan", None)  # saves a second write
        in_place = move.phase in lifecycle.ACTIVE
        await self.actuator.write_job(job, new_status, can_wait=in_place)
        self.metrics.count_move(job, move, view, now)
        self._count_loss(job, previous, move, view, now)
        self.start_failures.observe(job, move, now)
        self.troubles.observe(job, move, view)
        self._creation_times.pop(job.uid, None)
        await self.events.post("TrainingJob", job.key, job.uid, move.reason, new_status["message"])

    def _count_loss(
        self, job: JobFacts, previous: Status, move: Transition, view: GangView | None, now: float
    ) -> None:
        """Count the lost work of a job that stops running without success."""
        if job.phase != "Running" or move.phase in ("Running", "Succeeded") or view is None:
            return
        nodes, label = self.state.nodes.table, self.state.settings.node_pool_label
        self.usage.count_loss(lost_device_seconds(job, previous, view, nodes, label, now))

    def forget(self, uids: set[str]) -> None:
        """Drop the records of deleted jobs; ``uids`` are those of the existing ones."""
        self.progress.forget(uids)
        self.services.forget(uids)
        self._creation_times = {uid: x for uid, x in self._creation_times.items() if uid in uids}
        self._judged = {uid: x for uid, x in self._judged.items() if uid in uids}
