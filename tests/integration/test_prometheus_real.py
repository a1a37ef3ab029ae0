"""A real Prometheus answers as the source expects; skipped where none can be had."""

from collections.abc import Iterator

import numpy as np
import pytest

from bireme.core.pool_history import PoolHistory
from bireme.core.times import HOUR
from bireme.forecasting.naive import Persistence
from bireme.forecasting.pool_forecast import NightlySettings, forecast_pool
from bireme.prometheus import PrometheusError, hourly
from testbed.prometheus import Programs, Samples, serving

NOW = 1_795_305_600.0
HOURS = 24 * 56
START = NOW - HOUR * HOURS
SCRAPED = (900, 1800, 3540)
"""Seconds into each hour; an hour's last value is found within five minutes of its end."""
DEMAND = np.where(np.arange(HOURS) % 24 < 12, 4.0, 8.0)
OFF = range(500, 510)
"""Hours in which nothing was scraped."""


def samples(pool: str, factor: float) -> Samples:
    """Three in each hour that was scraped."""
    points = [
        (START + HOUR * hour + second, factor * DEMAND[hour])
        for hour in range(HOURS)
        for second in SCRAPED
        if hour not in OFF
    ]
    return Samples("pool_demand", {"pool": pool}, points)


@pytest.fixture(scope="module")
def url(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    with serving(programs, folder, [samples("a", 1), samples("b", 2)]) as served:
        yield served


async def test_eight_weeks_come_hour_by_hour_with_what_was_not_scraped_left_open(url: str) -> None:
    query = "sum(avg_over_time(pool_demand[1h]))"
    values, notes = await hourly(url, query, START, HOURS)
    expected = 3 * DEMAND
    expected[OFF] = np.nan
    np.testing.assert_allclose(values, expected)
    assert notes == ()


async def test_one_pool_is_distinguished_from_another_by_its_label(url: str) -> None:
    values, _ = await hourly(url, 'avg_over_time(pool_demand{pool="b"}[1h])', START, 24)
    np.testing.assert_allclose(values, 2 * DEMAND[:24])


async def test_what_comes_from_prometheus_can_be_forecast(url: str) -> None:
    values, notes = await hourly(url, "sum(avg_over_time(pool_demand[1h]))", START, HOURS)
    history = PoolHistory(START, values, np.full(HOURS, np.nan), notes)
    found = forecast_pool(history, NOW + 60, NightlySettings(0.9, 0, 100), (Persistence(),))
    assert [hour.p50 for hour in found.hours] == list(3 * DEMAND[:48])
    assert "10 missing hours filled with the week before" in found.message


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("pool_demand", "the query has 2 series, not one; aggregate it"),
        ("pool_demandd", "the query has 0 series, not one; check its names and labels"),
        ("sum(", "Prometheus refuses the query: HTTP 400, 1:5: parse error: unclosed"),
        ("avg_over_time(pool_demand[1h])[1d:1h]", "HTTP 400, invalid expression type"),
    ],
)
async def test_a_query_that_cannot_be_used_is_refused_in_words(
    url: str, query: str, message: str
) -> None:
    with pytest.raises(PrometheusError) as caught:
        await hourly(url, query, START, 24)
    assert message in str(caught.value)


async def test_a_query_that_divides_by_zero_is_named_and_counts_as_not_recorded(url: str) -> None:
    values, notes = await hourly(url, "sum(pool_demand) / 0 * 0", START, 24)
    assert np.isnan(values).all()
    assert notes == ("24 values are no finite numbers, first 'NaN'",)


async def test_a_question_that_takes_too_long_is_given_up(url: str) -> None:
    query = "sum(sum_over_time(sum(pool_demand)[50d:1s]))"
    with pytest.raises(PrometheusError) as caught:
        await hourly(url, query, START, HOURS, timeout_seconds=0.05)
    assert "Prometheus" in str(caught.value)
