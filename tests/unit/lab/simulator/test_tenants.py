"""Who gets what where one tenant cuts a training into short jobs and the other has a long one."""

from dataclasses import replace

import pytest

from benchmarks.simulations.tenants import Tenants, play
from bireme.core.settings import SchedulingSettings

SETTINGS = SchedulingSettings()


@pytest.mark.parametrize(
    "tenants",
    [
        pytest.param(Tenants(), id="half-hours"),
        pytest.param(Tenants(short_minutes=120), id="two-hours"),
        pytest.param(Tenants(long_hours=5, short_minutes=5), id="five-minutes"),
        pytest.param(Tenants(alive=8), id="eight-alive"),
    ],
)
def test_who_cuts_a_training_into_short_jobs_gets_no_more_than_three_fifths(
    tenants: Tenants,
) -> None:
    assert 0.4 <= play(tenants, SETTINGS).long_share <= 0.6


@pytest.mark.long
def test_charged_to_jobs_alone_nearly_all_goes_to_the_short_jobs() -> None:
    """The world is one in which the charge to namespaces decides."""
    alone = replace(SETTINGS, service_half_life_seconds=0)
    assert play(Tenants(long_hours=5, short_minutes=5), alone).long_share < 0.1
