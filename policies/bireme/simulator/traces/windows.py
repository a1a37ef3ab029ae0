"""A stretch of a trace: the jobs of one week of ten, or the first thousand."""

from bisect import bisect_left
from dataclasses import replace

from bireme.simulator.errors import TraceError
from bireme.simulator.workload import Trace


def window(trace: Trace, start_seconds: float = 0.0, limit: int | None = None) -> Trace:
    """The jobs submitted from ``start_seconds`` on, at most ``limit``, times counted from there.

    Two windows after one another are one window of their summed starts. Queues and nodes stay.
    Raises TraceError when ``start_seconds`` is negative or after the last job, or ``limit`` is
    below 1.
    """
    if limit is not None and limit < 1:
        raise TraceError(f"limit is {limit}; it must be at least 1")
    first = bisect_left(trace.jobs, start_seconds, key=lambda job: job.submitted)
    jobs = trace.jobs[first:][:limit]
    if not start_seconds >= 0 or not jobs:
        last = trace.jobs[-1].submitted if trace.jobs else 0.0
        raise TraceError(
            f"start is {start_seconds:g} s; {trace.name} has jobs from 0 to {last:g} s"
        )
    if start_seconds > 0:
        jobs = tuple(replace(job, submitted=job.submitted - start_seconds) for job in jobs)
    return replace(trace, jobs=jobs)
