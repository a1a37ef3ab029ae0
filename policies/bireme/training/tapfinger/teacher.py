"""The rule that TapFinger's agents start from: every pool looks ahead for itself.

A pool starts a job with the best size that is free if no other pool would have it done sooner, and
if waiting for something that runs, here or in another of its pools, would save it a step at most.
Of the jobs that pass it takes first those that can go to the fewest pools, then the quickest; jobs
that gain nothing by a larger size it leaves to the pool with the most room. What several pools
choose goes to the one with the most room, and the others choose again.

It knows what the agents know. It is a contender of its own, since what learning adds is what the
agents do better than this.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, IntArray
from bireme.rl.encoders.tapfinger_choice import winners
from bireme.rl.encoders.tapfinger_moves import LOST, VOID
from bireme.rl.encoders.tapfinger_scene import Scene
from bireme.training.tapfinger.settings import Setting
from bireme.training.tapfinger.sight import SIZE, SLOT, Moment
from bireme.training.worlds import Array

_SAVES_STEPS: Final = 1.0
_RARE: Final = 1e6
_QUICK: Final = 1e3
"""Weights of what decides first and second; what came first decides last."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """The rule, as slots and sizes of what is seen.

    Attributes:
        heeds_reach: Whether jobs that can go to the fewest pools come first.
        heeds_room: Whether jobs without a gain go only where most is free. Where pools start one
            job at a time, that would keep some from starting any.
    """

    heeds_reach: bool = True
    heeds_room: bool = True

    def __call__(self, moment: Moment) -> dict[str, Array]:
        """What the pools do."""
        scene, raw = moment.scene, moment.raw
        now, anywhere, later = scene.prospects()
        may = np.isfinite(now) & raw["pending_mask"]
        starts = may & (now <= anywhere) & (now <= later + _SAVES_STEPS)
        if self.heeds_room:
            starts &= _gains(scene) | (scene.contention()[1] == 0)
        stuck = ~raw["may_wait"] & ~starts.any(axis=(1, 2))
        starts = np.where(stuck[:, None, None], may, starts)
        order = _QUICK * np.where(may, now, 0.0) + np.arange(now.shape[2])
        if self.heeds_reach:
            order = order + _RARE * raw["connects"].sum(-1)
        acts = starts.any(-1)
        slot = np.where(starts, -order, -np.inf).argmax(-1)
        slot = np.where(acts, slot, may.argmax(-1))
        job, room = _of(raw["job"], slot), _of(moment.room, slot)
        won = winners(np.where(acts, job, LOST), np.ones(job.shape), room)
        nothing = np.where(raw["may_wait"], VOID, LOST)[:, None]
        quickest = np.where(scene.fits, scene.times[..., None, :, :], np.inf).argmin(-1)
        size = 1 + _of(scene.of_slots(quickest), slot)
        return {SLOT: slot, SIZE: np.where(acts, np.where(won, size, LOST), nothing)}


def _of(values: NDArray[Any], slot: IntArray) -> NDArray[Any]:
    """``values``, (..., pools, slots), of chosen slots, (..., pools)."""
    return np.take_along_axis(values, slot[..., None], axis=-1)[..., 0]


def _gains(scene: Scene) -> BoolArray:
    """Whether the job in each slot is quicker in a larger size, (..., pools, slots)."""
    by_kind = scene.times.min(-1) < scene.times[..., 0]
    found = np.broadcast_to(by_kind[..., None, :], scene.fits.shape[:-1])
    return np.asarray(scene.of_slots(found), dtype=np.bool_)


def teacher_of(setting: Setting) -> Lookahead:
    """The best such rule for a setting: where sizes do not matter, the quickest comes first."""
    cpus, gpus = setting.law.least
    steps = setting.law.steps
    is_sized = bool((steps.min(axis=(1, 2)) < steps[:, cpus, gpus]).any())
    return Lookahead(heeds_reach=is_sized, heeds_room=is_sized and setting.is_multi)
