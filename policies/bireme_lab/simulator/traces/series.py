"""A series of numbers from a file: one value for each of many intervals of equal length.

The file is a table with or without a header, or a plain list of numbers, packed as any other trace.
With a column of times, rows are gathered into intervals (``reduce``), which begin at whole
multiples of their length in UTC. An interval at either end that the file covers only in part is
left out. Without times, every row is the next interval. Notes name the filled and omitted values.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, inf
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.core.times import DAY
from bireme.forecasting.series import Series, fill_gaps, gaps
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.reports.terminal import duration, plural
from bireme_lab.simulator.traces.tables import MAX_COUNT, CsvTable, quote, read_header, read_table

REDUCTIONS: Final = ("mean", "sum", "max", "count")
"""Ways to make one value of the rows of an interval; ``count`` needs no column."""

_SEASONS_SECONDS: Final = (DAY, 7 * DAY)


@dataclass(frozen=True, slots=True)
class ReadSeries:
    """A series, its column, and notes about filled and omitted values."""

    series: Series
    column: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Values by interval, NaN where unknown; ``start`` is None without times."""

    start: float | None
    step_seconds: int
    values: FloatArray
    notes: tuple[str, ...] = ()


class _Rows:
    """Times and values of the rows from ``since`` on and before ``until``, in the file's order."""

    def __init__(
        self, file: str, times: FloatArray, values: FloatArray, since: float, until: float
    ) -> None:
        is_inside = (times >= since) & (times < until)
        if is_inside.sum() < 2:
            raise TraceError(
                f"{file}: {plural(int(is_inside.sum()), 'row')} in the part asked for; "
                f"its times go from {_moment(times.min())} to {_moment(times.max())}"
            )
        self.file, self.times, self.values = file, times[is_inside], values[is_inside]
        self.first, self.last = float(self.times.min()), float(self.times.max())
        # Rows outside the range prove that the file covers the interval at this end whole.
        self.since = since if times.min() < since else inf
        self.until = until if times.max() >= until else -inf

    def usual_gap(self) -> float:
        """Return the median seconds between a row and the next row at another time."""
        gaps = np.diff(np.sort(self.times))
        if not gaps.any():
            raise TraceError(f"{self.file}: all rows have the same time; a series needs several")
        return float(np.median(gaps[gaps > 0]))


def read_series(
    path: Path,
    column: str | None = None,
    *,
    step_seconds: int | None = None,
    reduce: str = "mean",
    since: float = -inf,
    until: float = inf,
) -> ReadSeries:
    """Read the series in a file; its seasons are the day and the week.

    A season applies if it is a whole number of intervals and the file covers it three times.

    Args:
        column: Name, or number from 1 on; None if only one column is possible.
        step_seconds: Length of an interval; None for the usual gap between rows.
        reduce: One of :data:`REDUCTIONS`.
        since, until: POSIX seconds; only rows in ``since <= time < until`` are read.

    Raises TraceError when the file cannot be read with these arguments.
    """
    table = _table(path)
    # The first column of times, if any.
    times = next((name for name in table.header if _is_time(table.columns[name][0])), None)
    if reduce == "count":
        name, values = "rows", np.ones(len(table))
    else:
        name = _column(table, column, times)
        values = np.array(table.numbers(name, may_be_blank=True, minimum=0.0))
    if times is None:
        fault = ""
        if (since, until) != (-inf, inf):
            fault = ", so there is no part of it by time"
        elif reduce == "count":
            fault = ", so rows cannot be counted by them"
        elif step_seconds is None:
            fault = "; say how long the interval of a row is"
        if fault or step_seconds is None:
            raise TraceError(f"{path}: no column holds times{fault}")
        intervals = _Intervals(None, step_seconds, values)
    else:
        rows = _Rows(table.file, _moments(table, times), values, since, until)
        intervals = _gather(rows, step_seconds, reduce)
    seasons = _seasons(intervals)
    values, notes = _fill(table.file, intervals, seasons)
    series = Series(values, intervals.step_seconds, seasons, intervals.start)
    return ReadSeries(series, name, (*intervals.notes, *notes))


def _table(path: Path) -> CsvTable:
    """Read all columns; those of a file without a header are called column 1, column 2, ..."""
    first = read_header(path)
    is_headless = all(_is_number(cell) or _is_time(cell) for cell in first)
    header = [f"column {index + 1}" for index in range(len(first))] if is_headless else ()
    table = read_table(path, header or first, header=header)
    if len(table) < 2:
        raise TraceError(
            f"{path}: {plural(len(table), 'row')} of values; a series needs at least two"
        )
    return table


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_time(cell: str) -> bool:
    if _is_number(cell):  # fromisoformat takes 20171003 for a date
        return False
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return False
    return True


def _column(table: CsvTable, column: str | None, times: str | None) -> str:
    """Return the name of the column that ``column`` names, or of the only possible one."""
    names = table.header
    if column in names:
        return column
    if column is not None and column.isdecimal() and 1 <= int(column) <= len(names):
        return names[int(column) - 1]
    rest = [name for name in names if name != times]
    if column is None and len(rest) == 1:
        return rest[0]
    fault = "which column?" if column is None else f"no column {quote(column)};"
    raise TraceError(f"{table.file}: {fault} name one of {quote(', '.join(rest))}, or its number")


def _moments(table: CsvTable, name: str) -> FloatArray:
    times = np.array(table.times(name))
    missing = np.flatnonzero(np.isnan(times))
    if missing.size:
        raise TraceError(
            f"{table.file}, line {table.lines[missing[0]]}: {name} is blank; every row needs a "
            "time, so take those without out"
        )
    return times


def _gather(rows: _Rows, step_seconds: int | None, reduce: str) -> _Intervals:
    """Gather rows by interval, without partly known intervals at the ends."""
    gap = rows.usual_gap()
    step = _step(rows, step_seconds, gap, reduce)
    # An interval little longer than the usual gap has one row, sometimes none or two.
    gathers = reduce == "count" or step > 1.5 * gap
    # A row that stands for an interval of its own may come a little early or late.
    origin = rows.first // step * step if gathers else rows.first - step / 2
    count = int((rows.last - origin) // step) + 1
    if count > MAX_COUNT:
        raise TraceError(
            f"{rows.file}: {count:,} intervals of {duration(step)} lie between its first time "
            f"and its last; is one of them wrong? At most {MAX_COUNT:,} are read"
        )
    indices = ((rows.times - origin) // step).astype(np.int64)
    values = _reduce(indices, rows.values, count, reduce)
    if not gathers:
        return _Intervals(rows.first, step, values)
    partial_start = int(min(rows.since, rows.first - gap) > origin)
    partial_end = int(max(rows.until, rows.last + 2 * gap) < origin + count * step)
    if partial_start + partial_end >= count:
        raise TraceError(
            f"{rows.file}: its rows fill no interval of {duration(step)}; ask for shorter ones"
        )
    notes = (f"{plural(partial_start + partial_end, 'interval')} known in part left out",)
    whole = values[partial_start : count - partial_end]
    return _Intervals(
        origin + partial_start * step, step, whole, notes if partial_start + partial_end else ()
    )


def _step(rows: _Rows, step_seconds: int | None, gap: float, reduce: str) -> int:
    if step_seconds is None and reduce == "count":
        raise TraceError(f"{rows.file}: count rows for how long? Say how long an interval is")
    if step_seconds is not None and reduce in ("mean", "max") and step_seconds < 0.75 * gap:
        raise TraceError(
            f"{rows.file}: intervals of {duration(step_seconds)} are shorter than the "
            f"{duration(gap)} between its rows; ask for longer ones"
        )
    return step_seconds or max(1, round(gap))


def _reduce(indices: IntArray, values: FloatArray, count: int, reduce: str) -> FloatArray:
    """Return a value per interval; one without rows is 0 for a sum or count, else NaN."""
    has_value = ~np.isnan(values)
    indices, values = indices[has_value], values[has_value]
    if reduce == "max":
        maxima = np.full(count, np.nan)
        np.fmax.at(maxima, indices, values)  # fmax ignores NaN
        return maxima
    sums = np.bincount(indices, values, minlength=count).astype(np.float64)
    if reduce == "mean":
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / np.bincount(indices, minlength=count))
    return sums


def _fill(
    file: str, intervals: _Intervals, seasons: tuple[int, ...]
) -> tuple[FloatArray, list[str]]:
    """Fill gaps of up to a day with the values one season before; refuse longer gaps."""
    missing = list(gaps(intervals.values))
    if not missing:
        return intervals.values, []
    first, last = max(missing, key=lambda gap: gap[1] - gap[0])
    if last - first > min(ceil(DAY / intervals.step_seconds), len(intervals.values) - 1):
        place = f"row {first + 1}"
        if intervals.start is not None:
            place = _moment(intervals.start + first * intervals.step_seconds)
        raise TraceError(
            f"{file}: nothing is known of {plural(last - first, 'interval')} from {place} on; give "
            "the part of the file before or after"
        )
    source = " or one season before" if seasons else ""
    count = sum(last - first for first, last in missing)
    note = f"{plural(count, 'interval')} without a value filled from the neighbours{source}"
    return fill_gaps(intervals.values, max(seasons, default=0)), [note]


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def _seasons(intervals: _Intervals) -> tuple[int, ...]:
    steps = [
        season // intervals.step_seconds
        for season in _SEASONS_SECONDS
        if not season % intervals.step_seconds
    ]
    return tuple(n for n in steps if n > 1 and 3 * n <= len(intervals.values))
