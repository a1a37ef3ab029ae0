"""The world of TapFinger as its agents see it: inputs of networks, sizes instead of amounts.

Of all CPUs and GPUs that a job may have, those remain than which none smaller are as fast
(:func:`~bireme.rl.encoders.tapfinger_scene.efficient_sizes`): more would gain nothing. A size is a
row of that list; VOID gives a job nothing, and LOST says that another pool won it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bireme.core.resources import IntArray
from bireme.rl.encoders.tapfinger_choice import room
from bireme.rl.encoders.tapfinger_moves import LOST, VOID
from bireme.rl.encoders.tapfinger_scene import NONE, Scene, efficient_sizes
from bireme.training.tapfinger.laws import LONGEST_STEPS, Law
from bireme.training.tapfinger.world import TapWorld
from bireme.training.worlds import Actions, Array, Observation, Step

SLOT: Final = "slot"
SIZE: Final = "size"
"""Names of actions, int64 (worlds, pools): which job, and 1 + the row of its size."""


class SizeTable:
    """The sizes that jobs of each kind may have.

    Attributes:
        amounts: CPUs and GPUs, int64 (kinds, sizes, 2); 0 where a kind has fewer sizes.
        steps: Float (kinds, sizes), infinite there.
        row: The best size within an amount, int64 (kinds, CPUs, GPUs); NONE below the least.
    """

    def __init__(self, law: Law, *, is_grid: bool = False) -> None:
        """``is_grid``: all amounts are sizes, as in the paper."""
        steps = np.where(law.steps >= LONGEST_STEPS, np.inf, law.steps)
        found = [_grid(one) if is_grid else efficient_sizes(one) for one in steps]
        most = max(len(amounts) for amounts, _ in found)
        self.amounts: IntArray = np.zeros((len(found), most, 2), dtype=np.int64)
        self.steps = np.full((len(found), most), np.inf)
        self.row: IntArray = np.full(steps.shape, NONE)
        for kind, (amounts, times) in enumerate(found):
            self.amounts[kind, : len(amounts)], self.steps[kind, : len(times)] = amounts, times
            for row, (cpus, gpus) in enumerate(amounts):  # the quickest last
                self.row[kind, cpus:, gpus:] = row


def _grid(times: Array) -> tuple[IntArray, Array]:
    amounts = np.argwhere(np.isfinite(times))
    return amounts, times[tuple(amounts.T)]


class TapTurns:
    """A World around a :class:`TapWorld`.

    Observations are the inputs of :class:`~bireme.rl.encoders.tapfinger_scene.Scene`, with ``kind``
    and ``job`` int64 (worlds, pools, slots), ``room`` (worlds, pools, slots), and ``can_void`` bool
    (worlds,).
    """

    def __init__(self, world: TapWorld, *, is_grid: bool = False) -> None:
        self.world = world
        self.table = SizeTable(world.setting.law, is_grid=is_grid)
        capacity = np.array(world.setting.capacity, dtype=np.float64)
        self._capacity = capacity
        self._shares = self.table.amounts / capacity[:, None, None, :]
        self.raw: Observation = {}

    @property
    def count(self) -> int:
        """How many worlds there are."""
        return self.world.count

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start anew."""
        return self._shown(self.world.reset(seeds))

    def step(self, actions: Actions) -> Step:
        """Act: in every pool a slot and a size."""
        if not isinstance(actions, Mapping):
            raise TypeError("actions of TapFinger are a mapping with slot and size")
        step = self.world.step(amounts(self.raw, self.table, actions[SLOT], actions[SIZE]))
        return Step(self._shown(step.observation), step.rewards, step.is_over, step.times)

    def _shown(self, raw: Observation) -> Observation:
        self.raw = raw
        scene = self._scene(raw)
        return {
            **scene.inputs(),
            "kind": raw["kind"],
            "job": raw["job"],
            "room": room(raw["free"][:, :, None, :], raw["least"]),
            "can_void": raw["may_wait"],
        }

    def _scene(self, raw: Observation) -> Scene:
        """What is seen, as shares of each pool's capacity."""
        free = raw["free"]
        exists = np.isfinite(self.table.steps)
        may = ~raw["is_done"][:, :, None, None] & exists
        fits = (self.table.amounts <= free[:, :, None, None, :]).all(-1) & may
        return Scene(
            kind=raw["kind"],
            waited=raw["waited"],
            meets=raw["connects"],
            queued=raw["waiting"],
            free=free / self._capacity,
            shares=self._shares[None],
            fits=fits,
            times=self.table.steps[None],
            run_shares=raw["run_amount"] / self._capacity[:, None, :],
            run_left=raw["run_left"],
            is_single=not self.world.setting.is_multi,
        )


def amounts(raw: Observation, table: SizeTable, slot: Array, size: Array) -> dict[str, Array]:
    """The actions of a :class:`TapWorld` that ``slot`` and ``size`` stand for."""
    kind = np.take_along_axis(raw["kind"], slot[..., None], axis=-1)[..., 0]
    wins = (size != LOST) & (kind != NONE)
    given = table.amounts[np.maximum(kind, 0), np.maximum(size - 1, 0)]
    starts = wins & (size > VOID)
    return {"slot": slot, "won": wins, "amount": np.where(starts[..., None], given, 0)}


def as_sizes(raw: Observation, table: SizeTable, taken: Mapping[str, Array]) -> dict[str, Array]:
    """What a rule's actions are as slots and sizes.

    A pool that starts nothing chooses the first job that it could start, and gives it nothing;
    where that is forbidden it counts as having lost.
    """
    starts = taken["won"] & (taken["amount"] > 0).any(-1)
    slot = np.where(starts, taken["slot"], raw["fits"].argmax(-1))
    kind = np.maximum(np.take_along_axis(raw["kind"], slot[..., None], axis=-1)[..., 0], 0)
    row = table.row[kind, taken["amount"][..., 0], taken["amount"][..., 1]]
    nothing = np.where(raw["may_wait"], VOID, LOST)[:, None]
    return {SLOT: slot, SIZE: np.where(starts, row + 1, nothing)}
