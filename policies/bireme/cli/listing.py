"""``bireme list``: all TrainingJobs and PodGroups of a namespace, a line each, ended ones too."""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from bireme.cli import cluster as common
from bireme.cli.arguments import Json
from bireme.cli.cluster import Reader, ask
from bireme.cli.gangs import GangLine, line_of
from bireme.core.times import duration
from bireme.kube import names, quantities
from bireme.tables import aligned

_NONE_LAST: Final = math.inf
_KEYS: Final[dict[str, Callable[[GangLine], Any]]] = {
    "name": lambda gang: gang.key,
    "age": lambda gang: -(gang.created or -_NONE_LAST),
    "gpus": lambda gang: -(gang.gpus or 0),
    "phase": lambda gang: gang.phase,
    "position": lambda gang: gang.position or _NONE_LAST,
    "queue": lambda gang: gang.queue,
}
"""What lines can be ordered by: the youngest, the largest and the next to start come first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-l", "--selector", metavar="LABELS", help="only those with these labels, such as team=nlp")
    add("--sort-by", choices=tuple(_KEYS), default="name", help="default: name")
    formats = ("text", "wide", "name", "json", "yaml")
    add("-o", "--output", choices=formats, default="text", help="default: text")
    common.add_target(parser, all_namespaces=True)


def run(options: argparse.Namespace) -> int:
    gangs = ask(options, lambda reader: _gangs(reader, options))
    gangs.sort(key=lambda gang: (_KEYS[options.sort_by](gang), gang.key, gang.kind))
    now = time.time()  # noqa: TID251  # a person asks now
    data = common.versioned("GangList", {"items": [_json(gang) for gang in gangs]})
    if options.output == "name":
        text = "".join(f"{_resource(gang)}/{gang.name}\n" for gang in gangs)
    else:
        text = _table(gangs, now, options)
    common.write(options.output, data, text)
    return 0


async def _gangs(reader: Reader, options: argparse.Namespace) -> list[GangLine]:
    namespace = None if options.all_namespaces else reader.namespace
    selectors = {"labelSelector": options.selector} if options.selector else {}
    found: list[GangLine] = []
    for kind in names.GANG_KINDS:
        listed = await reader.objects(names.path(names.PLURALS[kind], namespace), **selectors)
        found += [line_of({**manifest, "kind": kind}) for manifest in listed]
    return found


def _resource(gang: GangLine) -> str:
    return f"{gang.kind.lower()}.{names.GROUP}"


def _json(gang: GangLine) -> Json:
    return {
        "kind": gang.kind,
        "namespace": gang.namespace,
        "name": gang.name,
        "phase": gang.phase,
        "reason": gang.reason or None,
        "message": gang.message or None,
        "queue": gang.queue,
        "position": gang.position,
        "ready": gang.ready or None,
        "gpus": gang.gpus,
        "created": None if gang.created is None else quantities.format_timestamp(gang.created),
    }


def _table(gangs: Sequence[GangLine], now: float, options: argparse.Namespace) -> str:
    if not gangs:
        return "No job is there.\n"
    head = ["NAMESPACE"] if options.all_namespaces else []
    tail = ["MESSAGE"] if options.output == "wide" else []
    rows = [[*head, "NAME", "PHASE", "REASON", "QUEUE", "#", "READY", "GPUS", "AGE", *tail]]
    for gang in gangs:
        # As bireme why takes it.
        name = gang.name if gang.kind == "TrainingJob" else f"{gang.kind.lower()}/{gang.name}"
        cells = [
            name,
            gang.phase,
            gang.reason or "-",
            gang.queue,
            str(gang.position or "-"),
            gang.ready or "-",
            str(gang.gpus) if gang.gpus is not None else "-",
            duration(max(0.0, now - gang.created)) if gang.created is not None else "-",
        ]
        if options.all_namespaces:
            cells.insert(0, gang.namespace)
        rows.append([*cells, *([gang.message] if tail else [])])
    return "\n".join(aligned(rows, left=len(rows[0]))) + "\n"
