"""Evolution strategies: optimise parameters from losses alone, without gradients.

Parameters are drawn around a mean, each draw with its mirror image. The mean moves towards draws
with lower losses; step size and covariance adapt to past progress. All draws of a generation should
be scored on the same cases (common random numbers): only ranks are used.

Covariance matrix adaptation: Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772,
equations in brackets. Mirrored draws: Salimans et al., arXiv:1703.03864.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.core.resources import FloatArray

_ARRAYS = ("mean", "_covariance", "_path", "_step_path")
_MAX_CONDITION = 1e12
"""The largest condition number; a larger one is numerically singular."""


class Evolution:
    """A search that repeats :meth:`ask`, the scoring of each row, and :meth:`tell`.

    Attributes:
        mean: The best parameters so far, shape (parameters,).
        step: The distance of draws from the mean, in units of ``scales``.
    """

    def __init__(
        self, mean: FloatArray, scales: FloatArray, population: int, generator: np.random.Generator
    ) -> None:
        """Begin at ``mean`` with the standard deviations ``scales``, all above 0, (parameters,).

        ``population`` is an even number from 4 on.
        """
        size = len(mean)
        self.mean = mean.astype(np.float64)
        self.step = 1.0
        self._scales = scales.astype(np.float64)
        self._generator = generator
        self._draws = np.zeros((population, size))
        self._covariance = np.eye(size)
        self._path, self._step_path = np.zeros(size), np.zeros(size)
        self._generation = 0
        parents = population // 2
        weights = math.log(parents + 0.5) - np.log(np.arange(1, parents + 1))  # (49)
        self._weights = weights / weights.sum()
        self._mass = mass = 1.0 / float((self._weights**2).sum())  # (8)
        self._step_rate = (mass + 2) / (size + mass + 5)  # (55)
        excess = max(0.0, math.sqrt((mass - 1) / (size + 1)) - 1)
        self._damping = 1 + 2 * excess + self._step_rate  # (55)
        self._path_rate = (4 + mass / size) / (size + 4 + 2 * mass / size)  # (56)
        self._one_rate = 2 / ((size + 1.3) ** 2 + mass)  # (57)
        many = 2 * (mass - 2 + 1 / mass) / ((size + 2) ** 2 + mass)
        self._many_rate = min(1 - self._one_rate, many)  # (58)
        self._usual_length = math.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2))

    def ask(self) -> FloatArray:
        """Return parameters to score, (population, parameters); rows 2i and 2i + 1 are mirrored."""
        values, vectors = np.linalg.eigh(self._covariance)
        self._root = vectors * np.sqrt(values)
        self._inverse_root = vectors / np.sqrt(values) @ vectors.T
        half = self._generator.standard_normal((len(self._draws) // 2, len(self.mean)))
        steps = half @ self._root.T  # (38), (39)
        self._draws = np.stack([steps, -steps], axis=1).reshape(self._draws.shape)
        candidates: FloatArray = self.mean + self.step * self._draws * self._scales
        return candidates

    def tell(self, losses: FloatArray) -> None:
        """Move by the ``losses`` of the last rows, shape (population,); nan is worst."""
        ranks = np.argsort(np.nan_to_num(losses, nan=math.inf), kind="stable")
        best = self._draws[ranks[: len(self._weights)]]
        move = self._weights @ best  # (41)
        self.mean = self.mean + self.step * move * self._scales  # (42)
        self._generation += 1
        rate = self._step_rate
        self._step_path = (1 - rate) * self._step_path + math.sqrt(
            rate * (2 - rate) * self._mass
        ) * (self._inverse_root @ move)  # (43)
        length = float(np.linalg.norm(self._step_path))
        self.step *= math.exp(rate / self._damping * (length / self._usual_length - 1))  # (44)
        self._adapt(best, move, length)

    def state_dict(self) -> dict[str, Any]:
        """Return the state without the generator's, as plain numbers."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return {**arrays, "step": self.step, "generation": self._generation}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name], dtype=np.float64))
        self.step, self._generation = state["step"], state["generation"]

    def _adapt(self, best: FloatArray, move: FloatArray, length: float) -> None:
        """Adapt the covariance to the path of the mean and the best draws."""
        rate, one, many = self._path_rate, self._one_rate, self._many_rate
        bias = 1 - (1 - self._step_rate) ** (2 * self._generation)
        # While the mean moves fast in one direction, the path would widen the covariance too fast.
        max_length = (1.4 + 2 / (len(self.mean) + 1)) * self._usual_length
        is_steady = length / math.sqrt(bias) < max_length
        drift = math.sqrt(rate * (2 - rate) * self._mass) * move if is_steady else 0.0
        self._path = (1 - rate) * self._path + drift  # (45)
        lost = one * (1 - is_steady) * rate * (2 - rate)
        spread = (best * self._weights[:, None]).T @ best
        share = 1 + lost - one - many
        covariance = share * self._covariance + one * np.outer(self._path, self._path)
        covariance = covariance + many * spread  # (47)
        values = np.linalg.eigvalsh(covariance)
        # Rounding may make it singular; then keep the old one for this generation.
        if values[0] > 0 and values[-1] < _MAX_CONDITION * values[0]:
            self._covariance = (covariance + covariance.T) / 2


def mean_over_cases(losses: FloatArray) -> FloatArray:
    """Return the mean loss of each draw, shape (draws,), from ``losses``, (draws, cases).

    An infinite loss marks a failed draw; it counts as the worst finite loss plus 1. A case in which
    all draws failed is left out. It has no information, and would make all draws of the generation
    equal and the next step random.
    """
    is_finite = np.isfinite(losses)
    useful = losses[:, is_finite.any(axis=0)]
    if not useful.shape[1]:
        return np.zeros(len(losses))
    worst = np.where(np.isfinite(useful), useful, -math.inf).max(axis=0)
    return np.asarray(np.where(np.isfinite(useful), useful, worst + 1).mean(axis=1))
