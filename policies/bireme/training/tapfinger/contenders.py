"""The trained agents and the rule they start from, as choosers in TapFinger's world."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bireme.rl.checkpoints import Checkpoint, load
from bireme.rl.encoders.tapfinger_moves import decided, question
from bireme.rl.sessions import Session
from bireme.training.judging import session_of
from bireme.training.tapfinger.evaluation import Contender, follow
from bireme.training.tapfinger.pools import Pools
from bireme.training.tapfinger.rules import Rule
from bireme.training.tapfinger.settings import Setting
from bireme.training.tapfinger.sight import SIZE, SLOT, Sight
from bireme.training.tapfinger.teacher import teacher_of
from bireme.training.worlds import Array, Observation, take

_LIMIT_SECONDS: Final = 5.0


def contenders(checkpoint: Checkpoint, options: Mapping[str, str]) -> dict[str, Contender]:
    """``checkpoint`` under its own name, those in the folders of option ``beside``, and the rule.

    All choose again where they lost a job to another pool.
    """
    folders = [Path(folder) for folder in options.get("beside", "").split(",") if folder]
    found: dict[str, Contender] = {}
    for each in (checkpoint, *map(load, folders)):
        found[each.card.name] = partial(_by_network, session_of(each, "sizer"))
    return found | {"look-ahead": look_ahead}


def _by_network(session: Session, setting: Setting, seeds: Sequence[int]) -> Pools:
    return follow(served(session, Sight(setting)), setting, seeds, retries=True)


def look_ahead(setting: Setting, seeds: Sequence[int]) -> Pools:
    """The rule that training starts from."""
    sight, teacher = Sight(setting), teacher_of(setting)

    def choose(raw: Observation) -> dict[str, Array]:
        return sight.actions(raw, teacher(sight.look(raw)))

    return follow(choose, setting, seeds, retries=True)


def served(session: Session, sight: Sight) -> Rule:
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
