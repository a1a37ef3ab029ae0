"""The posterior over machines equals the printed formulas, and says what it should."""

import numpy as np
import pytest

from bireme.core.resources import FloatArray
from bireme_lab.encoders import das_inputs
from bireme_lab.encoders.das_inputs import (
    Machines,
    Posterior,
    posterior,
    similarity,
    walk_precision,
)

DECAY, VARIANCE, NOISE = 0.5, 0.7, 0.04


def walks(machines: int = 6) -> FloatArray:
    features = np.random.default_rng(3).normal(size=(machines, 2))
    return walk_precision(similarity(features, np.ones((machines, machines))), DECAY)


def posterior_of(
    shares: FloatArray, observed: FloatArray, walk: FloatArray | None = None
) -> Posterior:
    walk = walks(shares.shape[-1]) if walk is None else walk
    return posterior(walk, shares, observed, variance=VARIANCE, noise_variance=NOISE)


def test_posterior_is_that_of_the_printed_equations() -> None:
    generator = np.random.default_rng(4)
    shares, observed = generator.dirichlet(np.full(6, 0.3), 5), generator.normal(size=5)
    kernel = VARIANCE * np.linalg.inv(walks())
    inverse = np.linalg.inv(shares @ kernel @ shares.T + NOISE * np.eye(5))
    found = posterior_of(shares, observed)
    mean = kernel @ shares.T @ inverse @ observed
    covariance = kernel - kernel @ shares.T @ inverse @ shares @ kernel
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.factor @ found.factor.T, covariance, atol=1e-12)


def test_no_finished_run_leaves_the_prior() -> None:
    found = posterior_of(np.zeros((3, 6)), np.ones(3))
    assert found.mean.tolist() == [0.0] * 6
    np.testing.assert_allclose(found.precision, walks() / VARIANCE)


def test_clusters_of_a_batch_do_not_mix() -> None:
    generator = np.random.default_rng(5)
    shares, observed = generator.dirichlet(np.ones(6), (2, 3)), generator.normal(size=(2, 3))
    together = posterior_of(shares, observed, np.stack([walks(), walks()]))
    for world in range(2):
        alone = posterior_of(shares[world], observed[world])
        np.testing.assert_allclose(together.mean[world], alone.mean, atol=1e-12)
        np.testing.assert_allclose(together.factor[world], alone.factor, atol=1e-12)


def test_slow_machine_lowers_what_is_expected_of_one_like_it() -> None:
    similar = similarity(np.array([[0.0], [0.1], [5.0]]), np.ones((3, 3)))
    shares = np.tile([1.0, 0.0, 0.0], (4, 1))
    found = posterior_of(shares, np.full(4, -0.5), walk_precision(similar, DECAY))
    assert found.mean[0] < found.mean[1] < -0.01
    assert abs(found.mean[2]) < 1e-3
    doubt = np.diag(found.factor @ found.factor.T)
    assert doubt[0] < doubt[1]


@pytest.mark.parametrize("runs", [1, 8, 32])
def test_more_runs_on_a_machine_leave_less_doubt(runs: int) -> None:
    shares = np.tile(np.eye(6)[0], (runs, 1))
    found = posterior_of(shares, np.zeros(runs))
    assert (found.factor @ found.factor.T)[0, 0] < NOISE / runs


# --- in service -------------------------------------------------------------------------------


def a_cluster(machines: int, runs: int, seed: int) -> tuple[Machines, FloatArray, FloatArray]:
    """Machines of two models in racks and in none, runs on one to three of them, and speeds."""
    draw = np.random.default_rng(seed)
    model = draw.integers(0, 2, machines)
    there = Machines(
        room=draw.integers(0, 3, machines) * 4,
        capacity=np.full(machines, 8),
        speed=np.array([0.4, 1.7])[model],
        dollars=np.array([0.35, 3.67])[model],
        rack=draw.integers(-1, 3, machines),
        own_replicas=np.zeros(machines, dtype=np.int64),
    )
    shares = np.zeros((runs, machines))
    for run in shares:
        on = draw.choice(machines, draw.integers(1, 4), replace=False)
        run[on] = draw.dirichlet(np.ones(len(on)))
    return there, shares, draw.normal(0, 0.4, runs)


@pytest.mark.parametrize("seed", range(6))
def test_service_believes_what_training_does_where_estimates_are_right(seed: int) -> None:
    machines, shares, speeds = a_cluster(23, 40, seed)
    near = das_inputs.adjacency(das_inputs.share_of_rack(machines.rack))
    need = np.asarray(8)
    expected = das_inputs.health_posterior(machines, need, near, shares, speeds).mean
    found = das_inputs.health(machines, need, shares, speeds, np.full(40, -1))
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_a_group_of_runs_has_an_offset_that_is_not_known(seed: int) -> None:
    """By the printed equation, with a machine more for every group that all its runs were on."""
    machines, shares, speeds = a_cluster(23, 40, seed)
    group, need = np.arange(40) % 4 - 1, np.asarray(8)
    near = das_inputs.adjacency(das_inputs.share_of_rack(machines.rack))
    # the kernel of training, from its posterior before any run
    prior = das_inputs.health_posterior(machines, need, near, np.zeros_like(shares), speeds)
    kernel = np.linalg.inv(prior.precision)
    spread = np.where((shares > 0).sum(1) > 1, das_inputs.IN_RACK, 1.0)
    apart = ((shares @ near) * shares).sum(1) < 1 - 1e-5
    spread = np.where(apart, das_inputs.IN_CLUSTER, spread)
    observed = speeds - np.log(spread) - das_inputs.EXPECTED
    whose = (group[:, None] == np.arange(3)).astype(float)
    noise = das_inputs.NOISE_VARIANCE * np.eye(40)
    covariance = shares @ kernel @ shares.T + noise
    covariance += das_inputs.OFFSET_VARIANCE * whose @ whose.T
    expected = kernel @ shares.T @ np.linalg.solve(covariance, observed)
    found = das_inputs.health(machines, need, shares, speeds, group)
    np.testing.assert_allclose(found, expected, atol=1e-8)
