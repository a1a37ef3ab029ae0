"""How good a site machines would make for a job: what both agents of DAS know of places.

A job on several machines is as fast as the slowest of them, and slower across machines and racks
than on one. So a site is a domain (the machine itself, its rack, the cluster) cut off at a speed,
and every machine stands for the best site of which it is the slowest part. The worth of a site is
its speed over ``1 + weight * dollars per GPU-hour``, as a multiple of what a V100 alone is worth:
by speed alone, by both, or by cost alone. A job is told the worth of the best site it could have
now, a machine how its own compares with that, and whether it belongs to the best one. Counting and
sums; no loop over machines.

All formulas take leading dimensions (...), so that batches of worlds and one cluster share them.
"""

import math
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
_MACHINE, _RACK, _CLUSTER = range(len(_FACTORS))


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
        group = np.where(rack < 0, -1 - np.arange(rack.shape[-1]), rack)
        amounts = np.stack([room, room * machines.dollars, held])
        sums = np.empty((len(amounts), len(_FACTORS), *pace.shape))
        sums[:, _MACHINE] = amounts
        sums[:, _RACK], sums[:, _CLUSTER] = reach(group, turns(pace), amounts)
        reached, rent, kept = sums
        dollars = rent / np.maximum(reached, 1.0)
        factors = np.array(_FACTORS).reshape(-1, *[1] * pace.ndim)
        is_whole = (kept >= held.sum(axis=-1, keepdims=True)) & (reached > 0)
        speed = np.where(is_whole, factors * pace, 0.0)
        weights = np.array(FEE_WEIGHTS).reshape(-1, *[1] * speed.ndim)
        v100 = UNKNOWN_MODEL.dollars_per_hour
        worth = speed * (1 + weights * v100) / (1 + weights * dollars)
        return cls(machines, pace, reached, worth)

    def best(self, need: IntArray) -> FloatArray:
        """Worth of the best site for ``need`` replicas, shape (..., jobs) -> (..., jobs, weights).

        0 where there is none.
        """
        sizes, which = np.unique(need, return_inverse=True)
        holds = self.reached[..., None, :] >= sizes[:, None]
        worth = np.where(holds, self.worth[..., None, :], 0.0).max(axis=-1, initial=0.0).max(axis=1)
        return np.take_along_axis(
            np.moveaxis(worth, 0, -1), which.reshape(need.shape)[..., None], axis=-2
        )

    def features(self, need: IntArray) -> FloatArray:
        """Features of machines for ``need`` replicas, (...) -> (..., machines, SITE_FEATURES).

        How much of it is free and would be left, speed, rent, the part of the job that its sites
        take, and for each weight how its best site compares and whether it is in the best of all.
        """
        machines, wanted = self.machines, np.maximum(need, 1)[..., None]
        capacity = np.maximum(machines.capacity, 1)
        columns = np.empty((SITE_FEATURES, *self.pace.shape))
        np.divide(machines.room, capacity, out=columns[0])
        np.divide(np.maximum(machines.room - wanted, 0), capacity, out=columns[1])
        np.log(np.maximum(self.pace, 0.05), out=columns[2])
        np.divide(machines.dollars, 4, out=columns[3])
        np.minimum(self.reached / wanted, 1.0, out=columns[4:7])
        has_room = machines.room > 0
        worth = np.where(self.reached >= wanted, self.worth, 0.0)
        own = worth.max(axis=1)
        most = own.max(axis=-1, keepdims=True, initial=_LEAST)
        np.multiply(own / most, has_room, out=columns[7::2])
        columns[8::2] = self._in_best(worth, own) & has_room & (most > _LEAST)
        return np.moveaxis(columns, 0, -1)

    def _in_best(self, worth: FloatArray, own: FloatArray) -> BoolArray:
        """Which machines make up the best site for each weight, shape (weights, ..., machines).

        Where that is one machine, its equals are as good; of equal racks the first is taken.
        ``own`` is the best of ``worth`` over the domains of each machine.
        """
        told = np.stack([self.machines.rack, self.pace])
        told = np.broadcast_to(told, (len(own), *told.shape))
        first = _at(np.concatenate([worth, told], axis=1), own.argmax(axis=-1)[:, None])
        sites, rack, pace = first[:, :-2], first[:, -2], first[:, -1]
        where = sites.argmax(axis=1)
        alone = worth[:, _MACHINE] == sites.max(axis=1)
        beside = (where != _RACK) | (self.machines.rack == rack)
        return np.asarray(np.where(where == _MACHINE, alone, beside & (self.pace >= pace)))


def turns(pace: FloatArray) -> IntArray:
    """The turn of every machine by ``pace``: 0 for the fastest, the same for equally fast ones."""
    paces = np.unique(pace)
    return len(paces) - 1 - np.searchsorted(paces, pace)


def reach(
    group: IntArray, turn: IntArray, amounts: IntArray | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sums of ``amounts`` over the machines whose turn is not later: of the same group, and of all.

    ``group`` and ``turn`` have shape (..., machines), ``amounts`` (kinds, ..., machines), and so
    have both sums.
    """
    first, paces = int(group.min(initial=0)), int(turn.max(initial=0)) + 1
    groups = int(group.max(initial=0)) - first + 1
    worlds = math.prod(turn.shape[:-1])
    world = np.arange(worlds).reshape(*group.shape[:-1], 1)
    cell = ((world * groups + group - first) * paces + turn).ravel()
    column = (world * paces + turn).ravel()
    within, over_all = np.empty((2, len(amounts), cell.size))
    for kind, amount in enumerate(amounts):
        counts = np.bincount(cell, weights=amount.ravel(), minlength=worlds * groups * paces)
        sums = counts.reshape(worlds, groups, paces).cumsum(axis=2)
        within[kind] = sums.ravel()[cell]
        over_all[kind] = sums.sum(axis=1).ravel()[column]
    return within.reshape(amounts.shape), over_all.reshape(amounts.shape)


def _at(values: NDArray[Any], index: IntArray) -> NDArray[Any]:
    """``values[..., index]`` place by place; as ``take_along_axis``, in a fraction of its time."""
    index = np.broadcast_to(index, values.shape[:-1])
    rows = values.reshape(-1, values.shape[-1])
    return rows[np.arange(len(rows)), index.ravel()].reshape(*index.shape, 1)
