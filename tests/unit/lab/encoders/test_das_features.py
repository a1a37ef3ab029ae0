"""Features of DAS: by hand, on any size of cluster, and of the order of one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme_lab.encoders.das_inputs import (
    ACROSS_RACKS,
    MACHINE_FEATURES,
    RAW_JOB_FEATURES,
    Machines,
    adjacency,
    job_features,
    machine_features,
    share_of_rack,
)


def test_a_job_by_hand() -> None:
    found = job_features(
        np.array([8]), np.array([3600.0]), np.array([0.0]), np.array([4]), np.array([32])
    )
    expected = [0.5, np.log1p(60) / 8, 0.0, np.log1p(480) / 12, 0.25, 0.5 / 4]
    np.testing.assert_allclose(found, [expected])


def test_a_machine_by_hand() -> None:
    free, capacity, none = np.array([2, 4]), np.array([4, 4]), np.zeros(2, dtype=np.int64)
    speed, dollars = np.array([0.4, 1.7]), np.array([0.35, 3.67])
    found = machine_features(
        Machines(free, capacity, speed, dollars, rack=none, own_replicas=none),
        rack_free=np.array([6.0, 6.0]),
        rack_capacity=np.array([8.0, 8.0]),
        alike_free=np.array([2.0, 4.0]),
    )
    slow = [0.25, 0.5, 0.4, 0.35 / 4, 0.75, 6 / 16, 2 / 16, 0]
    fast = [0.5, 1.0, 1.7, 3.67 / 4, 0.75, 6 / 16, 4 / 16, 1]
    np.testing.assert_allclose(found, [slow, fast])


def test_a_machine_without_gpus_is_not_idle_but_none() -> None:
    zero, none = np.zeros(1, dtype=np.int64), np.zeros(1)
    machines = Machines(zero, zero, none, none, rack=zero, own_replicas=zero)
    assert not machine_features(machines, none, none, none).any()


def test_machines_without_a_rack_are_near_to_themselves_alone() -> None:
    same = share_of_rack(np.array([0, 0, -1, -1]))
    assert same.tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, True],
    ]
    assert set(adjacency(same)[2]) == {1.0, ACROSS_RACKS}


@given(st.integers(1, 64), st.floats(0, 1e7), st.floats(0, 1e7), st.integers(0, 4096))
def test_features_of_jobs_stay_of_the_order_of_one(
    gpus: int, estimate: float, waited: float, free: int
) -> None:
    found = job_features(
        *(np.array([gpus]), np.array([estimate]), np.array([waited])),
        *(np.array([free]), np.array([4096])),
    )
    assert found.shape == (1, RAW_JOB_FEATURES)
    assert (found >= 0).all()
    assert (found <= 4).all()


@given(st.integers(1, 5), st.integers(1, 9))
def test_shapes_are_those_of_batches(worlds: int, machines: int) -> None:
    free = np.ones((worlds, machines), dtype=np.int64)
    speed = np.ones((worlds, machines))
    places = Machines(free, free, speed, speed, rack=free, own_replicas=free)
    found = machine_features(places, *np.ones((3, worlds, machines)))
    assert found.shape == (worlds, machines, MACHINE_FEATURES)
