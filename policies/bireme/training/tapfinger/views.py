"""What the pools of TapFinger see: WINDOW jobs that wait at each, what runs there, what is free.

Every pool is an agent that sees all of them; which job waits at several is in ``connects``. Shapes:
worlds W, pools N, waiting jobs P in sight of each, running jobs K at most in each.
"""

import numpy as np

from bireme.core.resources import BoolArray, IntArray
from bireme.training.tapfinger.pools import NONE, Pools
from bireme.training.tapfinger.settings import WINDOW
from bireme.training.worlds import Array


def observe(pools: Pools, is_done: BoolArray) -> dict[str, Array]:
    """All arrays by name; see :class:`~bireme.training.tapfinger.world.TapWorld`.

    ``is_done`` are pools that may start nothing more in this step, shape (W, N).
    """
    law, shape = pools.setting.law, pools.free.shape
    job = pools.first(pools.in_sight, WINDOW)
    there = job != NONE
    has_room = (pools.free >= np.array(law.least)).all(axis=-1) & ~is_done
    fits = there & has_room[:, :, None]
    return {
        "job": job,
        "kind": np.where(there, _of(pools.jobs.kind, job), NONE),
        "waited": np.where(there, pools.now[:, None, None] - _of(pools.jobs.arrival, job), 0),
        "pending_mask": there,
        "fits": fits,
        "connects": connects(job),
        "least": np.where(there[..., None], np.array(law.least), 0),
        "free": pools.free.copy(),
        "most": np.broadcast_to(np.minimum(pools.capacity, law.most), shape).copy(),
        "waiting": pools.waiting.sum(axis=2),
        "can_start": fits.any(axis=2),
        "is_done": is_done.copy(),
        "may_wait": pools.running.any(axis=1),
        **_running(pools),
    }


def connects(job: IntArray) -> BoolArray:
    """Whether the job in a slot of one pool is in sight of another, shape (W, N, P, N).

    Args:
        job: Numbers of jobs, shape (W, N, P); below 0 is none.
    """
    same = job[:, :, :, None, None] == job[:, None, None, :, :]
    return np.asarray(same.any(axis=4) & (job >= 0)[..., None])


def _running(pools: Pools) -> dict[str, Array]:
    law = pools.setting.law
    slots = int((pools.capacity // law.least).min(axis=1).max())
    job = pools.first(pools.running_in(), slots)
    there, kind, amount = job != NONE, _of(pools.jobs.kind, job), _of(pools.amount, job)
    elapsed = pools.now[:, None, None] - _of(pools.started, job)
    left = law.steps[kind, amount[..., 0], amount[..., 1]] - elapsed
    return {
        "run_amount": np.where(there[..., None], amount, 0),
        "run_left": np.where(there, np.maximum(left, 1), NONE),
    }


def _of(values: Array, job: IntArray) -> Array:
    """``values``, shape (W, jobs, ...), of ``job``, shape (W, N, slots)."""
    return np.asarray(values[np.arange(len(values))[:, None, None], job])
