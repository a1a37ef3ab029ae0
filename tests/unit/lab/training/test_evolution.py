"""Evolution strategies on functions whose least value is known."""

from collections.abc import Callable

import numpy as np
import pytest

from bireme.core.resources import FloatArray
from bireme_lab.training.evolution import Evolution, mean_over_cases

SIZE = 6


def evolution(seed: int = 0, population: int = 12, start: float = 3.0) -> Evolution:
    return Evolution(np.full(SIZE, start), np.ones(SIZE), population, np.random.default_rng(seed))


def sphere(row: FloatArray) -> float:
    return float((row**2).sum())


def ellipsoid(row: FloatArray) -> float:
    """A thousand times steeper one way than the other, and not along the axes."""
    turned = np.cumsum(row)
    return float((turned**2 * np.geomspace(1.0, 1e3, SIZE)).sum())


def rosenbrock(row: FloatArray) -> float:
    return float((100 * (row[1:] - row[:-1] ** 2) ** 2 + (1 - row[:-1]) ** 2).sum())


def least(loss: Callable[[FloatArray], float], generations: int, seed: int = 0) -> float:
    search = evolution(seed, start=2.0)
    for _ in range(generations):
        search.tell(np.array([loss(row) for row in search.ask()]))
    return loss(search.mean)


@pytest.mark.parametrize(
    ("loss", "generations"), [(sphere, 120), (ellipsoid, 300), (rosenbrock, 500)]
)
def test_it_finds_the_least_of_a_toy(loss: Callable[[FloatArray], float], generations: int) -> None:
    assert least(loss, generations) < 1e-6


def test_it_gets_near_through_noise_that_all_draws_share() -> None:
    chance = np.random.default_rng(5)

    def noisy(search: Evolution) -> None:
        offset = chance.normal(size=1)
        search.tell(np.array([sphere(row) + 100 * offset[0] for row in search.ask()]))

    search = evolution()
    for _ in range(100):
        noisy(search)
    assert sphere(search.mean) < 1e-4


def test_draws_come_in_mirrored_pairs() -> None:
    search = evolution()
    drawn = search.ask()
    assert np.allclose(drawn[::2] + drawn[1::2], 2 * search.mean)


def test_a_loss_that_is_no_number_is_the_worst() -> None:
    """The half without one is never followed."""
    search = evolution(start=0.0)
    for _ in range(10):
        drawn = search.ask()
        search.tell(np.where(drawn[:, 0] > 0, np.nan, 1.0))
    assert search.mean[0] < 0


def run(search: Evolution, generations: int) -> FloatArray:
    for _ in range(generations):
        search.tell(np.array([ellipsoid(row) for row in search.ask()]))
    return search.mean


def test_equal_seeds_search_alike_and_others_do_not() -> None:
    assert np.array_equal(run(evolution(1), 5), run(evolution(1), 5))
    assert not np.array_equal(run(evolution(1), 5), run(evolution(2), 5))


def test_a_search_that_was_broken_off_goes_on_as_if_it_had_not_been() -> None:
    broken, resumed = evolution(1), evolution(1, start=0.0)
    run(broken, 5)
    run(resumed, 5)  # so that its generator has drawn as much
    resumed.load_state_dict(broken.state_dict())
    assert np.array_equal(run(broken, 5), run(resumed, 5))


def test_a_case_that_no_draw_can_finish_tells_nothing_of_them() -> None:
    losses = np.array([[1.0, np.inf, 4.0], [2.0, np.inf, 1.0], [3.0, np.inf, np.inf]])
    # The last is worse in the third case than the worst that finished there, and by no more than 1.
    assert mean_over_cases(losses) == pytest.approx([2.5, 1.5, 4.0])
    assert mean_over_cases(np.full((3, 2), np.inf)) == pytest.approx([0, 0, 0])


def test_a_search_goes_on_where_one_of_its_cases_can_never_be_finished() -> None:
    search = evolution(start=2.0)
    for _ in range(120):
        drawn = search.ask()
        search.tell(mean_over_cases(np.array([[sphere(row), np.inf] for row in drawn])))
    assert sphere(search.mean) < 1e-6
