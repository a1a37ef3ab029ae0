"""What TapFinger's agents see of its world: inputs of networks, sizes instead of amounts.

Of all CPUs and GPUs that a job may have, those remain than which none smaller are as fast
(:func:`efficient_sizes`): more would gain nothing. A size is a row of that list; VOID gives a job
nothing, and LOST says that another pool won it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.rl.encoders.tapfinger_choice import room
from bireme.rl.encoders.tapfinger_moves import LOST, VOID
from bireme.rl.encoders.tapfinger_scene import NONE, Scene
from bireme.training.tapfinger.laws import LONGEST_STEPS, Law
from bireme.training.tapfinger.settings import Setting
from bireme.training.worlds import Array, Observation

SLOT: Final = "slot"
SIZE: Final = "size"
"""Names of actions, int64 (worlds, pools): which job, and 1 + the row of its size."""


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """One moment of a batch of worlds.

    Attributes:
        raw: As the world tells it.
        scene: The same in shares and times.
        room: How often the smallest size of the job in each slot is free, (worlds, pools, slots).
    """

    raw: Observation
    scene: Scene
    room: FloatArray

    def seen(self) -> dict[str, Array]:
        """What :mod:`~bireme.rl.encoders.tapfinger_moves` describes, of every world."""
        raw = self.raw
        return {
            **self.scene.inputs(),
            "kind": raw["kind"],
            "job": raw["job"],
            "room": self.room,
            "can_void": raw["may_wait"],
        }


class Sight:
    """How worlds of one setting are seen, and acted in.

    Attributes:
        sizes: CPUs and GPUs of the sizes of each kind, int64 (kinds, sizes, 2); 0 behind the last.
        steps: How long each takes, (kinds, sizes), infinite there.
    """

    def __init__(self, setting: Setting) -> None:
        self.sizes, self.steps = _size_table(setting.law)
        self._is_single = not setting.is_multi
        self._capacity = np.array(setting.capacity, dtype=np.float64)
        self._shares = self.sizes / self._capacity[:, None, None, :]

    def look(self, raw: Observation) -> Moment:
        """What is seen where a :class:`~bireme.training.tapfinger.world.TapWorld` shows ``raw``."""
        free = raw["free"]
        may = ~raw["is_done"][:, :, None, None] & np.isfinite(self.steps)
        scene = Scene(
            kind=raw["kind"],
            waited=raw["waited"],
            meets=raw["connects"],
            queued=raw["waiting"],
            free=free / self._capacity,
            shares=self._shares[None],
            fits=(self.sizes <= free[:, :, None, None, :]).all(-1) & may,
            times=self.steps[None],
            run_shares=raw["run_amount"] / self._capacity[:, None, :],
            run_left=raw["run_left"],
            is_single=self._is_single,
        )
        return Moment(raw, scene, room(free[:, :, None, :], raw["least"]))

    def actions(self, raw: Observation, chosen: Mapping[str, Array]) -> dict[str, Array]:
        """What slots and sizes stand for in the world that shows ``raw``."""
        slot, size = chosen[SLOT], chosen[SIZE]
        kind = np.take_along_axis(raw["kind"], slot[..., None], axis=-1)[..., 0]
        won = (size != LOST) & (kind != NONE)
        given = self.sizes[np.maximum(kind, 0), np.maximum(size - 1, 0)]
        starts = won & (size > VOID)
        return {"slot": slot, "won": won, "amount": np.where(starts[..., None], given, 0)}


def efficient_sizes(times: FloatArray) -> tuple[IntArray, FloatArray]:
    """Amounts of two resources than which no smaller ones are as fast, with their times.

    The longest time comes first. ``times[cpus, gpus]`` is infinite where a task cannot run.
    Shapes (sizes, 2) and (sizes,).
    """
    best = np.minimum.accumulate(np.minimum.accumulate(times, axis=0), axis=1)
    below = np.full(times.shape, np.inf)
    below[1:] = best[:-1]
    below[:, 1:] = np.minimum(below[:, 1:], best[:, :-1])
    amounts = np.argwhere(times < below)
    found = times[tuple(amounts.T)]
    order = np.lexsort((amounts.sum(-1), -found))
    return amounts[order], found[order]


def _size_table(law: Law) -> tuple[IntArray, FloatArray]:
    steps = np.where(law.steps >= LONGEST_STEPS, np.inf, law.steps)
    found = [efficient_sizes(one) for one in steps]
    most = max(len(amounts) for amounts, _ in found)
    sizes = np.zeros((len(found), most, 2), dtype=np.int64)
    times = np.full((len(found), most), np.inf)
    for kind, (amounts, taken) in enumerate(found):
        sizes[kind, : len(amounts)], times[kind, : len(taken)] = amounts, taken
    return sizes, times
