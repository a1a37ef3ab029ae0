"""Laws with few numbers, by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme.core.speed import LinearSpeed
from bireme_lab.simulator.physics.laws import MeasuredSpeed

MEASURED = MeasuredSpeed((1, 2, 4, 8), (10.0, 18.0, 30.0, 40.0), (10.0, 9.0, 12.0, 0.0), 4)


@pytest.mark.parametrize(
    ("serial_share", "replicas", "speed"),
    [(0.0, 1, 3.0), (0.0, 7, 21.0), (0.5, 1, 3.0), (0.5, 2, 4.0), (1.0, 50, 3.0)],
)
def test_linear_speed_follows_amdahl(serial_share: float, replicas: int, speed: float) -> None:
    assert LinearSpeed(3.0, serial_share).steps_per_second({"worker": replicas}, 1) == speed


def test_linear_speed_counts_only_the_tasks_it_names() -> None:
    law = LinearSpeed(1.0, tasks=("worker",))
    assert law.steps_per_second({"worker": 3, "ps": 5}, 1) == 3.0
    assert law.steps_per_second({"ps": 5}, 1) == 0.0


@given(st.floats(0, 1), st.integers(1, 60))
def test_another_replica_never_slows_a_linear_job_down(serial_share: float, replicas: int) -> None:
    law = LinearSpeed(2.0, serial_share)
    now, then = (law.steps_per_second({"worker": n}, 1) for n in (replicas, replicas + 1))
    assert now <= then * (1 + 1e-12)
    assert then <= 2.0 * (replicas + 1) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("gpus", "nodes", "speed"),
    [
        pytest.param(4, 1, 30.0, id="measured"),
        pytest.param(3, 1, 24.0, id="half-way"),
        pytest.param(5, 2, 32.5, id="two-nodes-are-the-fewest"),
        pytest.param(2, 2, 9.0, id="apart"),
        pytest.param(3, 3, 10.5, id="apart-half-way"),
        pytest.param(6, 4, 0.0, id="between-a-size-that-did-not-run"),
        pytest.param(9, 3, 0.0, id="beyond-what-was-measured"),
    ],
)
def test_measured_speed_is_exact_where_measured_and_straight_between(
    gpus: int, nodes: int, speed: float
) -> None:
    assert MEASURED.steps_per_second({"worker": gpus}, nodes) == speed
    assert MEASURED.knows_spread


def test_a_law_that_was_not_measured_apart_does_not_know_the_spread() -> None:
    law = MeasuredSpeed((1, 8), (1.0, 8.0))
    assert law.steps_per_second({"worker": 8}, 2) == 8.0
    assert not law.knows_spread


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=5), st.data())
def test_measured_speed_stays_between_its_neighbours(
    speeds: list[float], data: st.DataObject
) -> None:
    gpus = tuple(3 * n + 1 for n in range(len(speeds)))
    law = MeasuredSpeed(gpus, tuple(speeds))
    asked = data.draw(st.integers(1, gpus[-1]))
    answer = law.steps_per_second({"worker": asked}, 1)
    (around,) = [
        (speeds[i], speeds[i + 1])
        for i, (low, high) in enumerate(pairwise(gpus))
        if low <= asked < high or asked == high == gpus[-1]
    ]
    assert min(around) * (1 - 1e-12) <= answer <= max(around) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: LinearSpeed(-1.0), "per_second is -1.0"),
        (lambda: LinearSpeed(1.0, 1.5), "serial_share is 1.5"),
        (lambda: MeasuredSpeed((), ()), "gpus is"),
        (lambda: MeasuredSpeed((2, 1), (1.0, 1.0)), "ascending"),
        (lambda: MeasuredSpeed((1, 2), (1.0,)), "together has 1 speeds; give 2"),
        (lambda: MeasuredSpeed((1,), (1.0,), (1.0, 2.0)), "apart has 2"),
        (lambda: MeasuredSpeed((1,), (1.0,), gpus_per_node=0), "gpus_per_node is 0"),
    ],
)
def test_numbers_that_make_no_law_are_refused(make: object, word: str) -> None:
    assert callable(make)
    with pytest.raises(SettingError, match=word):
        make()
