"""One gang as listings show it: a TrainingJob, or a PodGroup of another controller.

Everything is read from fields that the operator writes. A missing field stays None: the object may
be new, or the operator may be down.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bireme.cli.arguments import Json
from bireme.kube import names, quantities
from bireme.kube.conditions import cleaned

ENDED_PHASES = frozenset({"Succeeded", "Failed", "Completed"})


@dataclass(frozen=True, slots=True)
class Factor:
    """One term of a priority: ``contribution = value * weight``."""

    name: str
    value: float
    weight: float
    contribution: float


@dataclass(frozen=True, slots=True)
class GangLine:
    """One line of a listing of gangs. Times in POSIX seconds.

    Attributes:
        position: Place in the order of admission over all queues, from 1.
        waits: Whether it wants to start and has no places.
        earliest, latest: The estimated start, as far as it is known.
        coverage_percent: Share of such ranges that contain the start, in percent, if known.
        parked: Time from which on it does not count as waiting.
        since: Time of its last admission.
        resumable: Whether gangs of equal priority may preempt it; None if unknown.
        resume_source: The source of ``resumable``.
        last_stop: Reason and message with which its last run ended; empty while it runs.
    """

    kind: str
    namespace: str
    name: str
    queue: str
    phase: str
    reason: str
    message: str
    position: int | None
    waits: bool
    gpus: float | None
    ready: str
    priority_class: str
    score: float | None
    factors: tuple[Factor, ...]
    created: float | None
    queued: float | None
    parked: float | None
    waited_before_seconds: float
    earliest: float | None
    latest: float | None
    coverage_percent: int | None
    since: float | None
    counters: tuple[tuple[str, int], ...]
    nodes: str
    progress: float | None
    last_stop: str = ""
    resumable: bool | None = None
    resume_source: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def waiting_seconds(self, now: float) -> float:
        """Return the seconds it has waited in total, until ``now``."""
        since = self.queued if self.queued is not None else self.created
        end = now if self.parked is None else min(now, self.parked)
        return self.waited_before_seconds + (max(0.0, end - since) if since is not None else 0.0)

    def to_json(self) -> Json:
        """Return the fields that every listing shows; times as RFC 3339."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "phase": self.phase,
            "reason": self.reason or None,
            "message": self.message or None,
            "queue": self.queue,
            "position": self.position,
            "ready": self.ready or None,
            "gpus": self.gpus,
            "created": None if self.created is None else quantities.format_timestamp(self.created),
        }


_COUNTERS = ("restarts", "interruptions", "preemptions")


def line_of(manifest: Json) -> GangLine:
    """Return the line of a TrainingJob or PodGroup."""
    about, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
    status = manifest.get("status") or {}
    phase = status.get("phase") or "Pending"
    start, priority = status.get("estimatedStart") or {}, status.get("priority") or {}
    placement = status.get("placement") or {}
    return GangLine(
        kind=manifest.get("kind", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        queue=cleaned(status.get("queue") or spec.get("queue") or names.DEFAULT_QUEUE),
        phase=phase,
        # Messages quote text of tenants, and a terminal obeys control characters.
        reason=cleaned(status.get("reason") or ""),
        message=cleaned(status.get("message") or ""),
        position=status.get("queuePosition"),
        waits=_waits(manifest.get("kind", ""), phase, status),
        gpus=status.get("gpus"),
        ready=status.get("ready") or "",
        priority_class=spec.get("priorityClassName") or "",
        score=priority.get("score"),
        factors=tuple(
            Factor(cleaned(f["name"]), f["value"], f["weight"], f["contribution"])
            for f in priority.get("factors") or ()
        ),
        created=quantities.parse_timestamp(about.get("creationTimestamp")),
        queued=quantities.parse_timestamp(status.get("queuedTime")),
        parked=quantities.parse_timestamp(status.get("parkedTime")),
        waited_before_seconds=float(status.get("waitSeconds") or 0),
        earliest=quantities.parse_timestamp(start.get("earliest")),
        latest=quantities.parse_timestamp(start.get("latest")),
        coverage_percent=start.get("coveragePercent"),
        since=quantities.parse_timestamp(status.get("admittedTime")),
        counters=tuple((name, status[name]) for name in _COUNTERS if status.get(name)),
        nodes=cleaned(placement.get("summary") or ""),
        progress=(status.get("progress") or {}).get("percentage"),
        last_stop=_last_stop(status),
        resumable=status.get("resumable"),
        resume_source=cleaned(status.get("resumableBecause") or ""),
    )


def _last_stop(status: Json) -> str:
    """Return the reason of its last stop, which its message loses once it waits again."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Running" and condition.get("status") == "False":
            return cleaned(f"{condition.get('reason', '')}: {condition.get('message', '')}")
    return ""


def _waits(kind: str, phase: str, status: Json) -> bool:
    if kind == "TrainingJob":
        return phase in ("Pending", "Restarting")
    if status.get("queuePosition") is not None:  # its newest pods wait, others run
        return True
    return phase in ("Pending", "Interrupted") and not status.get("plan")


def in_line(manifests: Iterable[Json]) -> list[GangLine]:
    """Return the waiting gangs in the order of admission; gangs without a position last."""
    return in_order(line_of(manifest) for manifest in manifests)


def in_order(lines: Iterable[GangLine]) -> list[GangLine]:
    """Return the waiting gangs of ``lines``, in the order of :func:`in_line`."""
    return sorted(
        # No position: the gang is new, or has a fault that waiting does not end.
        (line for line in lines if line.waits),
        key=lambda line: (line.position or math.inf, line.created or math.inf, line.key),
    )
