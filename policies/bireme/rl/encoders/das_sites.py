"""Which machines would make a good site for one job: the features that its placement is judged by.

A job that runs on several machines is as fast as the slowest of them, and slower across machines
and racks than on one. So a site is a domain (the machine itself, its rack, the cluster) cut off at
a speed, and every machine stands for the best site of which it is the slowest part. Two comparisons
follow from that, by speed and by speed per dollar: how good the machine's own site is beside the
best one, and whether the machine belongs to the best one. Sorting and sums, no loop over machines.

All formulas take leading dimensions, so that worlds in batches and one cluster share them.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray, IntArray

SITE_FEATURES: Final = 14

ACROSS_MACHINES: Final = 0.74
ACROSS_RACKS: Final = 0.55
"""Speed of a gang across machines, and across racks, beside one machine. The simulator's physics
has them from Gavel's measurements (Narayanan et al., OSDI 2020)."""
SHARED: Final = 0.94
"""Speed of a gang with a neighbour on its machine; from the same."""
FEE_WEIGHTS: Final = (0.0, 0.25, 1e6)
"""Dollars per GPU-hour weighed against time: by speed alone, by both, by cost alone."""

_NOBODY: Final = 1e-9


def site_features(
    need: IntArray,
    room: IntArray,
    capacity: IntArray,
    speed: FloatArray,
    dollars: FloatArray,
    rack: IntArray,
) -> FloatArray:
    """Features of machines for one job, float64, shape (..., machines, SITE_FEATURES).

    Args:
        need: Replicas to be placed, shape (...).
        room: How many of them each machine takes, shape (..., machines).
        capacity: How many it would take if it were empty, same shape.
        speed: What it makes of a replica, as far as one knows; 1 for a V100; same shape.
        dollars: Rent of what a replica takes for an hour, same shape.
        rack: Codes, same shape; machines of a negative one stand alone.
    """
    wanted = np.maximum(need, 1)[..., None]
    taken = np.minimum(room, wanted)
    pace = speed * np.where(room < capacity, SHARED, 1.0)
    reached = [reach(group, pace, room, room * dollars) for group in _domains(rack)]
    shares = [taken / wanted, *(np.minimum(gpus / wanted, 1.0) for gpus, _ in reached)]
    mean = [dollars, *(rent / np.maximum(gpus, 1) for gpus, rent in reached)]
    columns = [
        room / np.maximum(capacity, 1),
        (room - taken) / np.maximum(capacity, 1),
        np.log(np.maximum(pace, 0.05)),
        dollars / 4,
        *shares,
    ]
    for weight in FEE_WEIGHTS:
        worth, domain = _worth(pace, shares, mean, weight)
        best = worth.max(axis=-1, keepdims=True, initial=_NOBODY)
        columns += [worth / best, in_best_site(worth, domain, pace, rack) & (room > 0)]
    return np.stack(np.broadcast_arrays(*columns), axis=-1).astype(np.float64)


def reach(
    group: IntArray, pace: FloatArray, *amounts: IntArray | FloatArray
) -> tuple[FloatArray, ...]:
    """Sums of each of ``amounts`` over the machines of the same group that are as fast or faster.

    All have shape (..., machines).
    """
    order = np.lexsort((-pace, group), axis=-1)
    groups, paces = _along(group, order), _along(pace, order)
    is_first = np.ones(groups.shape, dtype=np.bool_)
    is_first[..., 1:] = groups[..., 1:] != groups[..., :-1]
    is_last = np.ones(groups.shape, dtype=np.bool_)
    is_last[..., :-1] = is_first[..., 1:] | (paces[..., 1:] != paces[..., :-1])
    return tuple(_sums(_along(amount, order), is_first, is_last, order) for amount in amounts)


def in_best_site(
    worth: FloatArray, domain: IntArray, pace: FloatArray, rack: IntArray
) -> BoolArray:
    """Which machines make up the best site, shape (..., machines)."""
    best = worth.argmax(axis=-1)[..., None]
    where = np.take_along_axis(domain, best, -1)
    is_there = np.where(
        where == 0,
        worth == np.take_along_axis(worth, best, -1),
        (where == 2) | (rack == np.take_along_axis(rack, best, -1)),
    )
    # One machine is enough where the site is one, so equals of it are as good.
    alone = (where != 0) | (domain == 0)
    return np.asarray(is_there & alone & (pace >= np.take_along_axis(pace, best, -1)))


def _domains(rack: IntArray) -> tuple[IntArray, IntArray]:
    """Codes of racks, machines without one apart, and of the cluster."""
    alone = -1 - np.arange(rack.shape[-1])
    return np.where(rack < 0, alone, rack), np.zeros_like(rack)


def _worth(
    pace: FloatArray, shares: list[FloatArray], dollars: list[FloatArray], weight: float
) -> tuple[FloatArray, IntArray]:
    """What the best site with each machine as its slowest is worth, and its domain, 0 to 2."""
    factors = (1.0, ACROSS_MACHINES, ACROSS_RACKS)
    worths = [
        np.where(share >= 1.0, factor * pace / (1.0 + weight * rent), 0.0)
        for share, factor, rent in zip(shares, factors, dollars, strict=True)
    ]
    stacked = np.stack(np.broadcast_arrays(*worths))
    return stacked.max(axis=0), stacked.argmax(axis=0)


def _along(values: NDArray[Any], order: IntArray) -> NDArray[Any]:
    return np.take_along_axis(np.broadcast_to(values, order.shape), order, -1)


def _sums(
    amounts: NDArray[Any], is_first: BoolArray, is_last: BoolArray, order: IntArray
) -> FloatArray:
    """Running sums within groups, equals counted together, put back in the old order."""
    totals = amounts.cumsum(axis=-1, dtype=np.float64)
    before = np.maximum.accumulate(np.where(is_first, totals - amounts, 0.0), axis=-1)
    until = np.where(is_last, totals, np.inf)[..., ::-1]
    until = np.minimum.accumulate(until, axis=-1)[..., ::-1]
    sums = np.empty_like(totals)
    np.put_along_axis(sums, order, until - before, -1)
    return sums
