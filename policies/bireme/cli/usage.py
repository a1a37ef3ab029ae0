"""``bireme usage``: device-hours by their use, and by queue, namespace or node pool.

The source is the operator's counters in a Prometheus, or its records: the devices that gangs held,
for how long, and the part that was lost. Neither need reach back as far as requested: the answer
states the beginning of its data, and how much of the time they cover.
"""

import argparse
import asyncio
import csv
import io
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bireme.cli.arguments import Json, UsageError, naming, pair, seconds
from bireme.core.errors import BiremeError
from bireme.core.times import HOUR, clock_time
from bireme.core.usage import Use
from bireme.prometheus import latest
from bireme.replay.reader import open_record
from bireme.replay.usage import usage_of
from bireme.tables import align_columns

_PROMETHEUS: Final = "BIREME_PROMETHEUS_URL"
_LOST: Final = "lost"
_COLUMNS: Final = (
    *(Use.RUNNING.value, _LOST),
    *(use.value for use in (Use.STARTING, Use.STOPPING, Use.RESERVED)),
)
_QUERY_SECONDS: Final = 120.0
# Number of points of the requested time at which a query looks for the first sample.
_POINTS: Final = 1000
_FINEST_SECONDS: Final = 60


class NothingKnownError(BiremeError):
    """The source has no data of the requested time; the text names the source."""


@dataclass(slots=True)
class UsageReport:
    """Device-seconds of a time, as far as the data reach.

    Attributes:
        begin, end: The requested time, POSIX seconds.
        known_from: Beginning of the data, POSIX seconds.
        known_seconds: Length of the time that has data.
        columns: Columns of every row: uses, and ``lost``, a part of running.
        rows: Values by group and resource, then by column.
    """

    begin: float
    end: float
    known_from: float
    known_seconds: float
    columns: tuple[str, ...] = _COLUMNS
    rows: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def add(self, key: tuple[str, str], column: str, device_seconds: float) -> None:
        row = self.rows.setdefault(key, dict.fromkeys(self.columns, 0.0))
        row[column] += device_seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "record",
        nargs="*",
        type=Path,
        metavar="RECORD",
        help="consecutive files record-*.jsonl, plain or gzipped, or their folder: use this "
        "record up to its end instead of Prometheus",
    )
    add(
        "--since",
        type=seconds,
        default="30d",
        metavar="TIME",
        help="length of the report, back from now; default: 30d",
    )
    groups = ("queue", "namespace", "pool")
    add("--by", choices=groups, default="queue", help="group by this; default: queue")
    add("-o", "--output", choices=("text", "csv", "json"), default="text", help="default: text")
    add(
        "--prometheus",
        metavar="URL",
        default=os.environ.get(_PROMETHEUS),
        help="address of the Prometheus that scrapes the operator; default: the variable "
        f"{_PROMETHEUS}",
    )
    add(
        "--label",
        type=_label,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only series with this label, such as cluster=a; repeatable",
    )


def run(options: argparse.Namespace) -> int:
    if options.record:
        report = _from_record(options)
    elif options.prometheus:
        end = time.time()  # noqa: TID251  # a person asks now
        report = asyncio.run(_from_prometheus(options, end))
    else:
        raise UsageError(
            f"argument --prometheus: none is given, nor is {_PROMETHEUS} set; name the server, "
            "such as http://localhost:9090, or a RECORD"
        )
    match options.output:
        case "json":
            sys.stdout.write(json.dumps(_json(report, options.by), indent=2) + "\n")
        case "csv":
            sys.stderr.write(f"{_coverage_text(report)}\n")
            sys.stdout.write(_csv(report, options.by))
        case _:
            sys.stdout.write(f"{_coverage_text(report)}\n\n{_table(report, options.by)}")
    return 0


def _label(text: str) -> tuple[str, str]:
    name, value = pair(text)
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise argparse.ArgumentTypeError(
            f"{name!r} is no name of a label; write for example cluster=a"
        )
    return name, value


# --- from Prometheus ----------------------------------------------------------------------------


async def _from_prometheus(options: argparse.Namespace, end: float) -> UsageReport:
    span, by = options.since, options.by
    labels = ",".join(f"{name}={json.dumps(value)}" for name, value in options.label)

    async def ask(query: str) -> list[tuple[Mapping[str, str], float]]:
        return [*await latest(options.prometheus, query, end, "--prometheus", _QUERY_SECONDS)]

    covered = f"bireme_usage_seconds_total{{{labels}}}"
    step = max(_FINEST_SECONDS, span // _POINTS)
    first = await ask(f"min(min_over_time(timestamp({covered} > 0)[{span}s:{step}s]))")
    increase = await ask(f"sum(increase({covered}[{span}s]))")
    if not (first and increase):
        raise NothingKnownError(
            f"{options.prometheus} has no bireme_usage_seconds_total of the time asked for; does "
            "it scrape the operator, and is --label right?"
        )
    # Prometheus extrapolates an increase to the ends of the range.
    covered_seconds = min(increase[0][1], span)
    report = UsageReport(end - span, end, max(end - span, first[0][1]), covered_seconds)
    groups = f"sum by (resource, {by}, use)"
    for series, value in await ask(
        f"{groups} (increase(bireme_device_seconds_total{{{labels}}}[{span}s]))"
    ):
        report.add((series.get(by, ""), series["resource"]), series["use"], value)
    for series, value in await ask(
        f"sum by (resource, {by}) (increase(bireme_device_seconds_lost_total{{{labels}}}[{span}s]))"
    ):
        report.add((series.get(by, ""), series["resource"]), _LOST, value)
    return report


# --- from a record ------------------------------------------------------------------------------


def _from_record(options: argparse.Namespace) -> UsageReport:
    if options.label:
        raise UsageError("argument --label: a record has none; leave it out, or name no RECORD")
    with naming("RECORD"):
        usage = usage_of(open_record(options.record, classes=None), options.since)
    columns = tuple(column for column in _COLUMNS if column != Use.RESERVED)
    report = UsageReport(usage.begin, usage.end, usage.known_from, usage.known_seconds, columns)
    for holder, amount in usage.device_seconds.items():
        report.add((getattr(holder, options.by), holder.resource), holder.use.value, amount)
    for holder, amount in usage.lost.items():
        report.add((getattr(holder, options.by), holder.resource), _LOST, amount)
    return report


# --- the answer ---------------------------------------------------------------------------------


def _coverage_text(report: UsageReport) -> str:
    span = report.end - report.begin
    text = f"Device-hours from {clock_time(report.begin)} to {clock_time(report.end)}"
    share = report.known_seconds / span
    since = f"from {clock_time(report.known_from)} on"
    return (
        f"{text}; {report.known_seconds / HOUR:.1f} h of these {span / HOUR:.1f} h are known "
        f"({100 * share:.0f} %), {since}."
    )


def _lines(report: UsageReport) -> Iterator[tuple[str, str, float, dict[str, float]]]:
    """Yield group, resource, total device-hours and those by column; the largest total first."""
    for (group, resource), row in sorted(
        report.rows.items(), key=lambda item: (item[0][1], -_total(item[1]), item[0][0])
    ):
        hours = {column: amount / HOUR for column, amount in row.items()}
        if _total(row) > 0:
            yield group, resource, _total(row) / HOUR, hours


def _total(row: Mapping[str, float]) -> float:
    return sum(amount for column, amount in row.items() if column != _LOST)


def _table(report: UsageReport, by: str) -> str:
    rows = [[by.upper(), "RESOURCE", "HELD", *(column.upper() for column in report.columns)]]
    totals: dict[str, dict[str, float]] = {}
    for group, resource, total_hours, hours in _lines(report):
        rows.append([group or "-", resource, *_cells(total_hours, hours)])
        total = totals.setdefault(resource, dict.fromkeys(report.columns, 0.0))
        for column, amount in hours.items():
            total[column] += amount
    if not totals:
        return "No gang held devices.\n"
    for resource, total in sorted(totals.items()):
        rows.append(["all", resource, *_cells(_total(total), total)])
    parts = [column for column in report.columns if column != _LOST]
    sums = f"{', '.join(parts[:-1])} and {parts[-1]}"
    notes = f"HELD is {sums} together; LOST is the part of RUNNING that stops made useless."
    return "\n".join(align_columns(rows, flush_left=2)) + f"\n\n{notes}\n"


def _cells(total_hours: float, hours: Mapping[str, float]) -> list[str]:
    shares = (f"{amount:.1f} ({100 * amount / total_hours:.0f} %)" for amount in hours.values())
    return [f"{total_hours:.1f}", *shares]


def _csv(report: UsageReport, by: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [by, "resource", "held_hours", *(f"{column}_hours" for column in report.columns)]
    )
    for group, resource, total_hours, hours in _lines(report):
        numbers = (f"{amount:.4f}" for amount in (total_hours, *hours.values()))
        writer.writerow([group, resource, *numbers])
    return text.getvalue()


def _json(report: UsageReport, by: str) -> Json:
    return {
        "from": clock_time(report.begin),
        "until": clock_time(report.end),
        "knownFrom": clock_time(report.known_from),
        "knownHours": round(report.known_seconds / HOUR, 4),
        "by": by,
        "items": [
            {
                by: group,
                "resource": resource,
                "hours": {
                    "held": round(total_hours, 4),
                    **{column: round(amount, 4) for column, amount in hours.items()},
                },
            }
            for group, resource, total_hours, hours in _lines(report)
        ],
    }
