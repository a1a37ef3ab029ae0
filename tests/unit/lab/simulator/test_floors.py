"""Floors of node pools by name: what each makes of a day that repeats."""

import sys
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.core.node_floor import PoolBounds
from bireme.core.policy import Policy
from bireme.core.pool_history import NO_HISTORY, PoolHistory
from bireme.core.settings import SchedulingSettings
from bireme.forecasting.naive import SeasonalNaive
from bireme.forecasting.pool_forecast import HORIZON_HOURS
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.node_floors import (
    FIXED,
    ORACLE,
    QUANTILE,
    REACTIVE,
    check_floor,
    nightly_forecast,
    oracle_forecast,
    with_floor,
)
from bireme_lab.simulator.node_pools import NodePool
from bireme_lab.simulator.outcome import Outcome, PoolSeries
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import Trace
from testbed.simulations import a_job, a_trace

HOUR = 3600.0
POOL = NodePool(name="pool-0", bounds=PoolBounds(1, 4, scale_in=True))
MORNING = a_trace(*(a_job(f"j{n}", HOUR, at=8.5 * HOUR, gpus=4) for n in range(3)))


def run(trace: Trace, pools: Sequence[NodePool]) -> Outcome:
    policy = Policy(Fifo(), Packing())
    return simulate(trace, parse_nodes("4x4"), policy, SchedulingSettings(), pools=pools)


def started(floor: str) -> set[float | None]:
    rehearse = partial(run, MORNING)
    return {record.started for record in rehearse(with_floor(floor, [POOL], rehearse)).jobs}


def test_fixed_floor_has_all_nodes_all_the_time() -> None:
    assert started(FIXED) == {8.5 * HOUR}
    (pool,) = run(MORNING, with_floor(FIXED, [POOL], partial(run, MORNING))).pools
    assert set(pool.requested_nodes.tolist()) == {4.0}


def test_reactive_floor_waits_for_the_jobs_before_it_asks() -> None:
    assert started(REACTIVE) == {8.5 * HOUR, 8.5 * HOUR + 180.0}


def test_oracle_has_the_nodes_there_in_time() -> None:
    assert started(ORACLE) == {8.5 * HOUR}


def test_oracle_expects_of_every_hour_the_most_that_was_asked_for_in_it() -> None:
    times = np.array([0.0, 0.5, 0.9, 3.1]) * HOUR
    demand = np.array([1.0, 5.0, 2.0, 0.0])
    seen = PoolSeries("pool-0", 4, 8, times, demand, demand, demand)
    hours = oracle_forecast(seen)(0.0, NO_HISTORY)
    assert [hour.upper for hour in hours[:5]] == [5.0, 2.0, 2.0, 2.0, 0.0]
    assert hours[1].start == HOUR
    assert len(hours) == HORIZON_HOURS
    assert [hour.upper for hour in oracle_forecast(seen)(2.2 * HOUR, NO_HISTORY)[:2]] == [2.0, 2.0]


def test_forecaster_forecasts_as_the_nightly_job_does() -> None:
    day = np.where(np.arange(24) == 8, 3.0, 1.0)
    history = PoolHistory(-28 * 24 * HOUR, np.tile(day, 28), np.full(28 * 24, np.nan))
    hours = nightly_forecast([SeasonalNaive()], POOL, QUANTILE)(0.5 * HOUR, history)
    assert [hour.start for hour in hours[:2]] == [0.0, HOUR]
    assert [round(hour.upper, 6) for hour in hours[6:10]] == [1.0, 1.0, 3.0, 1.0]


def test_nothing_is_expected_where_too_little_was_recorded() -> None:
    assert nightly_forecast([SeasonalNaive()], POOL, QUANTILE)(0.5 * HOUR, NO_HISTORY) == ()


def test_unknown_floor_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="no floor is called 'orakle'; did you mean 'oracle'"):
        with_floor("orakle", [POOL], partial(run, MORNING))


def test_floor_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "statsmodels"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "bireme.forecasting.holt_winters", raising=False)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(SettingError, match=r"'holt-winters' needs statsmodels.*'.\[forecast\]'"):
        check_floor("holt-winters")
