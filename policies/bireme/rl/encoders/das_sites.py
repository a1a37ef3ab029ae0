"""How good a site machines would make for a job: what both agents of DAS know of places.

A job on several machines is as fast as the slowest of them, and slower across machines and racks
than on one. So a site is a domain (the machine itself, its rack, the cluster) cut off at a speed,
and every machine stands for the best site of which it is the slowest part. The worth of a site is
its speed over ``1 + weight * dollars per GPU-hour``, as a multiple of what a V100 alone is worth:
by speed alone, by both, or by cost alone. A job is told the worth of the best site it could have
now, a machine how its own compares with that, and whether it belongs to the best one. Sorting and
sums; no loop over machines.

All formulas take leading dimensions (...), so that batches of worlds and one cluster share them.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.kube.gpu_models import UNKNOWN_MODEL
from bireme.rl.encoders.das_walks import IN_CLUSTER, IN_RACK

FEE_WEIGHTS: Final = (0.0, 0.5, 1e6)
"""How dollars per GPU-hour are weighed against speed."""
SITE_FEATURES: Final = 7 + 2 * len(FEE_WEIGHTS)

_FACTORS: Final = (1.0, IN_RACK, IN_CLUSTER)
_SHARED: Final = 0.94
"""Speed of a gang that has a neighbour on its machine; from the same."""
_LEAST: Final = 1e-9
_MACHINE, _RACK = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """Machines as places for replicas of one kind; every array has shape (..., machines).

    Attributes:
        room: How many more replicas each takes.
        capacity: How many it would take if it were empty.
        speed: What it makes of a replica, as far as one knows; 1 for a V100.
        dollars: Rent of what a replica takes, per hour.
        rack: Codes; a machine of a negative one stands alone.
        held: Replicas of the same job that it holds already.
    """

    room: IntArray
    capacity: IntArray
    speed: FloatArray
    dollars: FloatArray
    rack: IntArray
    held: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """The sites of a cluster: one per machine and domain, the narrowest domain first.

    Attributes:
        machines: What they are made of.
        pace: Speed of a replica on each machine beside its neighbours, shape (..., machines).
        reached: Replicas that each site takes, shape (domains, ..., machines).
        worth: Of each site, shape (weights, domains, ..., machines).
    """

    machines: Machines
    pace: FloatArray
    reached: FloatArray
    worth: FloatArray

    @classmethod
    def of(cls, machines: Machines) -> "Sites":
        """All sites. Those that leave out replicas which the job already has are worth nothing."""
        held, rack = machines.held, machines.rack
        pace = machines.speed * np.where(machines.room < machines.capacity, _SHARED, 1.0)
        room = machines.room + held
        own = np.broadcast_to(np.arange(rack.shape[-1]), rack.shape)
        groups = (own, np.where(rack < 0, -1 - own, rack), np.zeros_like(rack))
        sums = [reach(group, pace, room, room * machines.dollars, held) for group in groups]
        reached, rent, kept = (np.stack(parts) for parts in zip(*sums, strict=True))
        dollars = rent / np.maximum(reached, 1.0)
        factors = np.array(_FACTORS).reshape(-1, *[1] * pace.ndim)
        is_whole = (kept >= held.sum(axis=-1, keepdims=True)) & (reached > 0)
        speed = np.where(is_whole, factors * pace, 0.0)
        v100 = UNKNOWN_MODEL.dollars_per_hour
        worth = np.stack([speed * (1 + w * v100) / (1 + w * dollars) for w in FEE_WEIGHTS])
        return cls(machines, pace, reached, worth)

    def best(self, need: IntArray) -> FloatArray:
        """Worth of the best site for ``need`` replicas, shape (..., jobs) -> (..., jobs, weights).

        0 where there is none.
        """
        holds = self.reached[..., None, :] >= need[..., None]
        worth = np.where(holds, self.worth[..., None, :], 0.0).max(axis=-1).max(axis=1)
        return np.moveaxis(worth, 0, -1)

    def features(self, need: IntArray) -> FloatArray:
        """Features of machines for ``need`` replicas, (...) -> (..., machines, SITE_FEATURES).

        How much of it is free and would be left, speed, rent, the part of the job that its sites
        take, and for each weight how its best site compares and whether it is in the best of all.
        """
        machines, wanted = self.machines, np.maximum(need, 1)[..., None]
        capacity = np.maximum(machines.capacity, 1)
        left = np.maximum(machines.room - wanted, 0)
        columns = [
            machines.room / capacity,
            left / capacity,
            np.log(np.maximum(self.pace, 0.05)),
            machines.dollars / 4,
            *np.minimum(self.reached / wanted, 1.0),
        ]
        has_room = machines.room > 0
        for worth in np.where(self.reached >= wanted, self.worth, 0.0):
            own, domain = worth.max(axis=0), worth.argmax(axis=0)
            most = own.max(axis=-1, keepdims=True, initial=_LEAST)
            is_in = self._in_best(own, domain) & has_room & (most > _LEAST)
            columns += [np.where(has_room, own / most, 0.0), is_in]
        return np.stack(columns, axis=-1)

    def _in_best(self, worth: FloatArray, domain: IntArray) -> BoolArray:
        """Which machines make up the best site, shape (..., machines).

        Where that is one machine, its equals are as good; of equal racks the first is taken.
        """
        best = worth.argmax(axis=-1)[..., None]
        top, where, rack, pace = (
            np.take_along_axis(values, best, -1)
            for values in (worth, domain, self.machines.rack, self.pace)
        )
        alone = (domain == _MACHINE) & (worth == top)
        beside = (where != _RACK) | (self.machines.rack == rack)
        return np.where(where == _MACHINE, alone, beside & (self.pace >= pace))


def reach(
    group: IntArray, pace: FloatArray, *amounts: IntArray | FloatArray
) -> tuple[FloatArray, ...]:
    """Sums of each of ``amounts`` over the machines of the same group that are as fast or faster.

    All have shape (..., machines); amounts are 0 or more.
    """
    order = np.lexsort((-pace, group), axis=-1)
    groups, paces = _along(group, order), _along(pace, order)
    is_first = np.ones(groups.shape, dtype=np.bool_)
    is_first[..., 1:] = groups[..., 1:] != groups[..., :-1]
    is_last = np.ones(groups.shape, dtype=np.bool_)
    is_last[..., :-1] = is_first[..., 1:] | (paces[..., 1:] != paces[..., :-1])
    return tuple(_sums(_along(amount, order), is_first, is_last, order) for amount in amounts)


def _along(values: NDArray[Any], order: IntArray) -> NDArray[Any]:
    return np.take_along_axis(values, order, -1)


def _sums(
    amounts: NDArray[Any], is_first: BoolArray, is_last: BoolArray, order: IntArray
) -> FloatArray:
    """Running sums within groups, those of equal pace counted together, in the old order."""
    totals = amounts.cumsum(axis=-1, dtype=np.float64)
    before = np.maximum.accumulate(np.where(is_first, totals - amounts, 0.0), axis=-1)
    until = np.where(is_last, totals, np.inf)[..., ::-1]
    sums = np.empty_like(totals)
    # Totals never fall, so the least of those still to come is that of the next "last".
    ahead = np.minimum.accumulate(until, axis=-1)[..., ::-1]
    np.put_along_axis(sums, order, ahead - before, -1)
    return sums
