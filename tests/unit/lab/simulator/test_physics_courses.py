"""Trainings that go on unevenly: what is left after a while, and when a resized job finishes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.policy import Policy
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.testing import a_node, a_task
from bireme_lab.simulator.physics.model import Course
from bireme_lab.simulator.simulation import SimulationConfig, simulate
from testbed.simulations import a_job, a_trace, lifetimes

SPEEDING_UP = Course.of(np.array([100.0, 100.0]), np.array([1.0, 3.0]))


def test_half_of_the_work_may_take_three_quarters_of_the_time() -> None:
    assert SPEEDING_UP.time_left(1.0) == 1.0
    assert SPEEDING_UP.time_left(0.5) == pytest.approx(0.25)
    assert SPEEDING_UP.remaining_after(1.0, 0.75) == pytest.approx(0.5)
    assert SPEEDING_UP.remaining_after(0.5, 0.125) == pytest.approx(0.25)


def test_nothing_is_left_after_all_the_time_and_more() -> None:
    assert SPEEDING_UP.remaining_after(1.0, 1.0) == SPEEDING_UP.remaining_after(0.3, 2.0) == 0.0


phases = st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=6)


@given(phases, st.floats(0.1, 1), st.floats(0, 0.3), st.floats(0, 0.3))
def test_time_spent_in_two_parts_is_spent_as_well_as_in_one(
    given_phases: list[tuple[float, float]], left: float, first: float, second: float
) -> None:
    work, paces = np.array(given_phases).T
    course = Course.of(work, paces)
    at_once = course.remaining_after(left, first + second)
    assert course.remaining_after(course.remaining_after(left, first), second) == pytest.approx(
        at_once
    )
    assert course.time_left(at_once) == pytest.approx(
        max(0.0, course.time_left(left) - first - second)
    )


@dataclass(frozen=True)
class Uneven:
    """With four replicas 100 steps at one a second and 100 at three; with fewer one throughout."""

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return 1.5 if sizes["worker"] == 4 else 1.0

    def steps_per_second_on(self, places: tuple[int, ...]) -> float:
        return 1.5 if sum(places) == 4 else 1.0

    def course(self, places: tuple[int, ...]) -> Course | None:
        return SPEEDING_UP if sum(places) == 4 else None


def test_a_job_that_is_resized_keeps_what_it_has_done_and_no_more() -> None:
    """After 100 s of its slow half 100 of 200 steps are left, though its mean is 1.5 a second."""
    task = replace(a_task(2, min_replicas=1), max_replicas=4)
    job = a_job("elastic", 100, task, is_elastic=True, speed=Uneven(), steps=200)
    trace = a_trace(job, a_job("other", 1000, at=100, gpus=2))
    outcome = simulate(
        trace,
        (a_node("n0", 4),),
        Policy(CombinedPriority(), Packing()),
        config=SimulationConfig(verifies=True),
    )
    assert lifetimes(outcome)["elastic"] == pytest.approx((0, 200))


def test_a_job_that_keeps_its_size_finishes_by_its_mean_speed() -> None:
    task = a_task(4)
    job = a_job("alone", 100, task, speed=Uneven(), steps=200)
    outcome = simulate(a_trace(job), (a_node("n0", 4),), Policy(CombinedPriority(), Packing()))
    assert lifetimes(outcome)["alone"] == pytest.approx((0, 400 / 3))
