"""Windows of a trace, and clusters of the size that gives a window a certain load.

The offered load of a window is the mean number of GPUs in use between its first and its last
submission, if every job started at once. Runs count only up to the last submission, because later
work loads an emptying cluster. The cluster is as small as the load allows, in whole nodes.
Submissions are then stretched or drawn together until the load is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from bireme.core.accelerators import DEFAULT
from bireme.core.nodes import Node
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.workload import Trace

DAY: Final = 86_400.0
GPUS_PER_NODE: Final = 8
_BISECTIONS: Final = 40

_Run: TypeAlias = tuple[float, int, float]
"""Seconds of its submission, GPUs and run time of a job."""


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs to simulate; ``number`` takes the place of the seed in comparisons."""

    number: int
    trace: Trace
    offered_gpus: float

    def nodes(self, load: float) -> Sequence[Node]:
        """Return the cluster that has load ``load``: the trace's own nodes, or nodes of 8 GPUs."""
        gpus = self.offered_gpus / load
        if not self.trace.nodes:
            return parse_nodes(f"{max(1, round(gpus / GPUS_PER_NODE))}x{GPUS_PER_NODE}")
        offered = np.cumsum([DEFAULT.count(node.allocatable) for node in self.trace.nodes])
        return self.trace.nodes[: int(np.searchsorted(offered, gpus)) + 1]

    def at(self, load: float) -> Trace:
        """Return the jobs at the pace of submission that loads :meth:`nodes` to ``load``."""
        capacity = load * sum(DEFAULT.count(node.allocatable) for node in self.nodes(load))
        low, high = 0.1, 10.0
        runs = _runs(self.trace)
        # Load falls with the pace. No closed form exists: runs count up to the last submission.
        for _ in range(_BISECTIONS):
            pace = (low * high) ** 0.5
            paced = [(submitted * pace, gpus, seconds) for submitted, gpus, seconds in runs]
            if _offered_gpus(self.trace.name, paced) > capacity:
                low = pace
            else:
                high = pace
        return _with_pace(self.trace, high)

    def first(self, jobs: int) -> "Window":
        """Return a window of the first ``jobs`` jobs, with the load they offer."""
        return make_window(self.number, replace(self.trace, jobs=self.trace.jobs[:jobs]))


def make_window(number: int, trace: Trace) -> Window:
    """Return ``trace`` as a window, its first submission at 0."""
    first = trace.jobs[0].submitted
    jobs = tuple(replace(job, submitted=job.submitted - first) for job in trace.jobs)
    whole = replace(trace, jobs=jobs)
    return Window(number, whole, offered_gpus(whole))


def offered_gpus(trace: Trace) -> float:
    """Return the mean GPUs in use up to the last submission, if every job started at once."""
    return _offered_gpus(trace.name, _runs(trace))


def _runs(trace: Trace) -> list[_Run]:
    return [(job.submitted, job.gpus, job.duration_seconds) for job in trace.jobs]


def _offered_gpus(name: str, runs: Sequence[_Run]) -> float:
    first, last = runs[0][0], runs[-1][0]
    if not first < last:
        raise TraceError(
            f"{name}: {len(runs)} jobs are submitted at one moment, so that they offer "
            "no load; take a longer window, or keep more of its jobs"
        )
    work = sum(gpus * min(seconds, last - submitted) for submitted, gpus, seconds in runs)
    return work / (last - first)


def _with_pace(trace: Trace, pace: float) -> Trace:
    jobs = (replace(job, submitted=job.submitted * pace) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def stretch(trace: Trace, number: int, begin_days: float, days: float, take: slice) -> Window:
    """Return a window of ``days`` from ``begin_days`` on; ``take`` selects among its jobs.

    Raises TraceError when fewer than two jobs remain.
    """
    begin, end = begin_days * DAY, (begin_days + days) * DAY
    jobs = tuple(job for job in trace.jobs if begin <= job.submitted < end)[take]
    if len(jobs) < 2:
        raise TraceError(
            f"{trace.name}: {len(jobs)} jobs are kept of days {begin_days:g} to "
            f"{begin_days + days:g}; take a longer window, or keep more of its jobs"
        )
    return make_window(number, replace(trace, jobs=jobs))
