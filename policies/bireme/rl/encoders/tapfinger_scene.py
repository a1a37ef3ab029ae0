"""Inputs of TapFinger's network, shared by training and serving.

An agent is a node pool. It sees the first tasks of its queue, the tasks that run in it, and itself;
what a task gains by more resources is shown as the time it takes at each of its sizes. Amounts are
shares of the pool's capacity in two columns (the scarcest of all resources that are no devices,
then devices), times are relative to those of the present tasks: the same weights serve pools of any
size and tasks of any length. Leading dimensions (...) are those of a batch in training.

Source: Li et al., "Task placement and resource allocation for edge machine learning", section 4.2.
The paper shows the kind of a task as a one-hot vector and lets agents learn its speed; these
features show times and steps left themselves, which is more than the paper's agents know.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray, IntArray

SLOTS: Final = 10
"""Tasks of its queue that an agent sees (Li et al., section 5.1)."""
PENDING_FEATURES: Final = 20
RUNNING_FEATURES: Final = 5
POOL_FEATURES: Final = 9
SIZE_FEATURES: Final = 9

NONE: Final = -1
"""Marks an empty slot."""
_LEAST: Final = 1e-9
_MAX_LOG: Final = 4.0
"""Logarithms of ratios are capped here, and times in units."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The pools at one moment; amounts are shares of the pool's capacity.

    Attributes:
        kind: Kind of the task in each slot, NONE for an empty one, int64, (..., pools, slots).
        waited: How long it has waited, in the unit of ``times``, same shape.
        meets: Pools in which it waits, with its own, bool, (..., pools, slots, pools).
        queued: Length of the queue, (..., pools).
        free: (..., pools, 2).
        shares: What each kind takes at each size, the smallest first, (..., pools, kinds, sizes,
            2).
        fits: Whether that is free now, bool, (..., pools, kinds, sizes).
        times: How long it takes then, (..., kinds, sizes); infinite where there is no such size.
        run_shares: What runs, (..., pools, runs, 2).
        run_left: How much longer, (..., pools, runs); below 0 where nothing runs.
        is_single: Whether each pool starts one task at a time only.
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

        Features are the last dimension; the first of them is 0 for padding.
        """
        # The geometric mean of the times at the smallest size.
        unit = np.exp(np.log(np.maximum(self.times[..., 0], _LEAST)).mean(-1))
        arrays = {
            "pending": self._pending(unit),
            "running": self._running(unit),
            "pools": self._pools(unit),
            "sizes": self.size_features(unit),
        }
        return {name: array.astype(np.float32) for name, array in arrays.items()}

    def room(self) -> FloatArray:
        """Return how often the smallest size of each kind fits, (..., pools, kinds)."""
        found: FloatArray = (
            self.free[..., None, :] / np.maximum(self.shares[..., 0, :], _LEAST)
        ).min(-1)
        return np.maximum(found, 0.0)

    def of_slots(self, by_kind: NDArray[Any]) -> NDArray[Any]:
        """Return the row of ``by_kind``, (..., pools, kinds, *), of every slot; any if empty."""
        at = np.maximum(self.kind, 0)
        at = at.reshape(*at.shape, *[1] * (by_kind.ndim - at.ndim))
        return np.take_along_axis(by_kind, at, axis=self.kind.ndim - 1)

    def contention(self) -> tuple[FloatArray, FloatArray]:
        """Return in how many pools each slot's task waits, and how many of them have more room.

        Of pools with equal room the first is ahead. Shapes (..., pools, slots).
        """
        there, pools = self._anywhere(self.room()), np.arange(self.kind.shape[-2])
        mine = np.broadcast_to(pools[:, None, None], (*self.kind.shape, 1))
        own = np.take_along_axis(there, mine, axis=-1)
        ahead = self.meets & ((there > own) | ((there == own) & (pools < mine)))
        return np.maximum(self.meets.sum(-1), 1.0), ahead.sum(-1).astype(np.float64)

    def prospects(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each task's time if it starts here now, in any of its pools now, or later.

        Later is in the best of its pools, at the best end of a running task there, if no other task
        takes the room. Infinite where impossible. Shapes (..., pools, slots).
        """
        left = np.where(self.run_left < 0, np.inf, self.run_left)
        # tasks end one after the other, and each end frees its share
        order = left.argsort(axis=-1)
        left = np.take_along_axis(left, order, axis=-1)
        freed = np.take_along_axis(self.run_shares, order[..., None], axis=-2).cumsum(-2)
        then = (self.free[..., None, :] + freed)[..., :, None, None, :] + _LEAST
        fits = (self.shares[..., None, :, :, :] <= then).all(-1)  # (..., pools, runs, kinds, sizes)
        times = np.where(fits, self.times[..., None, None, :, :], np.inf).min(-1)
        later = (left[..., None] + times).min(-2, initial=np.inf)
        now = np.where(self.fits, self.times[..., None, :, :], np.inf).min(-1)
        anywhere = np.where(self.meets, self._anywhere(now), np.inf).min(-1)
        waiting = np.where(self.meets, self._anywhere(later), np.inf).min(-1)
        return self.of_slots(now), anywhere, waiting

    def _anywhere(self, by_kind: FloatArray) -> FloatArray:
        """Return ``by_kind``, (..., pools, kinds), in every pool: (..., pools, slots, pools)."""
        rows = np.moveaxis(by_kind, -1, -2)[..., None, :, :]
        return np.take_along_axis(rows, np.maximum(self.kind, 0)[..., None], axis=-2)

    def _pending(self, unit: FloatArray) -> FloatArray:
        contenders, ahead = self.contention()
        now, anywhere, later = self.prospects()
        most = _MAX_LOG * unit[..., None, None]  # infinite times would make features infinite
        gain = np.minimum(now, most) - np.minimum(later, most)
        waits = self.kind != NONE
        own = _stacked(
            waits,
            np.log1p(self.waited / unit[..., None, None]),
            np.arange(self.kind.shape[-1]) / SLOTS,
            np.log2(contenders) / 2,
            ahead == 0,
            ahead / np.maximum(contenders - 1, 1),
            contenders == 1,
            np.clip(4 * gain / unit[..., None, None], -2, 2),
            _log(np.minimum(now, most) / np.minimum(later, most)),
            _log(np.minimum(now, most) / np.minimum(anywhere, most)),
            now <= anywhere,
            np.isfinite(later),
        )
        seen = np.concatenate([own, self.of_slots(self._kinds(unit))], axis=-1)
        return np.where(waits[..., None], seen, 0.0)

    def _kinds(self, unit: FloatArray) -> FloatArray:
        """Return the features that follow from kind and pool, (..., pools, kinds, 8)."""
        times = self.times[..., None, :, :]
        least = times[..., 0]
        free_times = np.where(self.fits, times, np.inf)
        best = np.where((self.shares <= 1).all(-1), times, np.inf).min(-1)
        quickest = free_times.argmin(-1)[..., None]
        taken = np.take_along_axis(self.shares.max(-1), quickest, axis=-1)[..., 0]
        can_start = self.fits[..., 0]
        return _stacked(
            can_start,
            _log(least / unit[..., None, None]),
            _ratio(free_times.min(-1), least),
            _ratio(best, least),
            self.shares[..., 0, 0],
            self.shares[..., 0, 1],
            np.where(can_start, taken, 0.0),
            np.log2(1 + self.room()) / 4,
        )

    def _running(self, unit: FloatArray) -> FloatArray:
        left = np.maximum(self.run_left, 0.0) / unit[..., None, None]
        seen = _stacked(
            1.0,
            self.run_shares[..., 0],
            self.run_shares[..., 1],
            np.log1p(left),
            np.minimum(left, _MAX_LOG),
        )
        return np.where((self.run_left >= 0)[..., None], seen, 0.0)

    def _pools(self, unit: FloatArray) -> FloatArray:
        runs = self.run_left >= 0
        least = self.shares[..., 0, :].max(-1).mean(-1)  # of a middle task, (..., pools)
        soonest = np.where(runs, self.run_left, np.inf).min(-1, initial=np.inf)
        return _stacked(
            1.0,
            self.free[..., 0],
            self.free[..., 1],
            np.log1p(self.queued) / 4,
            (self.kind != NONE).sum(-1) / SLOTS,
            runs.sum(-1) * least,
            np.log2(1 + 1 / np.maximum(least, 1e-3)) / 5,
            np.minimum(soonest / unit[..., None], _MAX_LOG),
            self.is_single,
        )

    def size_features(self, unit: FloatArray) -> FloatArray:
        """Return features of sizes, (..., pools, kinds, sizes, SIZE_FEATURES), before rounding."""
        times = self.times[..., None, :, :]
        least = times[..., :1]
        known = np.where(np.isfinite(times), times, least)
        of_free = np.minimum(self.shares / np.maximum(self.free[..., None, None, :], _LEAST), 1.0)
        share = self.shares.max(-1)
        work = share * known
        return _stacked(
            self.fits,
            self.shares[..., 0],
            self.shares[..., 1],
            of_free[..., 0],
            of_free[..., 1],
            known / least,
            _log(known / unit[..., None, None, None]),
            _log(work / np.maximum(work[..., :1], _LEAST)),
            np.log2(1 + 1 / np.maximum(share, 1e-3)) / 5,
        )


def _stacked(*features: Any) -> FloatArray:
    return np.stack(np.broadcast_arrays(*features), axis=-1).astype(np.float64)


def _log(ratios: FloatArray) -> FloatArray:
    """Return half the natural logarithm, capped."""
    found: FloatArray = np.log(np.maximum(ratios, _LEAST))
    return np.clip(found, -_MAX_LOG, _MAX_LOG) / 2


def _ratio(times: FloatArray, least: FloatArray) -> FloatArray:
    """Return times relative to those at the smallest size; 1 for infinite ones."""
    return np.where(np.isfinite(times), times / least, 1.0)
