"""Ranges of foreseen starts, for every waiting gang, by the errors of earlier outlooks.

As for the first gang (:mod:`bireme.core.eta`), the ratios r of actual to foreseen wait turn a
foreseen wait into a range. Its ends are the r that one start in twenty was below and the r that one
in twenty was above. Three things are different for a whole queue:

*   Most forecasts have not come true yet, and those that have are the short ones. So the shares are
    those of the product-limit estimate (Kaplan and Meier, JASA 1958). In it, a waiting gang counts
    with a ratio above its ratio so far. There is no range until 19 comparable gangs have started.
*   Forecasts of an hour err otherwise than those of a day. So only forecasts of similar length
    count, within about a factor of four either way.
*   If no start is foreseen, because running gangs have no estimates, the length of the wait itself
    is remembered, by the position in the queue.

A range is not conformal: no theorem gives its coverage. A simulation measures it:
``tests/simulation/test_outlook_ranges.py``.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bireme.core.decision import Decision
from bireme.core.eta import COVERAGE, StartRange
from bireme.core.outlook import Outlook, Prospect

REMEMBERED: Final = 1024
"""The limit on errors of forecasts that have come true, of all lengths."""
_TAIL: Final = (1 - COVERAGE) / 2
_MIN_ERRORS: Final = 19
"""The fewest errors of which the smallest marks the lowest of twenty starts."""
_MIN_SECONDS: Final = 10.0
_ALIKE: Final = 2.0
"""The distance, in octaves, within which forecasts count for one another."""
_UNFORESEEN: Final = 1000.0
"""The offset of lengths that are positions in the queue: far from any length in seconds."""
_AGAIN_SECONDS: Final = 600.0
_MAX_FORECASTS: Final = 8
_MAX_STARTED: Final = 8192


@dataclass(frozen=True, slots=True)
class _Forecast:
    """A forecast of one wait.

    Attributes:
        moment: When it was made, POSIX seconds.
        unit: The unit of errors in seconds: the foreseen wait, or 1 if there was none.
        octave: Base 2 logarithm of the foreseen wait, or of the position above ``_UNFORESEEN``.
    """

    moment: float
    unit: float
    octave: float

    @classmethod
    def of(cls, prospect: Prospect, now: float) -> "_Forecast":
        seconds = (prospect.start or now) - now
        if seconds <= 0:  # it may start at any moment, which is no forecast
            return cls(now, 1.0, _UNFORESEEN + math.log2(prospect.position or 1))
        seconds = max(seconds, _MIN_SECONDS)
        return cls(now, seconds, math.log2(seconds))

    def error(self, now: float) -> float:
        return max(0.0, now - self.moment) / self.unit

    def is_over(self, now: float) -> bool:
        return now > self.moment + (self.unit if self.octave < _UNFORESEEN else _AGAIN_SECONDS)


@dataclass(slots=True)
class OutlookRanges:
    """Start ranges from the errors of earlier outlooks."""

    _errors: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Octave of a forecast, and its error once the gang has started."""
    _waits: dict[str, list[_Forecast]] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)
    """By uid, the starts since the moment of the last outlook."""

    def see(self, now: float, decision: Decision) -> None:
        """Learn from the starts in a decision of ``now``, POSIX seconds. Must see every
        decision.
        """
        for admit in decision.admitted:
            self._learn(admit.gang.uid, now)
            self._started[admit.gang.uid] = now
        while len(self._started) > _MAX_STARTED:  # if no outlook comes for long
            del self._started[next(iter(self._started))]

    def _learn(self, uid: str, now: float) -> None:
        for forecast in self._waits.pop(uid, ()):
            self._errors.append((forecast.octave, forecast.error(now)))

    def update(self, outlook: Outlook, now: float) -> dict[str, StartRange]:
        """Learn from an outlook that is ready ``now``; return the ranges of gangs, by uid.

        ``now`` is POSIX seconds. If too few errors are known, a range has no ``coverage``: it is
        the foreseen moment. A gang without a foreseen moment then has no range.
        """
        began = outlook.now
        in_line = [prospect for prospect in outlook.prospects if prospect.position is not None]
        for prospect in in_line:
            self._note(prospect.gang.uid, _Forecast.of(prospect, began))
        # Looking ahead takes a while. Without gangs that have started meanwhile, the short waits
        # would be missing among the errors.
        started_uids = {uid for uid, moment in self._started.items() if moment >= began}
        for uid in started_uids:
            self._learn(uid, self._started[uid])
        self._started = {uid: self._started[uid] for uid in started_uids}
        waiting_uids = {prospect.gang.uid for prospect in in_line} - started_uids
        self._waits = {uid: self._waits[uid] for uid in waiting_uids}
        tails = _Tails(self._errors, self._waits, now)
        ranges = ((prospect.gang.uid, _range(prospect, began, tails)) for prospect in in_line)
        return {uid: one for uid, one in ranges if one is not None and uid in waiting_uids}

    def _note(self, uid: str, forecast: _Forecast) -> None:
        waits = self._waits.setdefault(uid, [])
        # One forecast at a time: forecasts of successive outlooks in one wait would err alike.
        if len(waits) < _MAX_FORECASTS and (not waits or waits[-1].is_over(forecast.moment)):
            waits.append(forecast)


def _range(prospect: Prospect, began: float, tails: "_Tails") -> StartRange | None:
    forecast = _Forecast.of(prospect, began)
    errors = tails.around(forecast.octave)
    if errors is not None:
        low, high = errors
        return StartRange(began + low * forecast.unit, began + high * forecast.unit, COVERAGE)
    if prospect.start is not None and prospect.start > began:
        return StartRange(prospect.start, None)
    return None


class _Tails:
    """The errors that one start in twenty was below and above, by the length of the forecast."""

    def __init__(
        self,
        errors: Sequence[tuple[float, float]],
        waits: dict[str, list[_Forecast]],
        now: float,
    ) -> None:
        rows = [(octave, error, True) for octave, error in errors]
        rows += [
            (forecast.octave, forecast.error(now), False) for w in waits.values() for forecast in w
        ]
        # By error; among equal errors, gangs that have started come first.
        rows.sort(key=lambda row: (row[1], not row[2]))
        table = np.array(rows, dtype=float).reshape(-1, 3)
        self._octaves, self._errors, self._came = table[:, 0], table[:, 1], table[:, 2] > 0
        self._cache: dict[float, tuple[float, float] | None] = {}

    def around(self, octave: float) -> tuple[float, float] | None:
        """Return the two errors for forecasts of similar length; None if unknown."""
        octave = round(2 * octave) / 2  # a coarse grid, so that each value is computed once
        if octave not in self._cache:
            self._cache[octave] = self._around(octave)
        return self._cache[octave]

    def _around(self, octave: float) -> tuple[float, float] | None:
        alike = abs(self._octaves - octave) <= _ALIKE
        errors, came = self._errors[alike], self._came[alike]
        if came.sum() < _MIN_ERRORS:
            return None
        # One more than the errors: the next start may come after all of them.
        at_risk = len(errors) + 1 - np.arange(len(errors))
        wait_on = np.cumprod(np.where(came, 1 - 1 / at_risk, 1.0))
        upper_rows = np.flatnonzero(came & (wait_on <= _TAIL + 1e-9))
        lower_rows = np.flatnonzero(came & (wait_on <= 1 - _TAIL + 1e-9))
        if not len(upper_rows):
            return None
        return float(errors[lower_rows[0]]), float(errors[upper_rows[0]])
