"""Ranges of the starts that outlooks foresee, for every gang that waits, by how earlier ones erred.

As for the first gang (:mod:`bireme.core.eta`), the ratios r of actual to foreseen wait make a range
of the wait foreseen: from the r that one start in twenty was below to the one that one in twenty
was above. Three things are different for a whole line:

*   Most of the forecasts have not come true yet, and those that have are the short ones. So the
    shares are those of the product-limit estimate (Kaplan and Meier, JASA 1958), in which a gang
    that still waits counts as one whose ratio is above what it has reached. Where so many still
    wait that one in twenty cannot be told, there is no range.
*   Forecasts of an hour err otherwise than those of a day. So only forecasts of a like length
    count, within about a factor of four either way.
*   Where no start is foreseen, because what runs does not say for how long, the length of the wait
    itself is remembered, by the position in line.

A range is not conformal: its coverage is no theorem, and is measured in a simulation by
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
"""Errors of forecasts that have come true, of all lengths."""
_TAIL: Final = (1 - COVERAGE) / 2
_FEWEST: Final = 19
"""Errors without which none of twenty starts can be said to be below all others."""
_MIN_SECONDS: Final = 10.0
_ALIKE: Final = 2.0
"""Forecasts count for one another within so many octaves."""
_UNFORESEEN: Final = 1000.0
"""Where lengths are positions in line: far from any length in seconds."""
_AGAIN_SECONDS: Final = 600.0
_MAX_FORECASTS: Final = 8
_MAX_STARTED: Final = 8192


@dataclass(frozen=True, slots=True)
class _Forecast:
    """A forecast of one wait.

    Attributes:
        at: When it was made, POSIX seconds.
        unit: Seconds that errors are in: the wait foreseen, or 1 where none was.
        octave: Base 2 logarithm of the wait foreseen, or of the position above ``_UNFORESEEN``.
    """

    at: float
    unit: float
    octave: float

    @classmethod
    def of(cls, prospect: Prospect, now: float) -> "_Forecast":
        seconds = (prospect.start or now) - now
        if seconds <= 0:  # it may start at any moment, which foresees nothing
            return cls(now, 1.0, _UNFORESEEN + math.log2(prospect.position or 1))
        seconds = max(seconds, _MIN_SECONDS)
        return cls(now, seconds, math.log2(seconds))

    def error(self, now: float) -> float:
        return max(0.0, now - self.at) / self.unit

    def is_over(self, now: float) -> bool:
        return now > self.at + (self.unit if self.octave < _UNFORESEEN else _AGAIN_SECONDS)


@dataclass(slots=True)
class OutlookRanges:
    """Start ranges from the errors of earlier outlooks."""

    _errors: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Octave of a forecast, and its error once the gang has started."""
    _waits: dict[str, list[_Forecast]] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)
    """By uid, the starts that no outlook of a later moment has come after."""

    def see(self, now: float, decision: Decision) -> None:
        """Learn from the starts in a decision of ``now``, POSIX seconds. Must see every one."""
        for admit in decision.admitted:
            self._learn(admit.gang.uid, now)
            self._started[admit.gang.uid] = now
        while len(self._started) > _MAX_STARTED:  # where no outlook comes for long
            del self._started[next(iter(self._started))]

    def _learn(self, uid: str, now: float) -> None:
        for forecast in self._waits.pop(uid, ()):
            self._errors.append((forecast.octave, forecast.error(now)))

    def update(self, outlook: Outlook, now: float) -> dict[str, StartRange]:
        """Take note of an outlook that is there ``now``; return the ranges of gangs, by uid.

        ``now`` is POSIX seconds. Where too little is known of the errors, a range has no
        ``coverage``: it is the moment foreseen, and there is none where no moment is.
        """
        began = outlook.now
        in_line = [each for each in outlook.prospects if each.position is not None]
        for each in in_line:
            self._note(each.gang.uid, _Forecast.of(each, began))
        # To look ahead takes a while. Without those that have started meanwhile, the short waits
        # would be missing among the errors.
        gone = {uid for uid, at in self._started.items() if at >= began}
        for uid in gone:
            self._learn(uid, self._started[uid])
        self._started = {uid: self._started[uid] for uid in gone}
        kept = {each.gang.uid for each in in_line} - gone
        self._waits = {uid: self._waits[uid] for uid in kept}
        tails = _Tails(self._errors, self._waits, now)
        found = ((each.gang.uid, _range(each, began, tails)) for each in in_line)
        return {uid: one for uid, one in found if one is not None and uid in kept}

    def _note(self, uid: str, forecast: _Forecast) -> None:
        waits = self._waits.setdefault(uid, [])
        # One forecast at a time: those of each outlook of one wait would err alike.
        if len(waits) < _MAX_FORECASTS and (not waits or waits[-1].is_over(forecast.at)):
            waits.append(forecast)


def _range(prospect: Prospect, began: float, tails: "_Tails") -> StartRange | None:
    forecast = _Forecast.of(prospect, began)
    found = tails.around(forecast.octave)
    if found is not None:
        low, high = found
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
        rows += [(each.octave, each.error(now), False) for w in waits.values() for each in w]
        # By error; of equal ones those that have started first.
        rows.sort(key=lambda row: (row[1], not row[2]))
        table = np.array(rows, dtype=float).reshape(-1, 3)
        self._octaves, self._errors, self._came = table[:, 0], table[:, 1], table[:, 2] > 0
        self._known: dict[float, tuple[float, float] | None] = {}

    def around(self, octave: float) -> tuple[float, float] | None:
        """Return the two errors for forecasts of like length; None where they are not known."""
        octave = round(2 * octave) / 2  # lengths are told apart no finer, to work it out once
        if octave not in self._known:
            self._known[octave] = self._around(octave)
        return self._known[octave]

    def _around(self, octave: float) -> tuple[float, float] | None:
        alike = abs(self._octaves - octave) <= _ALIKE
        errors, came = self._errors[alike], self._came[alike]
        if came.sum() < _FEWEST:
            return None
        # One more than there are: the next start may come after all of them.
        at_risk = len(errors) + 1 - np.arange(len(errors))
        wait_on = np.cumprod(np.where(came, 1 - 1 / at_risk, 1.0))
        late = np.flatnonzero(came & (wait_on <= _TAIL + 1e-9))
        early = np.flatnonzero(came & (wait_on <= 1 - _TAIL + 1e-9))
        if not len(late):
            return None
        return float(errors[early[0]]), float(errors[late[0]])
