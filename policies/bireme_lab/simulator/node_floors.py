"""Floors of node pools: forecasts that keep nodes ready for future jobs.

``fixed``     All nodes of a pool are always present.
``reactive``  Nodes are requested only for waiting gangs.
``oracle``    The highest demand in each hour of a first run with all nodes present.

Any other name is a forecaster. Every night it forecasts from the recorded history, as the nightly
job of a cluster does. That job falls back to the seasonal-naive forecast where it did better.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from bireme.core.errors import SettingError, installing, nearest
from bireme.core.node_floor import HourForecast
from bireme.core.pool_history import PoolHistory
from bireme.core.times import HOUR
from bireme.forecasting.forecasters import FORECASTERS, Forecaster, make
from bireme.forecasting.pool_forecast import HORIZON_HOURS, NightlySettings, forecast_pool
from bireme_lab.simulator.node_pools import Forecast, NodePool
from bireme_lab.simulator.outcome import Outcome, PoolSeries

FIXED: Final = "fixed"
REACTIVE: Final = "reactive"
ORACLE: Final = "oracle"
FLOORS: Final = (FIXED, REACTIVE, ORACLE, *FORECASTERS)
QUANTILE: Final = 0.9

RunWithPools: TypeAlias = Callable[[Sequence[NodePool]], Outcome]
"""Simulates the same jobs with other pools."""


def with_floor(
    name: str, pools: Sequence[NodePool], run_with: RunWithPools, quantile: float = QUANTILE
) -> list[NodePool]:
    """Return ``pools`` with the forecasts of the floor called ``name``, one of :data:`FLOORS`.

    Only the oracle uses ``run_with``. ``quantile`` of a forecast becomes the floor. Raises
    SettingError as :func:`check_floor` does.
    """
    check_floor(name)
    if name == REACTIVE:
        return list(pools)
    if name == FIXED:
        return [replace(p, bounds=replace(p.bounds, minimum=p.bounds.maximum)) for p in pools]
    if name == ORACLE:
        series = run_with(with_floor(FIXED, pools, run_with)).pools
        return [replace(p, forecast=oracle_forecast(s)) for p, s in zip(pools, series, strict=True)]
    candidates = make([name], steps=HORIZON_HOURS)
    return [replace(p, forecast=nightly_forecast(candidates, p, quantile)) for p in pools]


def check_floor(name: str) -> None:
    """Raise SettingError unless a floor is called ``name`` and its library is installed."""
    if name not in FLOORS:
        raise SettingError(f"no floor is called {name!r}; {nearest(name, FLOORS)}")
    try:
        make([name] if name in FORECASTERS else ())
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        raise SettingError(
            f"floor {name!r} needs {library}, which is not installed; {installing('forecast')}"
        ) from error


def nightly_forecast(candidates: Sequence[Forecaster], pool: NodePool, quantile: float) -> Forecast:
    """Return the forecast that the nightly job makes with ``candidates``."""
    settings = NightlySettings(quantile, pool.bounds.minimum, pool.bounds.maximum)

    def forecast(now: float, history: PoolHistory) -> Sequence[HourForecast]:
        return forecast_pool(history, now, settings, candidates).hours

    return forecast


def oracle_forecast(series: PoolSeries) -> Forecast:
    """Return a forecast that knows the highest demand of every hour from an earlier run."""
    hours = (series.times // HOUR).astype(np.int64)
    peaks = np.zeros(int(hours.max(initial=0)) + 1 + HORIZON_HOURS)
    np.maximum.at(peaks, hours, series.demand)
    # The last demand before an hour still holds when it begins.
    previous = np.searchsorted(series.times, HOUR * np.arange(len(peaks)), side="right") - 1
    peaks = np.where(previous >= 0, np.maximum(peaks, series.demand[previous]), peaks)

    def forecast(now: float, _: PoolHistory) -> Sequence[HourForecast]:
        first = int(now // HOUR)
        next_peaks = peaks[first : first + HORIZON_HOURS].tolist()
        return [
            HourForecast(HOUR * (first + i), nodes, nodes) for i, nodes in enumerate(next_peaks)
        ]

    return forecast
