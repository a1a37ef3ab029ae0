"""Random-walk kernels: what the slides of DAS print, and what is left of it when it is repaired.

They sum over all walks on the product of two cluster graphs,

    k(G1, G2) = sum over i, k of [ sum over l of lambda^l Px^l ]_ik ,

and read Px as "the random walker's transition matrix". With rows that sum to one that sum is
``|V1| |V2| / (1 - lambda)`` whatever the graphs are, so that nothing can be learned from it.
:func:`walk_kernel` compares the machines of one cluster instead, by the symmetric similarity of
:mod:`bireme.rl.encoders.das_inputs`; it is positive definite. :func:`graph_kernel` compares whole
clusters as printed, but with weights of where walks start and stop, and without the product graph
(Vishwanathan et al., JMLR 11 (2010), sections 2.3 and 4.3).
"""

from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.rl.encoders.das_inputs import DECAY, walk_precision

_TOLERANCE: Final = 1e-9
"""The iteration ends when nothing changes by more."""


def walk_kernel(similar: FloatArray, decay: float = DECAY) -> FloatArray:
    """``(I - lambda S)^-1``: all walks from one machine to another, same shape as ``similar``."""
    return np.asarray(np.linalg.inv(walk_precision(similar, decay)))


def graph_kernel(
    one: FloatArray,
    other: FloatArray,
    decay: float,
    *,
    starts: tuple[FloatArray, FloatArray] | None = None,
    stops: tuple[FloatArray, FloatArray] | None = None,
) -> float:
    """The kernel of two graphs as printed: walks on both at once, weighted at both ends.

    The sum over walks X solves ``X = p1 p2' + lambda P1' X P2``, found by iteration in machines^3
    operations; the product graph would take machines^6.

    Args:
        one, other: Transition weights, (V1, V1) and (V2, V2), of spectral radius at most 1.
        decay: lambda, in [0, 1).
        starts, stops: Weights of the nodes walks begin and end at, ((V1,), (V2,)); ones when None.
    """
    if not 0 <= decay < 1:
        raise ValueError(f"decay is {decay}; walks are summed for decays from 0 to below 1")
    ones = (np.ones(len(one)), np.ones(len(other)))
    begin, end = np.outer(*(starts or ones)), np.outer(*(stops or ones))
    walks, change = begin, np.inf
    while change > _TOLERANCE:
        following = begin + decay * one.T @ walks @ other
        change, walks = float(np.abs(following - walks).max()), following
    return float((walks * end).sum())
