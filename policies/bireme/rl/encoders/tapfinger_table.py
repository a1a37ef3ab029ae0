"""Gangs and node pools as arrays, for TapFinger: who could start where, and what is left after.

What a pool offers is the sum over its ready nodes. Shares of it have two columns: the scarcest of
all that is no device, and devices; a pool without devices has the same twice.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.resources import PODS, BoolArray, FloatArray, IntArray
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import Pool
from bireme.rl.encoders.tapfinger_choice import room
from bireme.rl.encoders.tapfinger_gangs import (
    MOST_SIZES,
    Offer,
    offer_of,
    seconds_at,
    typical_seconds,
)
from bireme.rl.encoders.tapfinger_scene import NONE, SLOTS, Scene

MOST_RUNS: Final = 16
"""Running gangs that a pool sees, those that end first."""
_BEYOND: Final = 10.0
"""Shares of a pool above this are as hopeless as it."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolTable:
    """What the pools of a cluster have.

    Attributes:
        codes: Of every node's pool, (nodes,); NONE for nodes that are not ready.
        capacity, free: Int64 (pools, resources).
        devices, others: Columns of resources.
    """

    codes: IntArray
    capacity: IntArray
    free: IntArray
    devices: IntArray
    others: IntArray

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> "PoolTable":
        """Of all pools of ``snapshot``; ``free`` may be written to."""
        nodes, codes = snapshot.nodes, snapshot.node_pools
        count = int(codes.max(initial=0)) + 1
        ready = np.where(nodes.is_ready, codes, count)

        def total(amounts: IntArray) -> IntArray:
            found = np.zeros((count + 1, amounts.shape[1]), dtype=np.int64)
            np.add.at(found, ready, np.maximum(amounts, 0))
            return found[:count]

        names = nodes.axis.names
        devices = np.flatnonzero(["/" in name for name in names])
        others = np.flatnonzero(["/" not in name and name != PODS for name in names])
        free = total(nodes.allocatable - snapshot.used)
        codes = np.where(ready < count, ready, NONE)
        return cls(codes, total(nodes.allocatable), free, devices, others)

    def shares(self, amounts: IntArray) -> FloatArray:
        """Of (pools, ..., resources) the shares of capacity, (pools, ..., 2)."""
        capacity = self.capacity.reshape(len(self.capacity), *[1] * (amounts.ndim - 2), -1)
        share = np.where(amounts > 0, amounts / np.maximum(capacity, 1), 0.0)
        share = np.where((amounts > 0) & (capacity <= 0), _BEYOND, np.minimum(share, _BEYOND))
        other = share[..., self.others].max(-1, initial=0.0)
        device = share[..., self.devices].max(-1, initial=0.0)
        has_devices = (capacity[..., self.devices] > 0).any(-1)
        return np.stack([other, np.where(has_devices, device, np.maximum(other, device))], axis=-1)

    def holds(self, offer: Offer, room: FreeCapacity) -> BoolArray:
        """Whether the nodes of each pool have places for each size, (pools, sizes)."""
        found = np.ones((len(self.capacity), len(offer.sizes)), dtype=np.bool_)
        there = self.codes != NONE
        for task in offer.gang.tasks:
            counts = np.array([size[task.name] for size in offer.sizes])
            replicas = np.minimum(room.replicas(task), counts.max())[there]
            total = np.bincount(self.codes[there], replicas, minlength=len(self.capacity))
            found &= total[:, None] >= counts
        return found


@dataclass(slots=True, eq=False)
class Table:
    """How gangs and pools stand after what has been chosen so far in a cycle.

    Attributes:
        offers: What each gang may have.
        pools: What they have; ``free`` falls.
        demand: Int64 (gangs, sizes, resources).
        seconds: (gangs, sizes), infinite behind the last size of a gang.
        shares: (pools, gangs, sizes, 2).
        places: Whether there were nodes for it at first, bool (pools, gangs, sizes).
        reaches: Whether the empty pool could hold the smallest size, bool (pools, gangs).
        waits: Which gangs nobody has started, bool (gangs,).
        waited: Seconds, (gangs,).
        run_shares, run_left: What runs, (pools, runs, 2) and (pools, runs).
        can_void: Whether something runs, so that all pools may start nothing.
    """

    offers: tuple[Offer, ...]
    pools: PoolTable
    demand: IntArray
    seconds: FloatArray
    shares: FloatArray
    places: BoolArray
    reaches: BoolArray
    waits: BoolArray
    waited: FloatArray
    run_shares: FloatArray
    run_left: FloatArray
    can_void: bool

    @classmethod
    def of(cls, gangs: tuple[Gang, ...], snapshot: ClusterSnapshot) -> "Table":
        """The table at the start of a cycle."""
        nodes, whole, pools = snapshot.nodes, Pool((), snapshot), PoolTable.of(snapshot)
        typical = typical_seconds(gangs)
        offers = tuple(offer_of(gang, whole, snapshot, typical) for gang in gangs)
        demand = np.stack([_padded(offer.demand, 0) for offer in offers])
        now, empty = FreeCapacity(nodes, snapshot.used), FreeCapacity(nodes, nodes.fixed)
        whole_demand = np.broadcast_to(demand, (len(pools.capacity), *demand.shape))
        run_shares, run_left = _runs(pools, whole, snapshot, typical)
        return cls(
            offers=offers,
            pools=pools,
            demand=demand,
            seconds=np.stack([_padded(offer.seconds, np.inf) for offer in offers]),
            shares=pools.shares(whole_demand),
            places=np.stack([_padded(pools.holds(o, now).T, False).T for o in offers], axis=1),
            reaches=np.stack([pools.holds(o, empty)[:, 0] for o in offers], axis=1),
            waits=np.ones(len(gangs), dtype=np.bool_),
            waited=np.array([snapshot.wait_seconds(gang) for gang in gangs]),
            run_shares=run_shares,
            run_left=run_left,
            can_void=bool(snapshot.running),
        )

    @property
    def fits(self) -> BoolArray:
        """What could start now, (pools, gangs, sizes)."""
        is_free = (self.demand <= self.pools.free[:, None, None, :]).all(-1)
        may = self.reaches & self.waits
        return np.asarray(is_free & self.places & may[:, :, None])

    @property
    def can_start(self) -> bool:
        """Whether anybody could start anywhere at the smallest size."""
        is_free = (self.demand[:, 0] <= self.pools.free[:, None, :]).all(-1)
        return bool((is_free & self.places[..., 0] & self.reaches & self.waits).any())

    def start(self, gang: int, pool: int, size: int) -> None:
        """``gang`` starts in ``pool`` with the size in that row."""
        self.waits[gang], self.can_void = False, True
        self.pools.free[pool] -= self.demand[gang, size]

    def seen(self) -> dict[str, NDArray[Any]]:
        """What is asked about; see :mod:`~bireme.rl.encoders.tapfinger_moves`."""
        job, queued = self._windows()
        there, rows = job != NONE, np.maximum(job, 0)
        visible = np.zeros(self.reaches.shape, dtype=np.bool_)
        visible[np.nonzero(there)[0], job[there]] = True
        kinds = np.flatnonzero(visible.any(axis=0))  # those that nobody sees cost time only
        kind = np.where(there, np.searchsorted(kinds, job), NONE)
        scene = Scene(
            kind=kind,
            waited=np.where(there, self.waited[rows], 0.0),
            meets=visible.T[rows] & there[..., None],
            queued=queued,
            free=1.0 - self.pools.shares(self.pools.capacity - self.pools.free),
            shares=self.shares[:, kinds],
            fits=self.fits[:, kinds],
            times=self.seconds[kinds],
            run_shares=self.run_shares,
            run_left=self.run_left,
        )
        return {
            **scene.inputs(),
            "kind": kind,
            "job": job,
            "room": room(self.pools.free[:, None, :], self.demand[rows, 0]),
            "can_void": np.asarray(self.can_void),
        }

    def _windows(self) -> tuple[IntArray, IntArray]:
        """The first gangs that wait at each pool, (pools, slots), and how many do, (pools,)."""
        waits = self.reaches & self.waits
        place = waits.cumsum(axis=1) - 1
        pools, gangs = np.nonzero(waits & (place < SLOTS))
        job = np.full((len(waits), SLOTS), NONE)
        job[pools, place[pools, gangs]] = gangs
        return job, waits.sum(axis=1)


def _padded(rows: NDArray[Any], fill: float) -> NDArray[Any]:
    """``rows`` with MOST_SIZES rows."""
    whole = np.full((MOST_SIZES, *rows.shape[1:]), fill, rows.dtype)
    whole[: len(rows)] = rows
    return whole


def _runs(
    pools: PoolTable, whole: Pool, snapshot: ClusterSnapshot, typical: float
) -> tuple[FloatArray, FloatArray]:
    """Shares and seconds left of the gangs in each pool that end first; below 0 for none."""
    found: list[list[tuple[float, IntArray]]] = [[] for _ in pools.capacity]
    for running in snapshot.running:
        rows = running.placement.node_rows()
        if len(rows) and (pool := int(pools.codes[rows[0]])) != NONE:
            left = _left(running, whole, snapshot, typical)
            found[pool].append((left, running.usage(snapshot.nodes.axis)[1].sum(axis=0)))
    runs = max(1, min(MOST_RUNS, max(map(len, found))))
    amounts = np.zeros((len(found), runs, len(snapshot.nodes.axis)), dtype=np.int64)
    seconds = np.full((len(found), runs), float(NONE))
    for pool, parts in enumerate(found):
        for place, (left, usage) in enumerate(sorted(parts, key=lambda part: part[0])[:runs]):
            seconds[pool, place], amounts[pool, place] = left, usage
    return pools.shares(amounts), seconds


def _left(running: RunningGang, whole: Pool, snapshot: ClusterSnapshot, typical: float) -> float:
    """Seconds; those of a middle gang where nobody knows."""
    left = seconds_at(running.gang, running.sizes, whole, snapshot, typical)
    return left if np.isfinite(left) else typical
