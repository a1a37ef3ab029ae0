"""The state of a simulation: jobs on machines at one moment, and the events to come.

:class:`SimulationState` applies every change of a job: arrival, start, resize, stop, node loss and
finish. :mod:`bireme_lab.simulator.simulation` makes the decisions;
:mod:`bireme_lab.simulator.physics` gives the speed of jobs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bireme.core.decision import Admit, Resize
from bireme.core.finished_runs import FinishedRun, make_finished_run
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.placement import Placement, placement_at
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import moment_at, moment_past
from bireme_lab.simulator import workload
from bireme_lab.simulator.cluster import SimulatedCluster, replicas_by_node
from bireme_lab.simulator.equivalence import WaitingGangs
from bireme_lab.simulator.events import Event, EventKind, EventQueue
from bireme_lab.simulator.job_state import SimulatedJob
from bireme_lab.simulator.node_pools import NodePool, SimulatedPools
from bireme_lab.simulator.outcome import JobRecord
from bireme_lab.simulator.physics.model import Physics, PlacedSpeedLaw


def _windows(nodes: Iterable[Node]) -> Iterator[Event]:
    """Yield the beginning and the end of every maintenance of ``nodes``."""
    for node in nodes:
        if node.maintenance is not None:
            for moment in (node.maintenance.begins, node.maintenance.ends):
                yield Event(max(0.0, moment), EventKind.MAINTENANCE, node.name)


class SimulationState:
    """Jobs, machines and future events.

    Attributes:
        now: Seconds after the start of the trace.
        jobs: All jobs of the trace, by name, which is also the gang's uid.
        active: Jobs that have arrived and not finished, by name.
        records: Finished jobs, by name.
        elastic: The number of running elastic gangs.
        running_without_estimate: The number of running gangs without an estimate of run time.
    """

    def __init__(
        self,
        trace: workload.Trace,
        nodes: Sequence[Node],
        settings: SchedulingSettings,
        physics: Physics,
        seed: int,
        estimator: workload.Estimator | None,
        pools: Sequence[NodePool] = (),
    ) -> None:
        self.now = 0.0
        self.jobs = dict(workload.jobs_by_name(trace))
        queues = {queue.name: queue for queue in trace.queues}
        self.cluster = SimulatedCluster(nodes, queues, settings)
        self.active: dict[str, SimulatedJob] = {}
        self.waiting = WaitingGangs()
        self.records: dict[str, JobRecord] = {}
        self.elastic = 0
        self.running_without_estimate = 0
        self.settings = settings
        self._physics = physics
        self._seed = seed
        self._estimator = estimator
        self._has_reports = any(job.reporting is not None for job in trace.jobs)
        running_names = {run.job for run in trace.underway}
        arrivals = [
            Event(job.submitted, EventKind.ARRIVAL, job.name)
            for job in trace.jobs
            if job.name not in running_names
        ]
        self.events = EventQueue([*arrivals, *self._failures(nodes), *_windows(nodes)])
        for run in trace.underway:
            self._restore(run)
        # Last, because it removes the nodes beyond the minimum, which must be empty.
        self.pools = SimulatedPools(pools, self.cluster, self.events)

    def _failures(self, nodes: Sequence[Node]) -> Iterator[Event]:
        # Nodes fail up to the end of the last job if all started on arrival; then they stay up.
        ends = (job.submitted + job.duration_seconds for job in self.jobs.values())
        for failure in self._physics.failures(nodes, max(ends, default=0.0), self._seed):
            yield Event(failure.time, EventKind.NODE, failure.node, int(failure.is_up))

    def _restore(self, start: workload.RunningAtStart) -> None:
        """Put a job that runs when the trace starts on its places."""
        trace_job, nodes = self.jobs[start.job], self.cluster.table
        job = self._add(trace_job)
        anchor = nodes.row[start.anchor] if start.anchor else -1
        places = placement_at(start.places, nodes)
        running = RunningGang(
            job.gang,
            places,
            start.started,
            anchor_row=anchor,
            is_opportunistic=start.is_opportunistic,
        )
        job.start(running, self.now, 0.0)
        self.cluster.restore(running)
        self._run(running)
        self._wake_after(job, self.cluster.min_runtime_seconds(job.gang))

    def snapshot(self, waiting: tuple[Gang, ...]) -> ClusterSnapshot:
        """Return the cluster as the cycle sees it, with only ``waiting`` as waiting gangs."""
        if self._has_reports:
            self._collect_reports()
        return self.cluster.snapshot(self.now, waiting, self.pools.growable())

    def _collect_reports(self) -> None:
        """Apply the progress reports that are due."""
        updated = []
        for uid, running in self.cluster.running.items():
            reported = self.active[uid].report(self.now)
            if reported is not None:
                self.running_without_estimate -= running.gang.estimated_seconds is None
                self.running_without_estimate += reported.gang.estimated_seconds is None
                updated.append(reported)
        if updated:
            self.cluster.update(updated)

    def all_records(self, verdicts: Mapping[str, str]) -> tuple[JobRecord, ...]:
        """Return every job in order of submission; ``verdicts`` are last reasons by job name."""
        for job in self.active.values():
            if job.running is not None:
                job.cut_off(self.now, self.cluster.table)
        records = {name: JobRecord(job, None, None) for name, job in self.jobs.items()}
        for name, active in self.active.items():
            records[name] = active.record(verdict=verdicts.get(name, ""))
        records |= self.records
        return tuple(sorted(records.values(), key=lambda one: (one.job.submitted, one.job.name)))

    # --- Events -------------------------------------------------------------------------------

    def handle(self, event: Event) -> bool:
        """Apply ``event``; return whether it can change a decision."""
        match event.kind:
            case EventKind.FINISH:
                return self._finish(event)
            case EventKind.NODE:
                return self._set_node_ready(event)
            case EventKind.ARRIVAL:
                self._enqueue(self._add(self.jobs[event.name]))
                return True
            case EventKind.WAKE:
                return self._is_wake_needed(event)
            case EventKind.POOL:
                return self.pools.handle(event, self.now)
            case EventKind.MAINTENANCE:
                return True

    def submit(self, job: workload.TraceJob) -> None:
        """Add a job that is submitted now or later; its name must be new."""
        self.jobs[job.name] = job
        self.events.push(Event(job.submitted, EventKind.ARRIVAL, job.name))

    def _add(self, trace_job: workload.TraceJob) -> SimulatedJob:
        """Register a job that arrives."""
        gang = workload.gang_of(trace_job, self._estimator)
        job = SimulatedJob(trace_job, gang, self.cluster.wait_bound_seconds(gang))
        self.active[trace_job.name] = job
        return job

    def _enqueue(self, job: SimulatedJob) -> None:
        """Let a gang wait, and queue a cycle at its wait bound."""
        self.waiting.add(job.gang, self.now)
        self._wake_at_bound(job.gang)

    def _wake_at_bound(self, gang: Gang) -> None:
        after_seconds = self.cluster.overdue_after_seconds(gang)
        overdue = max(self.now, moment_past(gang.arrived, after_seconds))
        self.events.push(Event(overdue, EventKind.WAKE, gang.uid))

    def is_overdue(self, gang: Gang) -> bool:
        """Return whether the waiting ``gang`` is past its wait bound."""
        return gang.wait_seconds(self.now) > self.cluster.overdue_after_seconds(gang)

    def set_parked(self, uid: str, *, is_parked: bool) -> None:
        """Park a waiting gang, or end its parking."""
        if is_parked is self.waiting.is_parked(uid):
            return
        if is_parked:
            self.waiting.park(uid, self.now)
            return
        for gang in self.waiting.line_up(uid, self.now):
            self._wake_at_bound(gang)

    def _finish(self, event: Event) -> bool:
        job = self.active.get(event.name)
        if job is None or job.version != event.version or job.running is None:
            return False  # the event is stale: the job was stopped, or its speed has changed
        running = job.running
        rows = self._vacate(running)
        seconds = job.finish(self.now, self.cluster.table)
        self.cluster.finished_runs = self.cluster.finished_runs.plus(self._run_of(job, running))
        if self._estimator is not None:
            self._estimator.observe(
                job.trace_job.user, workload.template_of(job.trace_job), seconds
            )
        self.records[event.name] = job.record(finished=self.now)
        del self.active[event.name]
        self._neighbours_changed(rows)
        return True

    def _run_of(self, job: SimulatedJob, running: RunningGang) -> FinishedRun | None:
        """Return the run that has just ended; None if it says nothing about its machines."""
        # The record of a job that ran when the trace started lacks its earlier history.
        is_whole = job.starts == 1 and job.started == running.started
        if not is_whole or job.trace_job.is_elastic:
            return None
        replicas = Counter[str]()
        for _, node, count in job.segments[-1].places:
            replicas[node] += count
        return make_finished_run(
            replicas,
            self.cluster.table,
            self.now - running.started,
            job.stated_seconds,
            job.trace_job.user,
            workload.template_of(job.trace_job),
        )

    def _is_wake_needed(self, event: Event) -> bool:
        """Return whether the reason for a wake-up still holds."""
        if not event.version:
            return event.name in self.waiting  # its wait bound has passed
        job = self.active.get(event.name)
        return job is not None and job.running is not None and job.starts == event.version

    def _set_node_ready(self, event: Event) -> bool:
        is_ready = bool(event.version)
        if is_ready is self.cluster.is_up(event.name):
            return False
        if not is_ready:
            for uid in self.cluster.tenants_of([self.cluster.table.row[event.name]]):
                self.stop(uid, "node lost")
        self.cluster.set_node_ready(event.name, is_ready)
        return True

    # --- Decisions ----------------------------------------------------------------------------

    def start(self, action: Admit) -> SimulatedJob:
        """Put a waiting gang on its places."""
        job = self.active[action.gang.uid]
        job.gang = self.waiting.remove(job.gang.uid, self.now)
        anchor = _first_row(job.gang, action.placement)
        running = RunningGang(
            job.gang,
            action.placement,
            self.now,
            anchor_row=anchor,
            is_opportunistic=action.is_opportunistic,
        )
        physics = self._physics
        delay_seconds = physics.restart_seconds if job.starts else physics.start_seconds
        job.start(running, self.now, delay_seconds)
        job.straggler = physics.straggler(job.trace_job.name, job.starts, self._seed)
        self._occupy(running)
        if self.settings.preemption and action.ranked.preemption_priority is not None:
            # After its minimum run time other gangs may preempt it.
            self._wake_after(job, self.cluster.min_runtime_seconds(job.gang))
        return job

    def stop(self, uid: str, ended_by: str) -> None:
        """Take its places from a running gang and let it wait again."""
        job = self.active[uid]
        running = job.running_now
        # Count its work until now at the old speed, before anything changes.
        job.advance(self.now, self._physics.checkpoint_interval_seconds)
        rows = self._vacate(running)
        job.stop(self.now, ended_by, self.cluster.table, self._physics.restart_seconds)
        self._enqueue(job)
        self._neighbours_changed(rows)

    def resize(self, action: Resize) -> None:
        """Move a running gang to places of another size."""
        job = self.active[action.running.gang.uid]
        old = job.running_now
        job.advance(self.now, self._physics.checkpoint_interval_seconds)
        rows = self._vacate(old)
        job.count_steps()  # the next cycle sees its gang while it runs on
        running = RunningGang(
            job.gang,
            action.placement,
            old.started,
            self.now,
            anchor_row=old.anchor_row,
            is_opportunistic=old.is_opportunistic,
        )
        job.resize(running, self.now, self.cluster.table, self._physics.restart_seconds)
        self._occupy(running, rows)
        self._wake_after(job, self.settings.resize_settle_seconds)

    @property
    def machines_differ(self) -> bool:
        """Whether machines differ in speed; without a law labels have no effect."""
        return self._physics.machines is not None

    # --- Places and speed ---------------------------------------------------------------------

    def _occupy(self, running: RunningGang, vacated_rows: Iterable[int] = ()) -> None:
        """Give ``running`` its places; it has just left ``vacated_rows``."""
        self.cluster.occupy(running)
        self._run(running, vacated_rows)

    def _run(self, running: RunningGang, vacated_rows: Iterable[int] = ()) -> None:
        """Let ``running`` work on the places it holds."""
        self.cluster.service.begin(running, self.now)
        self.elastic += running.gang.is_elastic
        self.running_without_estimate += running.gang.estimated_seconds is None
        job = self.active[running.gang.uid]
        self._set_rate(job, self._rate(job))
        self._neighbours_changed([*vacated_rows, *running.placement.node_rows().tolist()])

    def _vacate(self, running: RunningGang) -> list[int]:
        """Take its places from ``running``; return their rows."""
        self.cluster.release(running)
        self.cluster.service.end(running, self.now)
        self.elastic -= running.gang.is_elastic
        self.running_without_estimate -= running.gang.estimated_seconds is None
        return [int(row) for row in running.placement.node_rows()]

    def _neighbours_changed(self, rows: Iterable[int]) -> None:
        """Update the speed of all gangs on ``rows``, where a gang started or stopped."""
        if not self._physics.interferes:
            return
        for uid in self.cluster.tenants_of(rows):
            job = self.active[uid]
            rate = self._rate(job)
            if rate != job.rate:  # at an equal rate its finish event stays valid
                job.advance(self.now, self._physics.checkpoint_interval_seconds)
                self._set_rate(job, rate)

    def _rate(self, job: SimulatedJob) -> float:
        """Return the seconds of its own run time that ``job`` completes in a second."""
        running = job.running_now
        nodes, racks = self.cluster.spread(running)
        neighbours = self.cluster.neighbours(running) if self._physics.interferes else 0
        return self._physics.rate(
            job.trace_job,
            running.sizes,
            nodes,
            racks,
            neighbours,
            job.straggler,
            places=replicas_by_node(running),
            neighbours_by_node=self.cluster.neighbours_by_node(running)
            if self._physics.machines is not None
            else {},
        )

    def _set_rate(self, job: SimulatedJob, rate: float) -> None:
        law, course = job.trace_job.speed, None
        if isinstance(law, PlacedSpeedLaw):
            course = law.course(replicas_by_node(job.running_now))
        finish = job.finish_at(rate, course)
        self.events.push(Event(finish, EventKind.FINISH, job.trace_job.name, job.version))

    def _wake_after(self, job: SimulatedJob, seconds: float) -> None:
        """Queue a cycle for ``seconds`` after this start or resize of ``job``."""
        if seconds > 0:
            moment = moment_at(self.now, seconds)
            self.events.push(Event(moment, EventKind.WAKE, job.trace_job.name, job.starts))


def _first_row(gang: Gang, placement: Placement) -> int:
    """Return the node of replica 0 of the task that starts first."""
    rows = {task.task: task.rows for task in placement.tasks}
    return next(int(rows[t.name][0]) for t in gang.tasks_in_order() if t.name in rows)
