"""The world of TapFinger as its agents see it and act in it (:mod:`.sight`), for training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.rl.encoders.tapfinger import LOST, VOID, room
from bireme.rl.encoders.tapfinger_scene import NONE, Scene
from bireme.training.tapfinger.environment import TapWorld
from bireme.training.tapfinger.settings import LONGEST_STEPS, Law, Setting
from bireme.training.worlds import Actions, Array, Observation, Step

# What TapFinger's agents see of its world: inputs of networks, sizes instead of amounts.
#
# Of all CPUs and GPUs that a job may have, those remain than which none smaller are as fast
# (:func:`efficient_sizes`): more would gain nothing. A size is a row of that list; VOID gives a job
# nothing, and LOST says that another pool won it.

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
        """What :mod:`~bireme.rl.encoders.tapfinger` describes, of every world."""
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
        """What is seen where a ``TapWorld`` shows ``raw``."""
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


TAUGHT: Final = "taught_"
"""What the teacher does is shown under the names of actions behind this."""
Teacher: TypeAlias = Callable[[Moment], Mapping[str, Array]]
"""From what is seen to a slot and a size for every pool."""


class TapTurns:
    """A World around ``world``; with a ``teacher`` its choice is shown too."""

    def __init__(self, world: TapWorld, teacher: Teacher | None = None) -> None:
        self.world, self._teacher = world, teacher
        self._sight = Sight(world.setting)
        self._raw: Observation = {}

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
        step = self.world.step(self._sight.actions(self._raw, actions))
        return Step(self._shown(step.observation), step.rewards, step.is_over, step.times)

    def _shown(self, raw: Observation) -> Observation:
        self._raw = raw
        moment = self._sight.look(raw)
        seen = moment.seen()
        if self._teacher is not None:
            seen |= {TAUGHT + name: part for name, part in self._teacher(moment).items()}
        return seen


def taught(observation: Observation) -> Actions:
    """What the teacher of a :class:`TapTurns` does, for cloning."""
    return {name: observation[TAUGHT + name] for name in (SLOT, SIZE)}


# Several worlds of TapFinger side by side as one, so that one policy learns in all of them.
#
# Pools, kinds, sizes and running jobs are padded to the most that any part has. The parts' rewards
# are scaled by hand to be of one order, or the most crowded world would decide all updates.

_PADDING: Final[Mapping[str, int]] = {"kind": NONE, "job": NONE, TAUGHT + SIZE: LOST}


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the worlds.

    Attributes:
        scale: What its rewards are multiplied with.
    """

    turns: TapTurns
    scale: float = 1.0


class Mixture:
    """A World made of others."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        ends = np.cumsum([part.turns.count for part in parts])
        self._rows = [slice(end - p.turns.count, end) for p, end in zip(parts, ends, strict=True)]
        self.count = int(ends[-1])

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all anew."""
        pairs = zip(self.parts, self._rows, strict=True)
        return side_by_side([part.turns.reset(seeds[rows]) for part, rows in pairs])

    def step(self, actions: Actions) -> Step:
        """Act in all parts."""
        if not isinstance(actions, Mapping):
            raise TypeError("actions of TapFinger are a mapping with slot and size")
        steps = []
        for part, rows in zip(self.parts, self._rows, strict=True):
            pools = len(part.turns.world.setting.capacity)
            own = {name: action[rows, :pools] for name, action in actions.items()}
            steps.append(part.turns.step(own))
        scales = [part.scale for part in self.parts]
        return Step(
            side_by_side([step.observation for step in steps]),
            np.concatenate([s.rewards * k for s, k in zip(steps, scales, strict=True)]),
            np.concatenate([step.is_over for step in steps]),
            np.concatenate([step.times for step in steps]),
        )


def side_by_side(parts: Sequence[Observation]) -> Observation:
    """Arrays of several observations as one, worlds after worlds, padded where shapes differ."""
    return {name: _padded(name, [part[name] for part in parts]) for name in parts[0]}


def _padded(name: str, parts: Sequence[Array]) -> Array:
    shape = np.max([part.shape[1:] for part in parts], axis=0).astype(np.int64)
    count = sum(len(part) for part in parts)
    whole = np.full((count, *shape), _PADDING.get(name, 0), parts[0].dtype)
    row = 0
    for part in parts:
        whole[(slice(row, row + len(part)), *map(slice, part.shape[1:]))] = part
        row += len(part)
    return whole
