"""Dry runs: the API server's changes to a job's pods, before the first of them is created.

One pod per shape (:data:`~bireme.kube.job_pods.PodShape`) is created with ``dryRun: All``. The
gang is planned with the returned pod, which :mod:`bireme.kube.mutations` remembers. A gang about to
be admitted waits at most two seconds for the answer. Its real pods show the changes, too: if they
request more, the gang is planned again. A waiting gang gets a dry run after a second. So a rejected
template is reported at once, not only when there is room.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from bireme.core.decision import Hold
from bireme.core.reasons import Reason
from bireme.core.resources import Request
from bireme.kube import wire
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.job_pods import PodShape
from bireme.kube.mutations import Mutations
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_builder import PodFactory, ProgressAccess
from bireme.kube.pod_comparison import differences
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator.events import Events
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.rejections import AdmissionRejected, rejection_of
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
_PATIENCE_SECONDS = 2.0
# Wait after which a job's pods are checked: one that is admitted sooner is checked then.
_CHECK_SECONDS = 1.0
# A stuck webhook holds a check for its whole timeout, so no namespace may use all of them.
_MAX_CHECKS, _MAX_CHECKS_OF_NAMESPACE = 16, 4
# Tenants choose the shapes. Above this rate gangs are planned from their templates.
_PER_SECOND, _BURST = 50.0, 200.0
_UNSUPPORTED = "does not support dry run"


@dataclass(slots=True)
class DryRuns:
    """Tries pods of jobs; ``clock`` is monotonic seconds."""

    state: ClusterState
    writes: Writes
    work: WorkQueue
    events: Events
    clock: Callable[[], float]
    progress: ProgressAccess | None = None
    _limiter: RateLimiter = field(init=False)
    _under_way: dict[PodShape, asyncio.Task[None]] = field(default_factory=dict)
    _checks: Tasks = field(default_factory=Tasks)
    _checked: set[str] = field(default_factory=set)
    _checked_in: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._limiter = RateLimiter(_PER_SECOND, _BURST, self.clock)

    @property
    def _mutations(self) -> Mutations:
        return self.state.mutations

    def is_answered(self, job: JobFacts) -> bool:
        """Return whether the API server's changes to the pods of ``job`` are known.

        Until then it preempts no gang: its changed pods might never be bound.
        """
        return not self._mutations.unknown(job, self.clock())

    async def learn(
        self, job: JobFacts, patience_seconds: float | None = _PATIENCE_SECONDS
    ) -> None:
        """Learn the API server's unknown changes to the pods of ``job``.

        Return after ``patience_seconds`` (None: no limit), even if an answer is still missing.

        Raises:
            AdmissionRejected: the API server rejects one of the pods.
            ApiError: a dry run failed.
        """
        unknown = self._mutations.unknown(job, self.clock())
        if not unknown:
            return
        runs = [run for place in unknown if (run := self._run(job, place)) is not None]
        if runs:
            done, pending = await asyncio.wait(runs, timeout=patience_seconds)
            if pending:
                _log.info("dry run is late", gang=job.key, seconds=patience_seconds)
            for run in done:
                run.result()

    def _run(self, job: JobFacts, place: int) -> asyncio.Task[None] | None:
        """Return the dry run of a task's pods; None if there are too many at the moment."""
        shape = job.pod_shapes[place]
        run = self._under_way.get(shape)
        if run is None and not self._limiter.take(job.key[0]):
            run = self._under_way[shape] = asyncio.create_task(self._try(job, place))
            run.add_done_callback(lambda task: self._end(shape, task))
        return run

    def _end(self, shape: PodShape, task: asyncio.Task[None]) -> None:
        del self._under_way[shape]
        if not task.cancelled():
            task.exception()  # marks the exception as read if no caller waits any more

    async def _try(self, job: JobFacts, place: int) -> None:
        try:
            manifest = self._manifest(job, place)
            answer = await self.writes.try_pod(job.key[0], lambda: manifest)
            pod = msgspec.json.decode(answer, type=wire.V1Pod)
            changes = differences(msgspec.convert(manifest, wire.V1Pod), pod)
            self._mutations.put(job, place, pod, self.clock(), changes)
        except ApiError as error:
            if _UNSUPPORTED in error.message:
                await self._plan_unchanged(job, place, error.message)
                return
            if error.is_already_exists:  # the name is taken, by the last start or another owner
                return
            raise rejection_of(error) or error from error
        except (ValueError, msgspec.DecodeError, msgspec.ValidationError) as error:
            await self._plan_unchanged(job, place, f"a dry run returned a pod with {error}")
            return
        self.state.objects.apply_mutations(job.key[0])
        self.state.changes.requeue(job.key)  # it may preempt others from now on

    async def _plan_unchanged(self, job: JobFacts, place: int, cause: str) -> None:
        self._mutations.put_unchanged(job, place, self.clock())
        # Drop an earlier answer, which may have reported a gate from admission.
        self.state.objects.apply_mutations(job.key[0])
        self.state.changes.requeue(job.key)
        _log.warning("planned without a dry run", gang=job.key, why=cause)
        message = f"planned without a dry run of task {job.tasks[place].name}: {cause[:700]}"
        reason = Reason.DRY_RUN_UNSUPPORTED
        await self.events.post("TrainingJob", job.key, job.uid, reason, message)

    def _manifest(self, job: JobFacts, place: int) -> dict[str, object]:
        task = job.tasks[place]
        requests = {task.name: task.request for task in job.tasks}
        roles = {task.name: task.role.value for task in job.tasks}
        member = Member(task.name, "", 0)
        # Without a pin, since the plan comes after the dry run.
        plan = PlanFacts(
            epoch=0,
            attempt=0,
            spec_hash=job.spec_hash,
            mode="Score",
            planned=0.0,
            requests=requests,
            roles=roles,
            members=(member,),
            queue=job.queue,
        )
        accelerators = self.state.settings.known_accelerators
        return PodFactory(job, plan, self.progress, accelerators=accelerators).manifest(member)

    def check(self, job: JobFacts, hold: Hold) -> None:
        """Start a dry run of a waiting job's pods if their changes are unknown or outdated."""
        is_due = self.work.rejections.is_due(job.uid)
        # Only a dry run shows that admission no longer changes or refuses the pods.
        is_known_fault = hold.gang.fault is not None and job.admission_fault is None and not is_due
        if is_known_fault or job.uid in self._checked:
            return
        in_namespace = self._checked_in[job.key[0]]
        if len(self._checks) >= _MAX_CHECKS or in_namespace >= _MAX_CHECKS_OF_NAMESPACE:
            return  # the next turn asks again
        if is_due or self._mutations.unknown(job, self.clock()):
            self._checked.add(job.uid)
            self._checked_in[job.key[0]] += 1
            # Most jobs are admitted within a moment, and learn the changes then. The first in the
            # queue may have to preempt others, which needs the answer.
            is_urgent = is_due or hold.position == 1
            self._checks.start(self._check(job, 0.0 if is_urgent else _CHECK_SECONDS, is_due))

    async def _check(self, job: JobFacts, pause_seconds: float, is_due: bool) -> None:
        try:
            await asyncio.sleep(pause_seconds)
            current = self.state.objects.jobs.get(job.key)
            if current is None or current.phase not in ("Pending", "Restarting"):
                return
            if is_due:
                self._mutations.forget(current)
            # A waiting job can wait for a webhook as long as the API server does.
            await self.learn(current, patience_seconds=None)
            if is_due and self.is_answered(current):
                self.work.rejections.lift(current.uid)
                self.state.changes.requeue(current.key)
        except AdmissionRejected as rejected:
            self._reject(job, rejected, is_due=is_due)
        except ApiError as error:
            if job.key in self.state.objects.jobs and self.work.is_free(job.key):
                await self.work.fail(job.key, error)
        except NotLeader:
            pass
        finally:
            self._checked.discard(job.uid)
            self._checked_in[job.key[0]] -= 1
            if not self._checked_in[job.key[0]]:
                del self._checked_in[job.key[0]]

    def _reject(self, job: JobFacts, rejected: AdmissionRejected, *, is_due: bool) -> None:
        current = self.state.objects.jobs.get(job.key)
        if current is None or current.uid != job.uid or not self.work.is_free(job.key):
            return
        # A full quota is no fault of the template: the job starts if there is room later.
        is_full = "exceeded quota" in str(rejected)
        if is_due or not is_full:
            self.work.reject(current, rejected, is_dry_run=True)
            self.state.changes.requeue(job.key)

    def learn_from_pods(
        self,
        job: JobFacts,
        requests: Mapping[str, Request],
        labels: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Record the requests and labels of created pods of ``job`` that differ from the plan."""
        for place, task in enumerate(job.tasks):
            changed = requests.get(task.name, ()), labels.get(task.name, {})
            if any(changed):
                self._mutations.put_created(job, place, *changed, self.clock())
        if requests or labels:
            self.state.objects.apply_mutations(job.key[0])

    async def close(self) -> None:
        for run in self._under_way.values():
            run.cancel()
        await self._checks.close()
