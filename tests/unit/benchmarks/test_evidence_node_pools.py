"""Evidence on node pools: what is drawn, what a week's fit knows, what the page says."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.report import Table
from benchmarks.simulations import node_pools, node_series, pool_workload
from benchmarks.simulations.pool_workload import BEFORE, DAYS, draw, offered_gpus
from benchmarks.simulations.store import Store
from benchmarks.simulations.weekly import Weekly
from bireme.core.node_floor import PoolBounds
from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.forecasters import FittedModel
from bireme.forecasting.gru import SHIPPED
from bireme.forecasting.naive import SeasonalNaive
from bireme.forecasting.networks import DataRange, load
from bireme.forecasting.series import Series
from bireme.onnx.errors import CheckpointError
from bireme_lab.simulator.loads import DAY
from bireme_lab.simulator.node_pools import NodePool
from bireme_lab.simulator.workload import Trace
from testbed.simulations import a_job, a_trace

HOUR = 3600.0
WEEK_HOURS = 168


def whole_trace() -> Trace:
    """A job of two hours every hour for ten weeks, and one that runs for forty days."""
    hours = [a_job(f"h{n}", 2 * HOUR, at=n * HOUR) for n in range(10 * WEEK_HOURS)]
    long = a_job("long", 40 * DAY, at=30 * DAY)
    return a_trace(*sorted([*hours, long], key=lambda job: job.submitted))


def test_a_seed_draws_the_same_demand_and_another_seed_another() -> None:
    one, same, other = (draw(whole_trace(), seed).trace.jobs for seed in (1, 1, 2))
    assert one == same != other


def test_drawn_jobs_come_within_the_sixty_days_or_were_there_before() -> None:
    demand = draw(whole_trace(), 3)
    came = [job for job in demand.trace.jobs if not job.name.startswith(BEFORE)]
    found = [job for job in demand.trace.jobs if job.name.startswith(BEFORE)]
    assert all(0 <= job.submitted < DAYS * DAY for job in came)
    assert {job.submitted for job in found} <= {0.0}
    assert len(came) == pytest.approx(DAYS * 24 * 0.1, rel=0.3)
    assert (demand.history.start, len(demand.history.demand)) == (-56 * DAY, 56 * 24)


def test_every_week_of_the_demand_is_a_week_of_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs kept: the hour of the week of each is the one that it has in the trace."""
    monkeypatch.setattr(pool_workload, "_KEPT", 1.0)
    jobs = draw(whole_trace(), 0).trace.jobs
    minutes = {round((job.submitted - 37_841.0) % HOUR, 3) for job in jobs if job.submitted}
    assert minutes == {0.0}


def test_offered_demand_is_the_mean_of_every_hour() -> None:
    jobs = [a_job("a", 1.5 * HOUR, gpus=2), a_job("b", HOUR, at=HOUR, gpus=1)]
    assert offered_gpus(jobs, 0.0, 3 * HOUR).tolist() == [2.0, 2.0, 0.0]


class Counting:
    """Seasonal-naive, and how often it was fitted."""

    name = "seasonal-naive"

    def __init__(self) -> None:
        self.fits: list[int] = []

    def fit(self, series: Series) -> FittedModel:
        self.fits.append(len(series))
        return SeasonalNaive().fit(series)


def a_series(first: int, last: int) -> Series:
    values = np.arange(first, last, dtype=float)
    return Series(values, 3600, (24,), first * HOUR)


def test_forecaster_is_fitted_once_a_week_and_forecasts_from_later_days() -> None:
    inner = Counting()
    weekly = Weekly(inner)
    for day in range(10):
        series = a_series(24 * day, WEEK_HOURS + 24 * day)
        origins = np.array([len(series)], dtype=np.int64)
        found = weekly.fit(series).at(series.values, origins, 3)
        assert found.tolist() == [(series.values[-24:-21]).tolist()]
    assert inner.fits == [WEEK_HOURS, WEEK_HOURS]


def test_pool_follows_the_series_within_its_bounds_and_asks_only_for_what_is_missed() -> None:
    demand: IntArray = np.repeat([2, 5, 3], (60, 120, 240)).astype(np.int64)
    pool = NodePool(name="philly", bounds=PoolBounds(0, 6, scale_in=True))
    there, asked = node_series.follow(demand, pool)
    short = np.flatnonzero(demand > there)
    assert short.tolist() == [60, 61, 62]
    assert set(asked[60:180].tolist()) == {5}
    assert asked[180 + 29] == 5
    assert asked[180 + 30] == 3


def test_pool_that_knows_what_comes_is_never_short() -> None:
    generator = np.random.default_rng(0)
    demand: IntArray = generator.integers(1, 9, 3 * 24 * 60)
    bounds = PoolBounds(0, 10, max_step=10, scale_in=True)
    perfect = node_series.perfect(demand)
    there, _ = node_series.follow(demand, NodePool(name="philly", bounds=bounds, forecast=perfect))
    settled: FloatArray = (demand > there)[60:].astype(float)
    assert settled.sum() == 0


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One long job and short ones, on few nodes, for one seed; and a short series."""
    monkeypatch.setattr(node_pools, "SEEDS", 1)
    monkeypatch.setattr(node_pools, "philly", lambda _: whole_trace())
    floors = {
        name: node_pools.FLOORS[name] for name in ("reactive", "lsp-0.9", "headroom-1", "oracle")
    }
    monkeypatch.setattr(node_pools, "FLOORS", floors)
    monkeypatch.setattr(node_pools, "make", lambda *_, **__: [SeasonalNaive()])
    found = Table(title="s", columns=(), rows=())
    monkeypatch.setattr(node_series, "table", lambda _: (found, "series"))


def test_page_compares_every_floor_with_the_reactive_pool(small: None, tmp_path: Path) -> None:
    page = node_pools.build(Path(), Store(tmp_path, lambda _: None))
    assert [row[0] for row in page.tables[0].rows] == [*node_pools.FLOORS.values()]
    assert page.tables[0].rows[0][2:4] == ("1", "1")
    assert page.findings[-1] == "series"
    assert "times the reactive pool's" in page.summary
    assert "node-pools.svg" in page.figures


def test_the_network_that_is_judged_has_seen_no_day_that_is_judged() -> None:
    for judged in (pool_workload.DRAWN_FROM, DataRange("Philly", 0.0, 4e9)):
        assert load(node_series.NETWORK, [judged]).card.trained_on == ()
        with pytest.raises(CheckpointError, match="trained on Philly"):
            load(SHIPPED, [judged])
