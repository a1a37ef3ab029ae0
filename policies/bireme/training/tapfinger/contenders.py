"""The trained agents and the rule they start from, as choosers in TapFinger's world."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from bireme.rl.encoders.tapfinger_moves import decided, question
from bireme.rl.sessions import Session
from bireme.training.tapfinger.sight import SIZE, SLOT, Sight
from bireme.training.tapfinger.turns import Teacher
from bireme.training.worlds import Array, Observation, take

_LIMIT_SECONDS: Final = 5.0

Chooser: TypeAlias = Callable[[Observation], dict[str, Array]]
"""From what a :class:`~bireme.training.tapfinger.world.TapWorld` shows to what is done in it."""


def looking(teacher: Teacher, sight: Sight) -> Chooser:
    """A rule that is a teacher."""
    return lambda raw: sight.actions(raw, teacher(sight.look(raw)))


def served(session: Session, sight: Sight) -> Chooser:
    """The network of a checkpoint, asked about one world after the other, as a cluster asks it."""

    def choose(raw: Observation) -> dict[str, Array]:
        seen = sight.look(raw).seen()
        chosen = []
        for world in range(len(raw["job"])):
            one = take(seen, np.asarray(world))
            arrays, count = question(one)
            logits = session.answer(arrays, count, _LIMIT_SECONDS)
            chosen.append(decided(one, arrays["sizes"], logits))
        slot, size = (np.stack(part) for part in zip(*chosen, strict=True))
        return sight.actions(raw, {SLOT: slot, SIZE: size})

    return choose
