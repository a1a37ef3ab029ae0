"""Axes: from values to a place between 0 and 1, with ticks at round values.

Seconds are ticked in the units people use (15 min, 6 h, 1 d), logarithmic seconds likewise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.simulator.reports import words

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_SECONDS_STEPS: Final = tuple(
    [n * 1.0 for n in (1, 2, 5, 10, 15, 30)]
    + [n * _MINUTE for n in (1, 2, 5, 10, 15, 30)]
    + [n * _HOUR for n in (1, 2, 3, 6, 12)]
    + [n * _DAY for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]
)
_LINEAR_STEPS: Final = 4
_SECONDS_TICKS: Final = 6
"""An axis has at most so many."""
_LOG_SECONDS: Final = {
    **{n * unit: n == 1 for unit in (1.0, _MINUTE, _HOUR) for n in (1, 10)},
    **{n * _DAY: True for n in (1, 10, 100, 1000)},
}
"""Ticks, and whether they have room for a label."""


@dataclass(frozen=True, slots=True)
class Axis:
    """``ticks`` are (value, label) pairs from ``low`` to ``high``."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def share(self, values: FloatArray) -> FloatArray:
        """Where on the axis ``values`` are, 0 to 1; what lies outside is at its ends."""
        low, high = self.low, self.high
        if self.is_log:
            low, high = log10(low), log10(high)
            values = np.log10(np.maximum(values, self.low))
        return np.clip((values - low) / (high - low), 0.0, 1.0)


def linear(high: float, label: Callable[[float], str]) -> Axis:
    """From 0 to at least ``high``, which ends on a tick."""
    step = nice_step(max(high, 1e-9) / _LINEAR_STEPS)
    steps = max(1, ceil(high / step - 1e-9))
    ticks = tuple((n * step, label(n * step)) for n in range(steps + 1))
    return Axis(0.0, steps * step, ticks)


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is at least ``least``, above 0."""
    power = 10.0 ** floor(log10(least))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= least * (1 - 1e-9))


def seconds(low: float, high: float) -> Axis:
    """Time from ``low`` to ``high``, in seconds, ticked at round times."""
    high = max(high, low + 1e-9)
    fitting = (s for s in _SECONDS_STEPS if (high - low) / s <= _SECONDS_TICKS)
    step = next(fitting, _SECONDS_STEPS[-1])
    first, last = ceil(low / step - 1e-12), floor(high / step + 1e-12)
    ticks = tuple((n * step, clock(n * step)) for n in range(first, last + 1))
    return Axis(low, high, ticks)


def log_seconds(high: float) -> Axis:
    """Durations from one second to at least ``high``, a tick per unit or ten of them."""
    values = [value for value in _LOG_SECONDS if value > 1]
    end = next((value for value in values if value >= high), values[-1])
    ticks = tuple((v, clock(v) if named else "") for v, named in _LOG_SECONDS.items() if v <= end)
    return Axis(1.0, end, ticks, is_log=True)


def log_factor(high: float) -> Axis:
    """Ratios from 1 to at least ``high``, a tick per power of ten."""
    decades = max(1, ceil(log10(max(high, 1.0)) - 1e-9))
    ticks = tuple((10.0**n, words.power(n)) for n in range(decades + 1))
    return Axis(1.0, 10.0**decades, ticks, is_log=True)


def clock(value: float) -> str:
    """A round duration in its largest exact unit: ``0``, ``90 s``, ``36 h``, ``2 d``."""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if value >= size and value % size == 0:
            return f"{value / size:,.0f} {unit}"
    return f"{value:g} s" if value else "0"


def largest(arrays: Sequence[FloatArray]) -> float:
    """The largest value in any of ``arrays``; 0 when all are empty."""
    return max((float(one.max()) for one in arrays if len(one)), default=0.0)
