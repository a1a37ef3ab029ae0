"""What an index is tried on: days of traces on small clusters, under all rails, by the simulator.

Philly's weeks are kept apart: it learns from the first six, the seventh says when to stop, the
others judge. A case is one day of every so-manieth job, on a cluster that it loads to a given
degree (:mod:`bireme.simulator.loads`). A virtual cluster stands for its users, as a namespace does
in a real cluster, and what ran before the case has taught the history of run times.

Stopping is free, as in most published comparisons, or charged for: half a minute to restart, and
the work since the last checkpoint, one every half hour.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme import registry
from bireme.core.errors import SettingError
from bireme.core.estimates import RuntimeHistory
from bireme.core.policy import Orderer, Policy
from bireme.core.settings import SchedulingSettings
from bireme.simulator.arrivals import template_of
from bireme.simulator.conduct import Conduct
from bireme.simulator.engine import simulate
from bireme.simulator.loads import DAY, GPUS_PER_NODE, Window, made, stretch
from bireme.simulator.metrics import Metrics, measure
from bireme.simulator.physics import Physics
from bireme.simulator.traces.sources import read_trace
from bireme.simulator.workload import Trace, knowing

FILES: Final[Mapping[str, str]] = {
    "philly": "philly/philly_2017-09-04_2017-11-14.csv.gz",
    "muri": "muri/trace2.csv.gz",
}
LOADS: Final = (0.7, 0.9, 1.1)
CHARGED: Final = Physics(restart_seconds=30.0, checkpoint_interval_seconds=1800.0)
LEARNED_DAYS: Final = (3, 42)
VALIDATED_DAYS: Final = (42, 49)
JUDGED_DAYS: Final = (49, 71)
JUDGED_EVERY: Final = 6
"""So that clusters have two to four nodes; it learns from every tenth job, which is quicker."""
_MURI_DAYS: Final = 24.8
_MURI_BEGINS: Final = (_MURI_DAYS, 2 * _MURI_DAYS, 3 * _MURI_DAYS)
_FEWEST_JOBS: Final = 360
_REMEMBERED: Final = 3000
"""More runs than these before a case are not worth the time to learn them."""
_CONDUCT: Final = Conduct(heartbeat_seconds=3600.0)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A window at a load, what the history knows when it begins, and what stopping costs."""

    window: Window
    load: float
    history: RuntimeHistory
    physics: Physics

    @property
    def mean_run_seconds(self) -> float:
        """What the mean completion time would be if nobody ever waited."""
        return float(np.mean([job.duration_seconds for job in self.window.trace.jobs]))

    def play(self, orderer: Orderer, knows_run_times: bool = False) -> Metrics:
        """All numbers of ``orderer``, with the default placement and all rails."""
        policy = replace(_rules(), orderer=orderer)
        trace = self.window.at(self.load)
        outcome = simulate(
            knowing(trace) if knows_run_times else trace,
            self.window.nodes(self.load),
            policy,
            physics=self.physics,
            estimator=copy.deepcopy(self.history),
            conduct=_CONDUCT,
        )
        return measure(outcome)


@cache
def _rules() -> Policy:
    return registry.make_policy(SchedulingSettings())


def philly_days(
    data: Path, days: tuple[int, int], fewest: float, most: float = np.inf
) -> list[float]:
    """Those of ``days`` on which Philly had from ``fewest`` to ``most`` jobs."""
    jobs = _trace(data, "philly").jobs
    counts = np.bincount([int(job.submitted // DAY) for job in jobs], minlength=days[1])
    return [float(day) for day in range(*days) if fewest <= counts[day] <= most]


def case(
    data: Path, trace: str, begin_days: float, take: slice, load: float, physics: Physics
) -> Case:
    """A case of ``trace`` that begins so late; ``take`` are the jobs that are kept."""
    days = 1.0 if trace == "philly" else _MURI_DAYS
    window = stretch(_trace(data, trace), 0, begin_days, days, take)
    return Case(window, load, _history(data, trace, begin_days, take.step), physics)


def judged_case(data: Path, setting: str, seed: int) -> Case:
    """The case of ``setting`` that ``seed`` stands for.

    Raises:
        SettingError: ``data`` has no such trace.
    """
    trace, load, *charged = setting.split("-")
    physics = CHARGED if charged else Physics()
    if trace == "poisson":
        return _generated(seed, float(load), physics)
    begins = _philly_judged(data) if trace == "philly" else _MURI_BEGINS
    turn, which = divmod(seed, len(begins))
    take = slice(3 * turn % JUDGED_EVERY, None, JUDGED_EVERY)
    return case(data, trace, begins[which], take, float(load), physics)


@cache
def _philly_judged(data: Path) -> list[float]:
    """Judged days with enough jobs, and more than one node at every load."""
    windows = {
        day: stretch(_trace(data, "philly"), 0, day, 1.0, slice(0, None, JUDGED_EVERY))
        for day in philly_days(data, JUDGED_DAYS, _FEWEST_JOBS)
    }
    return [day for day, window in windows.items() if len(window.nodes(max(LOADS))) > 1]


def _generated(seed: int, load: float, physics: Physics) -> Case:
    trace = read_trace("gen:poisson?jobs=200", gpus_per_node=GPUS_PER_NODE, seed=seed)
    return Case(made(seed, trace), load, RuntimeHistory(), physics)


@cache
def _trace(data: Path, name: str) -> Trace:
    path = data / FILES[name]
    if not path.is_file():
        raise SettingError(
            f"there is no {FILES[name]} in {str(data)!r}; name the folder that has the traces"
        )
    trace = read_trace(f"{name}:{path}", gpus_per_node=GPUS_PER_NODE)
    jobs = (replace(job, user=job.user or job.queue) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


@cache
def _history(data: Path, trace: str, begin_days: float, every: int) -> RuntimeHistory:
    """What jobs that ended before then have taught, as many as a thinned cluster runs."""
    ended = sorted(
        (job.submitted + job.duration_seconds, job.user, template_of(job), job.duration_seconds)
        for job in _trace(data, trace).jobs
        if job.submitted + job.duration_seconds <= begin_days * DAY
    )[::every]
    history = RuntimeHistory()
    for _, user, template, seconds in ended[-_REMEMBERED:]:
        history.observe(user, template, seconds)
    return history
