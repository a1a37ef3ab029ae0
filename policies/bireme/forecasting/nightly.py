"""What a node pool will need in the next two days: a history in, hours with quantiles out.

Pure: the job of the night calls it with what it read, the simulator with what it made up.

    history -> cleaned by the wall clock -> the model that did best lately -> hours in UTC

With the measure Tasks it is finished jobs that are forecast, and nodes follow by how many of them
a node finishes per hour (equations 2 and 3 of the paper of RLPTO and LSP).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from bireme.core.pool_floor import HourForecast
from bireme.core.reasons import Reason
from bireme.core.resources import FloatArray, IntArray
from bireme.core.times import HOUR
from bireme.forecasting.cleaning import DAY_HOURS, Cleaned, Unusable, WallClock, clean
from bireme.forecasting.errors import FitError, TooShort
from bireme.forecasting.forecasters import Forecaster
from bireme.forecasting.selection import Chosen, choose
from bireme.forecasting.task_rate import nodes_for, task_rate
from bireme.kube.pool_history import PoolHistory

HORIZON_HOURS: Final = 48
ENOUGH_HOURS: Final = 14 * DAY_HOURS
"""From here on models are fitted and compared; with less the last days are repeated."""
LEAST_HOURS: Final = 4 * DAY_HOURS
TEST_HOURS: Final = 14 * DAY_HOURS


@dataclass(frozen=True, slots=True)
class PoolForecast:
    """What is forecast for a pool, or why nothing is.

    Attributes:
        hours: Nodes' worth by hour (UTC) from that of now on; () where nothing can be said.
        reason: What became of it, as the condition Forecast says it.
        why: The same in words.
        notes: What was odd about the history, and what was made of it.
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
        """Whether there is a forecast to go by."""
        return bool(self.hours)

    @property
    def said(self) -> str:
        """All words about it."""
        return "; ".join((self.why, *self.notes))


@dataclass(frozen=True, slots=True)
class NightlySettings:
    """What a pool says about its forecast.

    Attributes:
        quantile: How sure the upper value is, 0.5 to 0.99.
        minimum, maximum: Nodes, for the words about tomorrow.
        measure: What is forecast.
        time_zone: By whose clock days and weeks repeat.
    """

    quantile: float
    minimum: int
    maximum: int
    measure: Literal["Demand", "Tasks"] = "Demand"
    time_zone: str = "UTC"


def forecast_pool(
    history: PoolHistory, now: float, settings: NightlySettings, candidates: Sequence[Forecaster]
) -> PoolForecast:
    """The forecast of the 48 hours from that of ``now`` (POSIX seconds) on.

    Args:
        history: What was counted, as far as it goes.
        now: When it is made; hours that are not over do not count.
        settings: Those of the pool.
        candidates: What may beat the seasonal-naive forecast.

    Raises:
        SettingError: there is no such time zone.
    """
    notes = list(history.notes)
    try:
        return _forecast(history, now, settings, candidates, notes)
    except Unusable as error:
        has_gaps = error.has_gaps
        reason = Reason.HISTORY_HAS_GAPS if has_gaps else Reason.TOO_LITTLE_HISTORY
        return PoolForecast((), reason, str(error), tuple(notes))
    except FitError as error:
        is_short = isinstance(error, TooShort)
        reason = Reason.TOO_LITTLE_HISTORY if is_short else Reason.FORECAST_FAILED
        return PoolForecast((), reason, str(error), tuple(notes))


def _forecast(
    history: PoolHistory,
    now: float,
    settings: NightlySettings,
    candidates: Sequence[Forecaster],
    notes: list[str],
) -> PoolForecast:
    """As :func:`forecast_pool`; ``notes`` tell what was repaired, also where it raises.

    Raises:
        Unusable: the history is.
        FitError: not even the seasonal-naive forecast can be judged.
    """
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
    reason, why = _judged(chosen, cleaned)
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
    cleaned: Cleaned, shown: IntArray, quantile: float, candidates: Sequence[Forecaster]
) -> tuple[Chosen, FloatArray, FloatArray]:
    """The model chosen, and medians and upper values of the hours ``shown`` by the clock."""
    series = cleaned.series
    known = len(series)
    if known < LEAST_HOURS:
        raise Unusable(
            f"{known} hours are recorded in a row; a forecast takes {LEAST_HOURS}",
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
    """Nodes that one task per hour takes, by the days that have both tasks and nodes."""
    columns = history.tasks, history.demand
    both = np.logical_and(*(np.isfinite(column) & (column >= 0) for column in columns))
    tasks, nodes = (np.where(both, column, 0.0) for column in columns)
    days = np.arange(len(tasks)) // DAY_HOURS
    by_day = np.bincount(days, tasks), np.bincount(days, nodes)
    rates = [float(t / n) for t, n in zip(*by_day, strict=True) if t > 0 and n > 0]
    if not rates:
        raise Unusable("no day has both finished tasks and nodes that they ran on")
    rate = task_rate(rates)
    notes.append(f"a node finishes {rate:.3g} tasks per hour")
    return nodes_for(1.0, rate)


def _judged(chosen: Chosen, cleaned: Cleaned) -> tuple[Reason, str]:
    known = len(cleaned.series)
    if known < ENOUGH_HOURS:
        words = f"{chosen.name}: {known} hours are recorded in a row, models take {ENOUGH_HOURS}"
        has_gaps = cleaned.cut_hours > 0
        reason = Reason.HISTORY_HAS_GAPS if has_gaps else Reason.TOO_LITTLE_HISTORY
        return reason, words
    if chosen.name == chosen.baseline:
        return Reason.SEASONAL_NAIVE_USED, chosen.said
    return Reason.FORECAST_MADE, chosen.said


def _tomorrow(
    hours: Sequence[HourForecast], now: float, clock: WallClock, settings: NightlySettings, by: str
) -> str:
    """Such as ``Mon 6-14 nodes, most at 14:00, by lsp``."""
    today = clock.date(now).date()
    next_day = [(clock.date(h.start), h.upper) for h in hours if clock.date(h.start).date() > today]
    first = next_day[0][0].date()
    wanted = [(at, math.ceil(upper - 1e-9)) for at, upper in next_day if at.date() == first]
    low, (most_at, high) = min(n for _, n in wanted), max(wanted, key=lambda each: each[1])
    fewest, most = (min(max(n, settings.minimum), settings.maximum) for n in (low, high))
    span = f"{fewest}-{most} nodes, most at {most_at:%H:%M}" if fewest < most else f"{most} nodes"
    beyond = f" ({high} wanted)" if high > settings.maximum else ""
    return f"{first:%a} {span}{beyond}, by {by}"
