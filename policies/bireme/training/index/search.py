"""The search for an index: evolution strategies on the simulator's own mean completion times.

Every generation is judged on the same few cases, drawn anew each time from the earlier weeks, at
several loads, half of them with stops charged for. The loss of an index is the mean over cases of

    log mean JCT + 0.08 * log(1 h + p99 wait) + 0.005 * jobs past their wait bound

so that a hundredth of completion time counts alike in every case, and waits are not forgotten.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bireme.core.gangs import Gang
from bireme.core.resources import FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl.encoders.index import IndexGangs
from bireme.rl.orderers import ScoredOrderer
from bireme.simulator.metrics import Metrics
from bireme.simulator.physics import Physics
from bireme.training.algorithm import Callback, Progress
from bireme.training.evolution import Evolution
from bireme.training.index.cases import (
    CHARGED,
    LEARNED_DAYS,
    VALIDATED_DAYS,
    Case,
    case,
    philly_days,
)
from bireme.training.index.network import IndexNetwork

LOADS = (0.9, 1.0, 1.1, 1.2)
"""What it learns at: where nobody waits, there is nothing to learn."""
_MOST_JOBS = 110
_WAIT_WEIGHT = 0.08
_BOUND_WEIGHT = 0.005


class IndexOrderer(ScoredOrderer):
    """Orders by a network as it is being learned, as its checkpoint will."""

    stops_others = True
    keeps_kin_in_line = True

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


def _loss(metrics: Metrics) -> float:
    mean, tail = metrics.jct_seconds.mean, metrics.wait_seconds.p99
    if mean is None or tail is None:
        return math.inf
    late = _BOUND_WEIGHT * metrics.wait_bound_violations
    return math.log(max(mean, 1.0)) + _WAIT_WEIGHT * math.log(3600.0 + tail) + late


def _physics(is_charged: int) -> Physics:
    return CHARGED if is_charged else Physics()
