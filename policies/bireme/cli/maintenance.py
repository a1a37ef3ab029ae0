"""``bireme maintenance announce``, ``list`` and ``cancel``: the announced maintenance of nodes.

It is an annotation of each Node, written with the caller's own right to patch nodes. Its effect is
described in :mod:`bireme.core.maintenance`.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bireme.cli import cluster as common
from bireme.cli.arguments import Json, UsageError
from bireme.cli.cluster import ClusterReader, ConsoleError, ask, refusal
from bireme.core.times import clock_time
from bireme.kube import names, nodes, quantities, wire
from bireme.kube.client import ApiError
from bireme.tables import align_columns

_PATH = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class NodeMaintenance:
    """The maintenance of one node, POSIX seconds."""

    node: str
    begins: float
    ends: float

    def state(self, now: float) -> str:
        if now >= self.ends:
            return "over"
        return "under way" if now >= self.begins else "ahead"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.rpartition(" ")[2]
    is_list = verb == "list"
    parser.add_argument(
        "node",
        nargs="*" if is_list else "+",
        metavar="NODE",
        help="only these nodes; default: all" if is_list else "the nodes",
    )
    if verb == "announce":
        when = "such as 2026-12-01T20:00:00Z, or 2h30m from now"
        parser.add_argument("--from", dest="begins", metavar="TIME", help=f"{when}; default: now")
        parser.add_argument(
            "--until",
            required=True,
            metavar="TIME",
            help="time at which the nodes are back, in the same form",
        )
    common.add_target(parser, namespaced=False)
    if is_list:
        common.add_output(parser)


def run(options: argparse.Namespace) -> int:
    now = time.time()  # noqa: TID251  # a person asks now
    if options.asked == "list":
        return _show(options, now)
    if options.asked == "cancel":
        value, text = None, "no maintenance"
    else:
        begins, ends = _window(options.begins, options.until, now)
        value = f"{clock_time(begins)}/{clock_time(ends)}"
        text = f"maintenance from {clock_time(begins)} until {clock_time(ends)}"
    ask(options, lambda reader: _annotate(reader, options.node, value))
    for node in options.node:
        sys.stdout.write(f"node {node}: {text}\n")
    if value is not None:
        which = " ".join(options.node)
        sys.stderr.write(
            f"bireme: to see which gangs would move: bireme maintenance plan {which}\n"
        )
    return 0


def _show(options: argparse.Namespace, now: float) -> int:
    entries = ask(options, lambda reader: _list_maintenance(reader, options.node))
    items = [
        {
            "node": entry.node,
            "from": clock_time(entry.begins),
            "until": clock_time(entry.ends),
            "state": entry.state(now),
        }
        for entry in entries
    ]
    data = common.with_version("MaintenanceList", {"items": items})
    common.write(options.output, data, _table(entries, now))
    return 0


def _window(begins: str | None, ends: str, now: float) -> tuple[float, float]:
    """Return the times of the arguments as POSIX seconds."""
    first = now if begins is None else _moment("--from", begins, now)
    last = _moment("--until", ends, now)
    if last <= max(first, now):
        than = "the beginning" if first > now else "now"
        raise UsageError(f"argument --until: {clock_time(last)} is not after {than}")
    return first, last


def _moment(argument: str, text: str, now: float) -> float:
    timestamp = quantities.parse_timestamp(text)
    if timestamp is not None:
        return timestamp
    try:
        return now + quantities.parse_duration(text)
    except ValueError:
        raise UsageError(
            f"argument {argument}: {text!r} is no time; write 2026-12-01T20:00:00Z, or 2h30m for "
            "that long from now"
        ) from None


async def _annotate(reader: ClusterReader, node_names: Sequence[str], value: str | None) -> None:
    """Set the annotation of all nodes, or of none if one does not exist."""
    existing = {node["metadata"]["name"] for node in await reader.objects(_PATH)}
    for name in node_names:
        if name not in existing:
            raise ConsoleError(f"argument NODE: there is no node {name!r}; see: kubectl get nodes")
    for name in node_names:
        change = {"metadata": {"annotations": {names.MAINTENANCE: value}}}
        try:
            await reader.client.merge_patch(f"{_PATH}/{name}", change)
        except ApiError as error:
            raise refusal(error, f"patch node {name}") from error


async def _list_maintenance(
    reader: ClusterReader, node_names: Sequence[str]
) -> list[NodeMaintenance]:
    entries = []
    for manifest in await reader.objects(_PATH):
        about = _metadata(manifest)
        window = nodes.window_of(about.annotations)
        if window is not None and (not node_names or about.name in node_names):
            entries.append(NodeMaintenance(about.name, window.begins, window.ends))
    return sorted(entries, key=lambda entry: (entry.begins, entry.node))


def _metadata(manifest: Json) -> wire.NodeMeta:
    return msgspec.convert(manifest["metadata"], wire.NodeMeta)


def _table(entries: Sequence[NodeMaintenance], now: float) -> str:
    if not entries:
        return "No maintenance is announced.\n"
    rows = [["NODE", "FROM", "UNTIL", "STATE"]]
    rows += [[f.node, clock_time(f.begins), clock_time(f.ends), f.state(now)] for f in entries]
    return "\n".join(align_columns(rows, flush_left=len(rows[0]))) + "\n"
