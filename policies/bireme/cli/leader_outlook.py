"""The outlook that the leader keeps (:mod:`bireme.cli.leader`), told in words."""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from bireme.cli import leader
from bireme.cli.arguments import Json
from bireme.cli.cluster import Reader
from bireme.core.play import Cut
from bireme.core.times import duration
from bireme.kube import quantities
from bireme.kube.conditions import cleaned
from bireme.tables import aligned

VERSION: Final = "outlook.bireme.dev/v1"
CUTS: Final = {
    Cut.ALL_STARTED: "all that can start are foreseen to",
    Cut.NOTHING_ENDS: "what still waits would wait on, though all that runs had ended",
    Cut.HORIZON: "nothing later than 30 days is foreseen",
    Cut.CYCLES: "what starts later was not played",
}


class EstimatedStart(msgspec.Struct, frozen=True, rename="camel"):
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
    estimated_start: EstimatedStart | None


class LeaderOutlook(msgspec.Struct, frozen=True, rename="camel"):
    """The outlook as the leader tells it; ``namespaces`` is None where it is of all."""

    api_version: str
    time: str
    age_seconds: float
    until: str
    cut: Cut
    policy: str
    namespaces: list[str] | None
    gangs: list[ForeseenGang]


async def fetch(
    reader: Reader, options: argparse.Namespace, namespaces: Sequence[str] = ()
) -> LeaderOutlook:
    """Return the leader's outlook, of ``namespaces`` or of all that the caller may read.

    Raises ConsoleError where there is none, or not for the caller.
    """
    request = leader.Request("outlook", "get the outlook", "name a RECORD", namespaces=namespaces)
    text = await leader.fetch(reader, options, request)
    return leader.decoded(text, LeaderOutlook, VERSION)


def _start_words(gang: ForeseenGang, now: float) -> str:
    """Return when it should start, in words; ``now`` is POSIX seconds."""
    found = gang.estimated_start
    if found is None:
        return "not foreseen"
    earliest = quantities.parse_timestamp(found.earliest)
    latest = quantities.parse_timestamp(found.latest)
    soonest = duration(max(0.0, (earliest or now) - now))
    if latest is None or found.coverage_percent is None:
        return f"in {soonest}, {found.earliest}"
    return (
        f"in {soonest} to {duration(max(0.0, latest - now))}, {found.earliest} to {found.latest}"
        f" ({found.coverage_percent} %)"
    )


def text_of(found: LeaderOutlook, limit: int | None) -> str:
    """Return the table of an outlook, its first ``limit`` gangs."""
    return "\n".join(_lines(found, limit, time.time())) + "\n"  # noqa: TID251  # a person asks now


def _lines(found: LeaderOutlook, limit: int | None, now: float) -> Iterator[str]:
    age = f"{duration(found.age_seconds)} ago"
    if not found.gangs:
        where = "" if found.namespaces is None else " in the namespaces that you may read"
        yield f"Nobody waits{where} at {found.time}, {age}."
        return
    starts = sum(each.start is not None for each in found.gangs)
    policy = cleaned(found.policy) or "the policy of the settings"
    yield (
        f"{len(found.gangs)} gangs wait at {found.time}, {age}; {starts} have a start by"
        f" {policy}: {CUTS[found.cut]}."
    )
    yield "Nobody arrives in this, and nothing fails; ranges are as wide as such estimates err."
    yield ""
    rows = [["POS", "GANG", "QUEUE", "GPUS", "WAITS FOR", "STARTS"]]
    rows += [
        [
            str(each.position or "-"),
            f"{each.namespace}/{each.name}",
            cleaned(each.queue),
            str(each.gpus),
            each.reason or "not reached",
            _start_words(each, now),
        ]
        for each in found.gangs[:limit]
    ]
    yield from aligned(rows, left=len(rows[0]))
    if left_out := len(found.gangs) - (len(rows) - 1):
        yield f"and {left_out} more; see --limit"


def numbers_of(found: LeaderOutlook) -> Json:
    """Return an outlook as the leader tells it."""
    numbers: Json = msgspec.to_builtins(found)
    return numbers
