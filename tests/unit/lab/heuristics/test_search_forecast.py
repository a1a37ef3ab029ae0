"""The forecast that searching orderers judge orders by, worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from bireme.core.resources import IntArray
from bireme.testing import a_node, a_running_gang, a_snapshot, with_running
from bireme_lab.heuristics.search_orderers import (
    Forecast,
    Problem,
    arrival_keys,
    costs,
    decode,
    order_by_search,
    problem_of,
    relative_costs,
)
from testbed.workloads import timed


def a_problem(
    *gangs: tuple[int, float],
    free_at: Sequence[float] = (0.0, 0.0),
    machines: int = 1,
    waited_seconds: float = 0.0,
) -> Problem:
    """Gangs as (units, run seconds)."""
    return Problem(
        units=np.array([units for units, _ in gangs]),
        run_seconds=np.array([seconds for _, seconds in gangs]),
        waited_seconds=np.full(len(gangs), waited_seconds),
        is_distributed=np.zeros(len(gangs), dtype=np.bool_),
        free_at=np.array(free_at, dtype=np.float64),
        machines=machines,
    )


def whole(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


def test_a_wide_gang_first_makes_the_narrow_one_wait() -> None:
    """Two units: 2 units for 10 s, 1 unit for 5 s. Ends at 10 and 15, or at 15 and 5."""
    problem = a_problem((2, 10.0), (1, 5.0))
    both = costs(problem, np.array([[0, 1], [1, 0]]), np.zeros((2, 2), dtype=np.int64))
    assert both.tolist() == [[12.5, 12.5], [10.0, 12.5]]


def test_time_already_waited_counts_as_completion_time() -> None:
    problem = a_problem((1, 5.0), waited_seconds=7.0)
    assert costs(problem, whole(0)[None], whole(0)[None]).tolist() == [[12.0, 5.0]]


def test_a_gang_starts_when_the_last_of_its_units_comes_free() -> None:
    forecast = Forecast(a_problem((2, 10.0), free_at=(8.0, 1.0, 3.0)), 1)
    finish, _ = forecast.start(whole(0), whole(0))
    assert finish.tolist() == [13.0]
    assert forecast.free_at.tolist() == [[8.0, 13.0, 13.0]]


@pytest.mark.parametrize(
    ("machine", "seconds", "free_at"),
    [
        pytest.param(0, 12.5, [12.5, 9.0, 12.5, 0.0], id="spread-over-both"),
        pytest.param(1, 10.0, [0.0, 9.0, 10.0, 10.0], id="whole-on-one"),
    ],
)
def test_a_gang_spread_further_than_it_needs_runs_longer(
    machine: int, seconds: float, free_at: list[float]
) -> None:
    """Two machines of two units; one unit of the first is taken for 9 s."""
    forecast = Forecast(a_problem((2, 10.0), free_at=(0.0, 9.0, 0.0, 0.0), machines=2), 1)
    _, run = forecast.start(whole(0), whole(machine))
    assert run.tolist() == [seconds]
    assert forecast.free_at.tolist() == [free_at]


def test_a_gang_too_wide_for_one_machine_is_not_slowed_for_using_two() -> None:
    forecast = Forecast(a_problem((3, 10.0), free_at=(0.0,) * 4, machines=2), 1)
    assert forecast.start(whole(0), whole(0))[1].tolist() == [10.0]


def test_rows_are_forecast_independently() -> None:
    problem = a_problem((2, 10.0), (1, 5.0), (1, 1.0), free_at=(0.0, 2.0, 4.0))
    orders = np.array([[0, 1, 2], [2, 1, 0], [1, 2, 0]])
    machines = np.zeros((3, 3), dtype=np.int64)
    together = costs(problem, orders, machines)
    alone = [costs(problem, orders[row : row + 1], machines[:1])[0] for row in range(3)]
    assert together.tolist() == [cost.tolist() for cost in alone]


def test_keys_sort_gangs_and_name_machines() -> None:
    problem = a_problem((1, 1.0), (1, 1.0), (1, 1.0), free_at=(0.0,) * 4, machines=4)
    order, machines = decode(problem, np.array([[0.9, 0.1, 0.5, 0.0, 0.6, 1.0]]))
    assert order.tolist() == [[1, 2, 0]]
    assert machines.tolist() == [[0, 2, 3]]


def test_arrival_order_is_the_measure_of_all() -> None:
    problem = a_problem((2, 10.0), (1, 5.0))
    assert relative_costs(problem)(arrival_keys(problem)[None]).tolist() == [[1.0, 1.0]]


def test_gangs_take_their_dominant_share_of_the_units() -> None:
    """Of 8 GPUs in two nodes: 1/8 and 1/2 of 128 units; two machines of 64."""
    snapshot = a_snapshot([a_node("a", 4), a_node("b", 4)], now=30.0)
    problem = problem_of([timed("one", 60.0), timed("four", 90.0, 4, arrived=20.0)], snapshot)
    assert problem.units.tolist() == [16, 64]
    assert problem.run_seconds.tolist() == [60.0, 90.0]
    assert problem.waited_seconds.tolist() == [30.0, 10.0]
    assert problem.is_distributed.tolist() == [False, True]
    assert (problem.machines, problem.free_at.tolist()) == (2, [0.0] * 128)


def test_running_gangs_hold_their_units_until_their_expected_end() -> None:
    snapshot = a_snapshot([a_node("a", 4), a_node("b", 4)], now=100.0)
    held = [
        a_running_gang(timed("b", 500.0, 2), snapshot.nodes, row=1, started=50.0),
        a_running_gang(timed("a", 30.0, 2), snapshot.nodes, started=90.0),
        a_running_gang(timed("c", 9e9, 2), snapshot.nodes, row=1, is_leaving=True),
    ]
    problem = problem_of([timed("job", 1.0)], with_running(snapshot, *held))
    assert problem.free_at.tolist() == [20.0] * 32 + [450.0] * 32 + [0.0] * 64


@pytest.mark.parametrize(
    ("known", "assumed"), [((), 3600.0), ((10.0, 20.0, 90.0), 20.0)], ids=["nobody", "median"]
)
def test_an_unknown_run_time_is_the_median_of_the_known(
    known: tuple[float, ...], assumed: float
) -> None:
    waiting = [timed(f"g{n}", seconds) for n, seconds in enumerate(known)]
    problem = problem_of([*waiting, timed("unknown", None)], a_snapshot([a_node("a")]))
    assert problem.run_seconds[-1] == assumed


def test_no_node_and_no_such_resource_mean_the_whole_cluster() -> None:
    assert problem_of([timed("job", 1.0)], a_snapshot([])).units.tolist() == [128]
    assert problem_of([timed("job", 1.0)], a_snapshot([a_node("a", 0)])).units.tolist() == [128]


def test_running_gangs_come_first_and_those_beyond_the_window_last() -> None:
    snapshot = a_snapshot([a_node("a", 8)])
    running = a_running_gang(timed("running", 9.0, arrived=9.0), snapshot.nodes)
    waiting = [timed(f"w{n}", 9.0, arrived=float(n)) for n in range(4)]
    ranked = order_by_search(
        [*waiting[::-1], running.gang],
        with_running(snapshot, running),
        3,
        lambda problem: range(len(problem))[::-1],
    )
    assert [entry.gang.uid for entry in ranked] == ["running", "w2", "w1", "w0", "w3"]
    assert [entry.score for entry in ranked] == [5.0, 4.0, 3.0, 2.0, 1.0]
