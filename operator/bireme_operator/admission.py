"""Admission of TrainingJobs: creates the plan of an admitted job and starts its execution."""

from dataclasses import dataclass, replace

from bireme.core.decision import Admit
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import plans
from bireme.kube.allocations import AssumedPlan
from bireme.kube.cluster_state import ClusterState
from bireme.kube.job_pods import TaskPods
from bireme.kube.plans import PlanFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import status
from bireme_operator.actuator import Actuator
from bireme_operator.dry_runs import DryRuns
from bireme_operator.status_writer import StatusWriter
from bireme_operator.workqueue import WorkQueue

# Failed starts in a row after which pods get no pins, and kube-scheduler chooses by the extender's
# scores: what it refused once on a planned node, it would refuse again.
_MAX_PINNED_FAILURES = 1


@dataclass(slots=True)
class JobAdmission:
    """Admits jobs; ``epoch`` is the number of the leader, which stamps every plan."""

    state: ClusterState
    work: WorkQueue
    actuator: Actuator
    reports: StatusWriter
    epoch: int
    dry_runs: DryRuns

    def admit(self, job: JobFacts, admit: Admit, snapshot: ClusterSnapshot) -> None:
        """Begin to write the plan of an admitted job and to create its pods."""
        plan = self.plan(admit, snapshot, job.attempt, job.spec_hash, job.start_failures)
        work = self._admit(job, plan, admit, snapshot)
        self.work.start(job.key, work, AssumedPlan(job.uid, plan))

    async def _admit(
        self, job: JobFacts, plan: PlanFacts, admit: Admit, snapshot: ClusterSnapshot
    ) -> None:
        # A report about its wait may be under way; write the plan over the version after it.
        await self.reports.wait_for_write(job.uid)
        await self.dry_runs.learn(job)
        # The dry run may have changed its demand; then the next cycle decides on it again.
        current = self.state.objects.jobs.get(job.key)
        if current is not None and is_same_demand(self.state, current, job):
            new_status = status.admission_status(current, plan, admit, snapshot)
            await self.actuator.admit(current, plan, new_status)

    def plan(
        self,
        admit: Admit,
        snapshot: ClusterSnapshot,
        attempt: int,
        spec_hash: str,
        start_failures: int,
    ) -> PlanFacts:
        """Return the plan of an admission.

        Its pods are not pinned if they have demands that plans do not cover, or after
        :data:`_MAX_PINNED_FAILURES` failed starts. A rule outside plans may make kube-scheduler
        refuse a pod on one node and accept it on another. It chooses that node best itself.
        """
        has_failed = start_failures >= _MAX_PINNED_FAILURES
        return plans.make_plan(
            admit.gang,
            admit.placement,
            snapshot.nodes,
            epoch=self.epoch,
            attempt=attempt,
            spec_hash=spec_hash,
            now=snapshot.now,
            mode="Score" if admit.gang.left_to_scheduler or has_failed else "Pinned",
            is_opportunistic=admit.is_opportunistic,
        )


def is_same_demand(state: ClusterState, job: JobFacts, decided_job: JobFacts) -> bool:
    """Return whether a decision on ``decided_job`` still applies to ``job``."""
    is_same = (job.uid, job.generation, job.attempt) == (
        decided_job.uid,
        decided_job.generation,
        decided_job.attempt,
    )
    is_same = (
        is_same and job.queue == decided_job.queue
    )  # which a label of the namespace may change
    # Ignore labels: no rule selects most of those that admission adds to pods.
    is_same = is_same and [*map(_without_labels, job.pods)] == [
        *map(_without_labels, decided_job.pods)
    ]
    is_over = job.is_leaving or job.is_finished
    return is_same and not is_over and state.demands.are_seen_alike(job, decided_job)


def _without_labels(pods: TaskPods) -> TaskPods:
    return replace(pods, labels={})
