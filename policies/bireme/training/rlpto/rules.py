"""The simple rule that RLPTO is held against: workers go from those that hardly gain to the others.

A task whose gain is below beta gives up all workers but the one with which it ends, unless it
gains again by then; free ones go to the gaining task that has fewest. Equal shares are what the
speed law asks for, by which every further worker helps less.

Beside it stood: taking only the one worker that the world takes (at beta 0.001 22 % slower, 0.3
points more accurate), giving to the task with the longest iteration (2 % slower), and starting with
few workers, which cost a share of the early gains (1 % slower, 0.03 points more accurate).
"""

from typing import Final

import numpy as np

from bireme.core.resources import IntArray
from bireme.training.rlpto.world import SLOTS
from bireme.training.worlds import Observation

_LEAN: Final = 0.75
_MOST_ABOVE: Final = 1e4


def share_among_gaining(seen: Observation, lean: float = 0.0) -> IntArray:
    """The move of every world, shape (worlds,), from what :func:`~.world.raw` shows.

    A task counts as having ``lean`` workers more for every power of ten by which its gain is above
    beta, so that more go to those that are nearly done.
    """
    nodes, beta = seen["nodes"], seen["beta"][:, None]
    hardly = seen["gain"] < beta
    gains = seen["is_running"] & ~hardly
    takes = seen["is_running"] & hardly & (nodes > 1)
    gives = gains.any(axis=1) & (seen["free"] > 0)
    counted = nodes + lean * np.log10(np.clip(seen["gain"] / beta, 1.0, _MOST_ABOVE))
    give = np.where(gives, 1 + np.where(gains, counted, np.inf).argmin(axis=1), 0)
    return np.where(takes.any(axis=1), 1 + SLOTS + takes.argmax(axis=1), give)


def teach(seen: Observation) -> IntArray:
    """The rule that RLPTO's network copies first: the simple one, leaning to the nearly done.

    Over both tables 0.02 points more accurate than the simple one in 0.3 % more time.
    """
    return share_among_gaining(seen, _LEAN)
