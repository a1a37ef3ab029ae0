"""The posterior over machines equals the printed formulas, and says what it should."""

import numpy as np
import pytest

from bireme.core.resources import FloatArray
from bireme.rl.encoders.das_inputs import Posterior, posterior, similarity, walk_precision

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
