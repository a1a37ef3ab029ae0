"""Optimus and Tiresias in TapFinger's pools."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import IntArray
from bireme_lab.training.tapfinger.baselines import (
    DIVISIONS,
    Division,
    PoolJobs,
    authors_speed,
    divide_always,
    exact_speed,
    optimus,
    tiresias,
)
from bireme_lab.training.tapfinger.environment import TapFingerPools, make_config

MULTI, SINGLE = make_config("multi-3", jobs=40), make_config("single-3", jobs=40)
EXACT = partial(optimus, speed=exact_speed)


def held(*jobs: tuple[int, float, int, float], gpus: int = 16) -> PoolJobs:
    """One pool; of each job the kind, the progress, the start, and its service."""
    kind, progress, started, served = (np.array([each]) for each in zip(*jobs, strict=True))
    there = np.ones(kind.shape, dtype=np.bool_)
    return PoolJobs(there, kind, progress, started, served * 1.0, np.array([[16, gpus]]))


def gpus_of(amount: IntArray) -> list[int]:
    found: list[int] = amount[0, :, 1].tolist()
    return found


def test_optimus_gives_most_to_who_has_most_to_gain() -> None:
    fresh, nearly_done, insensitive = (1, 0.0, 0, 0.0), (1, 0.9, 0, 0.0), (0, 0.0, 0, 0.0)
    found = gpus_of(EXACT(MULTI, held(fresh, nearly_done, insensitive)))
    assert found[0] > found[1] >= 1
    assert found[2] == 1
    assert sum(found) == 16


def test_optimus_gives_nothing_that_gains_nothing() -> None:
    assert EXACT(MULTI, held((0, 0.0, 0, 0.0)))[0].tolist() == [[2, 1]]


def test_the_authors_optimus_believes_that_cpus_speed_jobs_up() -> None:
    kind, few, many = (np.array(each) for each in ([[1]], [[[2, 5]]], [[[10, 5]]]))
    assert authors_speed(MULTI.law, kind, many) > 1.5 * authors_speed(MULTI.law, kind, few)
    assert exact_speed(MULTI.law, kind, many) == exact_speed(MULTI.law, kind, few)


def test_tiresias_serves_the_half_with_less_service_first_and_the_older_ones_first() -> None:
    """Half of four are two; the older of those takes all that a job may have."""
    old, new = (1, 0.0, 1, 3.0), (1, 0.0, 2, 3.0)
    served = (1, 0.0, 3, 90.0)
    found = gpus_of(tiresias(MULTI, held(old, new, served, served, gpus=20)))
    assert found == [16, 4, 0, 0]


def test_tiresias_gives_everybody_the_least_in_single_mode() -> None:
    assert gpus_of(tiresias(SINGLE, held((1, 0.0, 0, 0.0), (0, 0.0, 1, 5.0)))) == [1, 1]


def test_cpus_are_shared_out_among_those_that_have_gpus() -> None:
    amount = tiresias(MULTI, held(*[(1, 0.0, start, 0.0) for start in range(5)]))[0]
    assert (amount[:, 0] > 0).tolist() == (amount[:, 1] > 0).tolist()
    assert amount[:, 0].sum() == 16


@given(
    st.sampled_from(sorted(DIVISIONS)),
    st.lists(
        st.tuples(
            st.integers(0, 1), st.floats(0, 0.99), st.integers(0, 9), st.floats(0, 200).map(round)
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_no_pool_gives_more_than_it_has(
    name: str, jobs: list[tuple[int, float, int, float]]
) -> None:
    amount = DIVISIONS[name](MULTI, held(*jobs))
    assert (amount >= 0).all()
    assert (amount.sum(axis=1) <= 16).all()


@pytest.mark.parametrize("division", DIVISIONS.values(), ids=list(DIVISIONS))
@pytest.mark.parametrize("setting", [MULTI, SINGLE], ids=["multi", "single"])
def test_every_job_ends_and_gives_back_what_it_had(setting: object, division: Division) -> None:
    made = MULTI if setting is MULTI else SINGLE
    end = divide_always(division, made, range(3))
    assert end.is_over.all()
    assert (end.free == end.capacity).all()


def test_a_change_of_allocation_costs_half_a_step_in_single_mode_only() -> None:
    gained = {}
    for setting in (MULTI, SINGLE):
        pools = TapFingerPools(replace(setting, arrivals_per_step=9.0), [0])
        job, env = pools.first(pools.in_sight, 1)[:, 0, 0], np.array([0])
        pools.start(env, np.array([0]), job, np.array([[2, 4]]))
        pools.advance(env)
        before = pools.progress[0, job].item()
        pools.allocate(env, job, np.array([[4, 4]]))
        pools.advance(env)
        gained[setting.is_multi] = pools.progress[0, job].item() - before
    assert gained[False] == pytest.approx(gained[True] / 2)
