"""``bireme list``: all TrainingJobs and PodGroups of a namespace, a line each, ended ones too.

With ``-w`` it continues with a line for every visible change.
"""

import argparse
import asyncio
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bireme.cli import cluster as common
from bireme.cli import colours
from bireme.cli.arguments import UsageError
from bireme.cli.cluster import ClusterReader, ConsoleError, ask
from bireme.cli.gangs import GangLine, line_of
from bireme.core.times import duration
from bireme.kube import names
from bireme.tables import align_columns, widths
from bireme.tasks import Tasks

_NONE_LAST: Final = math.inf
_KEYS: Final[dict[str, Callable[[GangLine], Any]]] = {
    "name": lambda gang: gang.key,
    "age": lambda gang: -(gang.created or -_NONE_LAST),
    "gpus": lambda gang: -(gang.gpus or 0),
    "phase": lambda gang: gang.phase,
    "position": lambda gang: gang.position or _NONE_LAST,
    "queue": lambda gang: gang.queue,
}
"""Keys of the order: the youngest, the largest and the next to start come first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-l", "--selector", metavar="LABELS", help="only jobs with these labels, such as team=nlp")
    add("--sort-by", choices=tuple(_KEYS), default="name", help="default: name")
    add("-w", "--watch", action="store_true", help="print every change, until Ctrl-C")
    formats = ("text", "wide", "name", "json", "yaml")
    add("-o", "--output", choices=formats, default="text", help="default: text")
    colours.add_argument(parser)
    common.add_target(parser, all_namespaces=True)


def run(options: argparse.Namespace) -> int:
    if options.watch:
        if options.output in ("json", "yaml"):
            raise UsageError(
                "argument -w: works with -o text, wide or name; for other formats "
                "use kubectl get -w"
            )
        ask(options, lambda reader: _watch(reader, options))
        return 0
    listings = ask(options, lambda reader: _list_gangs(reader, options))
    gangs = _sort([gang for _, gangs, _ in listings for gang in gangs], options)
    now = time.time()  # noqa: TID251  # a person asks now
    data = common.with_version("GangList", {"items": [gang.to_json() for gang in gangs]})
    if options.output == "name":
        text = "".join(f"{_name(gang)}\n" for gang in gangs)
    elif gangs:
        rows = [_header(options), *(_cells(gang, now, options) for gang in gangs)]
        paint = colours.painter(options)
        text = "\n".join(align_columns(rows, flush_left=len(rows[0]), paint=paint)) + "\n"
    else:
        text = "There are no jobs.\n"
    common.write(options.output, data, text)
    return 0


def _sort(gangs: Sequence[GangLine], options: argparse.Namespace) -> list[GangLine]:
    return sorted(gangs, key=lambda gang: (_KEYS[options.sort_by](gang), gang.key, gang.kind))


def _selectors(options: argparse.Namespace) -> Mapping[str, str]:
    return {"labelSelector": options.selector} if options.selector else {}


async def _list_gangs(
    reader: ClusterReader, options: argparse.Namespace
) -> list[tuple[str, list[GangLine], str]]:
    """Return kind, gangs and version of every kind of gang."""
    namespace = None if options.all_namespaces else reader.namespace
    listings = []
    for kind in names.GANG_KINDS:
        path = names.path(names.PLURALS[kind], namespace)
        manifests, version = await reader.list_with_version(path, **_selectors(options))
        listings.append(
            (kind, [line_of({**manifest, "kind": kind}) for manifest in manifests], version)
        )
    return listings


async def _watch(reader: ClusterReader, options: argparse.Namespace) -> None:
    """Write all gangs, and then each gang whose line changes or that is deleted."""
    namespace = None if options.all_namespaces else reader.namespace
    news: asyncio.Queue[tuple[str, GangLine] | ConsoleError] = asyncio.Queue()

    async def feed(kind: str, version: str) -> None:
        path = names.path(names.PLURALS[kind], namespace)
        try:
            async for change, manifest in reader.changes(path, version, **_selectors(options)):
                news.put_nowait((change, line_of({**manifest, "kind": kind})))
        except ConsoleError as error:
            news.put_nowait(error)

    listings = await _list_gangs(reader, options)
    view = _WatchView(options)
    view.begin(_sort([gang for _, gangs, _ in listings for gang in gangs], options))
    feeds = Tasks()
    try:
        for kind, _, version in listings:
            feeds.start(feed(kind, version))
        while True:
            item = await news.get()
            if isinstance(item, ConsoleError):
                raise item
            view.change(*item)
    finally:
        await feeds.close()


class _WatchView:
    """The lines of a watch, in the columns of its first lines."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._paint = colours.painter(options)
        self._widths: list[int] = []
        self._last: dict[tuple[str, str], GangLine] = {}

    def begin(self, gangs: Sequence[GangLine]) -> None:
        now = time.time()  # noqa: TID251  # a person looks now
        rows = [_header(self._options), *(_cells(gang, now, self._options) for gang in gangs)]
        self._widths = [
            max(pair) for pair in zip(widths(rows), _usual_widths(self._options), strict=True)
        ]
        if self._options.output != "name":
            self._write(rows[:1])
        for gang in gangs:
            self.change("ADDED", gang)

    def change(self, change: str, gang: GangLine) -> None:
        """Write the gang, unless its line is unchanged."""
        key = (gang.kind, gang.key)
        if change == "DELETED":
            self._last.pop(key, None)
            gang = replace(gang, phase="Deleted", reason="", position=None)
        else:
            # A change of its age alone is not shown.
            previous, self._last[key] = self._last.get(key), gang
            cells = _cells(gang, 0.0, self._options)
            if previous is not None and _cells(previous, 0.0, self._options) == cells:
                return
        now = time.time()  # noqa: TID251  # a person looks now
        if self._options.output == "name":
            sys.stdout.write(f"{_name(gang)}\n")
            sys.stdout.flush()
        else:
            self._write([_cells(gang, now, self._options)])

    def _write(self, rows: Sequence[Sequence[str]]) -> None:
        lines = align_columns(
            rows, flush_left=len(rows[0]), min_widths=self._widths, paint=self._paint
        )
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _usual_widths(options: argparse.Namespace) -> list[int]:
    """Return the usual widths of the columns, for values to come."""
    usual = {"NAME": 20, "PHASE": len("Restarting"), "REASON": len("WaitingForPreemption")}
    return [usual.get(column, 5) for column in _header(options)]


def _name(gang: GangLine) -> str:
    return f"{gang.kind.lower()}.{names.GROUP}/{gang.name}"


def _header(options: argparse.Namespace) -> list[str]:
    head = ["NAMESPACE"] if options.all_namespaces else []
    tail = ["MESSAGE"] if options.output == "wide" else []
    return [*head, "NAME", "PHASE", "REASON", "QUEUE", "#", "READY", "GPUS", "AGE", *tail]


def _cells(gang: GangLine, now: float, options: argparse.Namespace) -> list[str]:
    # The name in the form that bireme why accepts.
    name = gang.name if gang.kind == "TrainingJob" else f"{gang.kind.lower()}/{gang.name}"
    return [
        *([gang.namespace] if options.all_namespaces else []),
        name,
        gang.phase,
        gang.reason or "-",
        gang.queue,
        str(gang.position or "-"),
        gang.ready or "-",
        str(gang.gpus) if gang.gpus is not None else "-",
        duration(max(0.0, now - gang.created)) if gang.created is not None else "-",
        *([gang.message] if options.output == "wide" else []),
    ]
