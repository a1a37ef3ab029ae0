"""From a trace's jobs to the gangs that the cycle sees, which know nothing of true run times."""

from collections.abc import Mapping
from typing import Protocol

from bireme.core.gangs import Gang
from bireme.simulator.errors import TraceError
from bireme.simulator.workload import Trace, TraceJob

NAMESPACE = "default"


class Estimator(Protocol):
    """Whoever learns from finished jobs how long the next of their kind will run."""

    def observe(self, user: str, template: str, seconds: float, /) -> None:
        """A job of ``user`` made from ``template`` ran for so long."""
        ...

    def estimate(self, user: str, template: str, /) -> float | None:
        """How long its next one is expected to run; None when nobody knows."""
        ...


def jobs_by_name(trace: Trace) -> Mapping[str, TraceJob]:
    """The jobs of ``trace``; TraceError for one that no simulation could make sense of."""
    jobs: dict[str, TraceJob] = {}
    for job in trace.jobs:
        if job.name in jobs:
            raise TraceError(
                f"trace {trace.name}: two jobs are called {job.name!r}; give each its own name"
            )
        for field in ("submitted", "duration_seconds"):
            seconds = getattr(job, field)
            if not 0 <= seconds < float("inf"):
                raise TraceError(
                    f"trace {trace.name}: {field} of job {job.name!r} is {seconds}; "
                    "it must be a number of seconds from 0 on"
                )
        jobs[job.name] = job
    return jobs


def gang_of(job: TraceJob, estimator: Estimator | None) -> Gang:
    """The gang that ``job`` waits as when it arrives.

    Its estimate is what its owner says, else what the history tells at that moment.
    """
    if job.gang is not None:
        return job.gang
    estimate = job.estimated_seconds
    if estimate is None and estimator is not None:
        estimate = estimator.estimate(job.user, template_of(job))
    return Gang(
        uid=job.name,
        name=job.name,
        namespace=NAMESPACE,
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
    )


def job_of(gang: Gang, submitted: float, duration_seconds: float) -> TraceJob:
    """The job of a trace that asks for what ``gang`` does, called by its uid."""
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
    )


def template_of(job: TraceJob) -> str:
    """What jobs of one kind have in common: the application and what its tasks ask for."""
    tasks = (f"{task.name} {task.replicas} {task.request}" for task in job.tasks)
    return f"{job.application}: {'; '.join(tasks)}"
