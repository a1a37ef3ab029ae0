"""The world of TapFinger as its agents see it and act in it (:mod:`.sight`), for training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from bireme.training.tapfinger.sight import SIZE, SLOT, Moment, Sight
from bireme.training.tapfinger.world import TapWorld
from bireme.training.worlds import Actions, Array, Observation, Step

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
