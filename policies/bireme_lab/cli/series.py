"""Arguments of ``bireme forecast compare`` and ``bireme train`` that choose the series to read.

Lengths of time are numbers of intervals (``24``) or durations (``5m``, ``1h``, ``14d``, ``1w``).
"""

import argparse
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from bireme.cli.arguments import UNITS, UsageError, naming, seconds
from bireme_lab.simulator.reports.terminal import duration
from bireme_lab.simulator.traces.series import REDUCTIONS, ReadSeries, read_series


@dataclass(frozen=True, slots=True)
class SeriesSpan:
    """A length of time: a number of intervals, or of seconds."""

    number: int
    is_seconds: bool

    def steps(self, step_seconds: int, argument: str) -> int:
        """Return the length in intervals of ``step_seconds``, or raise UsageError if not whole."""
        if not self.is_seconds:
            return self.number
        if self.number % step_seconds:
            raise UsageError(
                f"argument {argument}: {duration(self.number)} is no whole number of intervals of "
                f"{duration(step_seconds)}"
            )
        return self.number // step_seconds


def span(text: str) -> SeriesSpan:
    """Return a number of intervals, or a duration."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhdw]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no length of time; write a number of intervals, such as 24, or 5m, 1h, "
            "14d, 1w"
        )
    number, unit = match.groups()
    return SeriesSpan(int(number) * UNITS.get(unit, 1), bool(unit))


def moment(text: str) -> float:
    """Return a time as POSIX seconds; UTC unless it names another offset."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write 2026-11-20 or 2026-11-20T08:00"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def add_series_arguments(parser: argparse._ActionsContainer, *, required: bool) -> None:
    """Add the arguments that choose the series and how it is read."""
    add = parser.add_argument
    add("--series", type=Path, required=required, metavar="FILE", help="CSV or plain numbers")
    add("--column", metavar="C", help="name of the column, or its number from 1 on")
    add(
        "--step",
        type=seconds,
        metavar="TIME",
        help="length of an interval: 5m, 1h, 1d; rows with times are gathered into intervals",
    )
    add(
        "--reduce",
        choices=REDUCTIONS,
        default="mean",
        help="way of gathering rows; default: %(default)s",
    )
    add(
        "--period",
        metavar="TIMES",
        help="length of a season, in intervals or as 1d, several with commas between; default: "
        "day and week, if the file has three of each",
    )
    add("--since", type=moment, default=-inf, metavar="TIME", help="only rows from this time on")
    add("--until", type=moment, default=inf, metavar="TIME", help="only rows before this time")


def read_requested(options: argparse.Namespace) -> ReadSeries:
    """Return the series that ``options`` ask for."""
    with naming("--series"):
        read = read_series(
            options.series,
            options.column,
            step_seconds=options.step,
            reduce=options.reduce,
            since=options.since,
            until=options.until,
        )
    if options.period is None:
        return read
    with naming("--period"):
        periods = _periods(options.period, read.series.step_seconds)
        return replace(read, series=replace(read.series, periods=periods))


def _periods(text: str, step_seconds: int) -> tuple[int, ...]:
    try:
        spans = [span(part.strip()) for part in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"argument --period: {error}") from error
    return tuple(sorted({season.steps(step_seconds, "--period") for season in spans}))
