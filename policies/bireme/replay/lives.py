"""One gang through a record: when it came, how long it ran, what became of it.

Its run time is all the time it was seen to hold places: from a start until the first cycle in which
it is gone or leaving. A gang that may have more or fewer replicas is taken to get done what its
replicas do together: its run time is that at the size it asks for. A restart loses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.running import RunningGang
from bireme.core.speed import LinearSpeed
from bireme.records.outlines import places_of
from bireme.simulator.arrivals import job_of
from bireme.simulator.workload import TraceJob, Underway

_SHORTEST_SECONDS = 0.001


@dataclass(slots=True)
class GangSeen:
    """A gang of a record; times are POSIX seconds.

    Attributes:
        gang: As it waited when it was last seen before its first start; as it ran, for one that
            was never seen to wait before.
        came: When its wait begins to count: its arrival, but not before the record, nor before the
            last cycle without it (the API server tells whole seconds), nor after the first with it.
        started: Its first start, not before the last cycle without it; None when there was none.
        ran_seconds: In the record, at the size it asks for.
        found: It ran when the record begins, and so: places, and the node a shrink empties last.
    """

    gang: Gang
    came: float
    started: float | None = None
    ran_seconds: float = 0.0
    found: tuple[Mapping[str, Mapping[str, int]], str] | None = None

    @classmethod
    def found_running(cls, running: RunningGang, nodes: NodeTable, now: float) -> "GangSeen":
        """One that runs ``now``, when the record begins."""
        gang = running.gang
        if not is_flexible(gang):
            # Of a gang of fixed size, replicas that are gone have done their part.
            gang = replace(running.current, min_available=0)
        anchor = nodes.names[running.anchor_row] if running.anchor_row >= 0 else ""
        found = (places_of(running.placement, nodes), anchor)
        return cls(gang, now, running.started, found=found)

    @property
    def name(self) -> str:
        """``namespace/name``."""
        return f"{self.gang.namespace}/{self.gang.name}"

    def seen_waiting(self, gang: Gang) -> None:
        """It waits, now as ``gang``; a passing fault is not taken over."""
        if self.started is None and (gang.fault is None or self.gang.fault is not None):
            self.gang = gang

    def works(self, running: RunningGang, seconds: float) -> None:
        """It held the places of ``running`` for so long."""
        asked = self.gang.replicas
        share = sum(running.sizes.values()) / asked if is_flexible(self.gang) and asked else 1.0
        self.ran_seconds += seconds * share

    def expected_seconds(self, began: float) -> float:
        """What its estimate says of the part of its run after ``began``; 0 when nobody knows."""
        before = 0.0 if self.found is None or self.started is None else began - self.started
        return max(0.0, (self.gang.estimated_seconds or 0.0) - before)

    def job(self, seconds: float, began: float) -> TraceJob:
        """The job of a trace that starts at ``began``, for which it runs ``seconds``."""
        gang = replace(self.gang, arrived=min(self.gang.arrived, self.came) - began)
        seconds = max(seconds, _SHORTEST_SECONDS)
        job = job_of(gang, self.came - began, seconds)
        if is_flexible(gang):
            job = replace(job, speed=LinearSpeed(1 / gang.replicas), steps=seconds)
        return replace(job, gang=gang)

    def underway(self, began: float) -> Underway | None:
        """Its places when the trace starts at ``began``; None when it did not run then."""
        if self.found is None or self.started is None:
            return None
        places, anchor = self.found
        return Underway(self.gang.uid, places, min(0.0, self.started - began), anchor)


def is_flexible(gang: Gang) -> bool:
    """Whether ``gang`` may run with more or fewer replicas than it asks for."""
    return any(
        task.minimum != task.replicas or task.maximum != task.replicas for task in gang.tasks
    )
