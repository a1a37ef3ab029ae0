"""Floors of node pools: the forecasts that keep nodes for jobs that have not come yet.

``fixed``     All nodes a pool may have are there all the time.
``reactive``  Nodes are asked for when gangs wait for them, and for no other reason.
``oracle``    The most that was asked for in each hour of a first run with all nodes there.

Any other name is a forecaster's: every night it forecasts what was recorded until then, as the
nightly job of a cluster does, which takes the seasonal-naive forecast where that did better.
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
from bireme.simulator.node_pools import Forecast, NodePool
from bireme.simulator.outcome import Outcome, PoolSeries

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

    The oracle alone uses ``run_with``; ``quantile`` of a forecast becomes the floor. Raises
    SettingError as :func:`check_floor`.
    """
    check_floor(name)
    if name == REACTIVE:
        return list(pools)
    if name == FIXED:
        return [replace(p, bounds=replace(p.bounds, minimum=p.bounds.maximum)) for p in pools]
    if name == ORACLE:
        seen = run_with(with_floor(FIXED, pools, run_with)).pools
        return [replace(p, forecast=oracle_forecast(s)) for p, s in zip(pools, seen, strict=True)]
    candidates = make([name], steps=HORIZON_HOURS)
    return [replace(p, forecast=nightly_forecast(candidates, p, quantile)) for p in pools]


def check_floor(name: str) -> None:
    """Raise SettingError unless a floor is called ``name`` and what it needs is installed."""
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


def oracle_forecast(seen: PoolSeries) -> Forecast:
    """Return a forecast that knows the most demand of every hour, from a run that had it."""
    hours = (seen.times // HOUR).astype(np.int64)
    most = np.zeros(int(hours.max(initial=0)) + 1 + HORIZON_HOURS)
    np.maximum.at(most, hours, seen.demand)
    # What was asked for last before an hour still is when it begins.
    before = np.searchsorted(seen.times, HOUR * np.arange(len(most)), side="right") - 1
    most = np.where(before >= 0, np.maximum(most, seen.demand[before]), most)

    def forecast(now: float, _: PoolHistory) -> Sequence[HourForecast]:
        first = int(now // HOUR)
        ahead = most[first : first + HORIZON_HOURS].tolist()
        return [HourForecast(HOUR * (first + i), nodes, nodes) for i, nodes in enumerate(ahead)]

    return forecast
