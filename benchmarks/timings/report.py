"""Results as files: one JSON per case with every number, and tables drawn from the JSON files.

A run of one case renews that case's two files and the index; the others stay as they are, each
with the date, machine and revision of its own run.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.timings.measurements import Aim, Result, Row
from bireme.simulator.reports.terminal import markdown_table, number

INDEX: Final = "README.md"
_ROW_COLUMNS: Final = ("", "unit", "Bireme", "range", "{}", "range", "ratio", "aim", "reached")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One case as it was run. ``failure`` says why there is no result."""

    case: str
    question: str
    command: str
    date: str
    took_seconds: float
    repetitions: int
    machine: dict[str, str]
    result: Result | None = None
    failure: str = ""


def write(folder: Path, report: Report) -> None:
    """Write the two files of a case, and the index over all that lie in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (folder / f"{report.case}.json").write_bytes(encoded + b"\n")
    (folder / f"{report.case}.md").write_text(markdown(report))
    reports = [
        msgspec.json.decode(path.read_bytes(), type=Report) for path in folder.glob("*.json")
    ]
    (folder / INDEX).write_text(index(sorted(reports, key=lambda one: one.case)))


def markdown(report: Report) -> str:
    """The tables of one case."""
    lines = [f"# {report.question}", ""]
    if report.result is None:
        lines += ["The measurement failed:", "", "```", report.failure, "```"]
    else:
        result = report.result
        lines += _comparison(result)
        for note in result.notes:
            lines += ["", note]
        for part in result.tables:
            lines += ["", f"## {part.title}", "", *markdown_table(part.columns, part.rows)]
    lines += ["", "## How it was measured", "", *_facts(report)]
    return "\n".join(lines) + "\n"


def index(reports: Sequence[Report]) -> str:
    """All rows that have an aim, over all cases."""
    lines = [
        "# Measurements",
        "",
        "Written by `make bench`; do not edit. Every case stands alone and may be renewed by",
        "`python -m benchmarks.timings NAME`. Rivals are measured in the same run, on the same",
        "cluster, in alternation; medians, and a row counts as reached only if its median does.",
        "How policies compare is no matter of time: [simulations](simulations/README.md), and for",
        "learned ones [learning](learning); how well demand is forecast:",
        "[forecasting](forecasting/README.md).",
        "",
        *markdown_table(
            ("case", "", "Bireme", "aim", "reached", "date"),
            [row for report in reports for row in _standing(report)],
        ),
    ]
    return "\n".join(lines) + "\n"


def _standing(report: Report) -> Iterator[tuple[str, ...]]:
    """The rows of a case that have an aim, or one that it failed."""
    link = f"[{report.case}]({report.case}.md)"
    if report.result is None:
        yield link, "failed", "", "", "no", report.date
        return
    for row in report.result.rows:
        if row.aim is not None:
            judged = _judged(row, row.aim)
            yield link, row.what, judged, _aim(row.aim), _reached(row), report.date


def summary(report: Report) -> Iterable[str]:
    """A case in lines for the screen."""
    if report.result is None:
        yield f"  FAILED: {report.failure.strip().splitlines()[-1]}"
        return
    for row in report.result.rows:
        against = f", ratio {row.ratio:.2f}" if row.ratio is not None else ""
        aim = f", aim {_aim(row.aim)}: {_reached(row)}" if row.aim is not None else ""
        yield f"  {row.what}: {number(row.bireme.median)} {row.unit}{against}{aim}"


def _comparison(result: Result) -> list[str]:
    has_baseline = any(row.baseline is not None for row in result.rows)
    columns = [c.format(result.baseline) for c in _ROW_COLUMNS]
    keep = [at for at in range(len(columns)) if has_baseline or at not in (4, 5, 6)]
    cells = (_cells(row) for row in result.rows)
    return markdown_table([columns[at] for at in keep], [[row[at] for at in keep] for row in cells])


def _cells(row: Row) -> list[str]:
    theirs = ["", ""]
    if row.baseline is not None:
        theirs = [number(row.baseline.median), _range(row.baseline.values)]
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    ours = [number(row.bireme.median), _range(row.bireme.values)]
    aim = _aim(row.aim) if row.aim is not None else ""
    return [row.what, row.unit, *ours, *theirs, ratio, aim, _reached(row)]


def _judged(row: Row, aim: Aim) -> str:
    if aim.of == "ratio" and row.ratio is not None:
        return f"{row.ratio:.2f}x ({number(row.bireme.median)} {row.unit})"
    return f"{number(row.bireme.median)} {row.unit}".strip()


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values))}-{number(max(values))}" if len(values) > 1 else ""


def _aim(aim: Aim) -> str:
    sign, bound = ("<=", aim.at_most) if aim.at_most is not None else (">=", aim.at_least)
    return f"{sign} {bound:g}{'x' if aim.of == 'ratio' else ''}"


def _reached(row: Row) -> str:
    return {None: "", True: "yes", False: "**no**"}[row.is_reached]


def _facts(report: Report) -> list[str]:
    facts = {
        "command": f"`{report.command}`",
        "date": report.date,
        "repetitions": str(report.repetitions),
        "took": f"{report.took_seconds:.0f} s",
        **report.machine,
    }
    return markdown_table(("", ""), list(facts.items()))
