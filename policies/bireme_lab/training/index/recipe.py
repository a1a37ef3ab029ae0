"""Recipes of the learned index: service, estimate and size, weighted by evolution strategies.

The search minimises the simulator's own mean completion time. Each generation draws a few new cases
and scores all its members on them. The loss of an index is the mean of
:func:`bireme_lab.contest.tuning.loss` over cases. ``learned-index`` draws thinned days of Philly at
several loads, half of them with a cost of preemption. ``general-index`` draws from the training
parts of all families of :mod:`bireme_lab.contest.families`. The traces are not shipped:
``--data FOLDER`` to train, ``--opt data=FOLDER`` to evaluate.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch

from bireme.core.errors import SettingError
from bireme.core.gangs import Gang
from bireme.core.resources import FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl.components import ScoredOrderer
from bireme.rl.encoders.index import IndexGangs
from bireme_lab.contest.families import tuning_worlds
from bireme_lab.contest.tuning import loss
from bireme_lab.contest.worlds import CHARGED, Part, World
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.training.algorithm import Callback, LearningProgress
from bireme_lab.training.evolution import Evolution, mean_over_cases
from bireme_lab.training.export import TrainedPart, export_run
from bireme_lab.training.index import evaluation
from bireme_lab.training.index.environment import (
    case,
    philly_days,
    play,
)
from bireme_lab.training.index.networks import START_SCALES, IndexNetwork
from bireme_lab.training.runs import EarlyStopping, TrainingRun

LOADS: Final = (0.9, 1.0, 1.1, 1.2)
"""Offered loads of the training cases; without waiting gangs the order has no effect."""
_MAX_JOBS: Final = 110
_MIN_JOBS_OF_A_DAY: Final = 400


class IndexOrderer(ScoredOrderer):
    """Orders gangs by a network in training, exactly as its checkpoint will."""

    stops_others = True
    keeps_equal_gangs_in_order = True

    def __init__(self, network: IndexNetwork) -> None:
        self._network = network
        self._encoder = IndexGangs()

    def scores(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[float]:
        with torch.no_grad():
            inputs = torch.from_numpy(self._encoder.encode(gangs, snapshot)["gangs"])
            scores: list[float] = self._network(inputs).tolist()
        return scores


@dataclass(frozen=True, slots=True)
class IndexSchedule:
    """Draws and cases per generation, generations, validation cases."""

    population: int
    cases: int
    generations: int
    validated: int
    most_jobs: int = _MAX_JOBS


class Cases(Protocol):
    """The cases that score an index."""

    def __init__(self, data: Path, schedule: IndexSchedule) -> None: ...

    def draw(self, generator: np.random.Generator) -> list[World]:
        """Return the cases of one generation."""

    def validation_cases(self) -> list[World]:
        """Return the fixed cases for early stopping."""


class PhillyCases:
    """Every tenth job of a day of Philly, at a load of :data:`LOADS`."""

    def __init__(self, data: Path, schedule: IndexSchedule) -> None:
        self._data, self._schedule = data, schedule
        self._days = philly_days(data, "training", _MIN_JOBS_OF_A_DAY, 10 * schedule.most_jobs)

    def draw(self, generator: np.random.Generator) -> list[World]:
        # Keep the order of the draws: a seed must give the same cases.
        cases = []
        for _ in range(self._schedule.cases):
            day, offset = float(generator.choice(self._days)), int(generator.integers(10))
            load, is_charged = float(generator.choice(LOADS)), bool(generator.integers(2))
            cases.append(self._case(day, offset, load, is_charged=is_charged))
        return cases

    def validation_cases(self) -> list[World]:
        max_jobs = 20 * self._schedule.most_jobs
        days = philly_days(self._data, "validation", _MIN_JOBS_OF_A_DAY, max_jobs)
        return [
            self._case(
                days[n % len(days)],
                n % 10,
                LOADS[n % len(LOADS)],
                is_charged=n % 2 == 1,
                part="validation",
            )
            for n in range(self._schedule.validated)
        ]

    def _case(
        self, day: float, offset: int, load: float, *, is_charged: bool, part: Part = "training"
    ) -> World:
        physics = CHARGED if is_charged else Physics()
        return case(self._data, part, day, slice(offset, None, 10), load, physics)


class FamilyCases:
    """Worlds of all families: Philly's thinned as in :class:`PhillyCases`.

    Pollux' is left out: the order of its elastic gangs has no effect, and a case takes as long as
    ten others.
    """

    _FAMILIES: Final = ("rigid", "heterogeneous", "failing", "openb")

    def __init__(self, data: Path, schedule: IndexSchedule) -> None:
        self._data, self._schedule = data, schedule
        self._philly = PhillyCases(data, replace(schedule, cases=1, validated=schedule.cases))
        self._families = self._FAMILIES[: schedule.cases - 1]  # Philly is the first
        blocks = 3 * schedule.cases  # all blocks, in a full training
        self._worlds = [tuning_worlds(data, name, "training", blocks) for name in self._families]

    def draw(self, generator: np.random.Generator) -> list[World]:
        cases = self._philly.draw(generator)
        return cases + [worlds[int(generator.integers(len(worlds)))] for worlds in self._worlds]

    def validation_cases(self) -> list[World]:
        blocks = max(1, self._schedule.validated // 6)
        worlds = self._philly.validation_cases()
        for name in self._families:
            worlds += tuning_worlds(self._data, name, "validation", blocks)
        return worlds


class IndexSearch:
    """Learns the parameters of ``network`` by :class:`Evolution`, a generation at a time."""

    def __init__(
        self,
        network: IndexNetwork,
        scales: FloatArray,
        cases: Cases,
        schedule: IndexSchedule,
        seed: int,
    ) -> None:
        self.network = network
        self.updates = 0
        self._schedule, self._cases = schedule, cases
        self._generator = np.random.default_rng(seed)
        start = network.values.numpy().astype(np.float64)
        self._evolution = Evolution(start, scales, schedule.population, self._generator)

    def learn(self, total_steps: int, callback: Callback) -> None:
        """Run generations until ``total_steps`` simulations, or until ``callback`` ends it."""
        began = time.monotonic()
        per_generation = self._schedule.population * self._schedule.cases
        while self.updates * per_generation < total_steps:
            # 1. Draw parameters around the mean, and common cases.
            candidates, cases = self._evolution.ask(), self._cases.draw(self._generator)
            # 2. Simulate every draw on every case.
            case_losses = np.array([losses_of(IndexNetwork(row), cases) for row in candidates])
            losses = mean_over_cases(case_losses)
            # 3. Move the mean towards the draws with the lower losses.
            self._evolution.tell(losses)
            self.network.values.copy_(torch.from_numpy(self._evolution.mean))
            self.updates += 1
            metrics = {"loss_spread": float(losses.std()), "search_step": self._evolution.step}
            steps, seconds = self.updates * per_generation, time.monotonic() - began
            if not callback(LearningProgress(self.updates, steps, seconds, metrics)):
                break

    def validation(self) -> Callable[[], float]:
        """Return a function for the loss of the present network on fixed cases."""
        cases = self._cases.validation_cases()
        return lambda: float(np.mean(losses_of(self.network, cases)))

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "evolution": self._evolution.state_dict(),
            "generator": self._generator.bit_generator.state,
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self._evolution.load_state_dict(state["evolution"])
        self._generator.bit_generator.state = state["generator"]
        self.updates = state["updates"]


def losses_of(network: IndexNetwork, cases: Sequence[World]) -> list[float]:
    """Return the loss of ``network`` in each of ``cases``."""
    orderer = IndexOrderer(network)
    return [loss(play(world, orderer)) for world in cases]


class IndexRecipe:
    """``learned-index``: an index of service, estimate and size, by evolution strategies."""

    name = "learned-index"
    summary = "Orders a cluster's gangs by a learned index of service so far, estimate and size"
    paper = ""
    split = (
        "trained on days 3 to 41 of Philly, validated with days 42 to 48, both without the virtual "
        "clusters that bireme_lab.contest.families holds out; evaluated on days 49 to 70 with all "
        "of them, and on Muri's traces, which were derived from Philly"
    )
    settings: Mapping[str, str] = evaluation.SETTINGS
    evaluate = staticmethod(evaluation.evaluate)
    primary = evaluation.PRIMARY
    schedules: Mapping[str, IndexSchedule] = {
        "full": IndexSchedule(8, 6, 60, 14),
        "smoke": IndexSchedule(4, 1, 1, 1, 60),
    }
    cases: type[Cases] = PhillyCases
    learned_from = "Philly (Microsoft, 2017), weeks 1 to 6 of 10; week 7 to stop in time"

    def train(self, run: TrainingRun) -> Path:
        """Learn and export; raises SettingError without data."""
        if run.data is None:
            raise SettingError(f"{self.name} learns from traces; give their folder with --data")
        schedule = self.schedules[run.scale]
        torch.manual_seed(run.seed)
        network = IndexNetwork()
        cases = self.cases(run.data, schedule)
        search = IndexSearch(network, START_SCALES, cases, schedule, run.env_seed)
        every = 3 if run.scale == "full" else 1
        best = EarlyStopping(
            network, search.validation(), every=every, patience=6, is_less_better=True
        )
        if run.scale == "full":
            best.evaluate()  # the start may stay the best
        simulations = schedule.population * schedule.cases * schedule.generations
        run.learn("evolution", search, simulations, best)
        best.restore()
        part = TrainedPart(network, "index-gangs/1", stops_others=True)
        weights = {f"w{n}": round(w, 4) for n, w in enumerate(network.values.tolist())}
        steps = search.updates * schedule.population * schedule.cases
        return export_run(run, self, {"orderer": part}, self.learned_from, steps=steps, **weights)


class GeneralIndexRecipe(IndexRecipe):
    """``general-index``: the same index from worlds of all families, for any cluster."""

    name = "general-index"
    summary = "Orders a cluster's gangs by an index that was learned from all families of worlds"
    split = (
        "trained on the training parts of the families of bireme_lab.contest.families but Pollux', "
        "Philly thinned to small clusters; validated on their validation parts"
    )
    schedules: Mapping[str, IndexSchedule] = {
        "full": IndexSchedule(8, 5, 60, 12),
        "smoke": IndexSchedule(4, 2, 1, 1, 60),
    }
    cases = FamilyCases
    learned_from = "Philly, openb and generated jobs, by the split of bireme_lab.contest.families"
