"""Random-walk kernels: the printed one is constant, ours tell machines and clusters apart."""

import numpy as np
import pytest

from benchmarks.learning.kernels import graph_kernel, walk_kernel
from bireme.core.resources import FloatArray
from bireme.rl.encoders.das_inputs import similarity, walk_precision

DECAY = 0.5


def similar_machines(machines: int = 8, seed: int = 1) -> FloatArray:
    """Machines of random features in two racks, adjacency 0.5 between them."""
    rack = np.arange(machines) % 2
    adjacency = np.where(rack[:, None] == rack, 1.0, 0.5)
    return similarity(np.random.default_rng(seed).normal(size=(machines, 3)), adjacency)


@pytest.mark.parametrize("sizes", [(3, 3), (4, 7), (8, 8)])
def test_printed_kernel_with_transition_matrices_is_the_same_for_every_pair_of_clusters(
    sizes: tuple[int, int],
) -> None:
    generator = np.random.default_rng(2)
    for _ in range(5):
        one, other = (generator.dirichlet(np.ones(size), size) for size in sizes)
        expected = sizes[0] * sizes[1] / (1 - DECAY)
        assert graph_kernel(one, other, DECAY) == pytest.approx(expected, rel=1e-7)


def test_iteration_gives_what_the_product_graph_gives() -> None:
    one, other = similar_machines(3, seed=2), similar_machines(4, seed=3)
    generator = np.random.default_rng(4)
    starts = (generator.random(3), generator.random(4))
    stops = (generator.random(3), generator.random(4))
    walks = np.linalg.inv(np.eye(12) - DECAY * np.kron(one, other))
    expected = np.kron(*starts) @ walks @ np.kron(*stops)
    value = graph_kernel(one, other, DECAY, starts=starts, stops=stops)
    assert value == pytest.approx(expected, rel=1e-7)


def test_clusters_barely_differ_from_end_to_end_but_do_where_walks_start_and_stop() -> None:
    clusters = [similar_machines(8, seed) for seed in range(5)]
    nearly_constant = [graph_kernel(clusters[0], other, DECAY) for other in clusters]
    assert 0 < np.ptp(nearly_constant) < 0.01 * np.mean(nearly_constant)
    here = (np.eye(8)[0], np.eye(8)[0])
    told_apart = [graph_kernel(clusters[0], c, DECAY, starts=here, stops=here) for c in clusters]
    assert np.ptp(told_apart) > 0.05 * np.mean(told_apart)


@pytest.mark.parametrize("machines", [8, 32, 64])
def test_kernel_of_machines_is_positive_definite_and_not_constant(machines: int) -> None:
    kernel = walk_kernel(similar_machines(machines), DECAY)
    assert np.linalg.eigvalsh(kernel).min() >= 1 / (1 + DECAY) - 1e-9
    assert kernel.std() > 0.01


def test_kernel_is_the_sum_of_all_walks() -> None:
    similar = similar_machines()
    walks = sum(DECAY**length * np.linalg.matrix_power(similar, length) for length in range(60))
    np.testing.assert_allclose(walk_kernel(similar, DECAY), walks, atol=1e-12)


def test_alike_machines_are_closer_than_unlike_ones() -> None:
    similar = similarity(np.array([[0.0], [0.1], [3.0]]), np.ones((3, 3)))
    kernel = walk_kernel(similar, DECAY)
    assert kernel[0, 1] > 10 * kernel[0, 2]


def test_machine_without_a_topology_stands_alone() -> None:
    adjacency = np.ones((4, 4))
    adjacency[3], adjacency[:, 3] = 0.0, 0.0
    features = np.random.default_rng(1).normal(size=(4, 2))
    kernel = walk_kernel(similarity(features, adjacency), DECAY)
    assert kernel[3].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_decay_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="decay is 1"):
        walk_precision(similar_machines(), 1.0)
    with pytest.raises(ValueError, match="decay is 1"):
        graph_kernel(similar_machines(), similar_machines(), 1.0)
