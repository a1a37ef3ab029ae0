"""Workloads: jobs and the times of their submission, and the gangs they become.

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
from bireme.simulator.errors import TraceError

_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """The rest of a job's work.

    Attributes:
        left: Its share of the whole work.
        seconds: How long it takes at the present rate; infinite at rate 0.
        steps: Steps of the whole job; None for a job that counts none.
    """

    left: float
    seconds: float
    steps: float | None


@dataclass(frozen=True, slots=True)
class ProgressReporting:
    """The progress reports of a job while it runs, true or not.

    A job reports when a decision is due, but not more often than its script would. A report reaches
    the cycle as the operator would pass it on: in ``Gang.progress``, and bounded by
    :mod:`bireme.core.estimates` in all that follows from it.

    Attributes:
        loss, accuracy: After so many steps, or after such a share of the work for a job without
            steps; None where it does not report one. They may differ from the true ones.
        every_seconds: The least time between two reports.
        honesty: The time and the steps that it reports as left, over the true ones.
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

    def is_due(self, before: TrainingProgress | None, now: float) -> bool:
        """Return whether it reports at ``now``, when ``before`` was its last report."""
        return before is None or now >= before.reported + max(self.every_seconds, 1e-9)

    def report(
        self, before: TrainingProgress | None, now: float, work: WorkLeft
    ) -> TrainingProgress:
        """Return the report at ``now``, which keeps what earlier reports established."""
        left = min(1.0, work.left * self.honesty)
        at = 1 - work.left if work.steps is None else (1 - work.left) * work.steps
        loss = None if self.loss is None else self.loss.loss(at)
        accuracy = None if self.accuracy is None else self.accuracy.loss(at)
        losses = (loss, before.worst_loss if before else None)
        gain = None
        if before is not None and before.accuracy is not None and accuracy is not None:
            gain = accuracy - before.accuracy
        return TrainingProgress(
            reported=now,
            fraction=1 - left,
            remaining_seconds=None if math.isinf(work.seconds) else work.seconds * self.honesty,
            steps=None if work.steps is None else at,
            remaining_steps=None if work.steps is None else work.left * work.steps * self.honesty,
            loss=loss,
            worst_loss=max((each for each in losses if each is not None), default=None),
            accuracy=accuracy,
            accuracy_gain=gain,
            anchor_seconds=before.anchor_seconds if before else None,
        )


_AFFINITY = RoleAffinity()


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a workload.

    Attributes:
        name: Unique in its trace.
        submitted: Seconds after the start of the trace.
        tasks: What it asks for.
        duration_seconds: Its true run time at the size it asks for, on its own, undisturbed.
            The scheduler never sees it.
        user, queue, priority: As a TrainingJob states them; ``priority`` is a class value.
        estimated_seconds: What its owner estimates; None for no estimate.
        speed: How its speed depends on size and spread; None for speed proportional to nothing
            (a fixed run time at its own size).
        steps: Work in the unit of ``speed``; None where ``speed`` is.
        is_resumable: It may be stopped for its equals; the simulated cluster asks for consent too.
        application: The model it trains, where the trace says so; for reports.
        reporting: Its progress reports while it runs; None for a job that does not report.
        gang: The gang it waits as, for jobs of a record; None to make one of the fields above. It
            may have arrived before the trace starts.
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
        job: Its name; its ``duration_seconds`` are what is left of it.
        places: Replicas by task name and node name.
        started: When this start began, seconds after the start of the trace; not above 0.
        anchor: Name of the node that a shrink empties last; empty for none.
        is_opportunistic: It yields to the gang in whose reserved places it started.
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
        treatments: How many rows met which documented treatment ("zero GPUs, left out": 12).
        nodes: The machines it was recorded on; empty where the trace does not name them.
        queues: The queues its jobs name.
        underway: Which of ``jobs`` run when it starts, and where.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    treatments: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = (Queue("default"),)
    underway: tuple[RunningAtStart, ...] = ()


# --- From a job to the gang that waits -----------------------------------------------------------


class Estimator(Protocol):
    """Learns from finished jobs how long the next ones of their kind will run."""

    def observe(self, user: str, template: str, seconds: float, /) -> None:
        """Learn that a job of ``user`` made from ``template`` ran for ``seconds``."""
        ...

    def estimate(self, user: str, template: str, /) -> float | None:
        """Return how long the next one is expected to run; None when there is nothing to go by."""
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
    """Return the gang that ``job`` waits as when it arrives, without its true run time.

    Its estimate is its owner's, else that of ``estimator`` at that moment.
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
    """Return the trace job that asks for what ``gang`` does, named by its uid."""
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
    """Return the traits that jobs of one kind share: application and requests of the tasks."""
    tasks = (f"{task.name} {task.replicas} {task.request}" for task in job.tasks)
    return f"{job.application}: {'; '.join(tasks)}"


def with_resumable_share(trace: Trace, share: float) -> Trace:
    """Return the same jobs, of which ``share``, from 0 to 1, can resume.

    A job is chosen by its name alone, so a larger share contains a smaller one. Elastic ones can
    resume whatever the share.

    Raises:
        SettingError: ``share`` is not from 0 to 1.
    """
    if not 0 <= share <= 1:
        raise SettingError(f"the share of resumable jobs is {share}; give a number from 0 to 1")

    def is_chosen(job: TraceJob) -> bool:
        return job.is_elastic or crc32(job.name.encode()) < share * 2**32

    def made(job: TraceJob) -> TraceJob:
        gang = None if job.gang is None else replace(job.gang, is_resumable=is_chosen(job))
        return replace(job, is_resumable=is_chosen(job), gang=gang)

    return replace(trace, jobs=tuple(map(made, trace.jobs)))


def with_true_estimates(trace: Trace) -> Trace:
    """Return the same jobs, each with its true run time as its owner's estimate."""
    jobs = (replace(job, estimated_seconds=job.duration_seconds) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))
