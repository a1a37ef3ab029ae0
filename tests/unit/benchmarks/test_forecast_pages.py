"""Pages of forecasts: what stands in the repository is what the trials left there."""

import json
import re
import shlex
from pathlib import Path

import pytest

from benchmarks.forecasts import __main__ as forecasts
from benchmarks.forecasts.trials import PAGES, Trial
from bireme import cli
from bireme_lab.cli import forecast

TRIALS = [(name, trial) for page in PAGES.values() for name, trial in page.trials.items()]


@pytest.mark.parametrize(("name", "trial"), TRIALS)
def test_a_trial_is_a_command_that_is_understood(name: str, trial: Trial) -> None:
    given = shlex.split(f"forecast compare {trial.arguments}")
    assert cli.parser_for(given).parse_args(given).run is forecast.run


def test_pages_are_written_from_the_numbers_that_lie_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = {path.name: path.read_text() for path in forecasts.FOLDER.glob("*.md")}
    for path in forecasts.FOLDER.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.setattr(forecasts, "FOLDER", tmp_path)
    assert forecasts.main([]) == 0
    assert {path.name: path.read_text() for path in tmp_path.glob("*.md")} == committed
    assert set(committed) == {"README.md", *(f"{name}.md" for name in PAGES)}


def test_numbers_are_of_the_command_of_their_trial() -> None:
    for name, trial in TRIALS:
        recorded = json.loads((forecasts.FOLDER / f"{name}.json").read_text())
        assert trial.arguments in recorded["command"]


def test_every_picture_is_small_shown_on_a_page_and_there_once() -> None:
    pictures = sorted(forecasts.FOLDER.glob("*.png"))
    pages = [path.read_text() for path in forecasts.FOLDER.glob("*.md")]
    assert {path.name for path in pictures} == {
        name for page in pages for name in re.findall(r"\]\(([^)]*\.png)\)", page)
    }
    assert len({path.read_bytes() for path in pictures}) == len(pictures)
    assert all(path.stat().st_size < 150_000 for path in pictures)


def test_an_unknown_page_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        forecasts.main(["tsdl-week"])
    assert "no page or trial 'tsdl-week'; there are tsdl, " in capsys.readouterr().err
