"""The forecast of a node pool for the next two days: a history in, hours with quantiles out.

It is pure; the nightly job (:mod:`bireme.forecasting.nightly_job`) and the simulator both call
:func:`forecast_pool`:

    1. Clean the recorded hours by the wall clock of the pool (:func:`clean`).
    2. Choose the model with the best recent forecasts (:mod:`bireme.forecasting.selection`).
    3. Forecast medians and upper quantiles for the hours in UTC.

With the measure Tasks, finished jobs are forecast, and nodes follow from the number of jobs that a
node finishes per hour (:func:`task_rate`).
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
from bireme.forecasting.series import ForecastError, Series, TooShortError, fill_gaps, gaps

# --- 1. Cleaning --------------------------------------------------------------------------------
#
# Every repair is a note. Days and weeks repeat by the wall clock, so the series has one value for
# each hour of that clock. The hour that a change to summer time skips is interpolated; an hour that
# occurs twice counts as the mean of both.
#
# *   Values below 0 or above the maximum are refused: such an hour counts as not recorded.
# *   A spike is more than 3 times the peak of all other days but one. It counts as the maximum of
#     its hour of the day on other days. A rise that comes back on a third day is no spike.
# *   Gaps of up to a day are filled with the same hour a week before, else by a line. A longer gap
#     ends the history that is used.

DAY_HOURS: Final = 24
WEEK_HOURS: Final = 168
MAX_GAP_HOURS: Final = 24
MAX_FILLED: Final = 0.1
"""Maximum share of the hours that may be filled in."""
MAX_BEHIND_HOURS: Final = 48
"""Maximum time by which the end of the history may lie before now."""
SPIKE: Final = 3.0
_MAX_AMOUNT: Final = 1e9


class UnusableHistoryError(BiremeError):
    """No forecast can be made from a history; ``has_gaps`` says that hours are missing."""

    def __init__(self, message: str, *, has_gaps: bool = False) -> None:
        super().__init__(message)
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
        return np.array([self._hour_at(start) for start in starts], dtype=np.int64)

    def date(self, time: float) -> datetime:
        """Return date and time by the clock at ``time``, POSIX seconds."""
        return datetime.fromtimestamp(time, self._zone)

    def _hour_at(self, start: float) -> int:
        offset = self.date(start).utcoffset()
        return int((start + (offset.total_seconds() if offset else 0)) // HOUR)


def clean(
    start: float, values: FloatArray, now: float, clock: WallClock, unit: str, notes: list[str]
) -> CleanedHistory:
    """Return the series of ``values``, hours from ``start`` on, NaN where nothing was recorded.

    Hours that are not over at ``now`` do not count. Repairs are appended to ``notes``, which call
    the values ``unit``.

    Raises:
        UnusableHistoryError: no hour remains, the history ends more than two days before ``now``,
            or more than a tenth of it is missing.
    """
    over = max(0, int((now - start) // HOUR))
    amounts = _refuse_invalid(values[:over].astype(np.float64), start, unit, notes)
    starts = start + HOUR * np.arange(len(amounts), dtype=np.float64)
    clock_hours = clock.hours(starts)
    amounts = _without_spikes(amounts, starts, clock_hours, unit, notes)
    recorded = np.flatnonzero(~np.isnan(amounts))
    if not len(recorded):
        raise UnusableHistoryError("no hour of it is recorded")
    missing_hours = over - 1 - int(recorded[-1])
    if missing_hours > MAX_BEHIND_HOURS:
        raise UnusableHistoryError(
            f"the last {missing_hours} hours are not recorded", has_gaps=True
        )
    inside = slice(int(recorded[0]), int(recorded[-1]) + 1)
    wall, first, skipped = _on_the_wall(amounts[inside], clock_hours[inside])
    wall, dropped, cut_hours = _since_the_last_long_gap(wall, skipped, notes)
    whole = _fill_gaps(wall, skipped[dropped:], notes)
    # The time of a wall clock is read as if it were UTC: only the hour of the day counts.
    series = Series(whole, HOUR, (DAY_HOURS, WEEK_HOURS), float(HOUR * (first + dropped)))
    return CleanedHistory(series, first + dropped, cut_hours)


def _refuse_invalid(values: FloatArray, start: float, unit: str, notes: list[str]) -> FloatArray:
    """Return ``values``, with NaN for invalid amounts."""
    wrong = np.flatnonzero(~np.isnan(values) & ~((values >= 0) & (values <= _MAX_AMOUNT)))
    if len(wrong):
        first = f"{values[wrong[0]]:g} {unit} at {clock_time(start + HOUR * wrong[0])}"
        notes.append(f"{len(wrong)} values refused, first {first}: they are 0 to {_MAX_AMOUNT:g}")
        values[wrong] = np.nan
    return values


def _without_spikes(
    values: FloatArray, starts: FloatArray, clock_hours: IntArray, unit: str, notes: list[str]
) -> FloatArray:
    days, row = np.unique(clock_hours // DAY_HOURS, return_inverse=True)
    if len(days) < 4:
        return values  # so few days have no usual one
    peaks = np.full(len(days), -np.inf)
    # fmax ignores hours that were not recorded.
    np.fmax.at(peaks, row, values)
    # The second highest of the other days, so the third of all for the two highest themselves.
    highest = np.sort(peaks)[::-1]
    limits = SPIKE * np.where(peaks >= highest[1], highest[2], highest[1])
    is_spike = (values > limits[row]) & (limits[row] > 0)
    usual, spikes = np.where(is_spike, np.nan, values), np.flatnonzero(is_spike)
    for index in spikes:
        same = usual[clock_hours % DAY_HOURS == clock_hours[index] % DAY_HOURS]
        values[index] = np.nan if np.isnan(same).all() else np.nanmax(same)
    if len(spikes):
        notes.append(
            f"{len(spikes)} hours from "
            f"{clock_time(starts[spikes[0]])} on are more than "
            f"{SPIKE:g} times the {unit} of all other days; they count as their usual most"
        )
    return values


def _on_the_wall(values: FloatArray, clock_hours: IntArray) -> tuple[FloatArray, int, BoolArray]:
    """Return a value for each hour of the clock, the first hour, and the hours that it skipped."""
    first = int(clock_hours[0])
    offsets = clock_hours - first
    hours = int(offsets[-1]) + 1
    is_recorded = ~np.isnan(values)
    sums = np.bincount(offsets[is_recorded], weights=values[is_recorded], minlength=hours)
    counts = np.bincount(offsets[is_recorded], minlength=hours)
    wall = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return wall, first, np.bincount(offsets, minlength=hours) == 0


def _since_the_last_long_gap(
    wall: FloatArray, skipped: BoolArray, notes: list[str]
) -> tuple[FloatArray, int, int]:
    """Return the values after the last gap too long to fill, the hours dropped and missing."""
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


def _fill_gaps(wall: FloatArray, skipped: BoolArray, notes: list[str]) -> FloatArray:
    """Return ``wall``, which begins and ends with a value, without gaps."""
    missing = np.isnan(wall)
    counted = int((missing & ~skipped).sum())
    if counted:
        notes.append(f"{counted} missing hours filled with the week before, else by a line")
    return fill_gaps(wall, WEEK_HOURS, by_line=skipped)


# --- 2. and 3. The forecast ---------------------------------------------------------------------

HORIZON_HOURS: Final = 48
ENOUGH_HOURS: Final = 14 * DAY_HOURS
"""Minimum history for fitted models; a shorter one repeats its last days."""
# The shortest test, of the horizon and a day, takes three days, the season before it another.
MIN_HOURS: Final = 4 * DAY_HOURS
TEST_HOURS: Final = 14 * DAY_HOURS
RHO: Final = 0.8
"""Weight of the rate known before the last day."""


@dataclass(frozen=True, slots=True)
class PoolForecast:
    """The forecast of a pool, or the reason why there is none.

    Attributes:
        hours: Nodes' worth by hour (UTC) from that of now on; () without a forecast.
        reason: Reason of the condition Forecast.
        explanation: The reason as text.
        notes: Faults of the history, and their repairs.
        model: Name of the forecaster.
        skill: Against seasonal-naive on the last days: 1 at best, 0 as good; None if unknown.
        accuracy: 1 - WAPE on the last days; None if nothing was demanded in them.
        tomorrow: The next day in a few words, or that nothing is forecast.
    """

    hours: tuple[HourForecast, ...]
    reason: Reason
    explanation: str
    notes: tuple[str, ...] = ()
    model: str = ""
    skill: float | None = None
    accuracy: float | None = None
    tomorrow: str = "not forecast"

    @property
    def is_made(self) -> bool:
        """Whether there is a forecast to follow."""
        return bool(self.hours)

    @property
    def message(self) -> str:
        """Message of the condition Forecast."""
        return "; ".join((self.explanation, *self.notes))


@dataclass(frozen=True, slots=True)
class NightlySettings:
    """The forecast settings of a pool.

    Attributes:
        quantile: Probability that demand stays below the upper value, 0.5 to 0.99.
        minimum, maximum: Numbers of nodes, for the text about tomorrow.
        measure: The forecast quantity.
        time_zone: The zone by whose clock days and weeks repeat.
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

    ``candidates`` compete with the seasonal-naive forecaster.

    Raises:
        SettingError: the time zone does not exist.
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
    """Do as :func:`forecast_pool`, but raise; ``notes`` gets the repairs in any case."""
    clock = WallClock(settings.time_zone)
    is_tasks = settings.measure == "Tasks"
    values, unit = (history.tasks, "tasks") if is_tasks else (history.demand, "nodes")
    cleaned = clean(history.start, values, now, clock, unit, notes)
    factor = _nodes_per_task(history, notes) if is_tasks else 1.0
    starts = now - now % HOUR + HOUR * np.arange(HORIZON_HOURS, dtype=np.float64)
    choice, median, upper = _points(cleaned, clock.hours(starts), settings.quantile, candidates)
    hours = tuple(
        HourForecast(float(start), float(p50), float(high))
        for start, p50, high in zip(starts, factor * median, factor * upper, strict=True)
    )
    reason, explanation = _verdict(choice, cleaned)
    faults = (f"{name} failed: {fault}" for name, fault in choice.faults.items())
    return PoolForecast(
        hours,
        reason,
        explanation,
        (*notes, *faults),
        choice.name,
        choice.skill,
        choice.scores[choice.name].accuracy_wape,
        _tomorrow(hours, now, clock, settings, choice.name),
    )


def _points(
    cleaned: CleanedHistory,
    clock_hours: IntArray,
    quantile: float,
    candidates: Sequence[Forecaster],
) -> tuple[ModelChoice, FloatArray, FloatArray]:
    """Return the chosen model, and medians and upper values of ``clock_hours``."""
    series = cleaned.series
    recorded_hours = len(series)
    if recorded_hours < MIN_HOURS:
        raise UnusableHistoryError(
            f"{recorded_hours} hours are recorded in a row; a forecast takes {MIN_HOURS}",
            has_gaps=cleaned.cut_hours > 0,
        )
    # The second occurrence of an hour that comes twice uses the forecast of its first.
    leads = np.maximum(clock_hours - cleaned.first_hour - recorded_hours, 0)
    steps = int(leads[-1]) + 1
    test = min(TEST_HOURS, max(recorded_hours // 2 // DAY_HOURS * DAY_HOURS, steps + DAY_HOURS))
    tried = candidates if recorded_hours >= ENOUGH_HOURS else ()
    choice = choose(series, tried, steps, test, quantile)
    points = choice.model.at(series.values, np.array([recorded_hours], dtype=np.int64), steps)[0]
    median, upper = (choice.intervals.quantile(points, q)[leads] for q in (0.5, quantile))
    return choice, median, upper


def _nodes_per_task(history: PoolHistory, notes: list[str]) -> float:
    """Return the nodes that one task per hour takes, from days with both tasks and nodes."""
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


def _verdict(choice: ModelChoice, cleaned: CleanedHistory) -> tuple[Reason, str]:
    recorded_hours = len(cleaned.series)
    if recorded_hours < ENOUGH_HOURS:
        explanation = (
            f"{choice.name}: {recorded_hours} hours are recorded in a row, "
            f"models take {ENOUGH_HOURS}"
        )
        has_gaps = cleaned.cut_hours > 0
        reason = Reason.HISTORY_HAS_GAPS if has_gaps else Reason.TOO_LITTLE_HISTORY
        return reason, explanation
    if choice.name == choice.baseline:
        return Reason.SEASONAL_NAIVE_USED, choice.summary
    return Reason.FORECAST_MADE, choice.summary


def _tomorrow(
    hours: Sequence[HourForecast], now: float, clock: WallClock, settings: NightlySettings, by: str
) -> str:
    """Return a text such as ``Mon 6-14 nodes, most at 14:00, by lsp``."""
    today = clock.date(now).date()
    next_day = [(clock.date(h.start), h.upper) for h in hours if clock.date(h.start).date() > today]
    first = next_day[0][0].date()
    # An excess over a whole node by rounding alone takes no further node.
    node_counts = [
        (time, math.ceil(upper - 1e-9)) for time, upper in next_day if time.date() == first
    ]
    low, (most_at, high) = (
        min(n for _, n in node_counts),
        max(node_counts, key=lambda pair: pair[1]),
    )
    min_nodes, max_nodes = (min(max(n, settings.minimum), settings.maximum) for n in (low, high))
    span = (
        f"{min_nodes}-{max_nodes} nodes, most at {most_at:%H:%M}"
        if min_nodes < max_nodes
        else f"{max_nodes} nodes"
    )
    beyond = f" ({high} wanted)" if high > settings.maximum else ""
    return f"{first:%a} {span}{beyond}, by {by}"
