"""How node pools look ahead: which forecast, if any, keeps nodes for jobs that have not come yet.

``fixed``     All nodes a pool may have are there all the time.
``reactive``  Nodes are asked for when gangs wait for them, and for no other reason.
``oracle``    The most that was asked for in each hour of a run in which all nodes were there.

Any other name is a forecaster's: every night it forecasts what was recorded until then, as the
nightly job of a cluster does, which takes the seasonal-naive forecast where that did better.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

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

Rehearse = Callable[[Sequence[NodePool]], Outcome]
"""Simulates the same jobs with such pools."""


def with_floor(
    name: str, pools: Sequence[NodePool], rehearse: Rehearse, quantile: float = QUANTILE
) -> list[NodePool]:
    """``pools`` as they look ahead with the floor called ``name``.

    Args:
        name: One of :data:`FLOORS`.
        pools: Those of the simulation.
        rehearse: Asked for the oracle alone.
        quantile: Which quantile of a forecast is followed.

    Raises:
        SettingError: no floor is called so (it names the nearest), or it cannot be had.
    """
    check_floor(name)
    if name == REACTIVE:
        return list(pools)
    if name == FIXED:
        return [replace(p, bounds=replace(p.bounds, minimum=p.bounds.maximum)) for p in pools]
    if name == ORACLE:
        seen = rehearse(with_floor(FIXED, pools, rehearse)).pools
        return [replace(p, forecast=foreseeing(s)) for p, s in zip(pools, seen, strict=True)]
    candidates = make([name], steps=HORIZON_HOURS)
    return [replace(p, forecast=learning(candidates, p, quantile)) for p in pools]


def check_floor(name: str) -> None:
    """SettingError unless a floor is called ``name``, and what it needs is installed."""
    if name not in FLOORS:
        raise SettingError(f"no floor is called {name!r}; {nearest(name, FLOORS)}")
    try:
        make([name] if name in FORECASTERS else ())
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        raise SettingError(
            f"floor {name!r} needs {library}, which is not installed; {installing('forecast')}"
        ) from error


def learning(
    candidates: Sequence[Forecaster], pool: NodePool, quantile: float = QUANTILE
) -> Forecast:
    """The forecast of the nightly job with ``candidates``."""
    settings = NightlySettings(quantile, pool.bounds.minimum, pool.bounds.maximum)

    def forecast(now: float, history: PoolHistory) -> Sequence[HourForecast]:
        return forecast_pool(history, now, settings, candidates).hours

    return forecast


def foreseeing(seen: PoolSeries) -> Forecast:
    """What will be asked for: of every hour the most, as ``seen`` had it."""
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
