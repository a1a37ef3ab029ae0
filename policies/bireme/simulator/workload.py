"""Workloads: what was submitted when, as readers and generators hand it to the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bireme.core.gangs import Gang, RoleAffinity, Task
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.speed import SpeedLaw
from bireme.simulator.reporting import Reporting

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
