"""The network as it is served: the one that comes with Bireme, and one that cannot be used."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bireme.core.resources import FloatArray
from bireme.forecasting.gru import SHIPPED, Gru
from bireme.forecasting.naive import SeasonalNaive
from bireme.forecasting.networks import DataRange, load
from bireme.forecasting.selection import back_test
from bireme.forecasting.series import ForecastError, Series, TooShortError
from bireme.onnx.errors import CheckpointError
from bireme.policy_names import checkpoint_folders

DAY, WEEK = 24, 168
SEASONS = (DAY, WEEK)


def hours(weeks: int = 6, level: float = 10.0, seed: int = 0) -> Series:
    """Nodes in use with a daily course, quiet weekends, and noise that lasts some hours."""
    chance, at = np.random.default_rng(seed), np.arange(weeks * WEEK)
    noise = np.convolve(chance.normal(0, 0.05, len(at) + 5), np.ones(6), mode="valid")
    course = 0.5 * np.sin(2 * np.pi * at / DAY) - 0.8 * (at // DAY % 7 >= 5)
    return Series(np.round(level * np.exp(course + noise), 1), 3600, SEASONS)


def last(series: Series, steps: int = 48) -> FloatArray:
    found = Gru().fit(series).at(series.values, np.array([len(series)]), steps)
    return np.asarray(found[0])


@pytest.mark.parametrize("level", [3.0, 500.0])
def test_the_shipped_network_beats_the_season_in_pools_small_and_large(level: float) -> None:
    series = hours(level=level)
    first = len(series) - 2 * WEEK
    own, season = (back_test(f, series, first, steps=48) for f in (Gru(), SeasonalNaive()))
    skill = own.skill(season)
    assert skill is not None
    assert skill > 0.1


def test_the_shipped_network_is_small_and_beat_the_naive_rivals_on_what_it_had_not_learned() -> (
    None
):
    card = load(SHIPPED).card
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) < 300_000
    assert {result.setting for result in card.results} == {
        "generated demand",
        "Philly, nodes in use",
        "Philly, jobs per hour",
    }
    assert all(result.interval[1] < result.rival_value for result in card.results)


def test_what_lies_beyond_the_horizon_is_forecast_from_forecasts() -> None:
    series = hours()
    far = last(series, 100)
    known = np.concatenate([series.values, far[:48]])
    further = Gru().fit(series).at(known, np.array([len(known)]), 48)[0]
    np.testing.assert_allclose(far[48:96], further, rtol=1e-5)


def test_many_origins_are_forecast_as_each_alone() -> None:
    series, model = hours(weeks=10), Gru().fit(hours(weeks=10))
    origins = np.arange(200, 1600)
    every = model.at(series.values, origins, 3)
    for row in (0, 700, 1399):
        alone = model.at(series.values[: origins[row]], origins[row : row + 1], 3)[0]
        np.testing.assert_allclose(every[row], alone, rtol=1e-4)
    assert model.at(series.values, origins[:0], 3).shape == (0, 3)


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_demand_that_never_changed_is_forecast_to_stay(value: float) -> None:
    np.testing.assert_allclose(last(Series(np.full(400, value), 3600, SEASONS)), value, atol=0.02)


def test_a_series_of_other_steps_is_refused_with_the_command_that_helps() -> None:
    with pytest.raises(
        ForecastError, match=r"steps of 3600 s, the series has 300 s; .*bireme train gr"
    ):
        Gru().fit(Series(np.ones(9000), 300, (288, 2016)))


def test_a_series_of_other_seasons_is_refused() -> None:
    with pytest.raises(
        ForecastError, match=r"seasons of \(24, 168\) steps, the series has \(12,\)"
    ):
        Gru().fit(Series(np.ones(900), 3600, (12,)))


def test_a_series_of_less_than_a_week_and_a_day_is_too_short() -> None:
    with pytest.raises(TooShortError, match="191 values; network 'gru' takes at least 192"):
        Gru().fit(Series(np.ones(191), 3600, SEASONS))
    with pytest.raises(TooShortError, match="origin 100"):
        Gru().fit(hours()).at(hours().values, np.array([100]), 1)


def test_a_network_that_differs_from_its_card_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(SHIPPED, tmp_path / "gru"))
    model = bytearray((folder / "gru.onnx").read_bytes())
    model[len(model) // 2] ^= 1
    (folder / "gru.onnx").write_bytes(model)
    with pytest.raises(ForecastError, match=r"gru/gru.onnx: its sha256 is .*, the card says"):
        Gru(folder).fit(hours())


def test_a_network_fed_by_another_encoder_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(SHIPPED, tmp_path / "gru"))
    card = json.loads((folder / "card.json").read_text())
    card["network"]["encoder"] = "forecast-windows/2"
    (folder / "card.json").write_bytes(msgspec.json.encode(card))
    with pytest.raises(ForecastError, match="its encoder is 'forecast-windows/2', this Bireme has"):
        Gru(folder).fit(hours())


def test_a_policys_checkpoint_is_no_network_of_forecasts(tmp_path: Path) -> None:
    for folder in (checkpoint_folders()["a2c"], tmp_path):
        with pytest.raises(ForecastError, match=str(folder)):
            Gru(folder).fit(hours())


def test_forecasts_are_served_without_torch() -> None:
    statements = (
        "import sys, numpy as np\n"
        "from bireme.forecasting.gru import Gru\n"
        "from bireme.forecasting.series import Series\n"
        "Gru().fit(Series(np.ones(400), 3600, (24, 168)))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", statements], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def trained_on(folder: Path, ranges: list[dict[str, object]] | None) -> Path:
    """A copy of the shipped checkpoint whose card names ``ranges``."""
    shutil.copytree(SHIPPED, folder)
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, "trained_on": ranges}))
    return folder


JUDGED = DataRange("Philly", 1000.0, 2000.0)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([{"source": "Philly", "start": 0.0, "end": 1001.0}], "trained on Philly from 1970-01-01"),
        ([{"source": "Philly", "start": 1999.0, "end": 3000.0}], "on which it would be evaluated"),
        (None, "does not say on which days"),
    ],
)
def test_a_network_is_not_evaluated_on_what_it_was_trained_on(
    tmp_path: Path, ranges: list[dict[str, object]] | None, message: str
) -> None:
    folder = trained_on(tmp_path / "gru", ranges)
    assert load(folder).card.name == "gru"
    with pytest.raises(ForecastError, match=message):
        Gru(folder, evaluated_on=[JUDGED]).fit(hours())


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [{"source": "Philly", "start": 0.0, "end": 1000.0}],
        [{"source": "Philly", "start": 2000.0, "end": 3000.0}],
        [{"source": "Helios", "start": 0.0, "end": 3000.0}],
    ],
)
def test_a_network_is_evaluated_on_other_days_and_other_clusters(
    tmp_path: Path, ranges: list[dict[str, object]]
) -> None:
    folder = trained_on(tmp_path / "gru", ranges)
    assert len(last_of(Gru(folder, evaluated_on=[JUDGED]), hours())) == 48


def last_of(forecaster: Gru, series: Series) -> FloatArray:
    found = forecaster.fit(series).at(series.values, np.array([len(series)]), 48)
    return np.asarray(found[0])


def test_the_shipped_network_says_which_days_of_philly_it_knows() -> None:
    card = load(SHIPPED).card
    assert card.trained_on is not None
    assert {learned.source for learned in card.trained_on} == {"Philly"}
    with pytest.raises(CheckpointError, match="trained on Philly"):
        load(SHIPPED, card.trained_on[:1])
