"""Admission of TrainingJobs: makes the plan, hands it over, tries templates of jobs that wait.

A job that waits has its pods tried in a dry run, so that a template the API server rejects is
reported at once and not only when there is room for it.
"""

import asyncio
from dataclasses import dataclass, field

from bireme.core.decision import Admit, Hold
from bireme.core.nodes import NodeTable
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import plans
from bireme.kube.allocations import AssumedPlan
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator import status
from bireme_operator.actuator import Actuator
from bireme_operator.rejections import AdmissionRejected
from bireme_operator.settings import OperatorSettings
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue

_DRY_RUNS_AT_ONCE = 4


@dataclass(slots=True)
class JobAdmission:
    """Admits jobs; ``epoch`` is that of the leader and stamps every plan."""

    state: ClusterState
    work: WorkQueue
    actuator: Actuator
    reports: StatusWriter
    settings: OperatorSettings
    epoch: int
    _tried: dict[str, str] = field(default_factory=dict)
    _dry_runs: Tasks = field(default_factory=Tasks)

    def admit(self, job: JobFacts, admit: Admit, snapshot: ClusterSnapshot) -> None:
        """Begin to write the plan of an admitted job and to create its pods."""
        plan = self.plan(admit, snapshot, job.attempt, job.spec_hash, job.start_failures)
        work = self._admit(job, plan, admit, snapshot.nodes)
        self.work.start(job.key, work, AssumedPlan(job.uid, plan))

    async def _admit(self, job: JobFacts, plan: PlanFacts, admit: Admit, nodes: NodeTable) -> None:
        # A report about its wait may be under way: the plan is written over the version after it.
        await self.reports.settled(job.uid)
        current = self.state.jobs.get(job.key)
        if current is not None and is_same_demand(current, job):
            wanted = status.admitted(current, plan, admit, nodes)
            await self.actuator.admit(current, plan, wanted)

    def plan(
        self,
        admit: Admit,
        snapshot: ClusterSnapshot,
        attempt: int,
        spec_hash: str,
        start_failures: int,
    ) -> PlanFacts:
        """Return the plan of an admission.

        Its pods are not pinned where a demand of theirs is not planned, nor after so many failed
        starts as are allowed: what kube-scheduler refuses on one node, by a rule that is not
        planned by, it may take on another, which it chooses best itself.
        """
        has_failed = start_failures >= self.settings.max_bind_failures
        return plans.make_plan(
            admit.gang,
            admit.placement,
            snapshot.nodes,
            epoch=self.epoch,
            attempt=attempt,
            spec_hash=spec_hash,
            now=snapshot.now,
            mode="Score" if admit.gang.left_to_scheduler or has_failed else "Pinned",
        )

    def check_template(self, job: JobFacts, hold: Hold) -> None:
        """Let the API server try the pods of a job that waits: once, and after each rejection."""
        if hold.gang.fault is not None or self._tried.get(job.uid) == job.spec_hash:
            return
        if len(self._dry_runs) >= _DRY_RUNS_AT_ONCE:
            return  # the next turn asks again
        self._tried[job.uid] = job.spec_hash
        self._dry_runs.start(self._try_template(job, hold))

    async def _try_template(self, job: JobFacts, hold: Hold) -> None:
        members = tuple(Member(task.name, "any-node", 0) for task in hold.gang.tasks)
        requests = {task.name: task.request for task in hold.gang.tasks}
        roles = {task.name: task.role.value for task in hold.gang.tasks}
        plan = PlanFacts(0, 0, job.spec_hash, "Pinned", 0.0, requests, roles, members)
        try:
            # Most jobs are admitted within a moment: they need no dry run.
            await asyncio.sleep(self.settings.template_check_seconds)
            current = self.state.jobs.get(job.key)
            if current is not None and current.phase in ("Pending", "Restarting"):
                await self.actuator.try_template(job, plan)
        except AdmissionRejected as rejected:
            self._tried.pop(job.uid, None)
            current = self.state.jobs.get(job.key)
            if current is not None:
                self.work.rejections.add(current, rejected)
                self.state.requeue(job.key)
        except (ApiError, NotLeader):
            self._tried.pop(job.uid, None)

    def forget(self, uids: set[str]) -> None:
        """Drop what is remembered of jobs that are gone; ``uids`` are those that exist."""
        self._tried = {uid: x for uid, x in self._tried.items() if uid in uids}

    async def close(self) -> None:
        await self._dry_runs.close()


def is_same_demand(job: JobFacts, seen: JobFacts) -> bool:
    """Return whether what was decided on ``seen`` may still be done to ``job``."""
    is_same = (job.uid, job.generation, job.attempt) == (seen.uid, seen.generation, seen.attempt)
    return is_same and not (job.is_leaving or job.is_finished)
