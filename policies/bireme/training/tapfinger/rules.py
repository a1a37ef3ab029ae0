"""Rules that choose without learning: the paper's Random and Min, shortest first, a tuned one.

A rule is what an agent is: from what is seen to what every pool does. Random and Min are the
authors': each pool takes any job in sight, whether it fits or not, and who comes later in the
order of pools loses a conflict. The others see all pools at once and leave no conflicts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.rl.encoders.tapfinger_choice import winners
from bireme.training.tapfinger.laws import Law
from bireme.training.worlds import Array, Observation

Rule: TypeAlias = Callable[[Observation], dict[str, Array]]
"""From what is seen of n worlds to the actions in each."""


def at_random(seed: int, *, takes_least: bool) -> Rule:
    """Any job in sight, with the least or any possible amount, nothing being one of them."""
    rng = np.random.default_rng(seed)

    def choose(seen: Observation) -> dict[str, Array]:
        slot = np.where(seen["pending_mask"], rng.random(seen["job"].shape), -1.0).argmax(axis=2)
        job = _at(seen["job"], slot)
        won = winners(job, np.ones(job.shape), np.zeros(job.shape))
        least, top = _at(seen["least"], slot), np.minimum(seen["free"], seen["most"])
        choices = np.maximum(top - least + 1, 1)
        is_nothing = rng.random(job.shape) * (choices.prod(axis=2) + 1) < 1
        drawn = least + (rng.random(top.shape) * choices).astype(np.int64)
        gets = _at(seen["fits"], slot) & won
        if not takes_least:
            gets &= ~(is_nothing & seen["may_wait"][:, None])
        amount = np.where(gets[..., None], least if takes_least else drawn, 0)
        return {"slot": slot, "won": won, "amount": amount}

    return choose


@dataclass(frozen=True, slots=True)
class Greedy:
    """The first that came first, each where it has the place that suits it; nobody waits.

    Who gains by more GPUs gets as many as there are, up to ``most``, if those are ``fewest`` at
    least, where most are free; who does not gets the least, where fewest are free. With 10 GPUs a
    sensitive job of the synthetic law takes 2 steps, with 4 it takes 5. If ``is_frugal``, GPUs that
    do not save a step are left to others.
    """

    law: Law
    most: int = 10
    fewest: int = 4
    is_frugal: bool = True

    def __call__(self, seen: Observation) -> dict[str, Array]:
        """The actions."""
        kind, least, free = seen["kind"], seen["least"], seen["free"][:, :, None, 1]
        frugal = self.law.frugal_gpus
        gains = (frugal[kind, -1] > self.law.least[1]) & seen["pending_mask"]
        gpus = np.minimum(np.minimum(self.most, seen["most"][:, :, None, 1]), free)
        if self.is_frugal:
            gpus = frugal[kind, gpus]
        gpus = np.where(gains, gpus, least[..., 1])
        order = np.where(gains, free, -free) - 1e3 * seen["job"]
        amount = np.stack([least[..., 0], gpus], axis=-1)
        return best_pairs(seen, order, amount, gpus >= np.minimum(self.fewest, frugal[kind, -1]))


def shortest_first(law: Law) -> Rule:
    """The shortest first, with the least that it can have, where most is free."""
    length = law.steps[:, law.least[0], law.least[1]]

    def choose(seen: Observation) -> dict[str, Array]:
        order = -1e6 * length[seen["kind"]] - 1e3 * seen["job"] + seen["free"][:, :, None, 1]
        return best_pairs(seen, order, seen["least"], seen["fits"])

    return choose


def best_pairs(
    seen: Observation, scores: FloatArray, amounts: IntArray, may: BoolArray
) -> dict[str, Array]:
    """The pairs of a job and a pool with the highest scores, each job and each pool once.

    Args:
        scores: Shape (W, N, P).
        amounts: What each job would get, shape (W, N, P, 2).
        may: Which may start if they fit, shape (W, N, P); where nobody would and somebody has to,
            all may.
    """
    job, fits = seen["job"], seen["fits"]
    is_open = fits & may
    stuck = ~seen["may_wait"] & ~is_open.any(axis=(1, 2))
    is_open = np.where(stuck[:, None, None], fits, is_open)
    worlds, slots = np.arange(len(job)), job.shape[2]
    slot, won = np.zeros(job.shape[:2], np.int64), np.zeros(job.shape[:2], np.bool_)
    for _ in range(job.shape[1]):
        best = np.where(is_open, scores, -np.inf).reshape(len(job), -1).argmax(axis=1)
        at = worlds, best // slots, best % slots
        found = is_open[at]
        slot[at[0][found], at[1][found]], won[at[0][found], at[1][found]] = at[2][found], True
        is_open = is_open & (job != job[at][:, None, None])
        is_open[worlds[found], at[1][found]] = False
    return {"slot": slot, "won": won, "amount": np.where(won[..., None], _at(amounts, slot), 0)}


def _at(values: Array, slot: IntArray) -> Array:
    """``values``, shape (W, N, P, ...), of the chosen slots, shape (W, N)."""
    index = slot.reshape(*slot.shape, *[1] * (values.ndim - 2))
    return np.take_along_axis(values, index, axis=2)[:, :, 0]


def rules(law: Law, seed: int) -> Mapping[str, Rule]:
    """All rules by name, shortest first where no job gains by GPUs; ``seed`` is for Random."""
    found: dict[str, Rule] = {
        "random": at_random(seed, takes_least=False),
        "min": at_random(seed, takes_least=True),
        "tuned": Greedy(law, is_frugal=False),
        "frugal": Greedy(law),
    }
    if (law.frugal_gpus[:, -1] == law.least[1]).all():
        found["sjf"] = shortest_first(law)
    return found
