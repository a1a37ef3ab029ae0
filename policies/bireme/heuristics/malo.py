"""MALO: antlion optimisation with differential evolution around the elite.

Each antlion is one chromosome: keys that order gangs and keys that name machines. Ants walk at
random around an antlion, chosen by roulette, and around the elite, in a box that shrinks; an ant
that does better takes the antlion's place. Then differential evolution recombines antlions with
the elite. Both halves of a generation evaluate as many chromosomes as there are antlions.

Objectives: mean completion time plus mean fee of the forecast schedule, each as a multiple of
arrival order's. Arrival order is one of the first antlions, so the forecast is never worse.
The walk has 16 steps instead of one per generation, and the box is centred on the antlion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.resources import FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.list_schedule import (
    Problem,
    arrival_keys,
    decoded,
    order_by_search,
    relative_costs,
)
from bireme.heuristics.parameters import require

_WALK_STEPS = 16
_SHRINKING = ((0.95, 6), (0.9, 5), (0.75, 4), (0.5, 3), (0.1, 2))
"""Past this share of the generations the box is 10^w * share times smaller (Mirjalili 2015)."""


@dataclass(frozen=True, slots=True)
class Malo:
    """Order found by antlion optimisation and differential evolution.

    Source: Abualigah and Diabat, Cluster Computing 24 (2021); baseline "MALO" of the DAS slides.
    """

    seed: int = 0
    generations: int = 50
    population: int = 40
    """Chromosomes evaluated per generation, twice as many as there are antlions."""
    window: int = 24
    """Waiting gangs that are searched over; later arrivals keep their order."""
    difference_weight: float = 0.5
    crossover: float = 0.9

    def __post_init__(self) -> None:
        require("generations", self.generations, 0)
        require("population", self.population, 8)
        require("window", self.window, 1)
        require("difference_weight", self.difference_weight, 0, 2)
        require("crossover", self.crossover, 0, 1)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """The best order found; equal snapshots give equal orders."""
        return order_by_search(gangs, snapshot, self.window, self._search)

    def _search(self, problem: Problem) -> list[int]:
        generator = np.random.default_rng(self.seed)
        relative = relative_costs(problem)
        lions = generator.random((self.population // 2, 2 * len(problem)))
        lions[0] = arrival_keys(problem)
        cost = relative(lions).sum(axis=1)
        for generation in range(1, self.generations + 1):
            elite = lions[np.argmin(cost)]
            ants = _walks(lions, cost, elite, generation / self.generations, generator)
            _keep_better(lions, cost, ants, relative)
            elite = lions[np.argmin(cost)]
            trials = self._trials(lions, elite, generator)
            _keep_better(lions, cost, trials, relative)
        order, _ = decoded(problem, lions[np.argmin(cost)][None])
        return [int(gang) for gang in order[0]]

    def _trials(
        self, lions: FloatArray, elite: FloatArray, generator: np.random.Generator
    ) -> FloatArray:
        """DE/best/1/bin: the elite plus a weighted difference of two others, crossed over."""
        one, other = (generator.permutation(len(lions)) for _ in range(2))
        mutants = elite + self.difference_weight * (lions[one] - lions[other])
        is_mutant = generator.random(lions.shape) < self.crossover
        return np.clip(np.where(is_mutant, mutants, lions), 0.0, 1.0)


def _walks(
    lions: FloatArray,
    cost: FloatArray,
    elite: FloatArray,
    progress: float,
    generator: np.random.Generator,
) -> FloatArray:
    """Ants: the mean of a walk around an antlion chosen by roulette and one around the elite."""
    chances = (1 / cost) / (1 / cost).sum()
    chosen = lions[generator.choice(len(lions), len(lions), p=chances)]
    shrink = next((10.0**power * progress for past, power in _SHRINKING if progress > past), 1.0)
    around = [
        centre + (_walk_positions(lions.shape, generator) - 0.5) / shrink
        for centre in (chosen, elite)
    ]
    return np.clip((around[0] + around[1]) / 2, 0.0, 1.0)


def _walk_positions(shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
    """Where random walks stand at a random step, scaled to their own range, in [0, 1]."""
    walks = np.cumsum(generator.integers(0, 2, (*shape, _WALK_STEPS)) * 2 - 1, axis=-1)
    low, high = walks.min(axis=-1), walks.max(axis=-1)
    position = walks[..., int(generator.integers(_WALK_STEPS))]
    return np.asarray((position - low) / np.maximum(high - low, 1), dtype=np.float64)


def _keep_better(
    lions: FloatArray,
    cost: FloatArray,
    rivals: FloatArray,
    relative: Callable[[FloatArray], FloatArray],
) -> None:
    """Replace every antlion by its rival where that costs less, in place."""
    rival_cost = relative(rivals).sum(axis=1)
    is_better = rival_cost < cost
    lions[is_better] = rivals[is_better]
    cost[is_better] = rival_cost[is_better]
