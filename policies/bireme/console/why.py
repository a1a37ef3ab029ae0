"""Why a gang is where it is: the dominant reason first, then the chain behind it.

The chain is order (position, and every factor of the priority in numbers), who is ahead, when it
should start, what its queue may still hold, and what would help. As data for programs, as text
for people.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bireme.console.gangs import ENDED, GangLine
from bireme.console.remedies import remedy
from bireme.core.times import duration
from bireme.kube import quantity, timestamps
from bireme.kube.conditions import cleaned

Json = dict[str, Any]

_MOST_AHEAD: Final = 5


@dataclass(frozen=True, slots=True)
class Explanation:
    """A gang and what surrounds it. ``line`` and ``queue`` are None where they may not be read.

    Attributes:
        line: All gangs that wait, in order.
        queue: The manifest of its Queue.
        now: POSIX seconds.
    """

    gang: GangLine
    line: Sequence[GangLine] | None
    queue: Json | None
    now: float

    @property
    def ahead(self) -> Sequence[GangLine]:
        """Those in front of it, the first of all first."""
        position = self.gang.position
        if self.line is None or position is None:
            return ()
        return [other for other in self.line if other.position and other.position < position]

    def to_json(self) -> Json:
        """Everything as data; times as RFC 3339, lengths in seconds."""
        gang = self.gang
        told: Json = {
            "kind": gang.kind,
            "namespace": gang.namespace,
            "name": gang.name,
            "phase": gang.phase,
            "reason": gang.reason or None,
            "message": gang.message or None,
            "helps": remedy(gang.reason) or None,
            "queue": gang.queue,
            "priority": gang.score,
            "factors": [
                {"name": f.name, "value": f.value, "weight": f.weight, "adds": f.contribution}
                for f in gang.factors
            ],
            **dict(gang.counters),
        }
        if gang.waits:
            told |= {
                "position": gang.position,
                "waiting": None if self.line is None else len(self.line),
                "waitSeconds": round(gang.waiting_seconds(self.now)),
                "ahead": [other.key for other in self.ahead],
                "estimatedStart": {
                    "earliest": _written(gang.earliest),
                    "latest": _written(gang.latest),
                    "coveragePercent": gang.coverage_percent,
                },
            }
        return told

    def text(self) -> str:
        """For a terminal, a fact per line."""
        lines = [f"{label:<10}{said}" if label else said for label, said in self._facts()]
        return "\n".join(line.rstrip() for line in lines) + "\n"

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
            yield "", "  Nothing is written on it yet: is the operator running, and leading?"
        yield "", ""
        yield from self._order() if gang.waits else self._life()
        if self.queue is not None and gang.phase not in ENDED:
            yield "queue", _holdings(self.queue)
        if gang.counters:
            yield "so far", ", ".join(f"{count} {name}" for name, count in gang.counters)

    def _order(self) -> Iterator[tuple[str, str]]:
        gang = self.gang
        yield "waits", duration(gang.waiting_seconds(self.now))
        if gang.position is not None:
            of = f" of {len(self.line)}" if self.line is not None else ""
            yield "order", f"position {gang.position}{of}"
        yield from _priority(gang)
        for number, other in enumerate(self.ahead[:_MOST_AHEAD]):
            yield (
                "" if number else "ahead",
                ("" if not number else " " * 10) + _summary(other, self.now),
            )
        if (more := len(self.ahead) - _MOST_AHEAD) > 0:
            yield "", f"{'':10}and {more} more: bireme queue"
        yield "start", self._start()

    def _start(self) -> str:
        earliest, latest = self.gang.earliest, self.gang.latest
        if earliest is None:
            return (
                "nobody can say: no places are kept for it yet, or what runs there does not say"
                " for how long"
            )
        if latest is not None and self.gang.coverage_percent is not None:
            return (
                f"expected {starts_in(self.gang, self.now)} ({_written(earliest)} to"
                f" {_written(latest)}); such ranges hold {self.gang.coverage_percent} % of starts"
            )
        expected = f"expected {starts_in(self.gang, self.now)} ({_written(earliest)}), or sooner"
        if latest is None or latest <= earliest:
            return expected
        return f"{expected}; by {_written(latest)} in {duration(max(0.0, latest - self.now))}"

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
    """How long it should still wait; as a range where it says how many starts such ranges hold."""
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
    terms = " + ".join(f"{f.name} {f.value:.3g} x {f.weight:.3g}" for f in gang.factors)
    named = f" (class {gang.priority_class})" if gang.priority_class else ""
    yield "priority", f"{gang.score:.4g}" + (f" = {terms}" if terms else "") + named


def _summary(other: GangLine, now: float) -> str:
    asks = f"{other.gpus} GPUs, " if other.gpus else ""
    score = f", priority {other.score:.4g}" if other.score is not None else ""
    waits = duration(other.waiting_seconds(now))
    return f"{other.position}. {other.key}: {asks}waits {waits}, {other.reason}{score}"


def _holdings(queue: Json) -> str:
    """What the queue holds of its limits, resource by resource."""
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    used, limit = status.get("usage") or {}, spec.get("limit") or {}
    parts = []
    for name in sorted({*used, *limit}):
        held = used.get(name, 0)
        most = f" of {limit[name]}" if name in limit else ""
        full = name in limit and quantity.parse(name, held) >= quantity.parse(name, limit[name])
        parts.append(f"{held}{most} {name}" + (" (full)" if full else ""))
    name = cleaned((queue.get("metadata") or {}).get("name", ""))
    counts = f"{status.get('admitted', 0)} admitted, {status.get('pending', 0)} pending"
    return f"{name}: {counts}; holds {', '.join(parts) or 'nothing'}"


def _written(seconds: float | None) -> str | None:
    return None if seconds is None else timestamps.format(seconds)
