"""``python -m benchmarks.forecasts [NAME...]``: run trials, or pages of them, and write the pages.

Pages are written from the numbers and pictures that trials leave in the folder of the results.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import DATA, RESULTS
from benchmarks.forecasts.trials import PAGES, Page, Trial
from bireme.cli import main as bireme
from bireme_lab.cli.forecast_report import cells, head
from bireme_lab.simulator.reports.terminal import duration, markdown_table, share

FOLDER: Final = RESULTS / "forecasting"
_PROSE: Final = Path(__file__).parent / "prose"
_SHOWN: Final = ("persistence", "seasonal-naive", "holt-winters", "arima", "gru", "lsp")
_NUMBER: Final = re.compile(r"\{([a-z0-9-]+)/([a-z-]+)\}")
_TRIALS: Final = {name: trial for page in PAGES.values() for name, trial in page.trials.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    for name in options.names:
        for one in PAGES[name].trials if name in PAGES else [name]:
            if status := _run(one, options.data):
                return status
    complete = {
        name: page
        for name, page in PAGES.items()
        if all((FOLDER / f"{one}.json").exists() for one in page.trials)
    }
    for name, page in complete.items():
        (FOLDER / f"{name}.md").write_text(_page(name, page), encoding="utf-8")
    (FOLDER / "README.md").write_text(_index(complete), encoding="utf-8")
    return 0


def _run(name: str, data: Path) -> int:
    """Run one trial; ``$DATA`` in its arguments is the folder of the series."""
    given = shlex.split(_TRIALS[name].arguments.replace("$DATA", shlex.quote(str(data))))
    written = ["--json", str(FOLDER / f"{name}.json"), "--plot", str(FOLDER / f"{name}.png")]
    sys.stdout.write(f"\n== {name}\n")
    status = bireme(["forecast", "compare", *given, *written])
    if not status:
        found = _result(name) | {"command": _TRIALS[name].command}
        (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return status


def _page(name: str, page: Page) -> str:
    prose = re.sub(_NUMBER, _number, _prose(name))
    written = f"Written by `python -m benchmarks.forecasts {name}`; do not edit."
    lines = [f"# {page.title}", "", written, "", prose, ""]
    drawn: dict[str, str] = {}
    for one, trial in page.trials.items():
        lines += [*_section(one, trial), _figure(one, trial, drawn), ""]
    return "\n".join(lines).rstrip() + "\n"


def _prose(name: str) -> str:
    return (_PROSE / f"{name}.md").read_text(encoding="utf-8").strip()


def _number(found: re.Match[str]) -> str:
    """Replace ``{TRIAL/MODEL}`` in prose by the accuracy that the model had there."""
    trial, model = found.groups()
    return f"{100 * _result(trial)['models'][model]['accuracy_mape']:.2f} %"


def _index(pages: Mapping[str, Page]) -> str:
    rows = []
    for name, page in pages.items():
        for one, trial in page.trials.items():
            found = _result(one)
            accuracies = [found["models"].get(key, {}).get("accuracy_mape") for key in _SHOWN]
            shown = ("" if value is None else share(value) for value in accuracies)
            rows.append([f"[{page.title}]({name}.md)", trial.title, *shown, found["verdict"]])
    table = markdown_table(["series", "", *_SHOWN, "verdict"], rows)
    return "\n".join(["# Forecasts", "", _prose("README"), "", *table, ""])


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _section(name: str, trial: Trial) -> list[str]:
    found = _result(name)
    series, test, models = found["series"], found["test"], found["models"]
    notes = "".join(f"; {note}" for note in series["notes"])
    abouts = [f"`{model}`: {row['about']}." for model, row in models.items() if "about" in row]
    faults = [f"`{model}`: {row['fault']}." for model, row in models.items() if "fault" in row]
    rows = [cells(model, row) for model, row in models.items() if "fault" not in row]
    asked = f"Forecast {test['horizon']} ahead from {test['origins']:,} origins."
    step = duration(series["step_seconds"])
    read = f"{series['intervals']:,} intervals of {step}{notes}."
    return [
        *(f"## {trial.title}", "", "```sh", trial.command, "```", ""),
        f"{read} {asked} Verdict: {found['verdict']}.",
        *("", *markdown_table(head(test["quantile"]), rows), "", " ".join([*abouts, *faults]), ""),
    ]


def _figure(name: str, trial: Trial, drawn: dict[str, str]) -> str:
    """Link the picture of a trial, or name an equal one before it.

    ``drawn`` maps what a picture shows (the series and the chosen model) to its trial's title.
    """
    found = _result(name)
    shows = json.dumps([found[key] for key in ("series", "test", "chosen", "forecast")])
    if shows in drawn:
        (FOLDER / f"{name}.png").unlink(missing_ok=True)
        return f"The picture is that of *{drawn[shows]}*."
    drawn[shows] = trial.title
    return f"![{trial.title}]({name}.png)"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = [*PAGES, *_TRIALS]
    parser = argparse.ArgumentParser(prog="forecasts", description="Run trials; write the pages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the public series")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in known:
            parser.error(f"no page or trial {name!r}; there are {', '.join(known)}")
    if options.names and not options.data.is_dir():
        parser.error(f"--data {options.data}: there is no such folder; name that of the series")
    return options


if __name__ == "__main__":
    sys.exit(main())
