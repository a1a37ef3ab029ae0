"""What finished runs say about machines: the random-walk Gaussian process of DAS' placement agent.

Machines are alike for a job as far as walks lead from one to the other. With S the similarity of
machines, normalised symmetrically, the kernel ``K = s^2 (I - lambda S)^-1`` sums all walks and is
positive definite for lambda below 1. A finished run was spread over machines by the shares x, so
two runs are as alike as the walks from where the one was to where the other was, ``x K x'``: the
random-walk kernel with start and stop weights. The posterior (equations 13 and 14 of the slides),

    mu = K X' (X K X' + sigma^2 I)^-1 Y,   Sigma = K - K X' (X K X' + sigma^2 I)^-1 X K,

is found from the inverse of K, which is known before K itself:
``Sigma^-1 = (I - lambda S) / s^2 + X' X / sigma^2``. Nothing is learned here and all is numpy.

Y is the logarithm of how fast a run was, compared with its estimate and the model of its devices.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray

DECAY: Final = 0.8
"""lambda, how much one step of a walk counts."""
LENGTH_SCALE: Final = 0.5
VARIANCE: Final = 0.008
"""s^2 of log speed between equal machines: about 10 %, as of PAI's stragglers."""
NOISE_VARIANCE: Final = 0.1
"""sigma^2 of one finished run: owners' estimates are wrong by a factor of exp(0.3)."""
EXPECTED: Final = -0.15
"""Y of a run on ordinary machines, which are never quite alone nor quite even."""
IN_RACK: Final = 0.74
IN_CLUSTER: Final = 0.55
"""Speed of a gang on several machines of a rack, and of several racks, beside one machine: what the
simulator's physics has from the measurements of Gavel (Narayanan et al., OSDI 2020)."""
_ROUNDING: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Posterior:
    """A Gaussian over machines: ``mean`` (..., machines), ``precision`` of one axis more."""

    mean: FloatArray
    precision: FloatArray

    @property
    def factor(self) -> FloatArray:
        """The lower Cholesky factor of the covariance, the shape of ``precision``."""
        return np.asarray(np.linalg.cholesky(np.linalg.inv(self.precision)))


def similarity(features: FloatArray, adjacency: FloatArray) -> FloatArray:
    """``D^-1/2 (R * A) D^-1/2``, shape (..., machines, machines), eigenvalues in [-1, 1].

    R is the squared exponential of the distance of ``features``, shape (..., machines, features),
    in units in which 1 is a length scale; A is the ``adjacency`` of the topology, symmetric, from 0
    to 1; D has the sums of the rows. A machine whose row is all zeros stands alone.
    """
    squares = np.square(features).sum(-1)
    products = features @ np.swapaxes(features, -1, -2)
    distances = squares[..., :, None] + squares[..., None, :] - 2 * products
    weights = np.exp(-0.5 * np.maximum(distances, 0.0)) * adjacency
    sums = weights.sum(-1)
    scale = np.divide(1.0, np.sqrt(sums), out=np.zeros_like(sums), where=sums > 0)
    return np.asarray(scale[..., :, None] * weights * scale[..., None, :])


def walk_precision(similar: FloatArray, decay: float = DECAY) -> FloatArray:
    """``I - lambda S``, the inverse of the kernel of walks. ValueError unless 0 <= decay < 1."""
    if not 0 <= decay < 1:
        raise ValueError(f"decay is {decay}; walks are summed for decays from 0 to below 1")
    return np.asarray(np.eye(similar.shape[-1], dtype=similar.dtype) - decay * similar)


def posterior(
    walks: FloatArray,
    shares: FloatArray,
    observed: FloatArray,
    *,
    variance: float = VARIANCE,
    noise_variance: float = NOISE_VARIANCE,
) -> Posterior:
    """Machines given finished runs.

    Args:
        walks: What :func:`walk_precision` gives, shape (..., machines, machines).
        shares: X, the part of each run that was on each machine, (..., runs, machines); a row of
            zeros is no run.
        observed: Y less what was expected, shape (..., runs).
    """
    turned = np.swapaxes(shares, -1, -2)
    precision = walks / variance + turned @ shares / noise_variance
    evidence = turned @ observed[..., None] / noise_variance
    mean = np.linalg.solve(precision, evidence)[..., 0]
    return Posterior(np.asarray(mean, dtype=np.float64), precision)


def beliefs(
    features: FloatArray, adjacency: FloatArray, shares: FloatArray, speeds: FloatArray
) -> Posterior:
    """What the speeds of finished runs say of the health of machines, in logarithms.

    Args:
        features: Of machines for the job to be placed, shape (..., machines, features).
        adjacency: Of machines, 1 within a rack, less across, 0 for padding.
        shares: Where each run was, shape (..., runs, machines); a row of zeros is no run.
        speeds: log(estimate / time taken / speed of the slowest model), shape (..., runs).
    """
    nearness = ((shares @ adjacency) * shares).sum(-1)
    is_spread, is_apart = (shares > 0).sum(-1) > 1, nearness < 1 - _ROUNDING
    spread = np.where(is_apart, IN_CLUSTER, np.where(is_spread, IN_RACK, 1.0))
    observed = np.where(shares.any(-1), speeds - np.log(spread) - EXPECTED, 0.0)
    walks = walk_precision(similarity(features / LENGTH_SCALE, adjacency))
    return posterior(walks, shares, observed)
