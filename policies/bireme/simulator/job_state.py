"""One job on its way through a simulation: what is left of its work, and what happened to it.

Work is counted in seconds of the job's own run time, so that a job nobody disturbs runs exactly
``duration_seconds``: at a rate of 1 a second of work takes a second, at a rate of 0.5 two. Of what
a start has done, only what its last checkpoint holds outlives it. A restart first spends the time
it takes to restore that checkpoint, and so does a change of size, which begins with one.
"""

import math
from dataclasses import dataclass, field, replace

from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement
from bireme.core.progress_reports import anchored, believed
from bireme.core.running import RunningGang
from bireme.simulator.errors import SimulationError
from bireme.simulator.outcome import JobRecord, Span
from bireme.simulator.physics.model import Course
from bireme.simulator.workload import TraceJob, Work

LEAST_ESTIMATE = 0.1
"""The share of its first estimate that a gang is still expected to run, however long it has."""


@dataclass(slots=True, eq=False)
class Life:
    """A job that has arrived and not finished.

    Attributes:
        gang: The gang as it waits, or would wait if it were stopped now; the same object for as
            long as nothing happens to it.
        work_seconds: What is left, at a rate of 1, as of the last word about its progress.
        first_estimate: How long its first start was expected to run; None when nobody knew.
        known_seconds: How long its present or next start is, leaving aside what it reports.
        running: The places it holds; None while it waits.
        course: How its work is spread over the time at its present size; None for evenly.
        straggler: How slow its slowest replica happens to be in this start.
        version: Grows when its finish moves, so that an event for the old one is known as stale.
        starts: How often it was started.
        is_promised: Whether its first reservation is a promise that can be held against us.
    """

    job: TraceJob
    gang: Gang
    wait_bound_seconds: float
    work_seconds: float = field(init=False)
    first_estimate: float | None = field(init=False)
    known_seconds: float | None = field(init=False)
    running: RunningGang | None = None
    rate: float = 0.0
    course: Course | None = None
    straggler: float = 1.0
    version: int = 0
    starts: int = 0
    started: float | None = None
    resizes: int = 0
    reserved_start: float | None = None
    is_promised: bool = False
    spans: list[Span] = field(default_factory=list)
    kept_seconds: float = 0.0
    """Running time of earlier starts up to their last checkpoints."""
    _span_began: float = 0.0
    _work_began: float = 0.0
    _since: float = 0.0
    _saved_at: float = 0.0
    _saved_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.work_seconds = self.job.duration_seconds
        self.first_estimate = self.known_seconds = self.gang.estimated_seconds

    def start(self, running: RunningGang, now: float, delay_seconds: float) -> None:
        """It holds places from ``now``, and works after ``delay_seconds``."""
        self.running = running
        self.starts += 1
        self.started = now if self.started is None else self.started
        self._span_began = now
        self._work_began = self._since = self._saved_at = now + delay_seconds
        self._saved_seconds = self.work_seconds

    @property
    def running_now(self) -> RunningGang:
        """The places it holds; SimulationError when it holds none."""
        if self.running is None:
            raise SimulationError(f"{self.job.name} was to be stopped or resized, but does not run")
        return self.running

    def advance(self, now: float, checkpoint_seconds: float) -> None:
        """Work at the present rate up to ``now``, with a checkpoint every so often.

        At 0 every moment is a checkpoint; at infinity there is none.
        """
        if now <= self._since:
            return
        saved_at = _last_checkpoint(self._work_began, now, checkpoint_seconds)
        if saved_at > self._since:
            self._saved_at, self._saved_seconds = saved_at, self._left_at(saved_at)
        self.work_seconds = self._left_at(now)
        self._since = now

    def _left_at(self, moment: float) -> float:
        """Work seconds left at ``moment``, if it goes on at its present rate until then."""
        done = max(0.0, moment - self._since) * self.rate
        if self.course is None:
            return max(0.0, self.work_seconds - done)
        whole = self.job.duration_seconds
        return whole * self.course.left_after(self.work_seconds / whole, done / whole)

    def _seconds_for(self, work_seconds: float) -> float:
        """How long that much work, left to its end, takes at the present rate; maybe for ever."""
        if not work_seconds:
            return 0.0
        if self.course is not None:
            whole = self.job.duration_seconds
            work_seconds = whole * self.course.time_left(work_seconds / whole)
        return work_seconds / self.rate if self.rate > 0 else math.inf

    def finish_at(self, rate: float, course: Course | None = None) -> float:
        """When it finishes if it goes on at ``rate`` work seconds per second; maybe never.

        With a ``course``, that is its mean rate over a whole training.
        """
        self.rate, self.course = rate, course
        self.version += 1
        return self._since + self._seconds_for(self.work_seconds)

    def resize(
        self, running: RunningGang, now: float, nodes: NodeTable, restart_seconds: float
    ) -> None:
        """It has saved what it has done and goes on, on the places of ``running``.

        Before its work began there is nothing to save, and what its start takes it takes anyway.
        """
        self._end_span(now, "resized", nodes)
        self._saved_at, self._saved_seconds = max(now, self._work_began), self.work_seconds
        self._since = max(self._since, now + restart_seconds)
        self._span_began = now
        self.running = running
        self.resizes += 1

    def stop(self, now: float, ended_by: str, nodes: NodeTable, restart_seconds: float) -> None:
        """It loses its places and all work since its last checkpoint, and waits again."""
        attained = self._end_span(now, ended_by, nodes)
        self.work_seconds = self._saved_seconds
        self.kept_seconds += self._saved_at - self._work_began
        is_lost = ended_by == "node lost"
        self.known_seconds = self._estimate(restart_seconds)
        self.gang = replace(
            self.gang,
            arrived=self.gang.arrived + attained,
            interrupted=True,
            displaced=is_lost,
            evictions=self.gang.evictions + (not is_lost),
            attained_seconds=self.gang.attained_seconds + attained,
            estimated_seconds=self.known_seconds,
        )
        self.count_steps()
        self.gang = believed(self.gang)

    def finish(self, now: float, nodes: NodeTable) -> float:
        """It is done; how long it would have run in one undisturbed start, seconds."""
        self._end_span(now, "finished", nodes)
        return self.kept_seconds + now - self._work_began

    def record(self, finished: float | None = None, verdict: str = "") -> JobRecord:
        """What happened to it, in full."""
        return JobRecord(
            job=self.job,
            started=self.started,
            finished=finished,
            spans=tuple(self.spans),
            verdict=verdict if self.started is None else "",
            preemptions=sum(span.ended_by == "preempted" for span in self.spans),
            resizes=self.resizes,
            reserved_start=self.reserved_start,
            wait_bound_seconds=self.wait_bound_seconds,
        )

    def cut_off(self, now: float, nodes: NodeTable) -> None:
        """The simulation ends while it runs."""
        self._end_span(now, "still running", nodes)

    def _end_span(self, now: float, ended_by: str, nodes: NodeTable) -> float:
        """Write the span down; how long the start has lasted, seconds."""
        running = self.running_now
        places = _places(running.placement, nodes)
        self.spans.append(Span(self._span_began, now, places, ended_by))
        self.running = None
        self.version += 1
        return now - running.started

    def _estimate(self, restart_seconds: float) -> float | None:
        whole = self.first_estimate
        if whole is None:
            return None
        return max(LEAST_ESTIMATE * whole, whole - self.kept_seconds) + restart_seconds

    def report(self, now: float) -> RunningGang | None:
        """It tells how far it is, if it does and it is time; it, as it is seen from then on."""
        reporting, running, before = self.job.reporting, self.running_now, self.gang.progress
        if reporting is None or not reporting.is_due(before, now):
            return None
        left = self._left_at(now)
        work = Work(
            left=left / self.job.duration_seconds if self.job.duration_seconds else 0.0,
            seconds=self._seconds_for(left),
            steps=self.job.steps,
        )
        told = reporting.told(before, now, work)
        told = anchored(told, self.gang.attained_seconds, running.started)
        told_gang = replace(self.gang, progress=told, estimated_seconds=self.known_seconds)
        self.gang = believed(told_gang, running)
        self.running = replace(running, gang=self.gang)
        return self.running

    def count_steps(self) -> None:
        """The gang knows how many steps it has done and has left, as of the last word."""
        if self.job.steps is not None and self.job.duration_seconds:
            left = self.job.steps * self.work_seconds / self.job.duration_seconds
            done = self.job.steps - left
            self.gang = replace(self.gang, remaining_steps=left, done_steps=done)


def _last_checkpoint(began: float, now: float, checkpoint_seconds: float) -> float:
    if checkpoint_seconds <= 0:
        return now
    if math.isinf(checkpoint_seconds):
        return began
    return began + math.floor((now - began) / checkpoint_seconds) * checkpoint_seconds


def _places(placement: Placement, nodes: NodeTable) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (task.task, nodes.names[row], count)
        for task in placement.tasks
        for row, count in zip(task.rows.tolist(), task.counts.tolist(), strict=True)
    )
