"""The network learns what a series has, stays with the season where there is little to learn from,
and is served as torch has it.
"""

import numpy as np
import pytest
import torch

from bireme.core.resources import FloatArray
from bireme.forecasting.gru import Gru
from bireme.forecasting.naive import SeasonalNaive
from bireme.forecasting.networks import Frame, encode
from bireme.forecasting.selection import back_test
from bireme.forecasting.series import Series, TooShortError
from bireme_lab.training.algorithm import LearningProgress
from bireme_lab.training.gru.networks import (
    GruNetwork,
    GruTrainer,
    WindowBatch,
    concatenate,
    frame_for,
    new_network,
    origins_of,
    to_served,
    windows_of,
)
from bireme_lab.training.gru.recipe import DAY, WEEK, demand

FRAME = Frame(window=6, horizon=3, periods=(8,))


def daily(days: int, seed: int = 0) -> Series:
    """A day of eight steps, with noise that lasts for some of them."""
    chance, at = np.random.default_rng(seed), np.arange(8 * days)
    noise = np.zeros(len(at))
    for step in range(1, len(at)):
        noise[step] = 0.8 * noise[step - 1] + chance.normal(0, 0.1)
    return Series(np.exp(3 + np.sin(2 * np.pi * at / 8) + noise), 3600, (8,))


def learned(series: Series, updates: int, seed: int = 0) -> GruTrainer:
    rows = windows_of(series.values, FRAME, origins_of(series, FRAME))
    return GruTrainer(new_network(FRAME, seed), rows, updates, seed).learn(updates)


def answers(network: GruNetwork, series: Series, origins: list[int]) -> FloatArray:
    """Forecasts by torch itself, shape (origins, horizon)."""
    rows = encode(np.log1p(series.values), np.array(origins), FRAME)
    with torch.no_grad():
        found = network(*map(torch.from_numpy, rows.inputs.values())).numpy()
    return rows.demand(found.reshape(len(origins), -1).astype(np.float64))


def test_before_it_learns_the_network_is_the_seasonal_naive_forecast() -> None:
    series, origins = daily(10), [20, 33, 80]
    season = SeasonalNaive().fit(series).at(series.values, np.array(origins), 3)
    np.testing.assert_allclose(answers(new_network(FRAME, 0), series, origins), season, rtol=1e-4)


def test_before_it_learns_a_network_without_seasons_stays_at_the_last_value() -> None:
    rows = encode(np.log1p(daily(4).values), np.array([20]), Frame(6, 3, ()))
    with torch.no_grad():
        found = new_network(Frame(6, 3, ()), 0)(*map(torch.from_numpy, rows.inputs.values()))
    np.testing.assert_allclose(rows.demand(found.numpy()[None]), daily(4).values[19], rtol=1e-4)


@pytest.fixture(scope="module")
def whole() -> Series:
    return daily(60)


@pytest.fixture(scope="module")
def network(whole: Series) -> GruNetwork:
    """One that has learned three quarters of ``whole``."""
    return learned(whole.until(8 * 45), 150).network


@pytest.fixture(scope="module")
def gru(network: GruNetwork) -> Gru:
    """``network`` as it is served."""
    made, _ = to_served(network, FRAME, step_seconds=3600, data="a test", seed=0, training={})
    return Gru(train=lambda _: made)


def test_a_network_that_learned_a_series_beats_its_season_as_it_is_served(
    gru: Gru, whole: Series
) -> None:
    own, season = (back_test(each, whole, 8 * 45, steps=3) for each in (gru, SeasonalNaive()))
    skill = own.skill(season)
    assert skill is not None
    assert skill > 0.2


def test_what_is_served_answers_as_torch(gru: Gru, network: GruNetwork, whole: Series) -> None:
    origins = list(range(20, 200))
    found = gru.fit(whole).at(whole.values, np.array(origins), 3)
    np.testing.assert_allclose(found, answers(network, whole, origins), rtol=1e-4)


def away_from_the_season(days: int) -> float:
    """By which share forecasts differ from the season, once so many days were learned."""
    series = daily(days)
    found = answers(learned(series, 200).network, series, [30])
    return float(np.abs(found / series.values[22:25] - 1).max())


def test_few_rows_leave_the_network_near_the_season_and_many_do_not() -> None:
    assert away_from_the_season(days=4) < 0.02
    assert away_from_the_season(days=60) > 0.1


def test_learning_that_was_broken_off_goes_on_to_the_same_weights() -> None:
    series = daily(20)
    whole = learned(series, 40)
    rows = windows_of(series.values, FRAME, origins_of(series, FRAME))
    broken = GruTrainer(new_network(FRAME, 0), rows, 40).learn(15)
    resumed = GruTrainer(new_network(FRAME, 0), rows, 40)
    resumed.load_state_dict(broken.state_dict())
    resumed.learn(40)
    for name, weights in whole.network.state_dict().items():
        assert torch.equal(weights, resumed.network.state_dict()[name]), name


def test_a_callback_hears_of_the_loss_and_ends_the_learning() -> None:
    series, heard = daily(20), list[LearningProgress]()
    rows = windows_of(series.values, FRAME, origins_of(series, FRAME))
    fitting = GruTrainer(new_network(FRAME, 0), rows, 200)

    def hear(progress: LearningProgress) -> bool:
        heard.append(progress)
        return progress.update < 50

    fitting.learn(200, hear)
    assert [progress.update for progress in heard] == [25, 50]
    assert heard[1].metrics["loss"] < heard[0].metrics["loss"]
    assert fitting.updates == 50


def test_rows_of_several_series_are_learned_together() -> None:
    one, two = (windows_of(daily(9, seed).values, FRAME, np.array([20, 30])) for seed in (0, 1))
    both: WindowBatch = concatenate([one, two])
    assert len(both) == 4
    assert torch.equal(both.past[2:], two.past)


@pytest.mark.parametrize(
    ("periods", "least"), [((24, 168), 24 + 168 + 48 + 168), ((7,), 7 + 7 + 48 + 7), ((), 96)]
)
def test_less_than_a_season_to_learn_from_is_too_short(
    periods: tuple[int, ...], least: int
) -> None:
    assert frame_for(Series(np.ones(least), 3600, periods), 48).horizon == 48
    with pytest.raises(
        TooShortError, match=f"{least - 1} values; to learn 48 steps .* at least {least}"
    ):
        frame_for(Series(np.ones(least - 1), 3600, periods), 48)


def test_generated_demand_is_demand_and_the_same_again_with_the_same_seed() -> None:
    one, again = (demand(np.random.default_rng(3), 40, 3 * WEEK) for _ in range(2))
    assert one.shape == (40, 3 * WEEK)
    assert np.isfinite(one).all()
    assert (one >= 0).all()
    np.testing.assert_array_equal(one, again)


def test_generated_demand_is_of_many_kinds() -> None:
    every = demand(np.random.default_rng(3), 200, 8 * WEEK)
    days = every.reshape(200, -1, DAY).mean(axis=1)
    has_course = days.std(axis=1) > 0.2 * days.mean(axis=1)
    counts_whole_nodes = (every == np.round(every)).all(axis=1)
    is_idle_at_times = (every == 0).mean(axis=1) > 0.1
    for kind in (has_course, counts_whole_nodes, is_idle_at_times):
        assert 0.05 < kind.mean() < 0.95
