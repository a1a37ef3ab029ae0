"""Resizes of running gangs: one write of the plan names the members, and the life cycle follows.

The operator deletes pods that the new plan drops and creates those that it adds. All other pods run
on: epoch, attempt and label of the plan stay. Decisions assume the plan while it is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from bireme.core.decision import Resize
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import names, plans
from bireme.kube.allocations import AssumedPlan, GangView
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import lifecycle
from bireme_operator.actuator import Actuator
from bireme_operator.events import Events
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_troubles import NodeHealthHistory, has_failed
from bireme_operator.reconcile_context import ReconcileContext
from bireme_operator.rejections import AdmissionRejected
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Resizes:
    """Changes the size of running gangs; ``now`` gives POSIX seconds."""

    state: ClusterState
    work: WorkQueue
    actuator: Actuator
    reports: StatusWriter
    events: Events
    metrics: OperatorMetrics
    troubles: NodeHealthHistory
    now: Callable[[], float]

    def carry_out(
        self, resize: Resize, snapshot: ClusterSnapshot, jobs: Mapping[Key, JobFacts]
    ) -> None:
        """Begin ``resize``, based on ``snapshot`` and ``jobs``; skip a gang planned since then."""
        key = resize.gang.key
        job, decided_job = self.state.objects.jobs.get(key), jobs.get(key)
        view = self.state.views.get(key)
        if job is None or decided_job is None or view is None:
            return
        is_same = job.uid == resize.running.gang.uid and job.plan is decided_job.plan
        can_change = is_same and lifecycle.is_resizable(job) and view.is_whole
        if not (can_change and self._is_free(job)):
            return
        previous = view.plan_in_place
        plan = plans.resize(previous, resize.placement, snapshot.nodes, self.now())
        if plan.members[:1] != previous.members[:1]:
            _log.error("resize left out the replica that the others meet at", gang=job.key)
            return
        self._start_write(job, plan, resize.reason, resize.message)

    def _is_free(self, job: JobFacts) -> bool:
        return self.work.is_free(job.key) and not self.reports.is_writing(job.uid)

    def _start_write(self, job: JobFacts, plan: PlanFacts, reason: Reason, message: str) -> None:
        work = self._write(job, plan, reason, message)
        self.work.start(job.key, work, AssumedPlan(job.uid, plan))

    def repair(self, job: JobFacts, view: GangView, context: ReconcileContext) -> bool:
        """Start the work that makes a running elastic gang match its plan; return False if none."""
        if not lifecycle.is_resizable(job):
            return False
        if lost := lifecycle.lost_members(job, view, context):
            if self._is_free(job):
                lost_pods = [
                    pod for member, pod in view.members if member in lost and pod is not None
                ]
                self.troubles.observe_pods(job.key[0], filter(has_failed, lost_pods))
                plan = plans.without_members(view.plan, lost, context.now)
                self._start_write(job, plan, Reason.SHRUNK, _shrunk_message(lost))
            return True
        is_same = view.plan.spec_hash == job.spec_hash
        if view.missing and not view.leftovers and is_same:
            self.work.start(job.key, self._complete(job, view))
            return True
        return False

    async def _complete(self, job: JobFacts, view: GangView) -> None:
        """Create missing pods; drop all of them, and then their places, if one is rejected."""
        try:
            await self.actuator.create_pods(job, view.plan, view.missing)
        except AdmissionRejected as rejection:
            # The plan last: it keeps the places as long as a pod uses one of them.
            namespace, job_name = job.key
            keys = {
                (namespace, names.pod_name(job_name, member.task, member.index))
                for member in view.missing
            }
            new_pods = [pod for pod in self.state.objects.pods_of(job) if pod.key in keys]
            await self.actuator.delete_pods(new_pods)
            plan = plans.without_members(view.plan, view.missing, self.now())
            message = _shrunk_message(dict.fromkeys(view.missing, str(rejection)))
            await self._write(job, plan, Reason.SHRUNK, message)

    async def _write(self, job: JobFacts, plan: PlanFacts, reason: Reason, message: str) -> None:
        current = self.state.objects.jobs.get(job.key)
        # The gang may have lost its plan, or started again, since the decision.
        if current is None or current.plan is None or current.plan.label != plan.label:
            return
        await self.actuator.plan_job(current, {**current.status, "plan": plans.to_manifest(plan)})
        self.metrics.resizes.labels(reason).inc()
        await self.events.post("TrainingJob", job.key, job.uid, reason, message)


def _shrunk_message(lost: Mapping[Member, str]) -> str:
    """Return one line that names a lost replica, the number of others, and the cause."""
    (member, cause), *rest = lost.items()
    suffix = f" (and without {len(rest)} more)" if rest else ""
    name = f"replica {member.index} of {member.task} on node {member.node}"
    return f"continues without {name}{suffix}: {cause}"[:1000]
