"""How long a job will run, judged by how long jobs like it have run.

Three groups are alike, each part of the next: runs of the same template by the same user, all runs
of the user, all runs of anybody. Each group remembers its latest runs only and says what nine in
ten of them stayed within. A group of few runs says little, so it is drawn towards the wider group,
as if that one had lent it ``PRIOR_RUNS`` runs:

    log e_k = (n_k * log q_k + PRIOR_RUNS * log e_wider) / (n_k + PRIOR_RUNS),   e_all = q_all

n_k is the number of runs remembered, q_k the smallest of them that at least 90 % of them do not
exceed (of fewer than ten, the longest). Logarithms, because run times spread over five powers of
ten. It is the shrinkage of a group's mean by its effective sample size (Efron and Morris, JASA
1975), of a quantile instead: an estimate that is too low breaks a reservation, one that is too
high only misses a chance to backfill. For the same reason what is told is e_k rounded up, to two
significant digits: more of them would be no truth, and gangs of equal estimates are equal, which
is what makes long simulations fast (:mod:`bireme.simulator.equivalence`).
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from bireme.core.errors import HistoryError

QUANTILE = 0.9
PRIOR_RUNS = 5
"""How many runs of its own weigh as much as the wider group."""
FEWEST_RUNS = 5
"""With fewer runs than this in all, nothing is said."""
LONGEST_SECONDS = 10 * 365 * 86_400
"""Ten years: whatever says it ran for longer is wrong."""

_Group = tuple[str, ...]
"""``(user, template)``, ``(user,)`` or ``()``."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """The latest runs of a group, oldest first, and what nine in ten of them stayed within."""

    seconds: deque[float]
    quantile_seconds: float


class RuntimeHistory:
    """Finished runs, as many as are worth remembering.

    Args:
        runs_per_group: The most runs remembered of each group.
        groups: The most groups remembered; those without a run for longest are forgotten first.

    Raises:
        HistoryError: ``runs_per_group`` is below 1 or ``groups`` below 3.
    """

    def __init__(self, runs_per_group: int = 64, groups: int = 4096) -> None:
        for name, value, least in (("runs_per_group", runs_per_group, 1), ("groups", groups, 3)):
            if value < least:
                raise HistoryError(f"{name} is {value}; it must be at least {least}")
        self._runs_per_group = runs_per_group
        self._most_groups = groups
        self._groups: dict[_Group, _Runs] = {}

    def observe(self, user: str, template: str, seconds: float) -> None:
        """A run of ``template`` by ``user`` took ``seconds``.

        What cannot be a run time (zero, negative, above ten years, not a number) is left out:
        clocks jump, and a history must survive that.
        """
        if not _is_run_time(seconds):
            return
        # The widest last: what was touched last is forgotten last.
        for group in ((user, template), (user,), ()):
            known = self._groups.pop(group, None)
            latest = known.seconds if known else deque(maxlen=self._runs_per_group)
            latest.append(float(seconds))
            self._groups[group] = _Runs(latest, _quantile(latest))
        while len(self._groups) > self._most_groups:
            del self._groups[next(iter(self._groups))]

    def estimate(self, user: str, template: str) -> float | None:
        """Seconds that a run of ``template`` by ``user`` should stay within; None if unknown.

        Of two significant digits. A template without runs is judged by those of its user.
        """
        everybody = self._groups.get(())
        if everybody is None or len(everybody.seconds) < FEWEST_RUNS:
            return None
        estimate = everybody.quantile_seconds
        for group in ((user,), (user, template)):
            runs = self._groups.get(group)
            if runs is not None:
                own = len(runs.seconds) / (len(runs.seconds) + PRIOR_RUNS)
                estimate = runs.quantile_seconds**own * estimate ** (1 - own)
        return _rounded_up(estimate)


def _is_run_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 < seconds <= LONGEST_SECONDS


def _quantile(seconds: Iterable[float]) -> float:
    """The smallest of ``seconds`` that at least 90 % of them do not exceed."""
    ordered = sorted(seconds)
    return ordered[math.ceil(QUANTILE * len(ordered)) - 1]


def _rounded_up(seconds: float) -> float:
    """``seconds`` with two significant digits, rounded up but for the noise of logarithms."""
    exponent = math.floor(math.log10(seconds)) - 1
    digits = math.ceil(seconds / 10.0**exponent - 1e-6)
    return float(f"{digits}e{exponent}")


# What a running job last told about its training: claims of a tenant, clipped at the edge.


@dataclass(frozen=True, slots=True)
class Progress:
    """The last report of a job, and what it adds to those before.

    Attributes:
        reported: When it arrived, POSIX seconds.
        fraction: Of the training that is done, from 0 to 1; None where the job does not say.
        remaining_seconds: How long it says it still runs; None where it does not say.
        steps: Steps done since training began; None where it does not say.
        remaining_steps: Steps it says are left; None where it does not say.
        loss: Training loss; None where it does not say.
        worst_loss: The largest loss it ever told; None without any.
        accuracy: From 0 to 1; None where it does not say.
        accuracy_gain: What the last report that told the accuracy added to the one before.
        anchor_seconds: How long the start it first spoke of was to run in all, by that report;
            None before one said. It bounds later ones where nobody else knows the run time.
    """

    reported: float
    fraction: float | None = None
    remaining_seconds: float | None = None
    steps: float | None = None
    loss: float | None = None
    worst_loss: float | None = None
    accuracy: float | None = None
    accuracy_gain: float | None = None
    remaining_steps: float | None = None
    anchor_seconds: float | None = None
