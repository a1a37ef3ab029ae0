"""Several worlds of TapFinger side by side as one, so that one policy learns in all of them.

Pools, kinds, sizes and running jobs are padded to the most that any part has. The parts' rewards
are scaled by hand to be of one order, or the most crowded world would decide all updates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.rl.encoders.tapfinger_moves import LOST
from bireme.rl.encoders.tapfinger_scene import NONE
from bireme.training.tapfinger.sight import SIZE
from bireme.training.tapfinger.turns import TAUGHT, TapTurns
from bireme.training.worlds import Actions, Array, Observation, Step

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
