"""Windows of public traces: every sixth or tenth job of some days, or a drawn part of the pods."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme import registry
from bireme.core.estimates import RuntimeHistory
from bireme.core.gpus import GPU
from bireme.core.settings import SchedulingSettings
from bireme_lab.contest.families import HELD_OUT_CLUSTERS, PHILLY_DAYS
from bireme_lab.simulator.loads import DAY, GPUS_PER_NODE, Window, make_window, stretch
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.traces.sources import read_trace
from bireme_lab.simulator.workload import Trace, TraceJob, with_true_estimates

LOADS: Final = (0.7, 0.9, 1.1)
HOURLY: Final = SimulationConfig(heartbeat_seconds=3600.0)
"""Runs last hours: where time alone may change a decision, a look after an hour is soon enough."""

PHILLY: Final = "philly/philly_2017-09-04_2017-11-14.csv.gz"
MURI: Final = "muri/trace2.csv.gz"
OPENB: Final = "alibaba_v2023/openb_pod_list_multigpu40.csv.gz"
_OPENB_TIMES: Final = "alibaba_v2023/openb_pod_list_default.csv.gz"
_OPENB_OFFERED_GPUS: Final = 50.0
_PODS: Final = 300


def simulated(
    window: Window, load: float, settings: SchedulingSettings, *, knows_run_times: bool = False
) -> Outcome:
    """Simulate ``window`` on as many nodes as make ``load``."""
    trace = window.at(load)
    return simulate(
        with_true_estimates(trace) if knows_run_times else trace,
        window.nodes(load),
        registry.make_policy(settings),
        settings,
        estimator=None if knows_run_times else RuntimeHistory(),
        config=HOURLY,
    )


def philly(data: Path) -> list[Window]:
    """Three windows of a day, every tenth job of Philly."""
    return _thinned(data / PHILLY, "philly", (30, 38, 46), 1.0, every=10)


def training_weeks(data: Path) -> list[Window]:
    """Three weeks of the part of Philly that constants may be chosen on, every tenth job."""
    trace = _read(f"philly:{data / PHILLY}")
    jobs = tuple(job for job in trace.jobs if job.queue not in HELD_OUT_CLUSTERS)
    known = replace(trace, jobs=jobs)
    weeks = enumerate(range(PHILLY_DAYS["training"].stop - 21, PHILLY_DAYS["training"].stop, 7))
    return [stretch(known, number, float(day), 7.0, slice(0, None, 10)) for number, day in weeks]


def muri(data: Path) -> list[Window]:
    """The last three quarters of Muri's second trace, every sixth job."""
    quarter = 24.8
    return _thinned(data / MURI, "muri", [n * quarter for n in (1, 2, 3)], quarter, every=6)


def openb(data: Path) -> list[Window]:
    """Three times 300 pods, drawn from the list in which 40 % ask for several GPUs.

    That list has no times: run times are drawn from the default list, arrivals are Poisson at the
    rate that keeps 50 GPUs busy. Nodes are openb's GPU nodes in a drawn order.
    """
    shapes = _read(f"openb:{data / OPENB}?interval_seconds=1&run_seconds=1")
    timed = [j.duration_seconds for j in _read(f"openb:{data / _OPENB_TIMES}").jobs if j.gpus]
    pods = [job for job in shapes.jobs if job.gpus]
    nodes = [node for node in shapes.nodes if node.allocatable.get(GPU, 0)]
    windows = []
    for number in range(3):
        generator = np.random.default_rng(number)
        drawn = tuple(nodes[at] for at in generator.permutation(len(nodes)))
        chosen = [pods[at] for at in generator.permutation(len(pods))[:_PODS]]
        runs = generator.choice(np.array(timed), _PODS).tolist()
        jobs = _arriving(chosen, runs, generator)
        windows.append(make_window(number, replace(shapes, jobs=jobs, nodes=drawn)))
    return windows


def _arriving(
    pods: Sequence[TraceJob], run_seconds: Sequence[float], generator: np.random.Generator
) -> tuple[TraceJob, ...]:
    capped = [min(seconds, DAY) for seconds in run_seconds]
    work = sum(pod.gpus * seconds for pod, seconds in zip(pods, capped, strict=True))
    gaps = generator.exponential(work / len(pods) / _OPENB_OFFERED_GPUS, len(pods))
    return tuple(
        replace(pod, submitted=float(at), duration_seconds=seconds)
        for pod, at, seconds in zip(pods, np.cumsum(gaps), run_seconds, strict=True)
    )


def _thinned(
    path: Path, name: str, starts: Iterable[float], days: float, every: int
) -> list[Window]:
    trace = _read(f"{name}:{path}")
    return [
        stretch(trace, number, start, days, slice(0, None, every))
        for number, start in enumerate(starts)
    ]


@cache
def _read(source: str) -> Trace:
    return read_trace(source, gpus_per_node=GPUS_PER_NODE)
