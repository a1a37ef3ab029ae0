"""Physics as the engine asks it: rates by hand, neutral by default."""

from collections.abc import Mapping
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme.core.speed import LinearSpeed, SpeedLaw
from bireme.testing import a_task
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.physics.laws import MeasuredSpeed
from bireme_lab.simulator.physics.model import MEASURED, Fluctuation, Physics
from bireme_lab.simulator.workload import TraceJob

FOUR = {"worker": 4}


def a_job(speed: SpeedLaw | None = None, steps: float | None = None) -> TraceJob:
    """Four workers for 1000 seconds."""
    return TraceJob("job", 0.0, (a_task(4),), 1000.0, speed=speed, steps=steps)


def test_by_default_a_job_runs_as_in_its_trace_wherever_it_is() -> None:
    assert Physics().rate(a_job(), FOUR, nodes=1) == 1.0
    assert Physics().rate(a_job(), FOUR, nodes=4, racks=3, neighbours=9) == 1.0


def test_a_law_decides_the_run_time_whatever_the_trace_says() -> None:
    job = a_job(LinearSpeed(2.0), steps=400.0)
    # 4 replicas do 8 steps a second: 50 seconds; 1 does 2: 200 seconds.
    assert job.duration_seconds / Physics().rate(job, FOUR, 1) == pytest.approx(50.0)
    assert job.duration_seconds / Physics().rate(job, {"worker": 1}, 1) == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("nodes", "racks", "neighbours", "rate"),
    [(1, 1, 0, 1.0), (2, 1, 0, 0.8), (2, 2, 0, 0.5), (1, 1, 2, 0.81), (3, 1, 1, 0.72)],
)
def test_factors_multiply(nodes: int, racks: int, neighbours: int, rate: float) -> None:
    physics = Physics(over_nodes=0.8, over_racks=0.5, per_neighbour=0.9)
    assert physics.rate(a_job(), FOUR, nodes, racks, neighbours) == pytest.approx(rate)


def test_a_law_that_knows_the_spread_is_not_slowed_down_twice() -> None:
    law = MeasuredSpeed((1, 4), (1.0, 4.0), (1.0, 3.0))
    physics = Physics(over_nodes=0.5, over_racks=0.5)
    rate = physics.rate(a_job(law, steps=4000.0), FOUR, nodes=2, racks=2)
    assert rate == pytest.approx(3.0 / 4000 * 1000)
    blind = MeasuredSpeed((1, 4), (1.0, 4.0))
    assert physics.rate(a_job(blind, steps=4000.0), FOUR, nodes=2) == pytest.approx(0.5)


def test_a_size_that_cannot_run_has_rate_zero() -> None:
    law = MeasuredSpeed((1, 2), (1.0, 2.0))
    assert Physics().rate(a_job(law, steps=10.0), FOUR, 1) == 0.0


def test_a_straggler_slows_a_wide_gang_and_spares_a_single_replica() -> None:
    physics = Physics(fluctuation=Fluctuation())
    luck = physics.straggler("job", 0, seed=1)
    law = LinearSpeed(1.0)
    wide = physics.rate(a_job(law, 1.0), {"worker": 10}, 1, straggler=luck)
    assert wide == pytest.approx(luck * Physics().rate(a_job(law, 1.0), {"worker": 10}, 1))
    assert physics.rate(a_job(law, 1.0), {"worker": 1}, 1, straggler=luck) == 1000.0


def test_without_fluctuation_there_are_no_stragglers() -> None:
    assert Physics().straggler("job", 3, seed=1) == 1.0


def test_only_a_factor_below_one_makes_neighbours_matter() -> None:
    assert not Physics().interferes
    assert Physics(per_neighbour=0.9).interferes


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 5), st.integers(0, 50), st.integers(0, 99)
)
def test_nothing_measured_elsewhere_ever_speeds_a_job_up_or_stops_it(
    nodes: int, racks: int, neighbours: int, start: int, seed: int
) -> None:
    luck = MEASURED.straggler("job", start, seed)
    assert 0 < MEASURED.rate(a_job(), FOUR, nodes, racks, neighbours, luck) <= 1


@pytest.mark.parametrize("sizes", [{"worker": 3}, {"worker": 5}, {}])
def test_a_job_without_a_law_has_no_rate_at_another_size(sizes: Mapping[str, int]) -> None:
    with pytest.raises(SimulationError, match="job job has no speed law"):
        Physics().rate(a_job(), sizes, 1)


@pytest.mark.parametrize("steps", [None, 0.0, -1.0, inf, nan])
def test_a_law_needs_work_in_its_own_unit(steps: float | None) -> None:
    with pytest.raises(SimulationError, match="steps is"):
        Physics().rate(a_job(LinearSpeed(1.0), steps), FOUR, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("over_nodes", 0.0),
        ("over_racks", 1.1),
        ("per_neighbour", nan),
        ("restart_seconds", -1.0),
        ("checkpoint_interval_seconds", nan),
        ("node_repair_seconds", -0.1),
        ("node_mtbf_seconds", 0.0),
    ],
)
def test_settings_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"{field} is {value}"):
        Physics(**{field: value})  # type: ignore[arg-type]
