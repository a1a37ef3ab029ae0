"""A record as a workload: what was submitted when, what ran already, on which nodes.

Nobody knows how long a gang would have run that was cut off by the end of the record, so it is
said how each is counted (``TREATMENTS``).
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bireme.core.queues import Queue
from bireme.core.snapshot import ClusterSnapshot
from bireme.replay.lives import GangSeen
from bireme.replay.machines import NodesSeen, RecordedNodes
from bireme.simulator.workload import Trace

FOUND: Final = "ran when the record begins: their places are theirs, their waits are not counted"
BEFORE: Final = "waited when the record begins: their waits count from then"
RUNNING: Final = "ran when it ends: they run as long as was seen, or as estimated if that is longer"
WAITING: Final = "never started in it: they run as estimated, else as the median of all others"
WITHDRAWN: Final = "left without having run: they are left out"
UNKNOWN: Final = "never started in it, and no run time is known of any: they are left out"
TREATMENTS: Final = (FOUND, BEFORE, RUNNING, WAITING, WITHDRAWN, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Workload:
    """What to simulate.

    Attributes:
        trace: Its jobs go by uid.
        names: ``namespace/name`` by uid.
        waits: How long each gang that is counted and started did wait, by uid, seconds.
        seconds: From the first cycle to the last.
    """

    trace: Trace
    physics: RecordedNodes
    names: Mapping[str, str]
    waits: Mapping[str, float]
    seconds: float

    @property
    def counted(self) -> frozenset[str]:
        """Uids of the gangs whose waits are counted."""
        found = {one.job for one in self.trace.underway}
        return frozenset(job.name for job in self.trace.jobs if job.name not in found)


class Observer:
    """Watches a record go by, moment by moment, and tells what workload it was."""

    def __init__(self) -> None:
        self._began = self._now = 0.0
        self._gangs: dict[str, GangSeen] = {}
        self._running: frozenset[str] = frozenset()
        self._waiting: frozenset[str] = frozenset()
        self._last: ClusterSnapshot | None = None
        self._queues: dict[str, Queue] = {}
        self._nodes = NodesSeen()

    def see(self, snapshot: ClusterSnapshot) -> None:
        """The next moment."""
        now = snapshot.now
        if self._last is None:
            self._began = self._now = now
        self._nodes.see(now - self._began, snapshot)
        self._queues |= snapshot.queues
        self._see_running(snapshot)
        for gang in snapshot.waiting:
            if gang.uid not in self._gangs:
                self._gangs[gang.uid] = GangSeen(gang, min(max(gang.arrived, self._now), now))
            self._gangs[gang.uid].seen_waiting(gang)
        self._waiting = frozenset(gang.uid for gang in snapshot.waiting)
        self._now, self._last = now, snapshot

    def _see_running(self, snapshot: ClusterSnapshot) -> None:
        if self._last is not None:
            for running in self._last.running:
                if running.gang.uid in self._running:
                    self._gangs[running.gang.uid].works(running, snapshot.now - self._now)
        before = self._running
        working = [running for running in snapshot.running if not running.is_leaving]
        self._running = frozenset(running.gang.uid for running in working)
        for running in working:
            uid = running.gang.uid
            known = self._gangs.get(uid)
            if known is None and self._last is None:
                self._gangs[uid] = GangSeen.found_running(running, snapshot.nodes, snapshot.now)
                continue
            started = min(max(running.started, self._now), snapshot.now)
            if known is None:
                known = self._gangs[uid] = GangSeen(running.gang, started)
            if known.started is None:
                known.started = started
            if uid not in before:
                known.works(running, snapshot.now - started)

    def workload(self) -> Workload:
        """Everything seen, as jobs of a trace that starts with the record."""
        counts = dict.fromkeys(TREATMENTS, 0)
        usual = self._usual_seconds()
        jobs = []
        for uid, gang in self._gangs.items():
            seconds = self._seconds(uid, gang, usual, counts)
            if seconds is not None:
                jobs.append(gang.job(seconds, self._began))
                counts[FOUND] += gang.found is not None
                counts[BEFORE] += (
                    gang.found is None and gang.gang.arrived < gang.came == self._began
                )
        jobs.sort(key=lambda job: (job.submitted, job.name))
        kept = [self._gangs[job.name] for job in jobs]
        underway = [there for gang in kept if (there := gang.underway(self._began))]
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
            {gang.gang.uid: gang.name for gang in kept},
            {gang.gang.uid: wait for gang in kept if (wait := self._wait(gang)) is not None},
            self._now - self._began,
        )

    def _wait(self, gang: GangSeen) -> float | None:
        """How long it did wait, as far as it was seen; None when it is not counted."""
        if gang.started is None or gang.found is not None:
            return None
        return max(0.0, gang.started - gang.came)

    def _usual_seconds(self) -> float | None:
        """The median run time of gangs that were seen to end."""
        present = self._running | self._waiting
        ended = [
            gang.ran_seconds
            for uid, gang in self._gangs.items()
            if uid not in present and gang.started is not None and gang.found is None
        ]
        return statistics.median(ended) if ended else None

    def _seconds(
        self, uid: str, gang: GangSeen, usual: float | None, counts: dict[str, int]
    ) -> float | None:
        """How long it runs; None when it is left out."""
        expected = gang.expected_seconds(self._began)
        if gang.started is not None:
            is_over = uid not in self._running and uid not in self._waiting
            counts[RUNNING] += not is_over
            return gang.ran_seconds if is_over else max(gang.ran_seconds, expected)
        is_there, seconds = uid in self._waiting, expected or usual
        counts[WITHDRAWN] += not is_there
        counts[WAITING] += is_there and seconds is not None
        counts[UNKNOWN] += is_there and seconds is None
        return seconds if is_there else None
