"""``bireme queue``: all waiting gangs, in the order in which they are to be admitted.

The order spans all queues. So it is shown over all namespaces if the caller may read them, else
over the caller's own. The starts are those of the gangs' statuses, of the leader's outlook, or of a
record.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from bireme.cli import cluster as common
from bireme.cli import colours, leader
from bireme.cli.arguments import Json, UsageError, add_record
from bireme.cli.cluster import ClusterReader, ConsoleError, ask
from bireme.cli.gangs import GangLine, in_line
from bireme.cli.why import Explanation, gangs_if_allowed, starts_in
from bireme.core.times import duration
from bireme.tables import align_columns

_HEADER = ("#", "NAMESPACE", "NAME", "QUEUE", "GPUS", "PRIORITY", "WAITS", "START", "REASON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("queue", nargs="?", metavar="QUEUE", help="only gangs in this queue")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="show the use of the queues and the running jobs too, until Ctrl-C; once without a "
        "terminal",
    )
    how.add_argument(
        "--outlook",
        action="store_true",
        help="ask the leader for the start of every gang, in the namespaces that you may read",
    )
    add(
        "--policy",
        metavar="NAME",
        help="orderer, orderer/placer or orderer/placer/sizer in place of the policy of --record",
    )
    add_record(parser, is_option=True, container=how)
    leader.add_leader(parser)
    common.add_target(parser, all_namespaces=True)
    common.add_output(parser, wide=True)
    colours.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    if options.policy is not None and not options.record:
        raise UsageError(
            "argument --policy: the cluster uses its own policy; name a record by --record to use "
            "another"
        )
    if options.watch:
        if options.output != "text":
            raise UsageError("argument --output: has no effect with --watch; leave one of them out")
        from bireme.cli import queue_watch

        return queue_watch.run(options)
    about: Json | None = None
    if options.outlook or options.record:
        # Imported here: it loads the whole scheduler, which the list does not need.
        from bireme.cli import outlook

        foreseen = (
            outlook.of_record(options)
            if options.record
            else ask(options, lambda reader: outlook.of_leader(reader, options))
        )
        line, now, about, remark = foreseen.lines, foreseen.now, foreseen.about, foreseen.remark
    else:
        manifests, remark = ask(options, lambda reader: all_gangs(reader, options))
        now = time.time()  # noqa: TID251  # a person asks now
        line = in_line(manifests)
    queue_gangs = [gang for gang in line if options.queue in (None, gang.queue)]
    if remark:
        sys.stderr.write(f"bireme: {remark}\n")
    items = [Explanation(gang, line, None, now).to_json() for gang in queue_gangs]
    data = common.with_version("GangExplanationList", {"outlook": about, "items": items})
    text = table(queue_gangs, now, colours.painter(options), wide=options.output == "wide")
    common.write(options.output, data, text)
    return 0


async def all_gangs(reader: ClusterReader, options: argparse.Namespace) -> tuple[list[Json], str]:
    """Return the gangs of the requested namespace, or of all, and a remark if some are hidden."""
    everywhere = options.all_namespaces
    manifests = await gangs_if_allowed(reader, None if everywhere else options.namespace)
    if manifests is not None:
        return manifests, ""
    if everywhere:
        raise ConsoleError(
            "argument -A: you may not list trainingjobs and podgroups in all namespaces; leave "
            "it out to see your own, or ask for a role that permits it"
        )
    own_manifests = await gangs_if_allowed(reader, reader.namespace)
    if own_manifests is None:
        raise ConsoleError(
            f"you may not list trainingjobs and podgroups in namespace {reader.namespace}:"
            " ask for a role that may, or name another namespace (-n)"
        )
    return (
        own_manifests,
        f"you may read only namespace {reader.namespace}; positions count all gangs",
    )


def table(
    gangs: Sequence[GangLine], now: float, paint: colours.Paint = str, *, wide: bool = False
) -> str:
    """Return a line per gang; ``wide`` adds its message, ``paint`` colours reasons."""
    if not gangs:
        return "No job waits.\n"
    rows = [[*_HEADER, *(["MESSAGE"] if wide else [])]]
    rows += [[*_cells(gang, now), *([gang.message] if wide else [])] for gang in gangs]
    return "\n".join(align_columns(rows, flush_left=len(rows[0]), paint=paint)) + "\n"


def _cells(gang: GangLine, now: float) -> list[str]:
    return [
        str(gang.position or "-"),
        gang.namespace,
        gang.name,
        gang.queue,
        str(gang.gpus) if gang.gpus is not None else "-",
        f"{gang.score:.4g}" if gang.score is not None else "-",
        duration(gang.waiting_seconds(now)),
        starts_in(gang, now),
        gang.reason or "-",
    ]
