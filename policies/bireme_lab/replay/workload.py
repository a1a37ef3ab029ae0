"""A record as a workload for the simulator: the submissions and runs with their times and nodes.

The run time of a gang that was cut off by the end of the record is unknown; the ``TREATMENTS`` are
the rules for such gangs.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.nodes import Node, NodeTable
from bireme.core.queues import Queue
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import LinearSpeed
from bireme.replay.writer import places_of
from bireme_lab.simulator.physics.model import NodeChange, Physics
from bireme_lab.simulator.workload import RunningAtStart, Trace, TraceJob, job_of

_MIN_SECONDS = 0.001


@dataclass(slots=True)
class GangHistory:
    """One gang through a record; times are POSIX seconds.

    Its run time is the time in which it was seen to hold places, scaled to the size that it
    requests: from a start until the first cycle in which it is gone or leaving. A restart loses
    nothing.

    Attributes:
        gang: As it waited when it was last seen before its first start; as it ran, if it was never
            seen to wait before.
        came: Begin of its wait: its arrival, but neither before the record nor after the first
            cycle with it. It is midway between that cycle and the last without it if the arrival
            is before both.
        started: Its first start, not before the last cycle without it; None without a start.
        ran_seconds: Run time in the record, at the requested size.
        start_places: For a gang that ran when the record begins: its places, the node that a
            shrink empties last, and whether it ran in places reserved for another.
    """

    gang: Gang
    came: float
    started: float | None = None
    ran_seconds: float = 0.0
    start_places: tuple[Mapping[str, Mapping[str, int]], str, bool] | None = None

    @classmethod
    def from_running(cls, running: RunningGang, nodes: NodeTable, now: float) -> "GangHistory":
        """Return the history of a gang that runs ``now``, when the record begins."""
        gang = running.gang
        if not is_flexible(gang):
            # In a gang of fixed size, missing replicas have done their part.
            gang = replace(running.current, min_available=0)
        anchor = nodes.names[running.anchor_row] if running.anchor_row >= 0 else ""
        start_places = (places_of(running.placement, nodes), anchor, running.is_opportunistic)
        return cls(gang, now, running.started, start_places=start_places)

    def observe_waiting(self, gang: Gang) -> None:
        """Take over ``gang``, which waits now, unless it has a passing fault."""
        if self.started is None and (gang.fault is None or self.gang.fault is not None):
            self.gang = gang

    def works(self, running: RunningGang, seconds: float) -> None:
        """Add ``seconds`` in which it held the places of ``running``."""
        replicas = self.gang.replicas
        share = (
            sum(running.sizes.values()) / replicas if is_flexible(self.gang) and replicas else 1.0
        )
        self.ran_seconds += seconds * share

    def wait(self) -> float | None:
        """Return how long it waited, as far as it was seen; None if its wait is not counted."""
        if self.started is None or self.start_places is not None:
            return None
        return max(0.0, self.started - self.came)

    def remaining_estimate(self, began: float) -> float:
        """Return the rest of its estimate at ``began``; 0 without an estimate."""
        elapsed = 0.0 if self.start_places is None or self.started is None else began - self.started
        return max(0.0, (self.gang.estimated_seconds or 0.0) - elapsed)

    def job(self, seconds: float, began: float) -> TraceJob:
        """Return it as a job that runs ``seconds``, in a trace that starts at ``began``."""
        gang = replace(self.gang, arrived=min(self.gang.arrived, self.came) - began)
        seconds = max(seconds, _MIN_SECONDS)  # a speed law needs work above 0
        job = job_of(gang, self.came - began, seconds)
        if is_flexible(gang):
            # At the requested size it does a step a second, so it runs ``seconds``.
            job = replace(job, speed=LinearSpeed(1 / gang.replicas), steps=seconds)
        return replace(job, gang=gang)

    def underway(self, began: float) -> RunningAtStart | None:
        """Its places when the trace starts at ``began``; None if it did not run then."""
        if self.start_places is None or self.started is None:
            return None
        places, anchor, is_opportunistic = self.start_places
        started = min(0.0, self.started - began)
        return RunningAtStart(self.gang.uid, places, started, anchor, is_opportunistic)


def is_flexible(gang: Gang) -> bool:
    """Return whether ``gang`` may run with more or fewer replicas than it requests."""
    return any(
        task.minimum != task.replicas or task.maximum != task.replicas for task in gang.tasks
    )


PATIENCE_SECONDS: Final = 40.0
"""The operator's default time for which a node that is not ready may still hold its gangs."""


@dataclass(frozen=True, slots=True)
class RecordedNodes(Physics):
    """Physics that add nothing to recorded durations; nodes go and come as recorded."""

    changes: tuple[NodeChange, ...] = ()

    def failures(self, nodes: Iterable[Node], horizon: float, seed: int) -> list[NodeChange]:
        """Return the recorded changes."""
        return list(self.changes)


class NodeHistory:
    """All nodes of a record; times in seconds after its start.

    The first use of a node by pods outside all gangs counts until the end. A node that is not ready
    for less than ``PATIENCE_SECONDS`` stays up, as it does for the operator.
    """

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._nodes: dict[str, Node] = {}
        self._states: dict[str, list[tuple[float, bool]]] = {}

    def observe(self, seconds: float, snapshot: ClusterSnapshot) -> None:
        """Add the nodes of ``snapshot``, seen at ``seconds``."""
        table = snapshot.nodes
        if table is self._table:
            return  # one table lasts until a node changes
        self._table = table
        if new := [node for node in table.nodes if node.name not in self._nodes]:
            self._add(new, snapshot)
        for name, states in self._states.items():
            # A node that is gone may come back: it is down meanwhile.
            is_up = name in table.row and bool(table.is_ready[table.row[name]])
            if not states and seconds > 0:
                states.append((0.0, False))  # it appears later
            if not states or states[-1][1] is not is_up:
                states.append((seconds, is_up))

    def _add(self, new: Iterable[Node], snapshot: ClusterSnapshot) -> None:
        table, rest = snapshot.nodes, snapshot.used.copy()
        for running in snapshot.running:
            np.subtract.at(rest, *running.usage(table.axis))
        # Pods outside all gangs use the rest.
        for node in new:
            used = rest[table.row[node.name]].tolist()
            fixed = {n: u for n, u in zip(table.axis.names, used, strict=True) if u > 0}
            self._nodes[node.name] = replace(node, is_ready=True, fixed=fixed)
            self._states[node.name] = []

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return every node of the record as it was first seen, ready."""
        return tuple(self._nodes.values())

    @property
    def changes(self) -> tuple[NodeChange, ...]:
        """Return the times at which nodes go and come, in order; they are up before."""
        changes = (
            NodeChange(seconds, name, is_up)
            for name, states in self._states.items()
            for seconds, is_up in _patient(states)
            if seconds > 0 or not is_up
        )
        return tuple(sorted(changes))


def _patient(states: list[tuple[float, bool]]) -> list[tuple[float, bool]]:
    """Return ``states`` without outages that are too short to count."""
    short = {
        moment
        for (began, is_up), (up_again, _) in pairwise(states)
        if began > 0 and not is_up and up_again - began < PATIENCE_SECONDS
        for moment in (began, up_again)
    }
    return [state for state in states if state[0] not in short]


RAN_BEFORE: Final = (
    "ran when the record begins: their places are theirs, their waits are not counted"
)
WAITED_BEFORE: Final = "waited when the record begins: their waits count from then"
RUNNING: Final = "ran when it ends: they run as long as was seen, or as estimated if that is longer"
WAITING: Final = "never started in it: they run as estimated, else as the median of all others"
WITHDRAWN: Final = "left without having run: they are left out"
UNKNOWN: Final = "never started in it, and no run time is known of any: they are left out"
TREATMENTS: Final = (RAN_BEFORE, WAITED_BEFORE, RUNNING, WAITING, WITHDRAWN, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload of a record.

    Attributes:
        trace: Its jobs are named by uid.
        names: ``namespace/name`` by uid.
        waits: Recorded wait in seconds of each counted gang that started, by uid.
        seconds: Time from the first cycle to the last.
    """

    trace: Trace
    physics: RecordedNodes
    names: Mapping[str, str]
    waits: Mapping[str, float]
    seconds: float

    @property
    def wait_uids(self) -> frozenset[str]:
        """Return the uids of gangs whose waits count: all but those that ran at the beginning."""
        already_running = {one.job for one in self.trace.underway}
        return frozenset(job.name for job in self.trace.jobs if job.name not in already_running)


class WorkloadBuilder:
    """Builds the workload from the snapshots of a record, in their order.

    Gangs that are first seen after ``until`` (POSIX seconds) are left out; the others are still
    observed then.
    """

    def __init__(self, until: float = math.inf) -> None:
        self._until = until
        self._began = self._now = 0.0
        self._gangs: dict[str, GangHistory] = {}
        self._running: frozenset[str] = frozenset()
        self._waiting: frozenset[str] = frozenset()
        self._last: ClusterSnapshot | None = None
        self._queues: dict[str, Queue] = {}
        self._nodes = NodeHistory()

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Add the next snapshot."""
        now = snapshot.now
        if self._last is None:
            self._began = self._now = now
        self._nodes.observe(now - self._began, snapshot)
        self._queues |= snapshot.queues
        self._observe_running(snapshot)
        waiting = [gang for gang in snapshot.waiting if self._takes(gang.uid, now)]
        for gang in waiting:
            if gang.uid not in self._gangs:
                self._gangs[gang.uid] = GangHistory(gang, self._came(gang, now))
            self._gangs[gang.uid].observe_waiting(gang)
        self._waiting = frozenset(gang.uid for gang in waiting)
        self._now, self._last = now, snapshot

    @property
    def is_settled(self) -> bool:
        """Whether later snapshots can change nothing but the nodes of the workload."""
        # A gang that is leaving may have been preempted: it waits once its pods are gone.
        is_leaving = self._last is not None and any(
            running.gang.uid in self._gangs for running in self._last.running
        )
        return self._now > self._until and not (self._waiting or self._running or is_leaving)

    def _came(self, gang: Gang, now: float) -> float:
        """Return the arrival of a gang that the cycle ``now`` is the first to see."""
        if self._last is not None and gang.arrived <= self._now:
            # The API server gives whole seconds, and the gang arrived before the last cycle, which
            # did not see it. A simulation would decide on it in that cycle, at that very time.
            return (self._now + now) / 2
        return min(max(gang.arrived, self._now), now)

    def _takes(self, uid: str, now: float) -> bool:
        return now <= self._until or uid in self._gangs

    def _observe_running(self, snapshot: ClusterSnapshot) -> None:
        if self._last is not None:
            for running in self._last.running:
                if running.gang.uid in self._running:
                    self._gangs[running.gang.uid].works(running, snapshot.now - self._now)
        previous = self._running
        working = [
            running
            for running in snapshot.running
            if not running.is_leaving and self._takes(running.gang.uid, snapshot.now)
        ]
        self._running = frozenset(running.gang.uid for running in working)
        for running in working:
            uid = running.gang.uid
            history = self._gangs.get(uid)
            if history is None and self._last is None:
                self._gangs[uid] = GangHistory.from_running(running, snapshot.nodes, snapshot.now)
                continue
            # The API server gives whole seconds: the gang cannot have started before the last
            # cycle without it, nor after the first with it.
            started = min(max(running.started, self._now), snapshot.now)
            if history is None:
                history = self._gangs[uid] = GangHistory(running.gang, started)
            if history.started is None:
                history.started = started
            if uid not in previous:
                history.works(running, snapshot.now - started)

    def workload(self) -> Workload:
        """Return everything observed as jobs of a trace that starts with the record."""
        counts = dict.fromkeys(TREATMENTS, 0)
        usual = self._usual_seconds()
        jobs = []
        for uid, gang in self._gangs.items():
            seconds = self._seconds(uid, gang, usual, counts)
            if seconds is not None:
                jobs.append(gang.job(seconds, self._began))
                is_found = gang.start_places is not None
                counts[RAN_BEFORE] += is_found
                counts[WAITED_BEFORE] += (
                    not is_found and gang.gang.arrived < gang.came == self._began
                )
        jobs.sort(key=lambda job: (job.submitted, job.name))
        histories = [self._gangs[job.name] for job in jobs]
        underway = [start for gang in histories if (start := gang.underway(self._began))]
        trace = Trace(
            "record",
            tuple(jobs),
            {what: count for what, count in counts.items() if count},
            self._nodes.nodes,
            tuple(self._queues.values()),
            tuple(underway),
        )
        return Workload(
            trace,
            RecordedNodes(changes=self._nodes.changes),
            {gang.gang.uid: f"{gang.gang.namespace}/{gang.gang.name}" for gang in histories},
            {gang.gang.uid: wait for gang in histories if (wait := gang.wait()) is not None},
            self._now - self._began,
        )

    def _usual_seconds(self) -> float | None:
        """Return the median run time of gangs that were seen to end."""
        present = self._running | self._waiting
        run_seconds = [
            gang.ran_seconds
            for uid, gang in self._gangs.items()
            if uid not in present and gang.started is not None and gang.start_places is None
        ]
        return statistics.median(run_seconds) if run_seconds else None

    def _seconds(
        self, uid: str, gang: GangHistory, usual: float | None, counts: dict[str, int]
    ) -> float | None:
        """Return its run time; None if it is left out."""
        expected = gang.remaining_estimate(self._began)
        if gang.started is not None:
            is_over = uid not in self._running and uid not in self._waiting
            counts[RUNNING] += not is_over
            return gang.ran_seconds if is_over else max(gang.ran_seconds, expected)
        is_there, seconds = uid in self._waiting, expected or usual
        counts[WITHDRAWN] += not is_there
        counts[WAITING] += is_there and seconds is not None
        counts[UNKNOWN] += is_there and seconds is None
        return seconds if is_there else None
