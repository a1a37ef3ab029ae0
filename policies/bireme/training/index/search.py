"""The search for an index: evolution strategies on the simulator's own mean completion times.

Every generation is judged on the same few cases, drawn anew each time from the earlier weeks, at
several loads, half of them with stops charged for. The loss of an index is the mean over cases of

    log mean JCT + 0.08 * log(1 h + p99 wait) + 0.005 * jobs past their wait bound

so that a hundredth of completion time counts alike in every case, and waits are not forgotten.
"""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from bireme import registry
from bireme.core.errors import SettingError
from bireme.core.estimates import RuntimeHistory
from bireme.core.gangs import Gang
from bireme.core.policy import Orderer, Policy
from bireme.core.resources import FloatArray
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl.components import ScoredOrderer
from bireme.rl.encoders.index import IndexGangs
from bireme.simulator.loads import DAY, GPUS_PER_NODE, Window, made, stretch
from bireme.simulator.metrics import SimulationMetrics, measure
from bireme.simulator.physics import Physics
from bireme.simulator.simulation import SimulationConfig, simulate
from bireme.simulator.traces.sources import read_trace
from bireme.simulator.workload import Trace, template_of, with_true_estimates
from bireme.training.algorithm import Callback, Progress
from bireme.training.evolution import Evolution
from bireme.training.index.network import IndexNetwork

# What an index is tried on: days of traces on small clusters, under all rails, by the simulator.
#
# Philly's weeks are kept apart: it learns from the first six, the seventh says when to stop, the
# others judge. A case is one day of every so-manieth job, on a cluster that it loads to a given
# degree (:mod:`bireme.simulator.loads`). A virtual cluster stands for its users, as a namespace
# does
# in a real cluster, and what ran before the case has taught the history of run times.
#
# Stopping is free, as in most published comparisons, or charged for: half a minute to restart, and
# the work since the last checkpoint, one every half hour.

FILES: Final[Mapping[str, str]] = {
    "philly": "philly/philly_2017-09-04_2017-11-14.csv.gz",
    "muri": "muri/trace2.csv.gz",
}
CASE_LOADS: Final = (0.7, 0.9, 1.1)
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
_CONFIG: Final = SimulationConfig(heartbeat_seconds=3600.0)


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

    def play(self, orderer: Orderer, knows_run_times: bool = False) -> SimulationMetrics:
        """All numbers of ``orderer``, with the default placement and all rails."""
        policy = replace(_rules(), orderer=orderer)
        trace = self.window.at(self.load)
        outcome = simulate(
            with_true_estimates(trace) if knows_run_times else trace,
            self.window.nodes(self.load),
            policy,
            physics=self.physics,
            estimator=copy.deepcopy(self.history),
            config=_CONFIG,
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
    return [day for day, window in windows.items() if len(window.nodes(max(CASE_LOADS))) > 1]


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


LOADS = (0.9, 1.0, 1.1, 1.2)
"""What it learns at: where nobody waits, there is nothing to learn."""
_MOST_JOBS = 110
_WAIT_WEIGHT = 0.08
_BOUND_WEIGHT = 0.005


class IndexOrderer(ScoredOrderer):
    """Orders by a network as it is being learned, as its checkpoint will."""

    stops_others = True
    keeps_equal_gangs_in_order = True

    def __init__(self, network: IndexNetwork) -> None:
        self._network = network
        self._encoder = IndexGangs()

    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        """What torch makes of what the encoder shows."""
        with torch.no_grad():
            shown = torch.from_numpy(self._encoder.encode(gangs, snapshot)["gangs"])
            scores: list[float] = self._network(shown).tolist()
        return scores


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done: draws and cases per generation, generations, validation cases."""

    population: int
    cases: int
    generations: int
    validated: int
    most_jobs: int = _MOST_JOBS


class IndexSearch:
    """Learns the values of ``network``, a generation at a time."""

    def __init__(
        self, network: IndexNetwork, scales: FloatArray, data: Path, plan: Plan, seed: int
    ):
        self.network = network
        self.updates = 0
        self._plan, self._data = plan, data
        self._generator = np.random.default_rng(seed)
        start = network.values.numpy().astype(np.float64)
        self._evolution = Evolution(start, scales, plan.population, self._generator)
        self._days = philly_days(data, LEARNED_DAYS, 400, 10 * plan.most_jobs)

    def learn(self, total_steps: int, callback: Callback) -> None:
        """So many simulations, or until ``callback`` ends it."""
        began = time.monotonic()
        per_generation = self._plan.population * self._plan.cases
        while self.updates * per_generation < total_steps:
            drawn, cases = self._evolution.ask(), self._draw()
            losses = np.array([mean_loss(IndexNetwork(row), cases) for row in drawn])
            self._evolution.tell(losses)
            self._show(self._evolution.mean)
            self.updates += 1
            seconds = time.monotonic() - began
            metrics = {"loss_spread": float(losses.std()), "search_step": self._evolution.step}
            if not callback(
                Progress(self.updates, self.updates * per_generation, seconds, metrics)
            ):
                break

    def validation(self) -> Callable[[], float]:
        """The loss of the network as it is, on cases of later days that are always the same."""
        days = philly_days(self._data, VALIDATED_DAYS, 400, 20 * self._plan.most_jobs)
        cases = [
            case(
                self._data,
                "philly",
                days[n % len(days)],
                slice(n % 10, None, 10),
                LOADS[n % 4],
                _physics(n % 2),
            )
            for n in range(self._plan.validated)
        ]
        return lambda: mean_loss(self.network, cases)

    def state_dict(self) -> dict[str, Any]:
        """For :mod:`bireme.training.storage`."""
        return {
            "network": self.network.state_dict(),
            "evolution": self._evolution.state_dict(),
            "generator": self._generator.bit_generator.state,
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.network.load_state_dict(state["network"])
        self._evolution.load_state_dict(state["evolution"])
        self._generator.bit_generator.state = state["generator"]
        self.updates = state["updates"]

    def _show(self, values: FloatArray) -> None:
        self.network.values.copy_(torch.from_numpy(values))

    def _draw(self) -> list[Case]:
        chance = self._generator
        return [
            case(
                self._data,
                "philly",
                float(chance.choice(self._days)),
                slice(int(chance.integers(10)), None, 10),
                float(chance.choice(LOADS)),
                _physics(int(chance.integers(2))),
            )
            for _ in range(self._plan.cases)
        ]


def mean_loss(network: IndexNetwork, cases: Sequence[Case]) -> float:
    """The loss of ``network``, mean over ``cases``."""
    orderer = IndexOrderer(network)
    return float(np.mean([_loss(each.play(orderer)) for each in cases]))


def _loss(metrics: SimulationMetrics) -> float:
    mean, tail = metrics.jct_seconds.mean, metrics.wait_seconds.p99
    if mean is None or tail is None:
        return math.inf
    late = _BOUND_WEIGHT * metrics.wait_bound_violations
    return math.log(max(mean, 1.0)) + _WAIT_WEIGHT * math.log(3600.0 + tail) + late


def _physics(is_charged: int) -> Physics:
    return CHARGED if is_charged else Physics()
