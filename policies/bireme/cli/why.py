"""``bireme why``: explain where a gang is, the dominant reason first.

Then follow its position, every factor of its priority, the gangs ahead of it, its estimated start
and the use of its queue. With ``--what-if``: its start under other conditions.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bireme.cli import cluster as common
from bireme.cli import colours, leader
from bireme.cli.arguments import Json, add_what_if, naming, pair
from bireme.cli.cluster import ClusterReader, ConsoleError, ask
from bireme.cli.gangs import ENDED_PHASES, GangLine, in_line, line_of
from bireme.core.reasons import Attention, Reason
from bireme.core.times import duration
from bireme.kube import names, quantities
from bireme.kube.conditions import cleaned


def remedy(reason: str) -> str:
    """Return the remedy for a reason; empty if none is needed, or none known for a newer reason."""
    try:
        row = Reason(reason)
    except ValueError:
        return ""
    return "" if row.attention is Attention.NOBODY else row.remedy


_MAX_AHEAD: Final = 5


@dataclass(frozen=True, slots=True)
class Explanation:
    """A gang, all waiting gangs in order, and the manifest of its Queue, ``now`` (POSIX seconds).

    ``line`` and ``queue`` are None if they may not be read.
    """

    gang: GangLine
    line: Sequence[GangLine] | None
    queue: Json | None
    now: float

    @property
    def ahead(self) -> Sequence[GangLine]:
        """The gangs in front of it, in order."""
        position = self.gang.position
        if self.line is None or position is None:
            return ()
        return [other for other in self.line if other.position and other.position < position]

    def to_json(self) -> Json:
        """Return everything as data; times as RFC 3339, lengths in seconds."""
        gang = self.gang
        data: Json = {
            "gang": gang.to_json(),
            "helps": remedy(gang.reason) or None,
            "priority": gang.score,
            "factors": [
                {"name": f.name, "value": f.value, "weight": f.weight, "adds": f.contribution}
                for f in gang.factors
            ],
            "lastStop": gang.last_stop or None,
            "resumable": gang.resumable,
            "resumableBecause": gang.resume_source or None,
            **dict(gang.counters),
        }
        if gang.waits:
            data |= {
                "waiting": None if self.line is None else len(self.line),
                "waitSeconds": round(gang.waiting_seconds(self.now)),
                "ahead": [other.key for other in self.ahead],
                "estimatedStart": {
                    "earliest": _timestamp(gang.earliest),
                    "latest": _timestamp(gang.latest),
                    "coveragePercent": gang.coverage_percent,
                },
            }
        return data

    def text(self, paint: Callable[[str], str] = str) -> str:
        """Return the text for a terminal, a fact per line; ``paint`` colours the reason."""
        lines = [f"{label:<10}{fact}" if label else fact for label, fact in self._facts()]
        return "\n".join(paint(line.rstrip()) for line in lines) + "\n"

    def _facts(self) -> Iterator[tuple[str, str]]:
        gang = self.gang
        asks = f", {gang.gpus} GPUs" if gang.gpus else ""
        yield "", f"{gang.kind} {gang.key}: {gang.phase}, queue {gang.queue}{asks}"
        yield "", ""
        if gang.reason:
            yield gang.reason, ""
        if gang.message:
            yield "", f"  {gang.message}"
        if helps := remedy(gang.reason):
            yield "", f"  What helps: {helps}."
        if not gang.reason:
            yield "", "  It has no status yet: does an operator run and lead?"
        yield "", ""
        yield from self._order() if gang.waits else self._life()
        if gang.last_stop and gang.last_stop != f"{gang.reason}: {gang.message}":
            yield "last run", gang.last_stop
        if self.queue is not None and gang.phase not in ENDED_PHASES:
            yield "queue", _holdings(self.queue)
        if gang.resumable is not None and gang.phase not in ENDED_PHASES:
            yield "resumes", _resumes(gang)
        if gang.counters:
            yield "so far", ", ".join(f"{count} {name}" for name, count in gang.counters)

    def _order(self) -> Iterator[tuple[str, str]]:
        gang = self.gang
        yield "waits", duration(gang.waiting_seconds(self.now))
        if gang.position is not None:
            of = f" of {len(self.line)}" if self.line is not None else ""
            yield "order", f"position {gang.position}{of}"
        yield from _priority(gang)
        for number, other in enumerate(self.ahead[:_MAX_AHEAD]):
            yield (
                "" if number else "ahead",
                ("" if not number else " " * 10) + _summary(other, self.now),
            )
        if (more := len(self.ahead) - _MAX_AHEAD) > 0:
            yield "", f"{'':10}and {more} more: bireme queue"
        yield "start", self._start()

    def _start(self) -> str:
        earliest, latest = self.gang.earliest, self.gang.latest
        if earliest is None:
            return "unknown: no places are kept for it yet, or the gangs there have no estimate"
        if latest is not None and self.gang.coverage_percent is not None:
            return (
                f"expected {starts_in(self.gang, self.now)} ({_timestamp(earliest)} to"
                f" {_timestamp(latest)}); such ranges hold {self.gang.coverage_percent} % of starts"
            )
        expected = f"expected {starts_in(self.gang, self.now)} ({_timestamp(earliest)}), or sooner"
        if latest is None or latest <= earliest:
            return expected
        return f"{expected}; by {_timestamp(latest)} in {duration(max(0.0, latest - self.now))}"

    def _life(self) -> Iterator[tuple[str, str]]:
        gang = self.gang
        if gang.ready:
            yield "ready", gang.ready
        if gang.nodes:
            yield "on", gang.nodes
        if gang.progress is not None:
            yield "done", f"{gang.progress:.0f} %"
        yield from _priority(gang)


def starts_in(gang: GangLine, now: float) -> str:
    """Return the time until the estimated start; as a range if its coverage is known."""
    if gang.earliest is None:
        return "-"
    soonest = duration(max(0.0, gang.earliest - now))
    if gang.latest is None or gang.coverage_percent is None:
        return f"in {soonest}"
    last = duration(max(0.0, gang.latest - now))
    return f"in {soonest}" if soonest == last else f"in {soonest} to {last}"


def _priority(gang: GangLine) -> Iterator[tuple[str, str]]:
    if gang.score is None:
        return
    terms = "".join(
        f" {'-' if f.weight < 0 else '+'} {f.name} {f.value:.3g} x {abs(f.weight):.3g}"
        for f in gang.factors
    ).removeprefix(" + ")
    named = f" (class {gang.priority_class})" if gang.priority_class else ""
    yield "priority", f"{gang.score:.4g}" + (f" = {terms}" if terms else "") + named


def _resumes(gang: GangLine) -> str:
    """Return whether gangs of equal priority may preempt a gang, and why."""
    if gang.resumable:
        return (
            "may be stopped for a gang of equal priority, because it can resume: "
            f"{gang.resume_source}"
        )
    return f"is not stopped for a gang of equal priority: {gang.resume_source}"


def _summary(other: GangLine, now: float) -> str:
    asks = f"{other.gpus} GPUs, " if other.gpus else ""
    score = f", priority {other.score:.4g}" if other.score is not None else ""
    waits = duration(other.waiting_seconds(now))
    return f"{other.position}. {other.key}: {asks}waits {waits}, {other.reason}{score}"


def _holdings(queue: Json) -> str:
    """Return the use of the queue's limits, resource by resource."""
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    used, limit = status.get("usage") or {}, spec.get("limit") or {}
    parts = []
    for name in sorted({*used, *limit}):
        amount = used.get(name, 0)
        limit_text = f" of {limit[name]}" if name in limit else ""
        full = name in limit and quantities.parse_quantity(
            name, amount
        ) >= quantities.parse_quantity(name, limit[name])
        parts.append(f"{amount}{limit_text} {name}" + (" (full)" if full else ""))
    name = cleaned((queue.get("metadata") or {}).get("name", ""))
    counts = f"{status.get('admitted', 0)} admitted, {status.get('pending', 0)} pending"
    return f"{name}: {counts}; holds {', '.join(parts) or 'nothing'}"


def _timestamp(seconds: float | None) -> str | None:
    return None if seconds is None else quantities.format_timestamp(seconds)


# --- the command -------------------------------------------------------------------------------

_PLURALS = {
    name: names.PLURALS[kind]
    for kind in names.GANG_KINDS
    for name in (kind.lower(), names.PLURALS[kind], names.SHORT_NAMES[kind])
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", metavar="JOB", help="a TrainingJob's name; podgroup/NAME for a PodGroup"
    )
    parser.add_argument(
        "--what-if",
        dest="changes",
        action="append",
        default=[],
        type=pair,
        metavar="KEY=VALUE",
        help="predict its start with a change, and changes for an earlier start: replicas=8 or "
        "replicas.TASK=8, queue=NAME, class=NAME or estimate=2h; repeatable",
    )
    add_what_if(parser)
    leader.add_leader(parser)
    common.add_target(parser)
    common.add_output(parser)
    colours.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    plural, name = parse_gang_name(options.job)
    if options.changes or options.tries or options.record:
        _write_what_if(options, plural, name)
        return 0
    explanation = ask(options, lambda reader: explain(reader, plural, name))
    data = common.with_version("GangExplanation", explanation.to_json())
    common.write(options.output, data, explanation.text(colours.painter(options)))
    return 0


def parse_gang_name(argument: str) -> tuple[str, str]:
    """Return plural and name of ``argument``: a TrainingJob, or another kind before a slash."""
    kind, _, name = argument.rpartition("/")
    plural = _PLURALS.get(kind.lower() or "trainingjob")
    if plural is None or not name:
        raise ConsoleError(
            f"argument JOB: {argument!r} is no job; write its name, or podgroup/NAME"
        )
    return plural, name


def _write_what_if(options: argparse.Namespace, plural: str, name: str) -> None:
    # Imported here: they load the whole scheduler, which no other question needs.
    from bireme.cli import what_if
    from bireme.replay.what_if import Inquiry

    with naming("--what-if"):
        change = what_if.change_of(options.changes)
    with naming("--try"):
        tries = [what_if.change_of([change_pair]) for change_pair in options.tries]
    question = Inquiry(
        kind=next(kind for kind in names.GANG_KINDS if names.PLURALS[kind] == plural),
        name=name,
        namespace=options.namespace or "",
        change=change,
        tries=tries,
    )
    what_if.write(options, what_if.answers(options, question), is_list=False)


async def explain(reader: ClusterReader, plural: str, name: str) -> Explanation:
    """Return the explanation of one gang, as far as the caller may read."""
    gang = line_of(await reader.get(plural, name, reader.namespace))
    manifests = await gangs_if_allowed(reader)
    line = None if manifests is None else in_line(manifests)
    queue: Json | None = None
    with suppress(ConsoleError):  # it does not exist, as the reason says, or is not for the caller
        queue = await reader.get("queues", gang.queue)
    return Explanation(gang, line, queue, time.time())  # noqa: TID251  # a person asks now


async def gangs_if_allowed(
    reader: ClusterReader, namespace: str | None = None
) -> list[Json] | None:
    """Return all TrainingJobs and PodGroups; None if the caller may not list them."""
    manifests: list[Json] = []
    for kind in names.GANG_KINDS:
        listed = await reader.objects_if_allowed(names.path(names.PLURALS[kind], namespace))
        if listed is None:
            return None
        manifests += [{"kind": kind, **manifest} for manifest in listed]
    return manifests
