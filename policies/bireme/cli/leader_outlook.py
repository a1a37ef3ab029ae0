"""The leader's outlook (:mod:`bireme.cli.leader`) as text."""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from bireme.cli import leader
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader
from bireme.core.play import Cut
from bireme.core.times import duration
from bireme.kube import quantities
from bireme.kube.conditions import cleaned
from bireme.tables import align_columns

VERSION: Final = "outlook.bireme.dev/v1"
CUTS: Final = {
    Cut.ALL_STARTED: "the forecast covers all gangs that can start",
    Cut.NOTHING_ENDS: "the remaining gangs cannot start even when all running gangs have ended",
    Cut.HORIZON: "the forecast ends after 30 days",
    Cut.CYCLES: "later starts are not forecast",
}


class LeaderEstimate(msgspec.Struct, frozen=True, rename="camel"):
    """The range of a start: times in RFC 3339, ``latest`` and coverage where they are known."""

    earliest: str
    latest: str | None = None
    coverage_percent: int | None = None


class ForeseenGang(msgspec.Struct, frozen=True, rename="camel"):
    """One gang of an outlook; ``start`` in RFC 3339."""

    kind: str
    namespace: str
    name: str
    queue: str
    gpus: int
    position: int | None
    reason: str | None
    start: str | None
    estimated_start: LeaderEstimate | None


class LeaderOutlook(msgspec.Struct, frozen=True, rename="camel"):
    """The leader's outlook; ``namespaces`` is None if it covers all."""

    api_version: str
    time: str
    age_seconds: float
    until: str
    cut: Cut
    policy: str
    namespaces: list[str] | None
    gangs: list[ForeseenGang]


async def fetch(
    reader: ClusterReader, options: argparse.Namespace, namespaces: Sequence[str] = ()
) -> LeaderOutlook:
    """Return the leader's outlook, of ``namespaces`` or of all that the caller may read.

    Raises ConsoleError if there is no outlook, or if it is refused.
    """
    request = leader.Request("outlook", "get the outlook", "name a RECORD", namespaces=namespaces)
    text = await leader.fetch(reader, options, request)
    return leader.decode(text, LeaderOutlook, VERSION)


def _start_text(gang: ForeseenGang, now: float) -> str:
    """Return the expected start as text; ``now`` is POSIX seconds."""
    estimate = gang.estimated_start
    if estimate is None:
        return "not foreseen"
    earliest = quantities.parse_timestamp(estimate.earliest)
    latest = quantities.parse_timestamp(estimate.latest)
    soonest = duration(max(0.0, (earliest or now) - now))
    if latest is None or estimate.coverage_percent is None:
        return f"in {soonest}, {estimate.earliest}"
    return (
        f"in {soonest} to {duration(max(0.0, latest - now))},"
        f" {estimate.earliest} to {estimate.latest} ({estimate.coverage_percent} %)"
    )


def text_of(outlook: LeaderOutlook, limit: int | None) -> str:
    """Return the table of an outlook, its first ``limit`` gangs."""
    return "\n".join(_lines(outlook, limit, time.time())) + "\n"  # noqa: TID251  # a person asks now


def _lines(outlook: LeaderOutlook, limit: int | None, now: float) -> Iterator[str]:
    age = f"{duration(outlook.age_seconds)} ago"
    if not outlook.gangs:
        where = "" if outlook.namespaces is None else " in the namespaces that you may read"
        yield f"No gang waits{where} at {outlook.time}, {age}."
        return
    starts = sum(gang.start is not None for gang in outlook.gangs)
    policy = cleaned(outlook.policy) or "the policy of the settings"
    yield (
        f"{len(outlook.gangs)} gangs wait at {outlook.time}, {age}; {starts} have a start by"
        f" {policy}: {CUTS[outlook.cut]}."
    )
    yield (
        "The forecast assumes that no gangs arrive and nothing fails. Ranges have the width of "
        "past errors."
    )
    yield ""
    rows = [["POS", "GANG", "QUEUE", "GPUS", "WAITS FOR", "STARTS"]]
    rows += [
        [
            str(gang.position or "-"),
            f"{gang.namespace}/{gang.name}",
            cleaned(gang.queue),
            str(gang.gpus),
            gang.reason or "not reached",
            _start_text(gang, now),
        ]
        for gang in outlook.gangs[:limit]
    ]
    yield from align_columns(rows, flush_left=len(rows[0]))
    if left_out := len(outlook.gangs) - (len(rows) - 1):
        yield f"and {left_out} more; see --limit"


def numbers_of(outlook: LeaderOutlook) -> Json:
    """Return an outlook as data, in the leader's form."""
    numbers: Json = msgspec.to_builtins(outlook)
    return numbers
