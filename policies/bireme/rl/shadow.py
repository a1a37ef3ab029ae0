"""Comparison of a shadow policy with the active one.

* *Agreement*: on the same snapshot, the share of starts in common; size agreement is that of equal
  sizes of elastic gangs.
* *Regret*: over many moments, how much longer gangs take by the whole decisions of the active
  policy (order, sizes, places, stops) than by the shadow's, each moment played forward by both
  (:mod:`bireme.core.regret`). It is positive where the shadow would have done better.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.decision import Admit, Decision, Resize
from bireme.core.regret import RegretSample


@dataclass(frozen=True, slots=True)
class Difference:
    """Measures of how a shadow's decision differs from the active one.

    Attributes:
        agreement: Gangs that both start over gangs that either starts; 1 if none does.
        same_sizes: Share of equal sizes among elastic gangs that both start or either resizes;
            None if there are none.
    """

    agreement: float
    same_sizes: float | None


def compare(active: Decision, shadow: Decision) -> Difference:
    """Compare ``shadow`` with ``active``; both were decided on one snapshot."""
    mine, other = _starts(active), _starts(shadow)
    return Difference(
        agreement=len(mine & other) / len(mine | other) if mine | other else 1.0,
        same_sizes=_same_sizes(active, shadow),
    )


def _starts(decision: Decision) -> set[str]:
    return {admit.gang.uid for admit in decision.admitted}


def _same_sizes(active: Decision, shadow: Decision) -> float | None:
    """Leave out gangs that only one decision starts: they have no size in the other."""
    mine, other = _sizes(active), _sizes(shadow)
    before = {each.gang.uid: each.running.sizes for d in (active, shadow) for each in d.resized}
    pairs = [(mine.get(u, before.get(u)), other.get(u, before.get(u))) for u in {*mine, *other}]
    same = [one == two for one, two in pairs if one is not None and two is not None]
    return sum(same) / len(same) if same else None


def _sizes(decision: Decision) -> dict[str, dict[str, int]]:
    """Return replicas by uid and task of the elastic gangs that are started or resized."""
    given: list[Admit | Resize] = [*decision.admitted, *decision.resized]
    return {
        action.gang.uid: {task.task: int(task.counts.sum()) for task in action.placement.tasks}
        for action in given
        if action.gang.is_elastic
    }


# --- what the whole decisions would have come to, over many moments ---

_BATCHES: Final = 5
_STUDENT: Final = 2.7764
"""The 97.5 % quantile of Student's t with _BATCHES - 1 degrees of freedom."""
MIN_SAMPLES: Final = 40
"""Of fewer moments there is no interval."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a shadow would have saved, over the latest moments that were played forward.

    Attributes:
        samples: How many moments.
        regret_seconds: How much longer a gang takes by the active policy than by the shadow, mean
            over the moments; positive where the shadow would have done better.
        low_seconds, high_seconds: Bounds of its 95 % interval; None with fewer than
            :data:`MIN_SAMPLES` samples, which say too little of how much they vary.
        share: ``regret_seconds`` over the mean completion time by the active policy, below 1.
    """

    samples: int
    regret_seconds: float
    low_seconds: float | None
    high_seconds: float | None
    share: float


def outcome_of(samples: Sequence[RegretSample]) -> Outcome | None:
    """Return the outcome of ``samples``, oldest first; None without any.

    Moments that follow each other share most of their gangs, so their differences are no
    independent draws. The interval is that of batch means: Student's t over the means of few
    long batches, which depend on each other far less (Law and Kelton, Simulation Modeling and
    Analysis, section 9.5.3). Of 200 moments whose correlation falls by a tenth from one to the next
    it covers the mean in 92 % of the cases, of 40 in 77 %; where it falls by a half, in 94 %.
    """
    if not samples:
        return None
    regrets = np.array([each.regret_seconds for each in samples])
    mean, active = float(regrets.mean()), sum(each.active_seconds for each in samples)
    share = float(regrets.sum()) / active if active else 0.0
    if len(samples) < MIN_SAMPLES:
        return Outcome(len(samples), mean, None, None, share)
    size = len(samples) // _BATCHES
    batches = regrets[len(samples) - _BATCHES * size :].reshape(_BATCHES, size).mean(axis=1)
    reach = _STUDENT * float(batches.std(ddof=1)) / _BATCHES**0.5
    return Outcome(len(samples), mean, mean - reach, mean + reach, share)
