"""Comparison of a shadow policy with the active one.

* *Agreement*: on the same snapshot, the share of common starts. Size agreement is the share of
  equal sizes of elastic gangs.
* *Regret*: over many moments, the extra time of gangs under the active policy's whole decisions
  (order, sizes, places, stops), compared with the shadow's. Both policies play each moment forward
  (:mod:`bireme.core.regret`). It is positive if the shadow would have done better.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.decision import Admit, Decision, Resize
from bireme.core.regret import RegretSample


@dataclass(frozen=True, slots=True)
class Difference:
    """Measures of the difference between a shadow's decision and the active one.

    Attributes:
        agreement: Gangs that both start over gangs that either starts; 1 without starts.
        same_sizes: Share of equal sizes among elastic gangs that both start or either resizes;
            None if there are none.
    """

    agreement: float
    same_sizes: float | None


def compare(active: Decision, shadow: Decision) -> Difference:
    """Compare ``shadow`` with ``active``, both for one snapshot."""
    mine, other = _starts(active), _starts(shadow)
    return Difference(
        agreement=len(mine & other) / len(mine | other) if mine | other else 1.0,
        same_sizes=_same_sizes(active, shadow),
    )


def _starts(decision: Decision) -> set[str]:
    return {admit.gang.uid for admit in decision.admitted}


def _same_sizes(active: Decision, shadow: Decision) -> float | None:
    """Return the share of equal sizes, without gangs that only one decision starts."""
    mine, other = _sizes(active), _sizes(shadow)
    previous = {
        resize.gang.uid: resize.running.sizes for d in (active, shadow) for resize in d.resized
    }
    pairs = [(mine.get(u, previous.get(u)), other.get(u, previous.get(u))) for u in {*mine, *other}]
    same = [one == two for one, two in pairs if one is not None and two is not None]
    return sum(same) / len(same) if same else None


def _sizes(decision: Decision) -> dict[str, dict[str, int]]:
    """Return replicas by uid and task of the elastic gangs that are started or resized."""
    actions: list[Admit | Resize] = [*decision.admitted, *decision.resized]
    return {
        action.gang.uid: {task.task: int(task.counts.sum()) for task in action.placement.tasks}
        for action in actions
        if action.gang.is_elastic
    }


# --- the outcome of whole decisions, over many moments ---

_BATCHES: Final = 5
_STUDENT: Final = 2.7764
"""The 97.5 % quantile of Student's t with _BATCHES - 1 degrees of freedom."""
MIN_SAMPLES: Final = 40
"""The minimum number of moments for an interval."""


@dataclass(frozen=True, slots=True)
class RegretEstimate:
    """The time that a shadow would have saved, over the latest moments played forward.

    Attributes:
        samples: The number of moments.
        regret_seconds: Extra time of a gang under the active policy, mean over the moments;
            positive if the shadow would have done better.
        low_seconds, high_seconds: Bounds of its 95 % interval; None with fewer than
            :data:`MIN_SAMPLES` samples, too few to estimate their variance.
        share: ``regret_seconds`` over the mean completion time by the active policy, below 1.
    """

    samples: int
    regret_seconds: float
    low_seconds: float | None
    high_seconds: float | None
    share: float


def estimate_regret(samples: Sequence[RegretSample]) -> RegretEstimate | None:
    """Return the estimate from ``samples``, oldest first; None without any.

    Successive moments share most of their gangs, so their differences are not independent. The
    interval is that of batch means: Student's t over the means of few long batches, which depend on
    each other far less (Law and Kelton, Simulation Modeling and Analysis, section 9.5.3). If the
    correlation falls by a tenth per moment, it covers the mean in 92 % of the cases for 200
    moments, and in 77 % for 40. If it falls by a half, it covers the mean in 94 %.
    """
    if not samples:
        return None
    regrets = np.array([sample.regret_seconds for sample in samples])
    mean, active = float(regrets.mean()), sum(sample.active_seconds for sample in samples)
    share = float(regrets.sum()) / active if active else 0.0
    if len(samples) < MIN_SAMPLES:
        return RegretEstimate(len(samples), mean, None, None, share)
    size = len(samples) // _BATCHES
    batches = regrets[len(samples) - _BATCHES * size :].reshape(_BATCHES, size).mean(axis=1)
    reach = _STUDENT * float(batches.std(ddof=1)) / _BATCHES**0.5
    return RegretEstimate(len(samples), mean, mean - reach, mean + reach, share)
