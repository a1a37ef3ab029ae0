"""The outlook that the leader keeps: asked for through the API server, and told in words.

The API server's proxy takes the header Authorization for itself, so the caller's token goes in a
header of its own; the leader asks the API server whose it is. A certificate cannot be passed on
like that: who has one alone names a file with a token.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from bireme.cli.arguments import Json, UsageError, naming
from bireme.cli.cluster import ConsoleError, Reader, refused
from bireme.core.outlook import Cut
from bireme.core.times import duration
from bireme.kube import quantities
from bireme.kube.client import ApiError
from bireme.kube.conditions import cleaned
from bireme.tables import aligned

VERSION: Final = "outlook.bireme.dev/v1"
_SERVICE: Final = "bireme-system/bireme-outlook"
_TOKEN_HEADER: Final = "Bireme-Token"  # noqa: S105  # the name of a header
# A Service answers by any replica, and those that do not lead have no outlook.
_TRIES: Final = 8
_PAUSE_SECONDS: Final = 0.2
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


@dataclass(frozen=True, slots=True)
class _Place:
    namespace: str
    service: str

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{self.service}:outlook/proxy/outlook"


def add_leader(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how the outlook of the leader is reached."""
    parser.add_argument(
        "--outlook-service",
        type=_place,
        default=_place(_SERVICE),
        metavar="NAMESPACE/NAME",
        help=f"the Service of the chart by which the leader is asked; default: {_SERVICE}",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a token that says to the leader who asks; default: that of the kubeconfig",
    )


def _place(text: str) -> _Place:
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name and "/" not in name):
        raise argparse.ArgumentTypeError(f"{text!r} is no Service; write NAMESPACE/NAME")
    return _Place(namespace, name)


async def fetch(
    reader: Reader, options: argparse.Namespace, namespaces: Sequence[str] = ()
) -> LeaderOutlook:
    """Return the leader's outlook, of ``namespaces`` or of all that the caller may read.

    Raises ConsoleError where there is none, or not for the caller.
    """
    headers = {_TOKEN_HEADER: await _token(reader, options)}
    path, what = options.outlook_service.path, "get the outlook"
    if namespaces:
        path += "?" + "&".join(f"namespace={quote(name, safe='')}" for name in namespaces)
    for left in reversed(range(_TRIES)):
        try:
            text = await reader.client.request("GET", path, headers=headers)
            break
        except ApiError as error:
            if error.status == 503 and "does not lead" in error.message and left:
                await asyncio.sleep(_PAUSE_SECONDS)
            elif error.is_not_found:
                raise ConsoleError(
                    f"cannot {what}: there is no Service"
                    f" {options.outlook_service.namespace}/{options.outlook_service.service}; have"
                    " operator.settings.outlook set to true, name another by --outlook-service, or"
                    " name a RECORD"
                ) from error
            else:
                raise refused(error, what) from error
    return _read(text)


def _read(text: bytes) -> LeaderOutlook:
    try:
        found = msgspec.json.decode(text, type=LeaderOutlook)
    except msgspec.DecodeError as error:
        raise ConsoleError(f"the answer is no outlook: {error}; check --outlook-service") from error
    if found.api_version != VERSION:
        raise ConsoleError(
            f"the outlook is of version {found.api_version!r}, and this bireme reads {VERSION};"
            " use that of the operator"
        )
    return found


async def _token(reader: Reader, options: argparse.Namespace) -> str:
    if options.user:
        raise UsageError("argument --as: the leader is asked by your own token; leave it out")
    if options.token_file is not None:
        with naming("--token-file"):
            token = str(options.token_file.read_text()).strip()
        if not (token and token.isascii() and token.isprintable()):
            raise UsageError(f"argument --token-file: {options.token_file} holds no token")
        return token
    given = (await reader.client.credentials.current()).authorization() or ""
    kind, _, token = given.partition(" ")
    if kind != "Bearer":
        raise ConsoleError(
            "the credentials have no token to say to the leader who asks; name a file with one by"
            " --token-file, such as what kubectl create token writes"
        )
    return token


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
