"""Reconciles one TrainingJob: records its next phase, does what its phase asks for, or reports.

The judgement is :mod:`bireme_operator.lifecycle`, pure functions over facts. Here its verdicts are
written down: a change of phase is one conditional status write.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bireme.core.decision import VACATED
from bireme.core.reasons import Reason
from bireme.kube.allocations import GangView
from bireme.kube.cluster_state import ClusterState
from bireme.kube.training_jobs import FINISHED, JobFacts
from bireme_operator import lifecycle, status
from bireme_operator.actuator import Actuator
from bireme_operator.admission import JobAdmission
from bireme_operator.events import Events
from bireme_operator.job_services import ServiceRestorer
from bireme_operator.lifecycle import Situation, Transition
from bireme_operator.losses import lost_device_seconds
from bireme_operator.metrics import GangMetrics, UsageMetrics
from bireme_operator.node_troubles import NodeTroubles
from bireme_operator.progress_auth import ProgressService
from bireme_operator.resizes import Resizes
from bireme_operator.stalls import stall_of, with_stall
from bireme_operator.start_failures import StartFailures
from bireme_operator.status import Status
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue

# When all that pods of a gang tell is known: they differ from what was planned, or all are there.
_TELLING = (Reason.PODS_CHANGED, Reason.GANG_RUNNING)
# A gang that runs within this time after its pods were made is not reported meanwhile.
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
    troubles: NodeTroubles
    services: ServiceRestorer
    metrics: GangMetrics
    usage: UsageMetrics
    clock: Callable[[], float]
    stalled_after_seconds: float
    _pods_made: dict[str, float] = field(default_factory=dict)
    _judged: dict[str, int] = field(default_factory=dict)

    def reconcile(self, job: JobFacts, at: Situation) -> None:
        """Take one step with ``job``; the end of that step brings it here again."""
        if self.reports.is_writing(job.uid):
            return  # its status is about to change; the end of the write requeues the job
        view = self.state.view(job.key) if job.plan is not None else None
        # 1. Is it time for another phase?
        seen = None if view is None else lifecycle.going_on(job, view, at)
        move = lifecycle.transition(job, seen, at)
        if move is not None and move.reason in _TELLING and view is not None:
            labels = self.state.label_drift(job, view)
            requests = lifecycle.changed_requests(view)
            self.admission.dry_runs.learn_from_pods(job, requests, labels)
        elif move is not None and move.start_failures:
            self.state.mutations.forget(job)
        if move is not None:
            self.work.start(job.key, self._record(job, move, view, at.now))
            return
        self._await_verdict(job, view)
        # 2. Does a running elastic gang differ from its plan?
        if view is not None and self.resizes.repair(job, view, at):
            return
        # 3. What does the recorded phase still ask for?
        own = self.state.pods_of(job)
        action = lifecycle.pending_action(
            *(job, view, own, at.now, at.lost_node), self.actuator.max_grace_seconds
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
            self._report(job, view, at.now)

    def _report(self, job: JobFacts, view: GangView, now: float) -> None:
        wanted = status.counted(dict(job.status), job, view)
        wanted |= self.progress.status_update(job, view)
        wanted |= self.state.resume_of(job).status_fields()
        if lifecycle.is_resizable(job):
            wanted = status.sized(wanted, view, self.state.node_table)
        elif view.plan.mode == "Score":
            wanted = status.in_place(wanted, view, self.state.node_table)
        if job.phase == "Running":
            stall = stall_of(
                *(job, view, now, self.stalled_after_seconds),
                self.state.settings.known_accelerators,
            )
            wanted = with_stall(wanted, view, stall)
        wanted = self.services.add_obstacle(wanted, job)
        self.reports.submit_job(job, wanted)

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

        ``was_lent`` tells that it gives back places that it was lent. Its life cycle does the rest.
        """
        for_nobody = int(reason in VACATED)
        move = Transition(
            *("Restarting", reason, message),
            preemptions=1 - for_nobody,
            interruptions=for_nobody,
            yields=int(was_lent and not for_nobody),
        )
        await self._record(job, move, self.state.view(job.key), now)

    def _await_verdict(self, job: JobFacts, view: GangView | None) -> None:
        """Look again when a verdict of kube-scheduler counts, although nothing may change by then.

        Once for every attempt: what explains a verdict goes, which is a change, or takes minutes.
        """
        if view is None or not view.unbound or self._judged.get(job.uid) == job.attempt:
            return
        if lifecycle.is_judged(view):
            self._judged[job.uid] = job.attempt
            wait = lifecycle.VERDICT_SECONDS + _ROUNDED_SECONDS
            asyncio.get_running_loop().call_later(wait, self.state.requeue, job.key)

    def _is_premature(self, job: JobFacts) -> bool:
        """Return whether the counts are not to be reported yet: Running may follow in a moment."""
        if job.phase != "Starting":
            return False
        # A gang is not reconciled while its pods are being created, so that has just ended.
        made = self._pods_made.setdefault(job.uid, self.clock())
        wait = made + _STARTING_SECONDS - self.clock()
        if wait <= 0:
            return False
        asyncio.get_running_loop().call_later(wait, self.state.requeue, job.key)
        return True

    async def _record(
        self, job: JobFacts, move: Transition, view: GangView | None, now: float
    ) -> None:
        before = {**job.status, **self.progress.status_update(job, view, at_once=True)}
        wanted = status.moved(before, job, move, now)
        if view is not None and move.phase in (*lifecycle.ACTIVE, *FINISHED):
            wanted = status.counted(wanted, job, view)
        if move.phase in FINISHED and lifecycle.are_over(self.state.pods_of(job)):
            wanted.pop("plan", None)  # else another write would follow, which does only that
        in_place = move.phase in lifecycle.ACTIVE
        await self.actuator.write_job(job, wanted, can_wait=in_place)
        self.metrics.count_move(job, move, view, now)
        self._count_loss(job, before, move, view, now)
        self.start_failures.observe(job, move, now)
        self.troubles.observe(job, move, view)
        self._pods_made.pop(job.uid, None)
        await self.events.post("TrainingJob", job.key, job.uid, move.reason, wanted["message"])

    def _count_loss(
        self, job: JobFacts, before: Status, move: Transition, view: GangView | None, now: float
    ) -> None:
        """Count what a job loses that ran and does not any more, unless it has succeeded."""
        if job.phase != "Running" or move.phase in ("Running", "Succeeded") or view is None:
            return
        nodes, label = self.state.node_table, self.state.settings.node_pool_label
        self.usage.count_loss(lost_device_seconds(job, before, view, nodes, label, now))

    def forget(self, uids: set[str]) -> None:
        """Drop what is remembered of jobs that are gone; ``uids`` are those that exist."""
        self.progress.forget(uids)
        self.services.forget(uids)
        self._pods_made = {uid: x for uid, x in self._pods_made.items() if uid in uids}
        self._judged = {uid: x for uid, x in self._judged.items() if uid in uids}
