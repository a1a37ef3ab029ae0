"""The papers by their own rules beside Bireme's variants: ``python -m benchmarks.learning.papers``.

    python -m benchmarks.learning.papers FOLDER/*.json

writes ``docs/results/learning/papers.md``. Files are what ``bireme evaluate --json`` wrote, called
``NAME.SHARD.json``; several with one NAME are shards. A NAME is a shipped checkpoint (``a2c``), or
a recipe and the seed of its training (``a2c-paper-0``): each training has a column of its own. A
column that is not named stays as it was: the JSON beside the page keeps them, since trainings take
hours and their checkpoints are not shipped.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks import RESULTS
from benchmarks.learning.bars import Bar, measured
from benchmarks.learning.page import measuring
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.simulator.reports.terminal import markdown_table, number
from bireme_lab.training.evaluation import EvaluationResult, merge

PAGE: Final = RESULTS / "learning" / "papers.md"
_PROSE: Final = Path(__file__).parent / "prose" / "papers.md"
_SPLIT: Final = "\n---\n"


@dataclass(frozen=True, slots=True)
class Row:
    """A number of a paper.

    Attributes:
        published: What the paper states, in its words; empty where it states nothing.
        of: What follows the name of a contender: the beta of RLPTO, say.
        to: The baseline that the metric is a ratio to; empty for the metric itself.
        rule: A rule whose own number stands in the row, instead of a policy's.
    """

    setting: str
    metric: str
    published: str
    of: str = ""
    to: str = ""
    rule: str = ""

    @property
    def who(self) -> str:
        """The rule, or what follows the name of a contender."""
        return self.rule or self.of.lstrip("-")


@dataclass(frozen=True, slots=True)
class Paper:
    """A table: ``variants`` are Bireme's, ``own`` are the recipes by the paper's own rules."""

    title: str
    variants: tuple[str, ...]
    own: tuple[str, ...]
    rows: tuple[Row, ...]


def _rlpto() -> Iterator[Row]:
    published = {
        "table-2": {
            "fs": (87.59, 8498),
            "fcfs": (86.51, 14333),
            "slaq": (88.07, 9043),
            "dolphin": (87.61, 7617),
            "tradl": (86.82, 5388),
            "5e-05": (88.24, 10835),
            "0.0001": (88.13, 8882),
            "0.0002": (87.98, 6898),
            "0.0003": (87.86, 6069),
            "0.0005": (87.65, 5303),
            "0.001": (87.23, 4515),
        },
        "table-3": {
            "fs": (87.61, 8139),
            "fcfs": (85.91, 14682),
            "slaq": (88.07, 9043),
            "dolphin": (87.67, 7663),
            "tradl": (86.94, 5281),
            "5e-05": (88.25, 9469),
            "0.0001": (88.13, 7602),
            "0.0002": (87.99, 6479),
            "0.0003": (87.88, 5834),
            "0.0005": (87.69, 5334),
            "0.001": (87.27, 4597),
        },
    }
    for setting, rows in published.items():
        for metric, column in (("mean_accuracy", 0), ("total_seconds", 1)):
            for name, values in rows.items():
                is_beta = name[0].isdigit()
                yield Row(
                    setting,
                    metric,
                    f"{values[column]:g}",
                    of=f"-{name}" if is_beta else "",
                    rule="" if is_beta else name,
                )


_SLIDES: Final = {
    "small": ((638.046, 720.228), (50.484, 51.685)),
    "medium": ((155.003, 171.282), (50.019, 51.684)),
    "large": ((108.700, 110.316), (50.354, 51.219)),
}
"""Completion time and fee of DAS and of FIFO with first fit (table 1)."""

PAPERS: Final = (
    Paper(
        "A2cScheduler",
        ("a2c", "a2c-cnn"),
        ("a2c-paper",),
        tuple(
            Row(f"rate-{rate}", metric, bar, to=to)
            for rate, slowdown in (
                ("0.6", ""),
                ("0.7", "bar 3.2"),
                ("0.8", ""),
                ("0.9", "bar 4.15"),
            )
            for metric, bar, to in (
                ("slowdown", slowdown, ""),
                ("completion_steps", "bar 1" if slowdown else "", "sjf"),
                ("waiting_steps", "bar 1" if slowdown else "", "sjf"),
            )
        ),
    ),
    Paper("RLPTO", ("rlpto",), ("rlpto-paper",), tuple(_rlpto())),
    Paper(
        "DAS",
        ("das",),
        ("das-paper",),
        tuple(
            Row(setting, metric, f"{own / fifo:.3f}", to="fifo/first-fit")
            for setting, pairs in _SLIDES.items()
            for metric, (own, fifo) in zip(
                ("mean_jct_minutes", "mean_fee_dollars"), pairs, strict=True
            )
        ),
    ),
    Paper(
        "TapFinger",
        ("tapfinger",),
        ("tapfinger-paper", "tapfinger-paper-small"),
        tuple(
            Row(setting, "mean_jct_steps", published, rule=rule)
            for setting, figures in (
                ("single-3-noisy", (("", "6.417"), ("optimus", "8.562"))),
                ("single-6-noisy", (("", "7.312"), ("optimus", "9.203"))),
            )
            for rule, published in figures
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Column:
    """What was measured of one training.

    Attributes:
        cells: By :func:`_key` of the row, as they stand on the page.
        commands: That measured it.
    """

    cells: Mapping[str, str]
    commands: Sequence[str]


Columns = Mapping[str, Column]
"""By NAME."""


def read(files: Sequence[Path]) -> Columns:
    """Return what ``bireme evaluate`` wrote into ``files``, shards joined."""
    shards: dict[str, dict[str, list[EvaluationResult]]] = defaultdict(lambda: defaultdict(list))
    commands: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        found = json.loads(file.read_text(encoding="utf-8"))
        name = file.name.partition(".json")[0].rpartition(".")[0]
        commands[name].append(measuring(found["command"]))
        for each in map(EvaluationResult.from_json, found["settings"]):
            shards[name][each.setting].append(each)
    columns = {}
    for name, settings in shards.items():
        joined = {setting: merge(parts) for setting, parts in settings.items()}
        rows = [(row, joined.get(row.setting)) for paper in PAPERS for row in paper.rows]
        cells = {_key(row): _cell(row, result) for row, result in rows if result is not None}
        columns[name] = Column({key: cell for key, cell in cells.items() if cell}, commands[name])
    return columns


def kept(file: Path) -> Columns:
    """Return the columns of the page that is beside ``file``; none where there is no page yet."""
    if not file.exists():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    return {name: Column(**column) for name, column in found.items()}


def table(paper: Paper, columns: Columns) -> tuple[list[str], list[list[str]]]:
    """Return head and rows; a cell without a measurement is empty."""
    trainings = sorted(name for name in columns if name.rpartition("-")[0] in paper.own)
    shown = [*(name for name in paper.variants if name in columns), *trainings]
    head = ["setting", "metric", "", "paper", *shown]
    rows = []
    for row in paper.rows:
        cells = [columns[name].cells.get(_key(row), "") for name in shown]
        if any(cells):
            metric = row.metric.replace("_", " ") + (f" to {row.to}'s" if row.to else "")
            rows.append([row.setting, metric, row.who, row.published, *cells])
    return head, rows


def _key(row: Row) -> str:
    return " ".join(filter(None, (row.setting, row.metric, row.to, row.who)))


def _cell(row: Row, result: EvaluationResult) -> str:
    own = row.rule or f"{result.checkpoint}{row.of}"
    if own not in result.runs[result.seeds[0]]:
        return ""  # a beta that the variant was not trained for
    baselines = (row.to,) if row.to else ()
    found = measured(Bar(row.setting, row.metric, 0.0, baselines, own=own), result).found
    # Tasks differ by fractions of a percent.
    return _shown(found, "{:.2f}".format if row.metric == "mean_accuracy" else number)


def _shown(found: Estimate, written: Callable[[float], str]) -> str:
    if found.low is None or found.high is None:
        return written(found.mean)
    return f"{written(found.mean)} [{written(found.low)}, {written(found.high)}]"


def page(columns: Columns) -> str:
    opening, method = _PROSE.read_text(encoding="utf-8").split(_SPLIT)
    lines = [opening.strip(), ""]
    for paper in PAPERS:
        head, rows = table(paper, columns)
        if rows:
            lines += [f"## {paper.title}", "", *markdown_table(head, rows), ""]
    lines += ["## What was measured", "", method.strip(), "", "Commands:", ""]
    commands = [command for name in sorted(columns) for command in columns[name].commands]
    return "\n".join([*lines, "```sh", *dict.fromkeys(commands), "```"]) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Write the page and its columns; exits with a message where no file is named."""
    if not arguments:
        sys.exit("usage: python -m benchmarks.learning.papers RESULTS.json...; name at least one")
    numbers = PAGE.with_suffix(".json")
    columns = {**kept(numbers), **read([Path(file) for file in arguments])}
    written = {name: asdict(columns[name]) for name in sorted(columns)}
    numbers.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(columns), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
