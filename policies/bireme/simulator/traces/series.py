"""A series of numbers from a file: one value for each of many intervals of equal length.

The file is a table with or without a header, or a plain list of numbers, packed as any other trace.
Where a column holds times, rows are gathered into intervals (``reduce``), which begin at whole
multiples of their length in UTC; an interval that the file covers only in part, at either end, is
left out. Where none does, every row is the next interval. Notes say what was filled or left out.
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
from bireme.simulator.errors import TraceError
from bireme.simulator.reports.terminal import duration, plural
from bireme.simulator.traces.tables import MOST, CsvTable, read_header, read_table, shown

REDUCTIONS: Final = ("mean", "sum", "max", "count")
"""Ways to make one value of the rows of an interval; ``count`` needs no column."""

_SEASONS_SECONDS: Final = (DAY, 7 * DAY)


@dataclass(frozen=True, slots=True)
class ReadSeries:
    """A series, the column it was read from, and what was filled or left out, in words."""

    series: Series
    column: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Values by interval, NaN where nothing is known; ``start`` is None without times."""

    start: float | None
    step_seconds: int
    values: FloatArray
    notes: tuple[str, ...] = ()


class _Rows:
    """Times and values of the rows from ``since`` on and before ``until``, in the file's order."""

    def __init__(
        self, file: str, times: FloatArray, values: FloatArray, since: float, until: float
    ) -> None:
        asked = (times >= since) & (times < until)
        if asked.sum() < 2:
            raise TraceError(
                f"{file}: {plural(int(asked.sum()), 'row')} in the part asked for; its times go "
                f"from {_moment(times.min())} to {_moment(times.max())}"
            )
        self.file, self.times, self.values = file, times[asked], values[asked]
        self.first, self.last = float(self.times.min()), float(self.times.max())
        # What lies outside was not asked for, but the file goes on there, so that the interval at
        # this end is known whole.
        self.since = since if times.min() < since else inf
        self.until = until if times.max() >= until else -inf

    def usual_gap(self) -> float:
        """Return the median of the seconds between a row and the next at another time."""
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

    A season is taken where it is a whole number of intervals and the file has three of it.

    Args:
        column: Name, or number from 1 on; None where there is only one to choose.
        step_seconds: Length of an interval; None: what lies between the rows' times.
        reduce: One of :data:`REDUCTIONS`.
        since, until: POSIX seconds; only rows from then on and before then are read.

    Raises TraceError when the file cannot be read so.
    """
    table = _table(path)
    # The first column that holds times, if any does.
    times = next((name for name in table.header if _is_time(table.columns[name][0])), None)
    if reduce == "count":
        name, values = "rows", np.ones(len(table))
    else:
        name = _column(table, column, times)
        values = np.array(table.numbers(name, may_be_blank=True, least=0.0))
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
        found = _Intervals(None, step_seconds, values)
    else:
        rows = _Rows(table.file, _moments(table, times), values, since, until)
        found = _gathered(rows, step_seconds, reduce)
    seasons = _seasons(found)
    values, notes = _filled(table.file, found, seasons)
    series = Series(values, found.step_seconds, seasons, found.start)
    return ReadSeries(series, name, (*found.notes, *notes))


def _table(path: Path) -> CsvTable:
    """Read all columns; those of a file without a header are called column 1, column 2, ..."""
    first = read_header(path)
    is_headless = all(_is_number(cell) or _is_time(cell) for cell in first)
    header = [f"column {at + 1}" for at in range(len(first))] if is_headless else ()
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


def _column(table: CsvTable, asked: str | None, times: str | None) -> str:
    """Return the name of the column that ``asked`` names, or of the only one to choose."""
    names = table.header
    if asked in names:
        return asked
    if asked is not None and asked.isdecimal() and 1 <= int(asked) <= len(names):
        return names[int(asked) - 1]
    rest = [name for name in names if name != times]
    if asked is None and len(rest) == 1:
        return rest[0]
    fault = "which column?" if asked is None else f"no column {shown(asked)};"
    raise TraceError(f"{table.file}: {fault} name one of {shown(', '.join(rest))}, or its number")


def _moments(table: CsvTable, name: str) -> FloatArray:
    times = np.array(table.times(name))
    missing = np.flatnonzero(np.isnan(times))
    if missing.size:
        raise TraceError(
            f"{table.file}, line {table.lines[missing[0]]}: {name} is blank; every row needs a "
            "time, so take those without out"
        )
    return times


def _gathered(rows: _Rows, step_seconds: int | None, reduce: str) -> _Intervals:
    """Gather rows by interval; intervals at the ends that are known in part are left out."""
    gap = rows.usual_gap()
    step = _step(rows, step_seconds, gap, reduce)
    # An interval that is little longer than the usual gap has one row, or sometimes none or two.
    gathers = reduce == "count" or step > 1.5 * gap
    # A row that stands for an interval of its own may come a little early or late.
    origin = rows.first // step * step if gathers else rows.first - step / 2
    count = int((rows.last - origin) // step) + 1
    if count > MOST:
        raise TraceError(
            f"{rows.file}: {count:,} intervals of {duration(step)} lie between its first time "
            f"and its last; is one of them wrong? At most {MOST:,} are read"
        )
    at = ((rows.times - origin) // step).astype(np.int64)
    reduced = _reduced(at, rows.values, count, reduce)
    if not gathers:
        return _Intervals(rows.first, step, reduced)
    early = int(min(rows.since, rows.first - gap) > origin)
    late = int(max(rows.until, rows.last + 2 * gap) < origin + count * step)
    if early + late >= count:
        raise TraceError(
            f"{rows.file}: its rows fill no interval of {duration(step)}; ask for shorter ones"
        )
    notes = (f"{plural(early + late, 'interval')} known in part left out",)
    kept = reduced[early : count - late]
    return _Intervals(origin + early * step, step, kept, notes if early + late else ())


def _step(rows: _Rows, asked: int | None, gap: float, reduce: str) -> int:
    if asked is None and reduce == "count":
        raise TraceError(f"{rows.file}: count rows for how long? Say how long an interval is")
    if asked is not None and reduce in ("mean", "max") and asked < 0.75 * gap:
        raise TraceError(
            f"{rows.file}: intervals of {duration(asked)} are shorter than the "
            f"{duration(gap)} between its rows; ask for longer ones"
        )
    return asked or max(1, round(gap))


def _reduced(at: IntArray, values: FloatArray, count: int, reduce: str) -> FloatArray:
    """Return a value per interval; without a row it is 0 for a sum or count, and else NaN."""
    known = ~np.isnan(values)
    at, values = at[known], values[known]
    if reduce == "max":
        most = np.full(count, np.nan)
        np.fmax.at(most, at, values)  # which takes a number before NaN
        return most
    sums = np.bincount(at, values, minlength=count).astype(np.float64)
    if reduce == "mean":
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / np.bincount(at, minlength=count))
    return sums


def _filled(file: str, found: _Intervals, seasons: tuple[int, ...]) -> tuple[FloatArray, list[str]]:
    """Fill gaps of up to a day with what was there one season before; refuse longer ones."""
    missing = list(gaps(found.values))
    if not missing:
        return found.values, []
    first, last = max(missing, key=lambda gap: gap[1] - gap[0])
    if last - first > min(ceil(DAY / found.step_seconds), len(found.values) - 1):
        at = f"row {first + 1}"
        if found.start is not None:
            at = _moment(found.start + first * found.step_seconds)
        raise TraceError(
            f"{file}: nothing is known of {plural(last - first, 'interval')} from {at} on; give "
            "the part of the file before or after"
        )
    before = " or one season before" if seasons else ""
    count = sum(last - first for first, last in missing)
    note = f"{plural(count, 'interval')} without a value filled from the neighbours{before}"
    return fill_gaps(found.values, max(seasons, default=0)), [note]


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def _seasons(found: _Intervals) -> tuple[int, ...]:
    steps = [
        each // found.step_seconds for each in _SEASONS_SECONDS if not each % found.step_seconds
    ]
    return tuple(n for n in steps if n > 1 and 3 * n <= len(found.values))
