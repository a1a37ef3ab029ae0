"""Stretches of public traces, and clusters that they load to a given degree.

A window keeps every so-manieth job of some days. Its offered load is the mean number of GPUs that
would be in use between the first and the last submission, were every job started at once; runs
count only up to the last submission, because what lasts longer loads an emptying cluster. The
cluster is as small as the load asks, in whole nodes, and submissions are stretched or drawn
together by as much as makes the load exact.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.nodes import Node
from bireme.kube.names import GPU
from bireme.simulator.conduct import Conduct
from bireme.simulator.machines import parse_nodes
from bireme.simulator.traces.sources import read_trace
from bireme.simulator.workload import Trace, TraceJob

DAY: Final = 86_400.0
LOADS: Final = (0.7, 0.9, 1.1)
_GPUS_PER_NODE: Final = 8
CONDUCT: Final = Conduct(heartbeat_seconds=3600.0)
"""Runs last hours: where time alone may change a decision, a look after an hour is soon enough."""

PHILLY: Final = "philly/philly_2017-09-04_2017-11-14.csv.gz"
MURI: Final = "muri/trace2.csv.gz"
OPENB: Final = "alibaba_v2023/openb_pod_list_multigpu40.csv.gz"
_OPENB_TIMES: Final = "alibaba_v2023/openb_pod_list_default.csv.gz"
_OPENB_OFFERED_GPUS: Final = 50.0
_PODS: Final = 300
_BISECTIONS: Final = 40


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs to simulate; ``number`` stands for the seed in every comparison."""

    number: int
    trace: Trace
    offered_gpus: float

    def nodes(self, load: float) -> Sequence[Node]:
        """The cluster that the window loads to ``load``: its own nodes, or some of 8 GPUs."""
        wanted = self.offered_gpus / load
        if not self.trace.nodes:
            return parse_nodes(f"{max(1, round(wanted / _GPUS_PER_NODE))}x{_GPUS_PER_NODE}")
        offered = np.cumsum([node.allocatable.get(GPU, 0) for node in self.trace.nodes])
        return self.trace.nodes[: int(np.searchsorted(offered, wanted)) + 1]

    def at(self, load: float) -> Trace:
        """The jobs, submitted at the pace that loads :meth:`nodes` to ``load`` exactly."""
        capacity = load * sum(node.allocatable.get(GPU, 0) for node in self.nodes(load))
        low, high = 0.1, 10.0
        for _ in range(_BISECTIONS):
            pace = (low * high) ** 0.5
            if offered_gpus(_paced(self.trace, pace)) > capacity:
                low = pace
            else:
                high = pace
        return _paced(self.trace, high)

    def first(self, jobs: int) -> "Window":
        """The first ``jobs`` of them, and the load they offer."""
        return made(self.number, replace(self.trace, jobs=self.trace.jobs[:jobs]))


def made(number: int, trace: Trace) -> Window:
    """``trace`` as a window, its first submission at 0."""
    first = trace.jobs[0].submitted
    jobs = tuple(replace(job, submitted=job.submitted - first) for job in trace.jobs)
    whole = replace(trace, jobs=jobs)
    return Window(number, whole, offered_gpus(whole))


def offered_gpus(trace: Trace) -> float:
    """GPUs in use on the mean up to the last submission, were every job started at once."""
    first, last = trace.jobs[0].submitted, trace.jobs[-1].submitted
    work = sum(gpus(j) * min(j.duration_seconds, last - j.submitted) for j in trace.jobs)
    return work / (last - first)


def knowing(trace: Trace) -> Trace:
    """The jobs, their owners stating exactly how long they run."""
    jobs = (replace(job, estimated_seconds=job.duration_seconds) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def _paced(trace: Trace, pace: float) -> Trace:
    jobs = (replace(job, submitted=job.submitted * pace) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def gpus(job: TraceJob) -> int:
    """GPUs of all replicas together."""
    return sum(dict(task.request).get(GPU, 0) * task.replicas for task in job.tasks)


def philly(data: Path) -> list[Window]:
    """Three windows of a day, every tenth job of Philly."""
    return _thinned(data / PHILLY, "philly", (30, 38, 46), 1.0, every=10)


def muri(data: Path, every: int = 6) -> list[Window]:
    """The last three quarters of Muri's second trace, every so-manieth job."""
    quarter = 24.8
    return _thinned(data / MURI, "muri", [n * quarter for n in (1, 2, 3)], quarter, every)


def openb(data: Path) -> list[Window]:
    """Three times 300 pods, drawn from the list in which 40 % ask for several GPUs.

    That list has no times: run times are drawn from the default list, and arrivals are Poisson, at
    the rate that keeps 50 GPUs busy. Nodes are openb's GPU nodes in a drawn order.
    """
    shapes = _read(f"openb:{data / OPENB}?interval_seconds=1&run_seconds=1")
    timed = [j.duration_seconds for j in _read(f"openb:{data / _OPENB_TIMES}").jobs if gpus(j)]
    pods = [job for job in shapes.jobs if gpus(job)]
    nodes = [node for node in shapes.nodes if node.allocatable.get(GPU, 0)]
    windows = []
    for number in range(3):
        generator = np.random.default_rng(number)
        drawn = tuple(nodes[at] for at in generator.permutation(len(nodes)))
        chosen = [pods[at] for at in generator.permutation(len(pods))[:_PODS]]
        runs = generator.choice(np.array(timed), _PODS).tolist()
        jobs = _arriving(chosen, runs, generator)
        windows.append(made(number, replace(shapes, jobs=jobs, nodes=drawn)))
    return windows


def _arriving(
    pods: Sequence[TraceJob], run_seconds: Sequence[float], generator: np.random.Generator
) -> tuple[TraceJob, ...]:
    capped = [min(seconds, DAY) for seconds in run_seconds]
    work = sum(gpus(pod) * seconds for pod, seconds in zip(pods, capped, strict=True))
    gaps = generator.exponential(work / len(pods) / _OPENB_OFFERED_GPUS, len(pods))
    return tuple(
        replace(pod, submitted=float(at), duration_seconds=seconds)
        for pod, at, seconds in zip(pods, np.cumsum(gaps), run_seconds, strict=True)
    )


def _thinned(
    path: Path, name: str, starts: Iterable[float], days: float, every: int
) -> list[Window]:
    trace = _read(f"{name}:{path}")
    windows = []
    for number, start in enumerate(starts):
        begin, end = start * DAY, (start + days) * DAY
        jobs = tuple(job for job in trace.jobs if begin <= job.submitted < end)[::every]
        windows.append(made(number, replace(trace, jobs=jobs)))
    return windows


@cache
def _read(source: str) -> Trace:
    return read_trace(source, gpus_per_node=_GPUS_PER_NODE)
