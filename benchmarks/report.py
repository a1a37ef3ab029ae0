"""Results as files: JSON with every number, Markdown tables drawn from it, and an index.

A case of ``benchmarks.timings`` has samples of Bireme and of a baseline, a page of
``benchmarks.simulations`` findings and prose. A run renews only its own files and the index.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

import msgspec
from scipy.stats import t

from bireme_lab.simulator.reports.terminal import markdown_table, number

# Measurements: samples, comparisons with a baseline, aims. Plain values that survive a trip through
# JSON, so that the tables of one case can be renewed without running the others again.

Of = Literal["value", "ratio", "upper end of the ratio"]


class Sample(msgspec.Struct, frozen=True):
    """Repeated measurements of one quantity, in the order they were taken."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Return a sample; ValueError when it is empty or a value is no number."""
        taken = tuple(values)
        if not taken or any(math.isnan(value) for value in taken):
            raise ValueError(f"a sample needs numbers, these are {taken}")
        return cls(taken)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def percentile(self, percent: float) -> float:
        """Return the smallest value that at least ``percent`` % of all do not exceed."""
        ranked = sorted(self.values)
        return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


class Aim(msgspec.Struct, frozen=True):
    """A bound on a row's own median, on its ratio to the baseline, or on the interval of that."""

    of: Of
    at_most: float | None = None
    at_least: float | None = None

    def __str__(self) -> str:
        sign, bound = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        upper = "upper end " if self.of == "upper end of the ratio" else ""
        return f"{upper}{sign} {bound:g}{'' if self.of == 'value' else 'x'}"

    def is_reached(self, number: float) -> bool:
        is_too_high = self.at_most is not None and number > self.at_most
        return not is_too_high and (self.at_least is None or number >= self.at_least)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of Bireme, beside the same quantity of a baseline where there is one."""

    what: str
    unit: str
    bireme: Sample
    baseline: Sample | None = None
    aim: Aim | None = None

    @classmethod
    def alone(cls, what: str, unit: str, *values: float, aim: Aim | None = None) -> Self:
        """Return a row without a baseline."""
        return cls(what=what, unit=unit, bireme=Sample.of(values), aim=aim)

    @property
    def ratio(self) -> float | None:
        if self.baseline is None or self.baseline.median == 0:
            return None
        return self.bireme.median / self.baseline.median

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the ratio, from the paired runs' ratios by Student's t; None under 3."""
        if self.baseline is None or not 3 <= len(self.bireme.values) == len(self.baseline.values):
            return None
        if min(*self.bireme.values, *self.baseline.values) <= 0:
            return None
        pairs = zip(self.bireme.values, self.baseline.values, strict=True)
        logs = [math.log(ours / theirs) for ours, theirs in pairs]
        half = statistics.stdev(logs) / math.sqrt(len(logs)) * t.ppf(0.975, len(logs) - 1)
        mean = statistics.mean(logs)
        return math.exp(mean - half), math.exp(mean + half)

    @property
    def is_reached(self) -> bool | None:
        if self.aim is None:
            return None
        number: float | None = self.bireme.median
        if self.aim.of == "ratio":
            number = self.ratio
        elif self.aim.of == "upper end of the ratio":
            if self.interval is None:
                return None  # too few runs to say
            number = self.interval[1]
        if number is None:
            raise ValueError(f"{self.what}: an aim on the ratio needs a baseline")
        return self.aim.is_reached(number)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that are no comparison, such as processor seconds by process."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one case; ``baseline`` names what they are compared with.

    Attributes:
        figures: File name to SVG, drawn beside the page.
    """

    rows: tuple[Row, ...]
    baseline: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    figures: dict[str, str] = {}


def at_most(bound: float, of: Of = "value") -> Aim:
    return Aim(of, at_most=bound)


def at_least(bound: float, of: Of = "value") -> Aim:
    return Aim(of, at_least=bound)


class Pairs:
    """Samples of Bireme and of a baseline by quantity, collected in alternation."""

    def __init__(self) -> None:
        self.bireme: defaultdict[str, list[float]] = defaultdict(list)
        self.baseline: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, side: str, found: dict[str, float]) -> None:
        """Add one repetition on one side: quantity to number."""
        into = self.bireme if side == "bireme" else self.baseline
        for quantity, measured in found.items():
            into[quantity].append(measured)

    def row(self, quantity: str, unit: str, aim: Aim | None = None, what: str = "") -> Row:
        """Return the row of ``quantity``, called ``what`` if given."""
        baseline = self.baseline.get(quantity)
        return Row(
            what=what or quantity,
            unit=unit,
            bireme=Sample.of(self.bireme[quantity]),
            baseline=Sample.of(baseline) if baseline else None,
            aim=aim,
        )


def medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median by key; a missing key counts as zero."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: statistics.median(one.get(name, 0.0) for one in found) for name in names}


T = TypeVar("T")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One case as it was run; ``failure`` says why there is no result."""

    case: str
    question: str
    command: str
    date: str
    took_seconds: float
    repetitions: int
    machine: dict[str, str]
    result: Result | None = None
    failure: str = ""


def write_case(folder: Path, report: Report) -> None:
    """Write JSON and Markdown of a case, and the index over all in ``folder``."""
    plain, figures = report, {}
    if report.result is not None:
        figures = report.result.figures
        bare = msgspec.structs.replace(report.result, figures=dict.fromkeys(figures, ""))
        plain = msgspec.structs.replace(report, result=bare)
    _write(folder, report.case, plain, case_markdown(report), case_index)
    _draw(folder, figures)


def _write(
    folder: Path, name: str, found: T, text: str, index: Callable[[Sequence[T]], str]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(found), indent=1)
    (folder / f"{name}.json").write_bytes(encoded + b"\n")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    files = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    every = [msgspec.json.decode(path.read_bytes(), type=type(found)) for path in files]
    (folder / "README.md").write_text(index(every), encoding="utf-8")


def _draw(folder: Path, figures: Mapping[str, str]) -> None:
    for name, drawing in figures.items():
        (folder / name).write_text(drawing, encoding="utf-8")


def case_markdown(report: Report) -> str:
    lines = [f"# {report.question}", ""]
    if report.result is None:
        lines += ["The measurement failed:", "", "```", report.failure, "```"]
    else:
        result = report.result
        lines += _comparison(result)
        for note in result.notes:
            lines += ["", note]
        for name in result.figures:
            lines += ["", f"![{report.question}]({name})"]
        for part in result.tables:
            lines += ["", f"## {part.title}", "", *markdown_table(part.columns, part.rows)]
    facts = {
        "command": f"`{report.command}`",
        "date": report.date,
        "repetitions": str(report.repetitions),
        "took": f"{report.took_seconds:.0f} s",
        **report.machine,
    }
    lines += ["", "## How it was measured", "", *markdown_table(("", ""), facts.items())]
    return "\n".join(lines) + "\n"


def case_index(reports: Sequence[Report]) -> str:
    """Return a table of all rows that have an aim, over all cases."""
    lines = [
        "# Measurements",
        "",
        "Written by `make bench`; do not edit. Every case stands alone and may be renewed by",
        "`python -m benchmarks.timings NAME`. Rivals are measured in the same run, on the same",
        "cluster, in alternation; medians, and a 95 % interval of the ratio over the paired runs.",
        "A row counts as reached if its median does, or the end of the interval that it names.",
        "How policies compare is no matter of time: [simulations](simulations/README.md), and for",
        "learned ones [learning](learning); how well demand is forecast:",
        "[forecasting](forecasting/README.md), and how well run times are:",
        "[run times](simulations/run-times.md).",
        "",
        *markdown_table(
            ("case", "", "Bireme", "aim", "reached", "date"),
            [row for report in reports for row in _standing(report)],
        ),
    ]
    return "\n".join(lines) + "\n"


def _standing(report: Report) -> Iterator[tuple[str, ...]]:
    link = f"[{report.case}]({report.case}.md)"
    if report.result is None:
        yield link, "failed", "", "", "no", report.date
        return
    for row in report.result.rows:
        if row.aim is not None:
            judged = f"{number(row.bireme.median)} {row.unit}".strip()
            if row.aim.of != "value":
                judged = f"{row.ratio:.2f}x{_interval(row)} ({judged})"
            yield link, row.what, judged, str(row.aim), _reached(row), report.date


def summary(report: Report) -> Iterable[str]:
    """Return a case as lines for the screen."""
    if report.result is None:
        yield f"  FAILED: {report.failure.strip().splitlines()[-1]}"
        return
    for row in report.result.rows:
        against = f", ratio {row.ratio:.2f}{_interval(row)}" if row.ratio is not None else ""
        aim = f", aim {row.aim}: {_reached(row)}" if row.aim is not None else ""
        yield f"  {row.what}: {number(row.bireme.median)} {row.unit}{against}{aim}"


def _comparison(result: Result) -> list[str]:
    rivals: tuple[str, ...] = ()
    if any(row.baseline is not None for row in result.rows):
        rivals = (result.baseline, "range", "ratio")
    columns = ("", "unit", "Bireme", "range", *rivals, "aim", "reached")
    return markdown_table(columns, [_cells(row, bool(rivals)) for row in result.rows])


def _cells(row: Row, has_rivals: bool) -> list[str]:
    rival = []
    if has_rivals:
        ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
        rival = [*_median_and_range(row.baseline), ratio + _interval(row)]
    aim = str(row.aim or "")
    return [row.what, row.unit, *_median_and_range(row.bireme), *rival, aim, _reached(row)]


def _median_and_range(sample: Sample | None) -> tuple[str, str]:
    if sample is None:
        return "", ""
    low, high = min(sample.values), max(sample.values)
    return number(sample.median), f"{number(low)}-{number(high)}" if len(sample.values) > 1 else ""


def _interval(row: Row) -> str:
    return "" if row.interval is None else " [{:.2f}, {:.2f}]".format(*row.interval)


def _reached(row: Row) -> str:
    return {None: "", True: "yes", False: "**no**"}[row.is_reached]


# --- pages of simulations: tables, findings, and an index over all ------------------------------

_PROSE: Final = Path(__file__).parent / "simulations" / "prose"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One question with tables and findings; the reasons are its file in ``prose``.

    Attributes:
        summary: The answer in a sentence, for the index.
        figures: File name to SVG, drawn beside the page.
    """

    name: str
    title: str
    summary: str
    findings: tuple[str, ...]
    tables: tuple[Table, ...]
    revisions: tuple[str, ...] = ()
    command: str = ""
    date: str = ""
    figures: dict[str, str] = {}


def write_page(folder: Path, page: Page) -> None:
    """Write the files of a page, and the index over all pages in ``folder``."""
    plain = msgspec.structs.replace(page, figures=dict.fromkeys(page.figures, ""))
    _write(folder, page.name, plain, page_markdown(page), page_index)
    _draw(folder, page.figures)


def page_markdown(page: Page) -> str:
    why, method = (_PROSE / f"{page.name}.md").read_text(encoding="utf-8").split("\n---\n")
    lines = [f"# {page.title}", ""]
    lines += [*(f"* {finding}" for finding in page.findings), "", why.strip(), ""]
    for name in page.figures:
        lines += [f"![{page.title}]({name})", ""]
    for table in page.tables:
        lines += [f"## {table.title}", "", *markdown_table(table.columns, table.rows), ""]
    made = f"`{page.command}`, {page.date}, revision {' and '.join(page.revisions)}"
    lines += ["## What was simulated", "", method.strip(), "", f"Command: {made}."]
    return "\n".join(lines) + "\n"


def page_index(pages: Sequence[Page]) -> str:
    lines = [
        "# Evidence by simulation",
        "",
        "Written by `python -m benchmarks.simulations`; do not edit. Each page may be renewed by",
        "the command that it names and `--fresh`. The traces are public, but not part of this",
        "repository; `--data` names the folder that has them.",
        "",
        "The page on Pollux' workloads has the default order of before 2026-11-26:",
        "`combined-priority` is `combined-priority?service_threshold=0` there, and without a sizer",
        "it is `general`. Where a sizer `goodput` was measured before 2026-11-27, also on pages of",
        "learned policies, it is `goodput?fairness_power=-1&restart_seconds=30`, but in the",
        "benchmark's Pollux family. `packing` on pages of before 2026-11-27 is `packing?moves=0`,",
        "but in the benchmark's families openb and heterogeneous. Pages of before 2026-11-29 have",
        "`wait_bound_run_factor` 0. Of those of orders, the ones on openb, placers and",
        "false reports have the same numbers with the factor of today. All pages but the one on",
        "whole traces have `overdue_share` 1 and `service_half_life_seconds` 0, and a bound that",
        "does not grow with the estimate, nor fourfold for a gang that has run.",
        "",
        *markdown_table(
            ("page", "answer", "date"),
            [(f"[{p.title}]({p.name}.md)", p.summary, p.date) for p in pages],
        ),
    ]
    return "\n".join(lines) + "\n"
