"""The simple rule that RLPTO starts from: workers go from those that hardly gain to the others.

A task whose gain is below beta gives up all workers but the one with which it ends, unless it
gains again by then; free ones go to the gaining task that has fewest. Equal shares are what the
speed law asks for, by which every further worker helps less.

Beside it stood: taking only the one worker that the world takes (at beta 0.001 22 % slower, 0.3
points more accurate), giving to the task with the longest iteration (2 % slower), and starting with
few workers, which cost a share of the early gains (1 % slower, 0.03 points more accurate).
"""

import numpy as np

from bireme.core.resources import IntArray
from bireme.training.rlpto.world import SLOTS
from bireme.training.worlds import Observation

_MANY = np.iinfo(np.int64).max


def share_among_gaining(seen: Observation) -> IntArray:
    """The move of every world, shape (worlds,), from what :func:`~.world.raw` shows."""
    nodes, hardly = seen["nodes"], seen["gain"] < seen["beta"][:, None]
    gains = seen["is_running"] & ~hardly
    takes = seen["is_running"] & hardly & (nodes > 1)
    gives = gains.any(axis=1) & (seen["free"] > 0)
    give = np.where(gives, 1 + np.where(gains, nodes, _MANY).argmin(axis=1), 0)
    return np.where(takes.any(axis=1), 1 + SLOTS + takes.argmax(axis=1), give)
