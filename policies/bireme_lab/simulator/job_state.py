"""One job in a simulation: the rest of its work, and its history.

Work is counted in seconds of the job's own run time, so an undisturbed job runs exactly
``duration_seconds``. At a rate of 1 a second of work takes a second, at a rate of 0.5 two. A
stopped job keeps only the work in its last checkpoint. A restart first restores that checkpoint. A
resize saves a checkpoint and then restores it too.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final

from bireme.core.estimates import apply_progress_report, with_anchor
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.placement import Placement
from bireme.core.running import RunningGang
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.outcome import JobRecord, RunSegment
from bireme_lab.simulator.physics.model import Course
from bireme_lab.simulator.workload import TraceJob, WorkLeft

MIN_ESTIMATE: Final = 0.1
"""The lowest estimate after a stop, as a share of the first estimate."""


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """A job that has arrived and not finished.

    Attributes:
        trace_job: The job as the trace states it.
        gang: The waiting gang, or the gang that would wait after a stop. The object changes only
            when something happens to the job.
        work_seconds: Remaining work at a rate of 1, as of the last :meth:`advance`.
        first_estimate: Expected run time of the first start; None when it was not known.
        known_seconds: Expected run time of the present or next start, without its own reports.
        stated_seconds: The owner's estimate; None for no estimate.
        running: The places it holds; None while it waits.
        course: Distribution of its work over time at its present size; None for even.
        straggler: Speed of its slowest replica in this start, up to 1.
        version: Grows when its finish moves, so that the event of the old finish is stale.
        starts: Number of starts.
        is_reservation_binding: Whether the metrics count if its first reservation is honoured.
        kept_seconds: Running time of earlier starts up to their last checkpoints.
    """

    trace_job: TraceJob
    gang: Gang
    wait_bound_seconds: float
    work_seconds: float = field(init=False)
    first_estimate: float | None = field(init=False)
    known_seconds: float | None = field(init=False)
    stated_seconds: float | None = field(init=False)
    running: RunningGang | None = None
    rate: float = 0.0
    course: Course | None = None
    straggler: float = 1.0
    version: int = 0
    starts: int = 0
    started: float | None = None
    resizes: int = 0
    reserved_start: float | None = None
    is_reservation_binding: bool = False
    segments: list[RunSegment] = field(default_factory=list)
    kept_seconds: float = 0.0
    _segment_began: float = 0.0
    _work_began: float = 0.0
    _advanced_to: float = 0.0
    _saved_at: float = 0.0
    _saved_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.work_seconds = self.trace_job.duration_seconds
        self.first_estimate = self.known_seconds = self.gang.estimated_seconds
        is_stated = not self.gang.is_learned_estimate
        self.stated_seconds = self.gang.estimated_seconds if is_stated else None

    def start(self, running: RunningGang, now: float, delay_seconds: float) -> None:
        """Take the places of ``running`` at ``now``, and work after ``delay_seconds``."""
        self.running = running
        self.starts += 1
        self.started = now if self.started is None else self.started
        self._segment_began = now
        self._work_began = self._advanced_to = self._saved_at = now + delay_seconds
        self._saved_seconds = self.work_seconds

    @property
    def running_now(self) -> RunningGang:
        """Return the places it holds; SimulationError when it holds none."""
        if self.running is None:
            raise SimulationError(
                f"{self.trace_job.name} was to be stopped or resized, but does not run"
            )
        return self.running

    def advance(self, now: float, checkpoint_seconds: float) -> None:
        """Work at the present rate up to ``now``, with checkpoints ``checkpoint_seconds`` apart."""
        if now <= self._advanced_to:  # the job still starts up, or restores a checkpoint
            return
        saved_at = _last_checkpoint(self._work_began, now, checkpoint_seconds)
        if saved_at > self._advanced_to:
            self._saved_at, self._saved_seconds = saved_at, self._work_left_at(saved_at)
        self.work_seconds = self._work_left_at(now)
        self._advanced_to = now

    def _work_left_at(self, moment: float) -> float:
        """Return the work left at ``moment``, at the present rate until then."""
        done = max(0.0, moment - self._advanced_to) * self.rate
        if self.course is None:
            return max(0.0, self.work_seconds - done)
        whole = self.trace_job.duration_seconds
        return whole * self.course.remaining_after(self.work_seconds / whole, done / whole)

    def _seconds_for(self, work_seconds: float) -> float:
        """Return the time of the last ``work_seconds`` at the present rate; may be infinite."""
        if not work_seconds:
            return 0.0
        if self.course is not None:
            whole = self.trace_job.duration_seconds
            work_seconds = whole * self.course.time_left(work_seconds / whole)
        return work_seconds / self.rate if self.rate > 0 else math.inf

    def finish_at(self, rate: float, course: Course | None = None) -> float:
        """Set the rate in work seconds per second; return the finish, infinity for never.

        With a ``course``, ``rate`` is the mean over a whole training.
        """
        self.rate, self.course = rate, course
        self.version += 1
        return self._advanced_to + self._seconds_for(self.work_seconds)

    def resize(
        self, running: RunningGang, now: float, nodes: NodeTable, restart_seconds: float
    ) -> None:
        """Save a checkpoint and continue on the places of ``running``."""
        self._end_segment(now, "resized", nodes)
        # Before its work began there is nothing to save; the start-up time is spent in any case.
        self._saved_at, self._saved_seconds = max(now, self._work_began), self.work_seconds
        self._advanced_to = max(self._advanced_to, now + restart_seconds)
        self._segment_began = now
        self.running = running
        self.resizes += 1

    def stop(self, now: float, ended_by: str, nodes: NodeTable, restart_seconds: float) -> None:
        """Lose its places and all work since its last checkpoint, and wait again."""
        is_preempted, was_lent = ended_by == "preempted", self.running_now.is_opportunistic
        attained = self._end_segment(now, ended_by, nodes)
        self.work_seconds = self._saved_seconds
        self.kept_seconds += self._saved_at - self._work_began
        if self.first_estimate is not None:
            min_seconds = MIN_ESTIMATE * self.first_estimate
            # Never 0, however long it ran: the estimate was wrong.
            remaining_seconds = max(min_seconds, self.first_estimate - self.kept_seconds)
            self.known_seconds = remaining_seconds + restart_seconds
        self.gang = replace(
            self.gang,
            # The time it ran does not count as wait.
            arrived=self.gang.arrived + attained,
            interrupted=True,
            displaced=ended_by != "preempted",  # no other gang took its places
            evictions=self.gang.evictions + is_preempted,
            yields=self.gang.yields + (is_preempted and was_lent),
            attained_seconds=self.gang.attained_seconds + attained,
            estimated_seconds=self.known_seconds,
        )
        self.count_steps()
        self.gang = apply_progress_report(self.gang)

    def finish(self, now: float, nodes: NodeTable) -> float:
        """End its last run; return the seconds of one undisturbed start."""
        self._end_segment(now, "finished", nodes)
        return self.kept_seconds + now - self._work_began

    def record(self, finished: float | None = None, verdict: str = "") -> JobRecord:
        """Return its record."""
        return JobRecord(
            job=self.trace_job,
            started=self.started,
            finished=finished,
            segments=tuple(self.segments),
            verdict=verdict if self.started is None else "",
            preemptions=sum(segment.ended_by == "preempted" for segment in self.segments),
            resizes=self.resizes,
            reserved_start=self.reserved_start,
            wait_bound_seconds=self.wait_bound_seconds,
        )

    def cut_off(self, now: float, nodes: NodeTable) -> None:
        """End its run because the simulation ends."""
        self._end_segment(now, "still running", nodes)

    def _end_segment(self, now: float, ended_by: str, nodes: NodeTable) -> float:
        """Record the segment; return the seconds since the start."""
        running = self.running_now
        places = _places(running.placement, nodes)
        self.segments.append(RunSegment(self._segment_began, now, places, ended_by))
        self.running = None
        self.version += 1  # the queued finish event is stale
        return now - running.started

    def report(self, now: float) -> RunningGang | None:
        """Report progress; return the gang with its report, None where no report is due."""
        reporting, running, previous = (
            self.trace_job.reporting,
            self.running_now,
            self.gang.progress,
        )
        if reporting is None or not reporting.is_due(previous, now):
            return None
        work_seconds = self._work_left_at(now)
        work = WorkLeft(
            share=work_seconds / self.trace_job.duration_seconds
            if self.trace_job.duration_seconds
            else 0.0,
            seconds=self._seconds_for(work_seconds),
            steps=self.trace_job.steps,
        )
        report = reporting.report(previous, now, work)
        report = with_anchor(report, self.gang.attained_seconds, running.started)
        reported = replace(self.gang, progress=report, estimated_seconds=self.known_seconds)
        self.gang = apply_progress_report(reported, running)
        self.running = replace(running, gang=self.gang)
        return self.running

    def count_steps(self) -> None:
        """Write the done and remaining steps into its gang, as of the last advance."""
        if self.trace_job.steps is not None and self.trace_job.duration_seconds:
            remaining_steps = (
                self.trace_job.steps * self.work_seconds / self.trace_job.duration_seconds
            )
            done = self.trace_job.steps - remaining_steps
            self.gang = replace(self.gang, remaining_steps=remaining_steps, done_steps=done)


def _last_checkpoint(began: float, now: float, checkpoint_seconds: float) -> float:
    if checkpoint_seconds <= 0:  # every moment is a checkpoint
        return now
    if math.isinf(checkpoint_seconds):  # the job saves no checkpoint
        return began
    return began + math.floor((now - began) / checkpoint_seconds) * checkpoint_seconds


def _places(placement: Placement, nodes: NodeTable) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (task.task, nodes.names[row], count)
        for task in placement.tasks
        for row, count in zip(task.rows.tolist(), task.counts.tolist(), strict=True)
    )
