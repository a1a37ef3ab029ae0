"""``bireme queue --watch``: the present state of the cluster, again and again until Ctrl-C.

One screen: the GPUs in use, the queues, the running and the next gangs. If the output is no
terminal, it is written once.
"""

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from bireme.cli import colours
from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ask
from bireme.cli.gangs import GangLine, in_order, line_of
from bireme.cli.gpus import gpus_in
from bireme.cli.queues import all_gangs, table
from bireme.core.times import duration
from bireme.kube import names, quantities
from bireme.tables import align_columns

_PAUSE_SECONDS: Final = 2.0
"""Pause between two pictures: a cycle of the operator takes about a second."""
_HOLDS_PLACES: Final = frozenset({"Starting", "Running"})
_BEGIN: Final = "\x1b[?1049h\x1b[?25l"
"""Switches to the alternate screen, which keeps the terminal's content, and hides the cursor."""
_END: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def run(options: argparse.Namespace) -> int:
    async def once(reader: ClusterReader) -> int:
        sys.stdout.write(await screen(reader, options))
        return 0

    async def live(reader: ClusterReader) -> int:
        text = await screen(reader, options)  # an error is written to the normal screen
        sys.stdout.write(_BEGIN)
        try:
            while True:
                sys.stdout.write(_frame(text, *shutil.get_terminal_size()))
                sys.stdout.flush()
                await asyncio.sleep(_PAUSE_SECONDS)
                text = await screen(reader, options)
        finally:
            sys.stdout.write(_END)
            sys.stdout.flush()

    return ask(options, live if sys.stdout.isatty() else once)


def _frame(text: str, columns: int, lines: int) -> str:
    """Return the codes that draw ``text`` over the last frame, without blank lines in between."""
    # One line less than the terminal has: a last line break would scroll.
    visible = [colours.cut(line, columns) for line in text.splitlines()[: lines - 1]]
    return _HOME + "".join(f"{line}{_REST_OF_LINE}\n" for line in visible) + _REST_OF_SCREEN


async def screen(reader: ClusterReader, options: argparse.Namespace) -> str:
    """Return one picture of the cluster, or of one queue, as far as the caller may see it."""
    manifests, remark = await all_gangs(reader, options)
    queues = await reader.objects_if_allowed(names.path("queues"))
    nodes = await reader.objects_if_allowed("/api/v1/nodes")
    now = time.time()  # noqa: TID251  # a person asks now
    lines = [line_of(manifest) for manifest in manifests]
    lines = [line for line in lines if options.queue in (None, line.queue)]
    running = [line for line in lines if line.phase in _HOLDS_PLACES]
    line = in_order(lines)
    paint = colours.painter(options)
    parts = [_summary(running, line, nodes, now)]
    if remark:
        parts.append(f"({remark})\n")
    if queues and options.queue is not None:
        queues = [queue for queue in queues if queue["metadata"]["name"] == options.queue]
    if queues:
        queues.sort(key=lambda queue: str(queue["metadata"]["name"]))
        header = ["QUEUE", "ADMITTED", "PENDING", "GPUS", "LIMIT", "STATE"]
        parts.append("\n".join(align_columns([header, *map(_queue, queues)])) + "\n")
    if running:
        parts.append(
            "\n".join(align_columns(list(_running(running, now)), flush_left=3, paint=paint)) + "\n"
        )
    parts.append(table(line, now, paint))
    return "\n".join(parts)


def _summary(
    running: Sequence[GangLine], line: Sequence[GangLine], nodes: list[Json] | None, now: float
) -> str:
    used_gpus = sum(gang.gpus or 0 for gang in running)
    requested_gpus = sum(gang.gpus or 0 for gang in line)
    text = f"{quantities.format_timestamp(now)}  {used_gpus} GPUs in use"
    if nodes is not None:
        ready = [node for node in nodes if _is_ready(node)]
        total_gpus = sum(gpus_in((node.get("status") or {})["allocatable"]) or 0 for node in ready)
        text += f" of {total_gpus} on {len(ready)} of {len(nodes)} nodes"
    return f"{text}; {len(running)} jobs run, {len(line)} wait for {requested_gpus} GPUs\n"


def _is_ready(node: Json) -> bool:
    status = node.get("status") or {}
    ready: Json = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    return ready.get("status") == "True" and bool(status.get("allocatable"))


def _queue(queue: Json) -> list[str]:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    return [
        queue["metadata"]["name"],
        str(status.get("admitted", 0)),
        str(status.get("pending", 0)),
        str(gpus_in(status.get("usage") or {}) or 0),
        str("-" if (limit := gpus_in(spec.get("limit") or {})) is None else limit),
        spec.get("state", "Open"),
    ]


def _running(running: Sequence[GangLine], now: float) -> Iterator[list[str]]:
    yield ["NAMESPACE", "NAME", "PHASE", "GPUS", "READY", "DONE", "FOR"]
    for gang in sorted(running, key=lambda gang: (gang.since or now, gang.key)):
        done = f"{gang.progress:.0f} %" if gang.progress is not None else "-"
        lasts = duration(max(0.0, now - gang.since)) if gang.since is not None else "-"
        gpus = str(gang.gpus if gang.gpus is not None else "-")
        yield [gang.namespace, gang.name, gang.phase, gpus, gang.ready or "-", done, lasts]
