"""A time series to forecast: amounts at equal steps, none below 0, and its seasons.

The name of a point of time, its *origin*, is the number of values before it. A forecast from origin
``o`` knows ``values[:o]`` and predicts ``values[o]`` and later ones.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bireme.core.errors import BiremeError
from bireme.core.resources import BoolArray, FloatArray, IntArray

_MAX_GROWTH: Final = 10
"""Forecasts from logs are cut off at this multiple of the largest fitted value."""
_HELD_OUT: Final = 4
"""One in this many of the values is for evaluation."""
_MIN_HELD_OUT: Final = 30
_MAX_EVALUATED: Final = 5000
"""Approximate maximum of single forecasts that evaluate one candidate."""


class SeriesError(BiremeError, ValueError):
    """A series has an invalid value or shape; the text says which, and the remedy."""


class ForecastError(BiremeError):
    """A forecaster cannot be fitted to a series, or cannot forecast; the text gives the reason."""


class TooShortError(ForecastError):
    """A series has too few values; the text says how many there are and how many it takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Amounts at equal steps.

    Attributes:
        values: Shape (n,), n >= 1, finite, >= 0, in any unit.
        step_seconds: Time from one value to the next.
        periods: Lengths of seasons in steps, each >= 2, shortest first: (24, 168) for hours.
        start: POSIX seconds at which the first interval begins; None if unknown.

    Raises:
        SeriesError: a value, the step or a period is not allowed.
    """

    values: FloatArray
    step_seconds: int
    periods: tuple[int, ...] = ()
    start: float | None = None

    def __post_init__(self) -> None:
        values = self.values
        if values.ndim != 1 or not len(values):
            raise SeriesError(
                f"values has shape {values.shape}; give a list of at least one number"
            )
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(wrong):
            raise SeriesError(
                f"value {wrong[0]} is {values[wrong[0]]} (and {len(wrong) - 1} more); amounts are "
                "finite and not below 0: clean the series first"
            )
        if self.step_seconds < 1:
            raise SeriesError(f"step_seconds is {self.step_seconds}; it must be at least 1")
        if any(p < 2 for p in self.periods) or list(self.periods) != sorted(set(self.periods)):
            raise SeriesError(
                f"periods is {self.periods}; give lengths of at least 2 steps, shortest first"
            )

    def __len__(self) -> int:
        return len(self.values)

    def equals(self, other: "Series") -> bool:
        """Return whether ``other`` has equal values, step, periods and start."""
        same = self.step_seconds, self.periods, self.start
        return same == (other.step_seconds, other.periods, other.start) and np.array_equal(
            self.values, other.values
        )

    def until(self, origin: int) -> "Series":
        """Return the values before ``origin``, which are known there."""
        return replace(self, values=self.values[:origin])


def origins_between(first: int, last: int, every: int = 1) -> IntArray:
    """Return the origins from ``first`` to ``last``, both included, ``every`` steps apart."""
    return np.arange(first, last + 1, every, dtype=np.int64)


def evaluation_origins(values: int, steps: int) -> IntArray:
    """Return origins in the last quarter of ``values`` values; none if these are too few."""
    held_out = values // _HELD_OUT
    if held_out - steps + 1 < _MIN_HELD_OUT:
        return origins_between(0, -1)
    every = max(1, held_out * steps // _MAX_EVALUATED)
    return origins_between(values - held_out, values - steps, every)


def from_logs(logs: FloatArray, max_value: float) -> FloatArray:
    """Return amounts from forecasts of their ``log1p``: from 0 to ten times ``max_value``."""
    # Trends of logs can run away from the maximum that the model was fitted to.
    return np.maximum(np.expm1(np.minimum(logs, math.log1p(_MAX_GROWTH * max_value))), 0.0)


def require_origins(origins: IntArray, values: FloatArray, min_values: int) -> None:
    """Check that origins lie in ``values`` with at least ``min_values`` values before them.

    Raises:
        TooShortError: an origin has fewer.
        SeriesError: an origin lies behind the end of ``values``.
    """
    if not len(origins):
        return
    if origins.min() < min_values:
        raise TooShortError(
            f"origin {origins.min()} has fewer than the {min_values} values it takes"
        )
    if origins.max() > len(values):
        raise SeriesError(f"origin {origins.max()} lies behind the {len(values)} values given")


# --- Missing values -----------------------------------------------------------------------------


def gaps(values: FloatArray) -> Iterator[tuple[int, int]]:
    """Yield the first index of each run of NaN, and the first one after it."""
    # Zeros at both ends give an edge there too to a gap that begins or ends the series.
    edges = np.flatnonzero(np.diff(np.isnan(values).astype(np.int8), prepend=0, append=0))
    yield from ((int(first), int(last)) for first, last in edges.reshape(-1, 2))


def fill_gaps(values: FloatArray, season: int, by_line: BoolArray | None = None) -> FloatArray:
    """Return ``values`` with NaN filled from one season before, else by linear interpolation.

    Args:
        values: Shape (n,), at least one of them recorded.
        season: Length in steps; 0 for none.
        by_line: Indices that are always interpolated, shape (n,).
    """
    result = values.copy()
    for first, last in gaps(values) if season else ():
        # From the front, so that a gap longer than a season continues from filled values.
        for index in range(max(first, season), last):
            if by_line is None or not by_line[index]:
                result[index] = result[index - season]
    is_known = ~np.isnan(result)
    places = np.arange(len(result))
    return np.interp(places, places[is_known], result[is_known])
