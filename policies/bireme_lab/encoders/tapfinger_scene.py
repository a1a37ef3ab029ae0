"""Inputs of TapFinger's network, shared by training and serving.

An agent is a node pool. It sees the first tasks of its queue, its running tasks, and itself. The
gain of a task from more resources is shown by its time at each of its sizes. Amounts are shares of
the pool's capacity in two columns: the scarcest resource other than devices, then devices. Times
are relative to those of the present tasks. So the same weights serve pools of any size and tasks of
any length. Leading dimensions (...) are those of a batch in training.

Source: Li et al., "Task placement and resource allocation for edge machine learning", section 4.2.
The paper shows the kind of a task as a one-hot vector, and agents learn its speed. These features
show times and remaining steps, more than the paper's agents know.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray, IntArray

SLOTS: Final = 10
"""The first tasks of its queue that an agent sees (Li et al., section 5.1)."""
PENDING_FEATURES: Final = 20
RUNNING_FEATURES: Final = 5
POOL_FEATURES: Final = 9
SIZE_FEATURES: Final = 9

NONE: Final = -1
"""The mark of an empty slot."""
_EPSILON: Final = 1e-9
_MAX_LOG: Final = 4.0
"""The cap of logarithms of ratios, and of times in units."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The pools at one moment; amounts are shares of the pool's capacity.

    Attributes:
        kind: Kind of the task in each slot, NONE for an empty one, int64, (..., pools, slots).
        waited: Its wait, in the unit of ``times``, same shape.
        meets: Pools in which it waits, its own included, bool, (..., pools, slots, pools).
        queued: Length of the queue, (..., pools).
        free: (..., pools, 2).
        shares: Demand of each kind at each size, the smallest first, (..., pools, kinds, sizes, 2).
        fits: Whether that is free now, bool, (..., pools, kinds, sizes).
        times: Run time of a kind at a size, (..., kinds, sizes); infinite for a missing size.
        run_shares: Shares of running tasks, (..., pools, runs, 2).
        run_left: Their remaining time, (..., pools, runs); below 0 for padding.
        is_single: Whether each pool starts only one task at a time.
    """

    kind: IntArray
    waited: FloatArray
    meets: BoolArray
    queued: IntArray
    free: FloatArray
    shares: FloatArray
    fits: BoolArray
    times: FloatArray
    run_shares: FloatArray
    run_left: FloatArray
    is_single: bool = False

    def inputs(self) -> dict[str, NDArray[np.float32]]:
        """Return the network's inputs: ``pending``, ``running``, ``pools``, ``sizes`` by kind.

        Features are the last dimension; the first feature is 0 for padding.
        """
        # The geometric mean of the times at the smallest size.
        unit = np.exp(np.log(np.maximum(self.times[..., 0], _EPSILON)).mean(-1))
        arrays = {
            "pending": self._pending(unit),
            "running": self._running(unit),
            "pools": self._pools(unit),
            "sizes": self.size_features(unit),
        }
        return {name: array.astype(np.float32) for name, array in arrays.items()}

    def room(self) -> FloatArray:
        """Return how many times the smallest size of each kind fits, (..., pools, kinds)."""
        fits: FloatArray = (
            self.free[..., None, :] / np.maximum(self.shares[..., 0, :], _EPSILON)
        ).min(-1)
        return np.maximum(fits, 0.0)

    def of_slots(self, by_kind: NDArray[Any]) -> NDArray[Any]:
        """Return the row of ``by_kind``, (..., pools, kinds, *), of every slot; any if empty."""
        index = np.maximum(self.kind, 0)
        index = index.reshape(*index.shape, *[1] * (by_kind.ndim - index.ndim))
        return np.take_along_axis(by_kind, index, axis=self.kind.ndim - 1)

    def contention(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of pools in which each slot's task waits, and of those with more room.

        With equal room the first pool is ahead. Shapes (..., pools, slots).
        """
        room, pools = self._anywhere(self.room()), np.arange(self.kind.shape[-2])
        mine = np.broadcast_to(pools[:, None, None], (*self.kind.shape, 1))
        own_room = np.take_along_axis(room, mine, axis=-1)
        is_ahead = self.meets & ((room > own_room) | ((room == own_room) & (pools < mine)))
        return np.maximum(self.meets.sum(-1), 1.0), is_ahead.sum(-1).astype(np.float64)

    def prospects(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each task's time if it starts here now, in any of its pools now, or later.

        A later start is in its best pool, at the best end of a running task, without competing
        tasks. Infinite if impossible. Shapes (..., pools, slots).
        """
        run_ends = np.where(self.run_left < 0, np.inf, self.run_left)
        # tasks end one after the other, and each end frees its share
        order = run_ends.argsort(axis=-1)
        run_ends = np.take_along_axis(run_ends, order, axis=-1)
        freed = np.take_along_axis(self.run_shares, order[..., None], axis=-2).cumsum(-2)
        then = (self.free[..., None, :] + freed)[..., :, None, None, :] + _EPSILON
        fits = (self.shares[..., None, :, :, :] <= then).all(-1)  # (..., pools, runs, kinds, sizes)
        times = np.where(fits, self.times[..., None, None, :, :], np.inf).min(-1)
        later = (run_ends[..., None] + times).min(-2, initial=np.inf)
        now = np.where(self.fits, self.times[..., None, :, :], np.inf).min(-1)
        anywhere = np.where(self.meets, self._anywhere(now), np.inf).min(-1)
        waiting = np.where(self.meets, self._anywhere(later), np.inf).min(-1)
        return self.of_slots(now), anywhere, waiting

    def _anywhere(self, by_kind: FloatArray) -> FloatArray:
        """Return ``by_kind``, (..., pools, kinds), in every pool: (..., pools, slots, pools)."""
        rows = np.moveaxis(by_kind, -1, -2)[..., None, :, :]
        return np.take_along_axis(rows, np.maximum(self.kind, 0)[..., None], axis=-2)

    def _pending(self, unit: FloatArray) -> FloatArray:
        contenders, rivals_ahead = self.contention()
        now, anywhere, later = self.prospects()
        max_time = _MAX_LOG * unit[..., None, None]  # infinite times would make features infinite
        gain = np.minimum(now, max_time) - np.minimum(later, max_time)
        waits = self.kind != NONE
        by_slot = _stack(
            waits,
            np.log1p(self.waited / unit[..., None, None]),
            np.arange(self.kind.shape[-1]) / SLOTS,
            np.log2(contenders) / 2,
            rivals_ahead == 0,
            rivals_ahead / np.maximum(contenders - 1, 1),
            contenders == 1,
            np.clip(4 * gain / unit[..., None, None], -2, 2),
            _log(np.minimum(now, max_time) / np.minimum(later, max_time)),
            _log(np.minimum(now, max_time) / np.minimum(anywhere, max_time)),
            now <= anywhere,
            np.isfinite(later),
        )
        features = np.concatenate([by_slot, self.of_slots(self._kinds(unit))], axis=-1)
        return np.where(waits[..., None], features, 0.0)

    def _kinds(self, unit: FloatArray) -> FloatArray:
        """Return the features by kind and pool, (..., pools, kinds, 8)."""
        times = self.times[..., None, :, :]
        smallest = times[..., 0]
        free_times = np.where(self.fits, times, np.inf)
        best = np.where((self.shares <= 1).all(-1), times, np.inf).min(-1)
        quickest = free_times.argmin(-1)[..., None]
        used_share = np.take_along_axis(self.shares.max(-1), quickest, axis=-1)[..., 0]
        can_start = self.fits[..., 0]
        return _stack(
            can_start,
            _log(smallest / unit[..., None, None]),
            _ratio(free_times.min(-1), smallest),
            _ratio(best, smallest),
            self.shares[..., 0, 0],
            self.shares[..., 0, 1],
            np.where(can_start, used_share, 0.0),
            np.log2(1 + self.room()) / 4,
        )

    def _running(self, unit: FloatArray) -> FloatArray:
        remaining = np.maximum(self.run_left, 0.0) / unit[..., None, None]
        features = _stack(
            1.0,
            self.run_shares[..., 0],
            self.run_shares[..., 1],
            np.log1p(remaining),
            np.minimum(remaining, _MAX_LOG),
        )
        return np.where((self.run_left >= 0)[..., None], features, 0.0)

    def _pools(self, unit: FloatArray) -> FloatArray:
        runs = self.run_left >= 0
        min_share = self.shares[..., 0, :].max(-1).mean(-1)  # of a middle task, (..., pools)
        soonest = np.where(runs, self.run_left, np.inf).min(-1, initial=np.inf)
        return _stack(
            1.0,
            self.free[..., 0],
            self.free[..., 1],
            np.log1p(self.queued) / 4,
            (self.kind != NONE).sum(-1) / SLOTS,
            runs.sum(-1) * min_share,
            np.log2(1 + 1 / np.maximum(min_share, 1e-3)) / 5,
            np.minimum(soonest / unit[..., None], _MAX_LOG),
            self.is_single,
        )

    def size_features(self, unit: FloatArray) -> FloatArray:
        """Return features of sizes, (..., pools, kinds, sizes, SIZE_FEATURES), before rounding."""
        times = self.times[..., None, :, :]
        smallest = times[..., :1]
        finite = np.where(np.isfinite(times), times, smallest)
        of_free = np.minimum(self.shares / np.maximum(self.free[..., None, None, :], _EPSILON), 1.0)
        share = self.shares.max(-1)
        work = share * finite
        return _stack(
            self.fits,
            self.shares[..., 0],
            self.shares[..., 1],
            of_free[..., 0],
            of_free[..., 1],
            finite / smallest,
            _log(finite / unit[..., None, None, None]),
            _log(work / np.maximum(work[..., :1], _EPSILON)),
            np.log2(1 + 1 / np.maximum(share, 1e-3)) / 5,
        )


def _stack(*features: Any) -> FloatArray:
    return np.stack(np.broadcast_arrays(*features), axis=-1).astype(np.float64)


def _log(ratios: FloatArray) -> FloatArray:
    """Return half the natural logarithm, capped."""
    logs: FloatArray = np.log(np.maximum(ratios, _EPSILON))
    return np.clip(logs, -_MAX_LOG, _MAX_LOG) / 2


def _ratio(times: FloatArray, smallest: FloatArray) -> FloatArray:
    """Return times relative to those at the smallest size; 1 for infinite times."""
    return np.where(np.isfinite(times), times / smallest, 1.0)
