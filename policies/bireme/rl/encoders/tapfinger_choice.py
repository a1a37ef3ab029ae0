"""Who gets a job that several node pools chose: the conflict resolution of TapFinger.

Every pool chooses a job on its own, with a probability that says how much it wants it. Of those
that chose the same one, the pool n with the highest Pr(n | job) wins, which by Bayes' theorem is
proportional to Pr(job | n) Pr(n); Pr(n) grows with how often the job would fit into what the pool
has free. The others start nothing in this step. Training and serving share this.

Source: Li et al., "Task placement and resource allocation for edge machine learning", equation 11;
that Pr(n) is the softmax of the room over the contenders is from the authors' program.
"""

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray


def room(free: IntArray, least: IntArray) -> FloatArray:
    """How often the smallest allocation fits into what is free, shape (...).

    Args:
        free, least: Amounts of resources, shape (..., resources); of ``least`` at least one is
            above 0.
    """
    needed = np.maximum(least, 1)
    return np.asarray(np.where(least > 0, free / needed, np.inf).min(axis=-1))


def winners(jobs: IntArray, scores: FloatArray, rooms: FloatArray) -> BoolArray:
    """Which pools may start what they chose, shape (worlds, pools).

    Args:
        jobs: What each pool chose, shape (worlds, pools); equal numbers are the same job, below 0
            is none, which wins nothing.
        scores: Pr(job | pool), 0 or more, same shape.
        rooms: As :func:`room` has it, same shape.
    """
    with np.errstate(divide="ignore"):
        weights = np.log(scores) + rooms  # the denominators are the same for all who contend
    contend = (jobs[:, :, None] == jobs[:, None, :]) & (jobs >= 0)[:, :, None]
    ahead = weights[:, None, :] > weights[:, :, None]
    pools = np.arange(jobs.shape[1])
    first = (weights[:, None, :] == weights[:, :, None]) & (pools[None, :] < pools[:, None])
    return np.asarray((jobs >= 0) & ~(contend & (ahead | first)).any(axis=2))
