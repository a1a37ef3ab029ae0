"""The forecast of a node pool for the next two days: a history in, hours with quantiles out.

Pure; the nightly job (:mod:`bireme.forecasting.nightly_job`) and the simulator both call
:func:`forecast_pool`:

    1. Clean the recorded hours by the wall clock of the pool (:func:`clean`).
    2. Choose the model that did best lately (:mod:`bireme.forecasting.selection`).
    3. Forecast medians and upper quantiles for the hours in UTC.

With the measure Tasks, finished jobs are forecast, and nodes follow by how many of them a node
finishes per hour (:func:`task_rate`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from zoneinfo import ZoneInfo

import numpy as np

from bireme.core.errors import BiremeError, SettingError
from bireme.core.node_floor import HourForecast
from bireme.core.pool_history import PoolHistory
from bireme.core.reasons import Reason
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.times import HOUR, clock_time
from bireme.forecasting.forecasters import Forecaster
from bireme.forecasting.selection import ModelChoice, choose
from bireme.forecasting.series import ForecastError, Series, TooShortError, filled, gaps

# --- 1. Cleaning --------------------------------------------------------------------------------
#
# Every repair is a note. Days and weeks repeat by the wall clock, so the series has one value for
# each hour of that clock: the hour that a change to summer time leaves out is interpolated, of the
# one that comes twice the mean is taken.
#
# *   Values below 0 or beyond counting are refused: such an hour counts as not recorded.
# *   A spike, more than 3 times what all other days but one ever reached, counts as the most that
#     its hour of the day reached on other days. A rise that comes back on a third day is no spike.
# *   Gaps of up to a day are filled with the same hour a week before, else by a line; a longer one
#     ends the history that is used.

DAY_HOURS: Final = 24
WEEK_HOURS: Final = 168
MAX_GAP_HOURS: Final = 24
MAX_FILLED: Final = 0.1
"""Share of the hours that may be filled in."""
MAX_BEHIND_HOURS: Final = 48
"""The history may end this long before now."""
SPIKE: Final = 3.0
_MAX_AMOUNT: Final = 1e9


class UnusableHistoryError(BiremeError):
    """Nothing can be forecast from a history; ``has_gaps`` says that hours are missing."""

    def __init__(self, words: str, *, has_gaps: bool = False) -> None:
        super().__init__(words)
        self.has_gaps = has_gaps


@dataclass(frozen=True, slots=True, eq=False)
class CleanedHistory:
    """A history as a series.

    Attributes:
        series: One value per hour of the wall clock.
        first_hour: Hour of the first value, as :class:`WallClock` numbers hours.
        cut_hours: Missing hours in the latest gap that ended the history; 0 without one.
    """

    series: Series
    first_hour: int
    cut_hours: int


class WallClock:
    """Hours by the clock of a time zone, numbered as if it showed UTC."""

    def __init__(self, zone: str) -> None:
        try:
            self._zone = ZoneInfo(zone)
        except (KeyError, ValueError, OSError) as error:  # unknown, malformed, a folder of zones
            raise SettingError(
                f"timeZone {zone!a} is not known: give one of the tz database, such as "
                "Europe/Berlin"
            ) from error

    def hours(self, starts: FloatArray) -> IntArray:
        """Return the hour that the clock shows at each of ``starts``, POSIX seconds."""
        return np.array([self._shown(start) for start in starts], dtype=np.int64)

    def date(self, at: float) -> datetime:
        """Return date and time by the clock at ``at``, POSIX seconds."""
        return datetime.fromtimestamp(at, self._zone)

    def _shown(self, start: float) -> int:
        offset = self.date(start).utcoffset()
        return int((start + (offset.total_seconds() if offset else 0)) // HOUR)


def clean(
    start: float, values: FloatArray, now: float, clock: WallClock, unit: str, notes: list[str]
) -> CleanedHistory:
    """Return the series of ``values``, hours from ``start`` on, NaN where nothing was recorded.

    Hours that are not over at ``now`` do not count. Repairs are appended to ``notes``, in words
    that call the values ``unit``.

    Raises:
        UnusableHistoryError: nothing is left, the history ends more than two days before ``now``,
            or more than a tenth of it is missing.
    """
    over = max(0, int((now - start) // HOUR))
    kept = _accepted(values[:over].astype(np.float64), start, unit, notes)
    starts = start + HOUR * np.arange(len(kept), dtype=np.float64)
    shown = clock.hours(starts)
    kept = _without_spikes(kept, starts, shown, unit, notes)
    recorded = np.flatnonzero(~np.isnan(kept))
    if not len(recorded):
        raise UnusableHistoryError("no hour of it is recorded")
    behind = over - 1 - int(recorded[-1])
    if behind > MAX_BEHIND_HOURS:
        raise UnusableHistoryError(f"the last {behind} hours are not recorded", has_gaps=True)
    inside = slice(int(recorded[0]), int(recorded[-1]) + 1)
    wall, first, skipped = _on_the_wall(kept[inside], shown[inside])
    wall, dropped, cut_hours = _since_the_last_long_gap(wall, skipped, notes)
    whole = _filled(wall, skipped[dropped:], notes)
    # The time of a wall clock is read as if it were UTC: what counts is the hour of the day.
    series = Series(whole, HOUR, (DAY_HOURS, WEEK_HOURS), float(HOUR * (first + dropped)))
    return CleanedHistory(series, first + dropped, cut_hours)


def _accepted(values: FloatArray, start: float, unit: str, notes: list[str]) -> FloatArray:
    """Return ``values``, NaN where they are no amounts."""
    wrong = np.flatnonzero(~np.isnan(values) & ~((values >= 0) & (values <= _MAX_AMOUNT)))
    if len(wrong):
        first = f"{values[wrong[0]]:g} {unit} at {clock_time(start + HOUR * wrong[0])}"
        notes.append(f"{len(wrong)} values refused, first {first}: they are 0 to {_MAX_AMOUNT:g}")
        values[wrong] = np.nan
    return values


def _without_spikes(
    values: FloatArray, starts: FloatArray, shown: IntArray, unit: str, notes: list[str]
) -> FloatArray:
    days, row = np.unique(shown // DAY_HOURS, return_inverse=True)
    if len(days) < 4:
        return values  # of so few days none is the usual one
    peaks = np.full(len(days), -np.inf)
    # fmax passes over hours that were not recorded.
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
            f"{len(spikes)} hours from "
            f"{clock_time(starts[spikes[0]])} on are more than "
            f"{SPIKE:g} times the {unit} of all other days; they count as their usual most"
        )
    return values


def _on_the_wall(values: FloatArray, shown: IntArray) -> tuple[FloatArray, int, BoolArray]:
    """Return a value for each hour of the clock, the first hour, and the hours it left out."""
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
    """Return the values after the last gap too long to fill, hours dropped, hours missing."""
    long = [gap for gap in gaps(wall) if gap[1] - gap[0] > MAX_GAP_HOURS]
    dropped = long[-1][1] if long else 0
    cut_hours = long[-1][1] - long[-1][0] if long else 0
    if dropped:
        notes.append(
            f"{cut_hours} hours in a row are not recorded; the {len(wall) - dropped} since count"
        )
    wall = wall[dropped:]
    missing = int((np.isnan(wall) & ~skipped[dropped:]).sum())
    if missing > MAX_FILLED * len(wall):
        raise UnusableHistoryError(
            f"{missing} of {len(wall)} hours are not recorded, more than {MAX_FILLED:.0%}",
            has_gaps=True,
        )
    return wall, dropped, cut_hours


def _filled(wall: FloatArray, skipped: BoolArray, notes: list[str]) -> FloatArray:
    """Return ``wall``, which begins and ends with a value, without gaps."""
    missing = np.isnan(wall)
    counted = int((missing & ~skipped).sum())
    if counted:
        notes.append(f"{counted} missing hours filled with the week before, else by a line")
    return filled(wall, WEEK_HOURS, by_line=skipped)


# --- 2. and 3. The forecast ---------------------------------------------------------------------

HORIZON_HOURS: Final = 48
ENOUGH_HOURS: Final = 14 * DAY_HOURS
"""From here on models are fitted and compared; with less the last days are repeated."""
# The shortest test, of the horizon and a day, takes three days, the season before it another.
MIN_HOURS: Final = 4 * DAY_HOURS
TEST_HOURS: Final = 14 * DAY_HOURS
RHO: Final = 0.8
"""Weight of the rate that was known before the last day."""


@dataclass(frozen=True, slots=True)
class PoolForecast:
    """The forecast of a pool, or why there is none.

    Attributes:
        hours: Nodes' worth by hour (UTC) from that of now on; () without a forecast.
        reason: Reason of the condition Forecast.
        why: The same in words.
        notes: Faults of the history, and how they were repaired.
        model: Name of the forecaster.
        skill: Against seasonal-naive on the last days: 1 at best, 0 as good; None if unknown.
        accuracy: 1 - WAPE on the last days; None where nothing was asked for in them.
        tomorrow: The next day in a few words, or that nothing is forecast.
    """

    hours: tuple[HourForecast, ...]
    reason: Reason
    why: str
    notes: tuple[str, ...] = ()
    model: str = ""
    skill: float | None = None
    accuracy: float | None = None
    tomorrow: str = "not forecast"

    @property
    def is_made(self) -> bool:
        """True where there is a forecast to go by."""
        return bool(self.hours)

    @property
    def message(self) -> str:
        """Message of the condition Forecast."""
        return "; ".join((self.why, *self.notes))


@dataclass(frozen=True, slots=True)
class NightlySettings:
    """The forecast settings of a pool.

    Attributes:
        quantile: Probability that demand stays below the upper value, 0.5 to 0.99.
        minimum, maximum: Nodes, for the text about tomorrow.
        measure: What is forecast.
        time_zone: Days and weeks repeat by its clock.
    """

    quantile: float
    minimum: int
    maximum: int
    measure: Literal["Demand", "Tasks"] = "Demand"
    time_zone: str = "UTC"


def forecast_pool(
    history: PoolHistory, now: float, settings: NightlySettings, candidates: Sequence[Forecaster]
) -> PoolForecast:
    """Forecast the 48 hours from that of ``now`` (POSIX seconds) on.

    ``candidates`` are tried beside the seasonal-naive forecaster.

    Raises:
        SettingError: there is no such time zone.
    """
    notes = list(history.notes)
    try:
        return _forecast(history, now, settings, candidates, notes)
    except (UnusableHistoryError, ForecastError) as error:
        if isinstance(error, UnusableHistoryError) and error.has_gaps:
            reason = Reason.HISTORY_HAS_GAPS
        elif isinstance(error, UnusableHistoryError | TooShortError):
            reason = Reason.TOO_LITTLE_HISTORY
        else:
            reason = Reason.FORECAST_FAILED
        return PoolForecast((), reason, str(error), tuple(notes))


def _forecast(
    history: PoolHistory,
    now: float,
    settings: NightlySettings,
    candidates: Sequence[Forecaster],
    notes: list[str],
) -> PoolForecast:
    """Do as :func:`forecast_pool`, but raise; ``notes`` name repairs also then."""
    clock = WallClock(settings.time_zone)
    is_tasks = settings.measure == "Tasks"
    values, unit = (history.tasks, "tasks") if is_tasks else (history.demand, "nodes")
    cleaned = clean(history.start, values, now, clock, unit, notes)
    factor = _nodes_per_task(history, notes) if is_tasks else 1.0
    starts = now - now % HOUR + HOUR * np.arange(HORIZON_HOURS, dtype=np.float64)
    chosen, median, upper = _points(cleaned, clock.hours(starts), settings.quantile, candidates)
    hours = tuple(
        HourForecast(float(start), float(p50), float(high))
        for start, p50, high in zip(starts, factor * median, factor * upper, strict=True)
    )
    reason, why = _verdict(chosen, cleaned)
    faults = (f"{name} failed: {fault}" for name, fault in chosen.faults.items())
    return PoolForecast(
        hours,
        reason,
        why,
        (*notes, *faults),
        chosen.name,
        chosen.skill,
        chosen.scores[chosen.name].accuracy_wape,
        _tomorrow(hours, now, clock, settings, chosen.name),
    )


def _points(
    cleaned: CleanedHistory, shown: IntArray, quantile: float, candidates: Sequence[Forecaster]
) -> tuple[ModelChoice, FloatArray, FloatArray]:
    """Return the model chosen, and medians and upper values of the hours ``shown``."""
    series = cleaned.series
    known = len(series)
    if known < MIN_HOURS:
        raise UnusableHistoryError(
            f"{known} hours are recorded in a row; a forecast takes {MIN_HOURS}",
            has_gaps=cleaned.cut_hours > 0,
        )
    # An hour that comes twice is known from its first time: the second goes by the hour after it.
    ahead = np.maximum(shown - cleaned.first_hour - known, 0)
    steps = int(ahead[-1]) + 1
    test = min(TEST_HOURS, max(known // 2 // DAY_HOURS * DAY_HOURS, steps + DAY_HOURS))
    tried = candidates if known >= ENOUGH_HOURS else ()
    chosen = choose(series, tried, steps, test, quantile)
    points = chosen.model.at(series.values, np.array([known], dtype=np.int64), steps)[0]
    median, upper = (chosen.intervals.quantile(points, q)[ahead] for q in (0.5, quantile))
    return chosen, median, upper


def _nodes_per_task(history: PoolHistory, notes: list[str]) -> float:
    """Return the nodes that one task per hour takes, by days that have both tasks and nodes."""
    columns = history.tasks, history.demand
    both = np.logical_and(*(np.isfinite(column) & (column >= 0) for column in columns))
    tasks, nodes = (np.where(both, column, 0.0) for column in columns)
    days = np.arange(len(tasks)) // DAY_HOURS
    by_day = np.bincount(days, tasks), np.bincount(days, nodes)
    rates = [float(t / n) for t, n in zip(*by_day, strict=True) if t > 0 and n > 0]
    if not rates:
        raise UnusableHistoryError("no day has both finished tasks and nodes that they ran on")
    rate = task_rate(rates)
    notes.append(f"a node finishes {rate:.3g} tasks per hour")
    return 1 / rate


def task_rate(observed: Sequence[float]) -> float:
    """Return the rate of tasks per node and hour, ``observed`` smoothed, oldest first.

        rate_new = rho * rate_old + (1 - rho) * rate_past

    Equation 2 of the paper of RLPTO and LSP; by equation 3, nodes are tasks over the rate.
    """
    smoothed = observed[0]
    for past in observed[1:]:
        smoothed = RHO * smoothed + (1 - RHO) * past
    return smoothed


def _verdict(chosen: ModelChoice, cleaned: CleanedHistory) -> tuple[Reason, str]:
    known = len(cleaned.series)
    if known < ENOUGH_HOURS:
        words = f"{chosen.name}: {known} hours are recorded in a row, models take {ENOUGH_HOURS}"
        has_gaps = cleaned.cut_hours > 0
        reason = Reason.HISTORY_HAS_GAPS if has_gaps else Reason.TOO_LITTLE_HISTORY
        return reason, words
    if chosen.name == chosen.baseline:
        return Reason.SEASONAL_NAIVE_USED, chosen.summary
    return Reason.FORECAST_MADE, chosen.summary


def _tomorrow(
    hours: Sequence[HourForecast], now: float, clock: WallClock, settings: NightlySettings, by: str
) -> str:
    """Return such as ``Mon 6-14 nodes, most at 14:00, by lsp``."""
    today = clock.date(now).date()
    next_day = [(clock.date(h.start), h.upper) for h in hours if clock.date(h.start).date() > today]
    first = next_day[0][0].date()
    # A hair above a whole node, by rounding alone, takes no further node.
    wanted = [(at, math.ceil(upper - 1e-9)) for at, upper in next_day if at.date() == first]
    low, (most_at, high) = min(n for _, n in wanted), max(wanted, key=lambda each: each[1])
    fewest, most = (min(max(n, settings.minimum), settings.maximum) for n in (low, high))
    span = f"{fewest}-{most} nodes, most at {most_at:%H:%M}" if fewest < most else f"{most} nodes"
    beyond = f" ({high} wanted)" if high > settings.maximum else ""
    return f"{first:%a} {span}{beyond}, by {by}"
