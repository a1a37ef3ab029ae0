"""Workloads: jobs, their submission times and their gangs.

When a job arrives, :func:`gang_of` makes the gang that the cycle sees, without its true run time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from zlib import crc32

from bireme.core.accelerators import DEFAULT
from bireme.core.errors import SettingError
from bireme.core.gangs import Gang, RoleAffinity, Task, TrainingProgress
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.speed import LossCurve, SpeedLaw
from bireme_lab.simulator.errors import TraceError

_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """The rest of a job's work.

    Attributes:
        share: Its share of the whole work.
        seconds: Its duration at the present rate; infinite at rate 0.
        steps: Steps of the whole job; None for a job that counts none.
    """

    share: float
    seconds: float
    steps: float | None


@dataclass(frozen=True, slots=True)
class ProgressReporting:
    """The progress reports of a job while it runs, true or not.

    A job reports when a decision is due, but at most as often as its script would. The cycle gets a
    report as from the operator, in ``Gang.progress``. :mod:`bireme.core.estimates` bounds its
    effects.

    Attributes:
        loss, accuracy: Curves over steps, or over the share of work for a job without steps; None
            for a job that does not report it. They may differ from the true ones.
        every_seconds: The minimum time between two reports.
        honesty: Reported remaining time and steps, divided by the true ones.
    """

    loss: LossCurve | None = None
    accuracy: LossCurve | None = None
    every_seconds: float = 30.0
    honesty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.honesty < math.inf:
            raise SettingError(f"honesty is {self.honesty}; it must be a number above 0")
        if not 0 <= self.every_seconds < math.inf:
            raise SettingError(f"every_seconds is {self.every_seconds}; it must be 0 or more")

    def is_due(self, previous: TrainingProgress | None, now: float) -> bool:
        """Return whether the job reports at ``now`` after its last report ``previous``."""
        return previous is None or now >= previous.reported + max(self.every_seconds, 1e-9)

    def report(
        self, previous: TrainingProgress | None, now: float, work: WorkLeft
    ) -> TrainingProgress:
        """Return the report at ``now``; it keeps the worst loss and the anchor of ``previous``."""
        remaining_share = min(1.0, work.share * self.honesty)
        progress = 1 - work.share if work.steps is None else (1 - work.share) * work.steps
        loss = None if self.loss is None else self.loss.loss(progress)
        accuracy = None if self.accuracy is None else self.accuracy.loss(progress)
        losses = (loss, previous.worst_loss if previous else None)
        gain = None
        if previous is not None and previous.accuracy is not None and accuracy is not None:
            gain = accuracy - previous.accuracy
        return TrainingProgress(
            reported=now,
            fraction=1 - remaining_share,
            remaining_seconds=None if math.isinf(work.seconds) else work.seconds * self.honesty,
            steps=None if work.steps is None else progress,
            remaining_steps=None if work.steps is None else work.share * work.steps * self.honesty,
            loss=loss,
            worst_loss=max((value for value in losses if value is not None), default=None),
            accuracy=accuracy,
            accuracy_gain=gain,
            anchor_seconds=previous.anchor_seconds if previous else None,
        )


_AFFINITY = RoleAffinity()


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a workload.

    Attributes:
        name: Unique in its trace.
        submitted: Seconds after the start of the trace.
        tasks: Its requested tasks.
        duration_seconds: Its true run time at the requested size, alone and undisturbed. The
            scheduler never sees it.
        user, queue, priority: As in a TrainingJob; ``priority`` is a class value.
        estimated_seconds: The owner's estimate; None for no estimate.
        speed: Its speed by size and spread; None for a fixed run time at its own size.
        steps: Work in the unit of ``speed``; None without ``speed``.
        is_resumable: Gangs of equal rank may preempt it; the simulated cluster requires this
            consent too.
        application: The model it trains, if the trace names one; for reports.
        reporting: Its progress reports while it runs; None for a job that does not report.
        gang: The waiting gang, for jobs of a record; None to make one of the fields above. It may
            have arrived before the trace starts.
    """

    name: str
    submitted: float
    tasks: tuple[Task, ...]
    duration_seconds: float
    user: str = ""
    queue: str = "default"
    priority: int = 0
    estimated_seconds: float | None = None
    is_elastic: bool = False
    role_affinity: RoleAffinity = _AFFINITY
    speed: SpeedLaw | None = None
    steps: float | None = None
    is_resumable: bool = True
    application: str = ""
    reporting: ProgressReporting | None = None
    gang: Gang | None = None

    @property
    def gpus(self) -> int:
        """Return the GPUs of all replicas together."""
        return sum(DEFAULT.count(task.request) * task.replicas for task in self.tasks)


@dataclass(frozen=True, slots=True)
class RunningAtStart:
    """A job that runs when the trace starts.

    Attributes:
        job: Its name; its ``duration_seconds`` are its remaining run time.
        places: Replicas by task name and node name.
        started: The begin of this start, seconds after the start of the trace; not above 0.
        anchor: Name of the node that a shrink empties last; empty for none.
        is_opportunistic: It yields to the gang that has reserved its places.
    """

    job: str
    places: Mapping[str, Mapping[str, int]]
    started: float = 0.0
    anchor: str = ""
    is_opportunistic: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload in order of submission, with the treatments of the rows of its file.

    Attributes:
        treatments: Number of rows by documented treatment ("zero GPUs, left out": 12).
        nodes: The recorded machines; empty if the trace does not name them.
        queues: The queues of its jobs.
        underway: The jobs that run at the start, and their places.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    treatments: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = (Queue("default"),)
    underway: tuple[RunningAtStart, ...] = ()


# --- From a job to the gang that waits -----------------------------------------------------------


class Estimator(Protocol):
    """Learns the run time of a kind of job from finished jobs."""

    def observe(self, user: str, template: str, seconds: float, /) -> None:
        """Learn that a job of ``user`` made from ``template`` ran for ``seconds``."""
        ...

    def estimate(self, user: str, template: str, /) -> float | None:
        """Return the expected run time of the next such job; None without data."""
        ...


def jobs_by_name(trace: Trace) -> Mapping[str, TraceJob]:
    """Return the jobs of ``trace`` by name; TraceError for one that cannot be simulated."""
    jobs: dict[str, TraceJob] = {}
    for job in trace.jobs:
        if job.name in jobs:
            raise TraceError(
                f"trace {trace.name}: two jobs are called {job.name!r}; give each its own name"
            )
        for name in ("submitted", "duration_seconds"):
            seconds = getattr(job, name)
            if not 0 <= seconds < float("inf"):
                raise TraceError(
                    f"trace {trace.name}: {name} of job {job.name!r} is {seconds}; "
                    "it must be a number of seconds from 0 on"
                )
        jobs[job.name] = job
    return jobs


def gang_of(job: TraceJob, estimator: Estimator | None) -> Gang:
    """Return the waiting gang of ``job`` at its arrival, without its true run time.

    Its estimate is its owner's, else the present one of ``estimator``.
    """
    if job.gang is not None:
        return job.gang
    estimate = job.estimated_seconds
    if estimate is None and estimator is not None:
        estimate = estimator.estimate(job.user, template_of(job))
    return Gang(
        uid=job.name,
        name=job.name,
        namespace=_NAMESPACE,
        queue=job.queue,
        tasks=job.tasks,
        arrived=job.submitted,
        priority=job.priority,
        role_affinity=job.role_affinity,
        user=job.user,
        estimated_seconds=estimate,
        is_learned_estimate=job.estimated_seconds is None and estimate is not None,
        is_elastic=job.is_elastic,
        speed=job.speed,
        remaining_steps=job.steps,
        loss=job.reporting.loss if job.reporting else None,
        is_resumable=job.is_resumable,
    )


def job_of(gang: Gang, submitted: float, duration_seconds: float) -> TraceJob:
    """Return the trace job with the request of ``gang``, named by its uid."""
    return TraceJob(
        name=gang.uid,
        submitted=submitted,
        tasks=gang.tasks,
        duration_seconds=duration_seconds,
        user=gang.user,
        queue=gang.queue,
        priority=gang.priority,
        estimated_seconds=gang.estimated_seconds,
        is_elastic=gang.is_elastic,
        role_affinity=gang.role_affinity,
        is_resumable=gang.is_resumable,
    )


def template_of(job: TraceJob) -> str:
    """Return the common traits of one kind of job: application and requests of the tasks."""
    tasks = (f"{task.name} {task.replicas} {task.request}" for task in job.tasks)
    return f"{job.application}: {'; '.join(tasks)}"


def with_resumable_share(trace: Trace, share: float) -> Trace:
    """Return the same jobs; a ``share`` of them, from 0 to 1, can resume.

    Only its name selects a job, so a larger share contains a smaller one. Elastic jobs can always
    resume.

    Raises:
        SettingError: ``share`` is not from 0 to 1.
    """
    if not 0 <= share <= 1:
        raise SettingError(f"the share of resumable jobs is {share}; give a number from 0 to 1")

    def is_chosen(job: TraceJob) -> bool:
        return job.is_elastic or crc32(job.name.encode()) < share * 2**32

    def mark(job: TraceJob) -> TraceJob:
        gang = None if job.gang is None else replace(job.gang, is_resumable=is_chosen(job))
        return replace(job, is_resumable=is_chosen(job), gang=gang)

    return replace(trace, jobs=tuple(map(mark, trace.jobs)))


def with_true_estimates(trace: Trace) -> Trace:
    """Return the same jobs, each with its true run time as its owner's estimate."""
    jobs = (replace(job, estimated_seconds=job.duration_seconds) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))
