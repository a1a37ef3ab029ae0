"""The rule that DAS starts from: what lasts least on its best site first, on that site.

It is the teacher of the warm start, and what a learned policy has to beat. Scores and affinities
are functions of what the agents see (:class:`~bireme.training.das.turns.DasTurns`), so that they
can be imitated, and of a scale at which a deviation of 0.3 changes little.
"""

from typing import Final

import numpy as np

from bireme.rl.encoders.das_sites import FEE_WEIGHTS
from bireme.training.das.turns import ORDERING, PLACEMENT
from bireme.training.worlds import Array, Observation

_MIDDLE: Final = 1
"""Which of FEE_WEIGHTS decides: time and dollars."""


def best_site(seen: Observation) -> dict[str, Array]:
    """Scores of jobs (W, J) and affinities of machines (W, M)."""
    return {ORDERING: scores(seen["jobs"]), PLACEMENT: affinities(seen["places"])}


def scores(jobs: Array) -> Array:
    """Of jobs with the features of the last axis, shape (...): highest starts first."""
    minutes = np.expm1(jobs[..., 1] * 8.0)
    worth = jobs[..., -len(FEE_WEIGHTS) + _MIDDLE]
    return np.asarray(worth - np.log(np.maximum(minutes, 0.1)))


def affinities(places: Array) -> Array:
    """Of machines with the features of the last axis, shape (...): highest is filled first."""
    left, own_share = places[..., 1], places[..., 4]
    worth_of_own, is_in_best = (places[..., 7 + 2 * _MIDDLE + at] for at in (0, 1))
    return np.asarray(2.0 * is_in_best + worth_of_own + own_share - 0.5 * left)
