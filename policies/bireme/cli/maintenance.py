"""``bireme maintenance``: announce the maintenance of nodes, list what is announced, call it off.

It stands in an annotation of each Node, written with the caller's own right to patch nodes. What
the operator makes of it is in :mod:`bireme.core.maintenance`.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bireme.cli import cluster as common
from bireme.cli.arguments import Json, UsageError
from bireme.cli.cluster import ConsoleError, Reader, ask, refused
from bireme.core.times import clock_time
from bireme.kube import names, nodes, quantities, wire
from bireme.kube.client import ApiError
from bireme.tables import aligned

_PATH = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Announced:
    """The maintenance of one node, POSIX seconds."""

    node: str
    begins: float
    ends: float

    def state(self, now: float) -> str:
        if now >= self.ends:
            return "over"
        return "under way" if now >= self.begins else "ahead"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    when = "as 2026-12-01T20:00:00Z, or from now on as 2h30m"
    parser.add_argument("node", nargs="*", metavar="NODE", help="nodes; for --list default: all")
    parser.add_argument("--from", dest="begins", metavar="TIME", help=f"{when}; default: now")
    parser.add_argument("--until", metavar="TIME", help="when the nodes are back, likewise")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--list", action="store_true", help="show what is announced")
    chosen.add_argument("--cancel", action="store_true", help="call it off")
    common.add_target(parser, namespaced=False)
    common.add_output(parser)


def run(options: argparse.Namespace) -> int:
    now = time.time()  # noqa: TID251  # a person asks now
    if options.list:
        found = ask(options, lambda reader: _announced(reader, options.node))
        items = [
            {
                "node": each.node,
                "from": clock_time(each.begins),
                "until": clock_time(each.ends),
                "state": each.state(now),
            }
            for each in found
        ]
        data = common.versioned("MaintenanceList", {"items": items})
        common.write(options.output, data, _table(found, now))
        return 0
    if not options.node:
        raise UsageError("argument NODE: name the nodes, or --list what is announced")
    if options.cancel:
        value, words = None, "no maintenance"
    else:
        begins, ends = _window(options.begins, options.until, now)
        value = f"{clock_time(begins)}/{clock_time(ends)}"
        words = f"maintenance from {clock_time(begins)} until {clock_time(ends)}"
    ask(options, lambda reader: _annotate(reader, options.node, value))
    for node in options.node:
        sys.stdout.write(f"node {node}: {words}\n")
    if value is not None:
        which = " ".join(options.node)
        sys.stderr.write(f"bireme: what would move is shown by: bireme drain {which}\n")
    return 0


def _window(begins: str | None, ends: str | None, now: float) -> tuple[float, float]:
    """Return the times of the arguments, in whole seconds as they are written."""
    if ends is None:
        raise UsageError("argument --until: is missing; say when the nodes are back")
    first = now if begins is None else _moment("--from", begins, now)
    last = _moment("--until", ends, now)
    if last <= max(first, now):
        than = "the beginning" if first > now else "now"
        raise UsageError(f"argument --until: {clock_time(last)} is not after {than}")
    return first, last


def _moment(argument: str, text: str, now: float) -> float:
    at = quantities.parse_timestamp(text)
    if at is not None:
        return at
    try:
        return now + quantities.parse_duration(text)
    except ValueError:
        raise UsageError(
            f"argument {argument}: {text!r} is no time; write 2026-12-01T20:00:00Z, or 2h30m for "
            "so long from now"
        ) from None


async def _annotate(reader: Reader, given: Sequence[str], value: str | None) -> None:
    """Set the annotation of all nodes, or of none where one does not exist."""
    known = {each["metadata"]["name"] for each in await reader.objects(_PATH)}
    for name in given:
        if name not in known:
            raise ConsoleError(f"argument NODE: there is no node {name!r}; see: kubectl get nodes")
    for name in given:
        change = {"metadata": {"annotations": {names.MAINTENANCE: value}}}
        try:
            await reader.client.merge_patch(f"{_PATH}/{name}", change)
        except ApiError as error:
            raise refused(error, f"patch node {name}") from error


async def _announced(reader: Reader, given: Sequence[str]) -> list[Announced]:
    found = []
    for manifest in await reader.objects(_PATH):
        about = _metadata(manifest)
        window = nodes.window_of(about.annotations)
        if window is not None and (not given or about.name in given):
            found.append(Announced(about.name, window.begins, window.ends))
    return sorted(found, key=lambda each: (each.begins, each.node))


def _metadata(manifest: Json) -> wire.NodeMeta:
    return msgspec.convert(manifest["metadata"], wire.NodeMeta)


def _table(found: Sequence[Announced], now: float) -> str:
    if not found:
        return "No maintenance is announced.\n"
    rows = [["NODE", "FROM", "UNTIL", "STATE"]]
    rows += [[f.node, clock_time(f.begins), clock_time(f.ends), f.state(now)] for f in found]
    return "\n".join(aligned(rows, left=len(rows[0]))) + "\n"
