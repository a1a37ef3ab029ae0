"""Hours as they were counted -> a series to forecast from, or a refusal that says what is missing.

Nothing is made up in silence: every repair is a note. Days and weeks repeat by the clock on the
wall, so the series has one value for each hour of that clock: the hour that a change to summer
time leaves out is interpolated, of the one that comes twice the mean is taken.

*   Values below 0 or beyond counting are refused: such an hour counts as not recorded.
*   A spike, more than 3 times what all other days but one ever reached, counts as the most that
    its hour of the day reached on other days. A rise that comes back on a third day is no spike.
*   Gaps of up to a day are filled with the same hour a week before, else by a line; a longer one
    ends the history that is used.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from bireme.core.errors import BiremeError, SettingError
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.times import HOUR
from bireme.forecasting.gaps import filled, gaps
from bireme.forecasting.series import Series
from bireme.kube import timestamps

DAY_HOURS: Final = 24
WEEK_HOURS: Final = 168
MOST_GAP_HOURS: Final = 24
MOST_FILLED: Final = 0.1
"""Share of the hours that may be filled in."""
MOST_BEHIND_HOURS: Final = 48
"""How long before now the history may end."""
SPIKE: Final = 3.0
_MOST_AMOUNT: Final = 1e9


class Unusable(BiremeError):  # noqa: N818  # it says what the history is
    """A history that nothing can be forecast from; ``has_gaps`` says that hours are missing."""

    def __init__(self, words: str, *, has_gaps: bool = False) -> None:
        super().__init__(words)
        self.has_gaps = has_gaps


@dataclass(frozen=True, slots=True, eq=False)
class Cleaned:
    """What a history becomes.

    Attributes:
        series: One value per hour of the wall clock.
        first_hour: What that clock shows at its first value, as :class:`WallClock` numbers hours.
        cut_hours: Missing hours in the latest gap that ended the history; 0 without one.
    """

    series: Series
    first_hour: int
    cut_hours: int


class WallClock:
    """Hours by the clock of a time zone, numbered as if it showed UTC."""

    def __init__(self, zone: str) -> None:
        self._zone = _zone(zone)

    def hours(self, starts: FloatArray) -> IntArray:
        """The hour that the clock shows at each of ``starts``, POSIX seconds of whole hours."""
        shown = [self._shown(start) for start in starts]
        return np.array(shown, dtype=np.int64)

    def date(self, at: float) -> datetime:
        """What the clock and its calendar show at ``at``, POSIX seconds."""
        return datetime.fromtimestamp(at, self._zone)

    def _shown(self, start: float) -> int:
        offset = self.date(start).utcoffset()
        return int((start + (offset.total_seconds() if offset else 0)) // HOUR)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # unknown, malformed, or a folder of zones
        raise SettingError(
            f"timeZone {name!a} is not known: give one of the tz database, such as Europe/Berlin"
        ) from error


def clean(
    start: float, values: FloatArray, now: float, clock: WallClock, unit: str, notes: list[str]
) -> Cleaned:
    """The series of ``values``, hours from ``start`` on, NaN where nothing was recorded.

    Hours that are not over at ``now`` do not count. What is repaired or left out is appended to
    ``notes``, in words that call the values ``unit``.

    Raises:
        Unusable: nothing is left, the history ends more than two days before ``now``, or more than
            a tenth of it is missing.
    """
    over = max(0, int((now - start) // HOUR))
    kept = _accepted(values[:over].astype(np.float64), start, unit, notes)
    starts = start + HOUR * np.arange(len(kept), dtype=np.float64)
    shown = clock.hours(starts)
    kept = _without_spikes(kept, starts, shown, unit, notes)
    recorded = np.flatnonzero(~np.isnan(kept))
    if not len(recorded):
        raise Unusable("no hour of it is recorded")
    behind = over - 1 - int(recorded[-1])
    if behind > MOST_BEHIND_HOURS:
        raise Unusable(f"the last {behind} hours are not recorded", has_gaps=True)
    inside = slice(int(recorded[0]), int(recorded[-1]) + 1)
    wall, first, skipped = _on_the_wall(kept[inside], shown[inside])
    wall, dropped, cut_hours = _since_the_last_long_gap(wall, skipped, notes)
    whole = _filled(wall, skipped[dropped:], notes)
    # The time of a wall clock is read as if it were UTC: what counts is the hour of the day.
    series = Series(whole, HOUR, (DAY_HOURS, WEEK_HOURS), float(HOUR * (first + dropped)))
    return Cleaned(series, first + dropped, cut_hours)


def _accepted(values: FloatArray, start: float, unit: str, notes: list[str]) -> FloatArray:
    """``values`` with those that are no amounts counted as not recorded."""
    wrong = np.flatnonzero(~np.isnan(values) & ~((values >= 0) & (values <= _MOST_AMOUNT)))
    if len(wrong):
        first = f"{values[wrong[0]]:g} {unit} at {timestamps.format(start + HOUR * wrong[0])}"
        notes.append(f"{len(wrong)} values refused, first {first}: they are 0 to {_MOST_AMOUNT:g}")
        values[wrong] = np.nan
    return values


def _without_spikes(
    values: FloatArray, starts: FloatArray, shown: IntArray, unit: str, notes: list[str]
) -> FloatArray:
    """``values`` with spikes replaced; of two days nobody can say which is the usual one."""
    days, row = np.unique(shown // DAY_HOURS, return_inverse=True)
    if len(days) < 4:
        return values
    peaks = np.full(len(days), -np.inf)
    np.fmax.at(peaks, row, values)
    # The second highest of the other days: the third of all for the two highest themselves.
    highest = np.sort(peaks)[::-1]
    limits = SPIKE * np.where(peaks >= highest[1], highest[2], highest[1])
    is_spike = (values > limits[row]) & (limits[row] > 0)
    usual, spikes = np.where(is_spike, np.nan, values), np.flatnonzero(is_spike)
    for at in spikes:
        same = usual[shown % DAY_HOURS == shown[at] % DAY_HOURS]
        values[at] = np.nan if np.isnan(same).all() else np.nanmax(same)
    if len(spikes):
        notes.append(
            f"{len(spikes)} hours from {timestamps.format(starts[spikes[0]])} on are more than "
            f"{SPIKE:g} times the {unit} of all other days; they count as their usual most"
        )
    return values


def _on_the_wall(values: FloatArray, shown: IntArray) -> tuple[FloatArray, int, BoolArray]:
    """A value for each hour of the clock, the first hour, and which hours the clock left out."""
    first = int(shown[0])
    at = shown - first
    hours = int(at[-1]) + 1
    there = ~np.isnan(values)
    sums = np.bincount(at[there], weights=values[there], minlength=hours)
    counts = np.bincount(at[there], minlength=hours)
    wall = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return wall, first, np.bincount(at, minlength=hours) == 0


def _since_the_last_long_gap(
    wall: FloatArray, skipped: BoolArray, notes: list[str]
) -> tuple[FloatArray, int, int]:
    """What comes after the last gap that is too long to fill, hours dropped, hours missing."""
    long = [gap for gap in gaps(wall) if gap[1] - gap[0] > MOST_GAP_HOURS]
    dropped = long[-1][1] if long else 0
    cut_hours = long[-1][1] - long[-1][0] if long else 0
    if dropped:
        notes.append(
            f"{cut_hours} hours in a row are not recorded; the {len(wall) - dropped} since count"
        )
    wall = wall[dropped:]
    missing = int((np.isnan(wall) & ~skipped[dropped:]).sum())
    if missing > MOST_FILLED * len(wall):
        raise Unusable(
            f"{missing} of {len(wall)} hours are not recorded, more than {MOST_FILLED:.0%}",
            has_gaps=True,
        )
    return wall, dropped, cut_hours


def _filled(wall: FloatArray, skipped: BoolArray, notes: list[str]) -> FloatArray:
    """``wall`` without gaps; it begins and ends with a value."""
    missing = np.isnan(wall)
    counted = int((missing & ~skipped).sum())
    if counted:
        notes.append(f"{counted} missing hours filled with the week before, else by a line")
    return filled(wall, WEEK_HOURS, by_line=skipped)
