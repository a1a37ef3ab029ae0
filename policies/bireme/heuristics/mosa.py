"""MOSA: multi-objective simulated annealing over orders and machines.

The DAS slides name MOSA without a source; multi-objective simulated annealing is assumed. Chains
of annealing run side by side on random keys. A step changes a few keys; it is kept when no
objective gets worse, else with a probability that falls with the loss and with temperature. What
no other chromosome beats in both objectives goes to an archive; the order comes from the member
of the archive with the least sum of mean completion time and mean fee, each as a multiple of
arrival order's. One chain starts at arrival order, so the forecast is never worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.resources import BoolArray, FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.list_schedule import (
    Problem,
    arrival_keys,
    decoded,
    order_by_search,
    relative_costs,
)
from bireme.heuristics.parameters import require

_HOTTEST, _COLDEST = 0.05, 0.001
"""Temperatures as losses relative to arrival order that are accepted with probability 1/e."""
_KEYS_CHANGED = 2.0
"""Keys changed per step, on average."""
_STEP = 0.3
"""Standard deviation of a change; keys span 1."""


@dataclass(frozen=True, slots=True)
class Mosa:
    """Order found by multi-objective simulated annealing with an archive.

    Source: Ulungu et al., J. Multi-Criteria Decision Analysis 8 (1999); baseline "MOSA" of the
    DAS slides, an assumption.
    """

    seed: int = 0
    generations: int = 50
    population: int = 40
    """Chains, and so chromosomes evaluated per generation."""
    window: int = 24
    """Waiting gangs that are searched over; later arrivals keep their order."""

    def __post_init__(self) -> None:
        require("generations", self.generations, 0)
        require("population", self.population, 1)
        require("window", self.window, 1)

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """The best order found; equal snapshots give equal orders."""
        return order_by_search(gangs, snapshot, self.window, self._search)

    def _search(self, problem: Problem) -> list[int]:
        generator = np.random.default_rng(self.seed)
        relative = relative_costs(problem)
        chains = generator.random((self.population, 2 * len(problem)))
        chains[0] = arrival_keys(problem)
        cost = relative(chains)
        archive, archive_cost = _archived(chains, cost, self.population)
        for temperature in np.geomspace(_HOTTEST, _COLDEST, self.generations):
            trials = _neighbours(chains, generator)
            trial_cost = relative(trials)
            archive, archive_cost = _archived(
                np.concatenate([archive, trials]),
                np.concatenate([archive_cost, trial_cost]),
                self.population,
            )
            loss = np.maximum(trial_cost - cost, 0.0).mean(axis=1)
            is_kept = generator.random(len(chains)) < np.exp(-loss / temperature)
            chains[is_kept], cost[is_kept] = trials[is_kept], trial_cost[is_kept]
        order, _ = decoded(problem, archive[np.argmin(archive_cost.sum(axis=1))][None])
        return [int(gang) for gang in order[0]]


def _neighbours(chains: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Chains with a few keys changed; keys that leave [0, 1] are reflected into it."""
    is_changed = generator.random(chains.shape) < _KEYS_CHANGED / chains.shape[1]
    moved = chains + np.where(is_changed, generator.normal(0.0, _STEP, chains.shape), 0.0)
    return 1.0 - np.abs(1.0 - np.abs(moved) % 2.0)


def _archived(keys: FloatArray, cost: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Chromosomes that none beats, cheapest sum first, at most ``size``; and their costs."""
    cost, first = np.unique(cost, axis=0, return_index=True)
    kept = np.flatnonzero(~_is_dominated(cost))
    kept = kept[np.argsort(cost[kept].sum(axis=1), kind="stable")[:size]]
    return keys[first[kept]], cost[kept]


def _is_dominated(cost: FloatArray) -> BoolArray:
    """Whether another row is nowhere worse and somewhere better, shape (rows,)."""
    nowhere_worse = (cost[:, None] <= cost[None]).all(axis=2)
    somewhere_better = (cost[:, None] < cost[None]).any(axis=2)
    return np.asarray((nowhere_worse & somewhere_better).any(axis=0), dtype=np.bool_)
