"""The random-walk kernel of machines: positive definite, and all walks summed."""

import numpy as np
import pytest

from bireme.core.resources import FloatArray
from bireme_lab.encoders.das_inputs import similarity, walk_precision

DECAY = 0.5


def similar_machines(machines: int = 8, seed: int = 1) -> FloatArray:
    """Machines of random features in two racks, adjacency 0.5 between them."""
    rack = np.arange(machines) % 2
    adjacency = np.where(rack[:, None] == rack, 1.0, 0.5)
    return similarity(np.random.default_rng(seed).normal(size=(machines, 3)), adjacency)


def walk_kernel(similar: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.inv(walk_precision(similar, DECAY)))


@pytest.mark.parametrize("machines", [8, 32, 64])
def test_kernel_of_machines_is_positive_definite_and_not_constant(machines: int) -> None:
    kernel = walk_kernel(similar_machines(machines))
    assert np.linalg.eigvalsh(kernel).min() >= 1 / (1 + DECAY) - 1e-9
    assert kernel.std() > 0.01


def test_kernel_is_the_sum_of_all_walks() -> None:
    similar = similar_machines()
    walks = sum(DECAY**length * np.linalg.matrix_power(similar, length) for length in range(60))
    np.testing.assert_allclose(walk_kernel(similar), walks, atol=1e-12)


def test_alike_machines_are_closer_than_unlike_ones() -> None:
    similar = similarity(np.array([[0.0], [0.1], [3.0]]), np.ones((3, 3)))
    kernel = walk_kernel(similar)
    assert kernel[0, 1] > 10 * kernel[0, 2]


def test_machine_without_a_topology_stands_alone() -> None:
    adjacency = np.ones((4, 4))
    adjacency[3], adjacency[:, 3] = 0.0, 0.0
    features = np.random.default_rng(1).normal(size=(4, 2))
    kernel = walk_kernel(similarity(features, adjacency))
    assert kernel[3].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_decay_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="decay is 1"):
        walk_precision(similar_machines(), 1.0)
