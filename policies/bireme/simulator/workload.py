"""Workloads: what was submitted when, as readers and generators hand it to the simulator."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bireme.core.errors import SettingError
from bireme.core.estimates import Progress
from bireme.core.gangs import Gang, RoleAffinity, Task
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.speed import LossCurve, SpeedLaw

# What jobs of a simulation tell about their training while they run, truly or not.
#
# A job reports when a decision is due, but not more often than its script would; between decisions
# nobody listens. What it tells reaches the cycle as the operator would pass it on: in
# ``Gang.progress``, and bounded by :mod:`bireme.core.progress_reports` in all that follows from it.


@dataclass(frozen=True, slots=True)
class Work:
    """How far a job is: the share of its work that is left, how long that takes at its present
    pace (infinite where it stands still), and the steps of the whole, where it counts any."""

    left: float
    seconds: float
    steps: float | None


@dataclass(frozen=True, slots=True)
class Reporting:
    """What a job says.

    Attributes:
        loss, accuracy: After so many steps, or after such a share of the work for a job without
            steps; None where it does not say. A liar's differ from the truth.
        every_seconds: The least time between two reports.
        honesty: The time and the steps that it says are left, over the true ones; 1 for the truth.
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

    def is_due(self, before: Progress | None, now: float) -> bool:
        """Whether it reports at ``now``, after what it told ``before``."""
        return before is None or now >= before.reported + max(self.every_seconds, 1e-9)

    def told(self, before: Progress | None, now: float, work: Work) -> Progress:
        """The report at ``now``, beside what those before it have left."""
        left = min(1.0, work.left * self.honesty)
        at = 1 - work.left if work.steps is None else (1 - work.left) * work.steps
        loss = None if self.loss is None else self.loss.loss(at)
        accuracy = None if self.accuracy is None else self.accuracy.loss(at)
        seconds = None if math.isinf(work.seconds) else work.seconds * self.honesty
        return Progress(
            reported=now,
            fraction=1 - left,
            remaining_seconds=seconds,
            steps=None if work.steps is None else at,
            remaining_steps=None if work.steps is None else work.left * work.steps * self.honesty,
            loss=loss,
            worst_loss=_larger(loss, before.worst_loss if before else None),
            accuracy=accuracy,
            accuracy_gain=_gain(before, accuracy),
            anchor_seconds=before.anchor_seconds if before else None,
        )


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _gain(before: Progress | None, accuracy: float | None) -> float | None:
    if before is None or before.accuracy is None or accuracy is None:
        return None
    return accuracy - before.accuracy


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
        estimated_seconds: What its owner says it will take; None when nothing was said.
        speed: How its speed depends on size and spread; None for speed proportional to nothing
            (a fixed run time at its own size).
        steps: Work in the unit of ``speed``; None where ``speed`` is.
        application: What it trains, where the trace says so; for reports.
        reporting: What it tells about its training while it runs; None for a job that is silent.
        gang: The gang it waits as, for jobs that an operator has seen; None to make one of what
            is said above. It may have arrived before the trace starts.
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
    application: str = ""
    reporting: Reporting | None = None
    gang: Gang | None = None


@dataclass(frozen=True, slots=True)
class Underway:
    """A job that runs when the trace starts.

    Attributes:
        job: Its name; its ``duration_seconds`` are what is left of it.
        places: Replicas by task name and node name.
        started: When this start began, seconds after the start of the trace; not above 0.
        anchor: Name of the node that a shrink empties last; empty for none.
    """

    job: str
    places: Mapping[str, Mapping[str, int]]
    started: float = 0.0
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload in order of submission, with what the reader did to the rows it came from.

    Attributes:
        treatments: How many rows met which documented treatment ("zero GPUs, left out": 12).
        nodes: The machines it was recorded on, where the trace tells; empty otherwise.
        queues: The queues its jobs name.
        underway: Which of ``jobs`` run when it starts, and where.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    treatments: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = (Queue("default"),)
    underway: tuple[Underway, ...] = ()


def knowing(trace: Trace) -> Trace:
    """The same jobs, their owners stating exactly how long they run."""
    jobs = (replace(job, estimated_seconds=job.duration_seconds) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))
