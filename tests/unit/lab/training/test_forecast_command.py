"""``bireme forecast compare``: its table, its JSON, its picture, and what it refuses."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bireme.cli import main
from bireme.core.resources import FloatArray
from bireme.forecasting.selection import BackTest
from bireme_lab.cli.forecast_report import is_beyond_chance
from bireme_lab.training.gru import evaluation

SIMPLE = "persistence,seasonal-naive"
Forecast = Callable[..., str]


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    """Twenty days of hourly nodes that are needed by day, with a little noise."""
    rng = np.random.default_rng(5)
    hour = np.arange(480)
    nodes = 20 + 12 * np.sin(hour * np.pi / 12) + rng.normal(0, 1, 480)
    stamps = np.datetime64("2026-11-01T00:00:00") + hour.astype("timedelta64[h]")
    rows = (f"{stamp},{value:.3f}\n" for stamp, value in zip(stamps, nodes, strict=True))
    path = tmp_path / "nodes.csv"
    path.write_text("time,nodes\n" + "".join(rows))
    return path


@pytest.fixture
def forecast(hours: Path, capsys: pytest.CaptureFixture[str]) -> Forecast:
    """Runs the command on ``hours``; what it wrote."""

    def run(*arguments: object) -> str:
        given = ["--series", hours, "--models", SIMPLE, "--test", "5d", *arguments]
        assert main(["forecast", "compare", *(str(each) for each in given)]) == 0
        return capsys.readouterr().out

    return run


def refused(capsys: pytest.CaptureFixture[str], hours: Path, *arguments: str) -> str:
    given = ["forecast", "compare", "--series", str(hours), "--models", SIMPLE, *arguments]
    assert main(given) == 2
    return capsys.readouterr().err


def test_the_table_has_accuracies_and_skills_of_all_and_says_who_was_chosen(
    forecast: Forecast,
) -> None:
    printed = forecast()
    assert "nodes of nodes.csv: 480 intervals of 60 min, repeating after 24" in printed
    assert "forecast 1 ahead from every origin in the last 120" in printed
    head, *rows = [line.split() for line in printed.split("\n\n")[1].splitlines()]
    assert head[:3] == ["model", "1-MAPE", "1-WAPE"]
    assert [row[0] for row in rows] == ["seasonal-naive", "persistence"]
    assert "chosen   seasonal-naive" in printed
    assert "next     2026-11-21T00:00:00Z  " in printed


def test_the_verdict_says_so_where_a_simple_rule_does_as_well(forecast: Forecast) -> None:
    assert "no gain at 90 %: seasonal-naive alone is as accurate\n" in forecast()


def test_a_gain_in_few_forecasts_is_called_one_that_may_be_chance() -> None:
    rng = np.random.default_rng(2)
    actuals = rng.normal(100, 10, (400, 1))
    near, far = (actuals + rng.normal(0, spread, (400, 1)) for spread in (9.0, 11.0))

    def of(forecasts: FloatArray, count: int) -> BackTest:
        return BackTest(np.arange(count), forecasts[:count], actuals[:count])

    assert not is_beyond_chance(of(near, 20), of(far, 20), 0.8)
    assert is_beyond_chance(of(near, 400), of(far, 400), 0.8)
    assert not is_beyond_chance(of(far, 400), of(near, 400), 0.8)


def test_a_series_that_wanders_is_better_left_alone(forecast: Forecast, hours: Path) -> None:
    steps = np.random.default_rng(3).normal(0, 1, 480).cumsum()
    hours.write_text("".join(f"{value:.3f}\n" for value in 100 + steps))
    assert "so forecasting does not help here" in forecast("--step", "1h", "--models", "arima")


def test_a_model_that_knows_more_than_both_simple_rules_is_chosen_and_praised(
    forecast: Forecast,
) -> None:
    printed = forecast("--models", "holt-winters")
    assert "verdict  holt-winters has" in printed
    assert "less loss than seasonal-naive, the better of the two simple rules" in printed
    assert "may be chance" not in printed


@pytest.mark.parametrize("has_torch", [True, False])
def test_a_network_trained_before_says_on_what(
    has_torch: bool, forecast: Forecast, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_torch:
        monkeypatch.setattr(evaluation, "find_spec", lambda _name: None)
    printed = forecast("--models", "lsp,gru", "--alpha", "0.5", *["--gru", "shipped"] * has_torch)
    assert "gru: trained on 1200 generated hourly demands" in printed
    assert "lsp: 0.5 * gru + 0.5 * arima" in printed


def test_a_network_for_another_step_is_not_tried_and_the_remedy_named(forecast: Forecast) -> None:
    printed = forecast("--models", "gru", "--gru", "shipped", "--step", "2h", "--test", "60")
    assert "gru: not tried: network 'gru' is for steps of 3600 s, the series has 7200 s" in printed


def test_the_json_has_the_numbers_of_the_table_and_the_forecast(
    forecast: Forecast, tmp_path: Path
) -> None:
    target = tmp_path / "forecast.json"
    forecast("--json", target, "--horizon", "2d")
    numbers: dict[str, Any] = json.loads(target.read_text())
    assert numbers["series"] | {"start": None} == {
        "file": "nodes.csv",
        "column": "nodes",
        "intervals": 480,
        "step_seconds": 3600,
        "periods": [24],
        "start": None,
        "notes": [],
    }
    assert numbers["test"] == {"intervals": 120, "horizon": 48, "origins": 73, "quantile": 0.9}
    assert numbers["models"]["seasonal-naive"]["skill_seasonal_naive"] == 0
    assert numbers["models"]["seasonal-naive"]["skill_persistence"] > 0.5
    assert 0.9 < numbers["models"]["seasonal-naive"]["accuracy_wape"] < 1
    assert [each["begins"] for each in numbers["forecast"][::47]] == [
        "2026-11-21T00:00:00Z",
        "2026-11-22T23:00:00Z",
    ]
    assert all(each["lower"] <= each["point"] <= each["upper"] for each in numbers["forecast"])


def test_json_to_standard_output_is_alone_there(forecast: Forecast) -> None:
    assert json.loads(forecast("--json", "-"))["chosen"] == "seasonal-naive"


def test_of_a_long_forecast_the_table_shows_the_beginning(forecast: Forecast) -> None:
    printed = forecast("--horizon", "2d")
    assert printed.count("next  ") == 8
    assert "and 40 more in --json and --plot" in printed


def test_what_a_file_without_times_forecasts_is_numbered(forecast: Forecast, hours: Path) -> None:
    hours.write_text("1\n2\n3\n" * 40)
    printed = forecast("--step", "1d", "--period", "3", "--test", "0.5", "--models", "arima")
    assert "repeating after 3" in printed
    assert "next     interval 1  1.0, 1.0 to 1.0" in printed


@pytest.mark.parametrize("horizon", ["1", "12"])
def test_the_picture_is_a_small_png(forecast: Forecast, horizon: str, tmp_path: Path) -> None:
    target = tmp_path / "forecast.png"
    forecast("--plot", target, "--horizon", horizon)
    data = target.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < 150_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "arma"], "argument --models, --test: no forecaster is called 'arma'; did"),
        (["--horizon", "90m"], "argument --horizon: 90 min is no whole number of intervals"),
        (["--horizon", "0"], "argument --horizon: '0' is no length of time"),
        (["--horizon", "3d", "--test", "2d"], "48 of 480 intervals cannot be the test"),
        (["--test", "480"], "480 of 480 intervals cannot be the test"),
        (["--test", "1.5"], "argument --test: '1.5' is no share"),
        (["--test", "9", "--quantile", "0.9"], "errors of forecasts say nothing about quantile"),
        (["--period", "1d,x"], "argument --period: 'x' is no length of time"),
        (["--period", "5m"], "argument --period: 5.0 min is no whole number of intervals"),
        (["--quantile", "90"], "argument --quantile: '90' is no quantile"),
        (["--alpha", "2"], "argument --alpha: '2' is no weight"),
        (["--gru", "nowhere"], "argument --gru: there is no folder 'nowhere'; name one that"),
        (["--column", "pods"], "no column 'pods'; name one of 'nodes'"),
        (["--since", "soon"], "argument --since: 'soon' is no time"),
        (["--step", "60"], "argument --step: '60' has no unit; write 60s, 60m or 60h"),
        (["--plot", "nowhere/a.png"], "argument --plot: there is no folder 'nowhere'"),
        (
            ["--plot", "a.jpg"],
            "argument --plot: 'a.jpg' is no picture to write; end it in .png or .svg",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    arguments: list[str], message: str, hours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, hours, *arguments)


@pytest.mark.parametrize(
    ("library", "module", "arguments", "message"),
    [
        (
            "statsmodels",
            "bireme.forecasting.arima",
            ["--models", "arima"],
            "argument --models: it needs statsmodels, which is not installed; pip",
        ),
        (
            "matplotlib",
            "bireme_lab.cli.forecast_report",
            ["--plot", "forecast.png"],
            "argument --plot: it needs matplotlib, which is not installed; pip",
        ),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    library: str,
    module: str,
    arguments: list[str],
    message: str,
    hours: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The import system sets the package's attribute to what it imports here: that is undone, too.
    package, _, name = module.rpartition(".")
    monkeypatch.setattr(importlib.import_module(package), name, importlib.import_module(module))
    for loaded in [name for name in sys.modules if name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, module)
    assert message in refused(capsys, hours, *arguments)
