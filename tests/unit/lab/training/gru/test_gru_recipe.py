"""``bireme train gru``: a network for one series or for any, as a folder to forecast with."""

import re
from pathlib import Path

import numpy as np
import pytest

from bireme.cli import main
from bireme.forecasting.gru import Gru
from bireme.forecasting.series import Series
from bireme_lab.training.gru.recipe import GruRecipe
from bireme_lab.training.runs import TrainingRun


@pytest.fixture
def file(tmp_path: Path) -> Path:
    values = 10 + 5 * np.sin(np.arange(400) * 2 * np.pi / 24)
    path = tmp_path / "nodes.txt"
    path.write_text("\n".join(f"{value:.2f}" for value in values))
    return path


def test_a_network_for_a_series_forecasts_it_from_its_folder(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    given = ["--series", str(file), "--step", "1h", "--period", "1d", "--horizon", "1d"]
    assert main(["train", "gru", *given, "--out", str(out), "--smoke"]) == 0
    assert (
        f"bireme forecast compare --gru {out}/checkpoint --series FILE" in capsys.readouterr().out
    )
    series = Series(np.loadtxt(file), 3600, (24,))
    model = Gru(out / "checkpoint").fit(series)
    assert model.at(series.values, np.array([400]), 24).shape == (1, 24)
    card = model.network.card
    assert (card.horizon, card.periods, card.step_seconds) == (24, (24,), 3600)
    assert card.data == "one series, 400 values in steps of 3600 s"
    assert card.command.startswith("bireme train gru --series")


def test_a_network_for_any_pool_says_how_it_does_on_demand_it_has_not_learned(
    tmp_path: Path,
) -> None:
    folder = GruRecipe().train(TrainingRun("gru", tmp_path / "run", scale="smoke"))
    card = Gru(folder).fit(Series(np.ones(400), 3600, (24, 168))).network.card
    assert card.data == "12 generated hourly demands of ten weeks"
    assert [result.setting for result in card.results] == ["generated demand"]
    assert (card.window, card.horizon, card.periods) == (24, 48, (24, 168))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gru", "--horizon", "90m"], "--horizon: 90 min is no whole number of intervals"),
        (["a2c"], "argument --series: a2c learns no series; gru does"),
        (["gru", "--data", "."], "argument --data: cannot be used with --series"),
        (["gru", "--horizon", "400"], "400 values; to learn 400 steps ahead"),
    ],
)
def test_what_cannot_be_trained_on_a_series_is_named(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    name, *more = arguments
    given = ["--series", str(file), "--step", "1h", *more, "--out", str(tmp_path / "run")]
    assert main(["train", name, *given]) in (1, 2)
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert re.search(words, found), found
