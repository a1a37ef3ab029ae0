"""Node pools in a simulation: nodes come when asked for, and go when empty for long enough."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.node_floor import HourForecast, PoolBounds
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.pool_history import NO_HISTORY, PoolHistory
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_task
from bireme_lab.simulator import metrics
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.metrics import measure
from bireme_lab.simulator.node_pools import Forecast, NodePool
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from bireme_lab.simulator.workload import Trace, TraceJob
from testbed.examples import examples
from testbed.simulations import (
    a_job,
    a_trace,
    broken_promises,
    lifetimes,
    record_of,
    small_traces,
    story,
)

HOUR = 3600.0
FIFO = Policy(Fifo(), Packing())
COMBINED = Policy(CombinedPriority(), Packing())


def a_pool(
    *, least: int = 0, most: int = 4, forecast: Forecast | None = None, cool_down: int = 1800
) -> NodePool:
    """A pool of the nodes of ``parse_nodes``, each of which comes 100 s after it was asked for."""
    bounds = PoolBounds(least, most, scale_in=True, cool_down_seconds=cool_down)
    return NodePool(name="pool-0", bounds=bounds, delay_seconds=100.0, forecast=forecast)


def run(
    *jobs: TraceJob,
    pool: NodePool,
    policy: Policy = FIFO,
    trace: Trace | None = None,
    config: SimulationConfig | None = None,
) -> Outcome:
    return simulate(
        trace or a_trace(*jobs),
        nodes_of(pool),
        policy,
        SchedulingSettings(),
        config=config or SimulationConfig(verifies=True),
        pools=[pool],
    )


def nodes_of(pool: NodePool) -> Sequence[Node]:
    return parse_nodes(f"{pool.bounds.maximum}x4")


def waits(outcome: Outcome) -> dict[str, float]:
    return {r.job.name: r.started - r.job.submitted for r in outcome.jobs if r.started is not None}


def asked(outcome: Outcome) -> list[tuple[float, float]]:
    """The times and numbers of nodes that were there or on their way."""
    (pool,) = outcome.pools
    points = list(zip(pool.times.tolist(), pool.requested_nodes.tolist(), strict=True))
    return [point for at, point in enumerate(points) if not at or point[1] != points[at - 1][1]]


def test_job_that_finds_no_room_waits_for_the_node_that_is_asked_for_it() -> None:
    outcome = run(a_job("a", 50.0), pool=a_pool())
    assert lifetimes(outcome) == {"a": (100.0, 150.0)}


def test_gang_of_three_nodes_asks_for_three_at_once() -> None:
    outcome = run(a_job("a", 50.0, a_task(3, 4)), pool=a_pool())
    assert lifetimes(outcome) == {"a": (100.0, 150.0)}
    assert asked(outcome)[0] == (0.0, 3.0)


def test_equal_jobs_in_line_each_ask_for_the_nodes_they_need() -> None:
    """The orderer is shown the first of a line only, unless nodes are asked for."""
    jobs = [a_job(f"j{n}", 500.0, gpus=4) for n in range(6)]
    outcome = run(*jobs, pool=a_pool(most=8), policy=COMBINED)
    assert asked(outcome)[0] == (0.0, 6.0)
    assert set(waits(outcome).values()) == {100.0}


def test_gang_that_waits_for_a_node_on_its_way_asks_for_no_other() -> None:
    outcome = run(a_job("a", 50.0, gpus=2), a_job("b", 50.0, at=10.0, gpus=2), pool=a_pool())
    assert max(nodes for _, nodes in asked(outcome)) == 1
    assert waits(outcome) == {"a": 100.0, "b": 90.0}


def test_empty_node_goes_after_its_cool_down_and_comes_again_when_asked_for() -> None:
    outcome = run(
        a_job("a", 50.0, gpus=4),
        a_job("b", 50.0, at=1000.0),
        a_job("c", 50.0, at=5000.0),
        pool=a_pool(),
    )
    assert waits(outcome) == {"a": 100.0, "b": 0.0, "c": 100.0}
    assert asked(outcome) == [(0.0, 1.0), (1050.0 + 1800.0, 0.0), (5000.0, 1.0)]


def test_node_on_which_something_runs_stays_however_long_the_others_are_empty() -> None:
    outcome = run(
        a_job("long", 9000.0, gpus=4),
        a_job("wide", 50.0, a_task(3, 4)),
        a_job("last", 10.0, at=8000.0, gpus=4),
        pool=a_pool(),
    )
    assert lifetimes(outcome)["long"] == (100.0, 9100.0)
    assert asked(outcome) == [(0.0, 4.0), (150.0 + 1800.0, 1.0), (8000.0, 2.0)]


def test_pool_begins_with_its_minimum_and_never_falls_below() -> None:
    pool = a_pool(least=2)
    outcome = run(a_job("a", 50.0, a_task(2, 4)), a_job("b", 9.0, at=9000.0), pool=pool)
    assert waits(outcome) == {"a": 0.0, "b": 0.0}
    assert {nodes for _, nodes in asked(outcome)} == {2.0}


def test_pool_never_grows_past_its_maximum() -> None:
    jobs = [a_job(f"j{n}", 50.0, gpus=4) for n in range(5)]
    outcome = run(*jobs, pool=a_pool(most=2))
    assert max(nodes for _, nodes in asked(outcome)) == 2
    assert sorted(waits(outcome).values()) == [100.0, 100.0, 150.0, 150.0, 200.0]


def test_gang_larger_than_the_largest_pool_is_refused_and_the_simulation_ends() -> None:
    outcome = run(a_job("a", 50.0, a_task(3, 4)), a_job("b", 5.0), pool=a_pool(most=2))
    assert record_of(outcome, "a").verdict == "NeverFits"
    assert lifetimes(outcome)["b"] == (100.0, 105.0)


def test_forecast_of_the_night_has_nodes_ready_before_the_job_comes() -> None:
    def morning(now: float, _: PoolHistory) -> list[HourForecast]:
        return [HourForecast(8 * HOUR, 1.0, 1.5)]

    eight = a_job("a", 50.0, at=8 * HOUR + 1, gpus=4)
    outcome = run(eight, pool=a_pool(forecast=morning))
    assert waits(outcome) == {"a": 0.0}
    assert asked(outcome)[0] == (0.0, 0.0)
    assert asked(outcome)[1] == (8 * HOUR - 599, 2.0)


def test_forecast_is_given_the_mean_demand_of_every_hour_until_then() -> None:
    received: list[tuple[float, PoolHistory]] = []

    def listen(now: float, history: PoolHistory) -> list[HourForecast]:
        received.append((now, history))
        return []

    half_an_hour = a_job("a", 1700.0, gpus=4)
    pool = a_pool(forecast=listen, least=1)
    run(half_an_hour, a_job("b", 1.0, at=30 * HOUR), pool=pool)
    assert [now for now, _ in received] == [0.5 * HOUR, 24.5 * HOUR]
    (_, night), (_, next_night) = received
    assert len(night.demand) == 0
    assert (next_night.start, len(next_night.demand)) == (0.0, 24)
    assert next_night.demand[:2].tolist() == pytest.approx([1700 / 3600, 0.0])


def test_history_from_before_the_start_goes_on() -> None:
    received: list[PoolHistory] = []

    def listen(_: float, history: PoolHistory) -> list[HourForecast]:
        received.append(history)
        return []

    before = PoolHistory(-24 * HOUR, np.full(24, 3.0), np.full(24, np.nan))
    bounds = PoolBounds(1, 1)
    pool = NodePool(name="pool-0", bounds=bounds, forecast=listen, history=before)
    run(a_job("b", 1.0, at=25 * HOUR), pool=pool)
    assert (received[0].start, len(received[0].demand)) == (-24 * HOUR, 24)
    assert received[1].demand.tolist() == [3.0] * 24 + [0.0] * 24
    assert len(NO_HISTORY.demand) == 0


def test_node_hours_count_from_asking_to_going_and_shortage_while_a_node_is_missed() -> None:
    outcome = run(a_job("a", 50.0, gpus=4), a_job("b", 50.0, at=2 * HOUR, gpus=4), pool=a_pool())
    first, second = 50.0 + 100.0 + 1800.0, 150.0
    found = measure(outcome)
    assert found.node_hours == pytest.approx((first + second) / HOUR)
    assert found.short_hours == pytest.approx(200.0 / HOUR)
    there = metrics.gpu_seconds_there(outcome, 0.0, 3 * HOUR)
    assert there == pytest.approx(4 * (50.0 + 1800.0 + (HOUR - 100.0)))


def test_pool_with_other_nodes_than_its_maximum_is_refused() -> None:
    pool = NodePool(name="pool-1", bounds=PoolBounds(0, 4))
    with pytest.raises(SimulationError, match=r"'pool-1' has 0 nodes with label .* maximum of 4"):
        run(a_job("a"), pool=pool, trace=a_trace(a_job("a")))


@given(
    trace=small_traces(),
    least=st.integers(0, 3),
    cool_down=st.sampled_from((0, 7, 1800)),
    policy=st.sampled_from((FIFO, COMBINED)),
)
def test_no_promise_breaks_and_nothing_is_missed_whatever_comes(
    trace: Trace, least: int, cool_down: int, policy: Policy
) -> None:
    pool = a_pool(least=least, most=3, cool_down=cool_down)
    full = simulate(trace, nodes_of(pool), policy, SchedulingSettings())
    outcome = run(trace=trace, pool=pool, policy=policy)
    assert list(broken_promises(outcome, nodes_of(pool))) == []
    done = [{r.job.name for r in one.jobs if r.finished is not None} for one in (full, outcome)]
    assert done[0] == done[1]
    (seen,) = outcome.pools
    assert least <= seen.requested_nodes.min() <= seen.requested_nodes.max() <= 3
    assert (seen.ready_nodes <= seen.requested_nodes).all()


@examples(25)
@given(trace=small_traces(), policy=st.sampled_from((FIFO, COMBINED)))
def test_shortcuts_change_nothing_where_pools_grow(trace: Trace, policy: Policy) -> None:
    pool = a_pool(most=3, cool_down=7)
    short = run(trace=trace, pool=pool, policy=policy)
    long = run(
        trace=trace, pool=pool, policy=policy, config=SimulationConfig(takes_shortcuts=False)
    )
    assert story(short) == story(long)
    assert asked(short) == asked(long)
