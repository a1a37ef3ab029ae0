"""The state of a simulation: jobs on machines at one moment, and the events to come.

Everything that happens to a job passes through :class:`SimulationState`: it arrives, starts,
changes its size, is stopped, loses a node, finishes. What should happen is decided elsewhere
(:mod:`bireme.simulator.simulation`); how fast jobs run is :mod:`bireme.simulator.physics`.
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
from bireme.simulator import workload
from bireme.simulator.cluster import SimulatedCluster, replicas_by_node
from bireme.simulator.equivalence import WaitingGangs
from bireme.simulator.events import Event, EventKind, EventQueue
from bireme.simulator.job_state import SimulatedJob
from bireme.simulator.node_pools import NodePool, SimulatedPools
from bireme.simulator.outcome import JobRecord
from bireme.simulator.physics.model import Physics, PlacedSpeedLaw


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
        elastic: How many elastic gangs run.
        running_without_estimate: How many gangs run whose run time nothing estimates.
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
        found = {each.job for each in trace.underway}
        arrivals = [
            Event(job.submitted, EventKind.ARRIVAL, job.name)
            for job in trace.jobs
            if job.name not in found
        ]
        self.events = EventQueue([*arrivals, *self._failures(nodes), *_windows(nodes)])
        for each in trace.underway:
            self._restore(each)
        # Last, because its nodes that are not there at the start go, and must be empty.
        self.pools = SimulatedPools(pools, self.cluster, self.events)

    def _failures(self, nodes: Sequence[Node]) -> Iterator[Event]:
        # Nodes fail until the last job, started on arrival, would be done; then they stay up.
        ends = (job.submitted + job.duration_seconds for job in self.jobs.values())
        for failure in self._physics.failures(nodes, max(ends, default=0.0), self._seed):
            yield Event(failure.time, EventKind.NODE, failure.node, int(failure.is_up))

    def _restore(self, found: workload.RunningAtStart) -> None:
        """Put a job that runs when the trace starts on its places."""
        trace_job, nodes = self.jobs[found.job], self.cluster.table
        job = self._add(trace_job)
        anchor = nodes.row[found.anchor] if found.anchor else -1
        places = placement_at(found.places, nodes)
        running = RunningGang(
            job.gang,
            places,
            found.started,
            anchor_row=anchor,
            is_opportunistic=found.is_opportunistic,
        )
        job.start(running, self.now, 0.0)
        self.cluster.restore(running)
        self._run(running)
        self._wake_after(job, self.cluster.min_runtime_seconds(job.gang))

    def snapshot(self, waiting: tuple[Gang, ...]) -> ClusterSnapshot:
        """Return the cluster as the cycle sees it; of the gangs that wait only ``waiting``."""
        if self._has_reports:
            self._collect_reports()
        return self.cluster.snapshot(self.now, waiting, self.pools.growable())

    def _collect_reports(self) -> None:
        """Take over the progress reports that are due."""
        updated = []
        for uid, before in self.cluster.running.items():
            after = self.active[uid].report(self.now)
            if after is not None:
                self.running_without_estimate -= before.gang.estimated_seconds is None
                self.running_without_estimate += after.gang.estimated_seconds is None
                updated.append(after)
        if updated:
            self.cluster.update(updated)

    def all_records(self, verdicts: Mapping[str, str]) -> tuple[JobRecord, ...]:
        """Return every job in order of submission; ``verdicts`` are last reasons by name."""
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
        """Let one more job arrive when it is submitted, now or later; its name must be new."""
        self.jobs[job.name] = job
        self.events.push(Event(job.submitted, EventKind.ARRIVAL, job.name))

    def _add(self, trace_job: workload.TraceJob) -> SimulatedJob:
        """Register a job that arrives."""
        gang = workload.gang_of(trace_job, self._estimator)
        job = SimulatedJob(trace_job, gang, self.cluster.wait_bound_seconds(gang))
        self.active[trace_job.name] = job
        return job

    def _enqueue(self, job: SimulatedJob) -> None:
        """Let a gang wait, and wake the cycle when its wait bound has passed."""
        self.waiting.add(job.gang, self.now)
        self._wake_at_bound(job.gang)

    def _wake_at_bound(self, gang: Gang) -> None:
        after_seconds = self.cluster.overdue_after_seconds(gang)
        overdue = max(self.now, moment_past(gang.arrived, after_seconds))
        self.events.push(Event(overdue, EventKind.WAKE, gang.uid))

    def is_overdue(self, gang: Gang) -> bool:
        """Return whether ``gang``, which waits, is past its wait bound."""
        return gang.wait_seconds(self.now) > self.cluster.overdue_after_seconds(gang)

    def set_parked(self, uid: str, *, is_parked: bool) -> None:
        """Let a gang that waits stand in line from now on, or in none."""
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
            return False  # the event is stale: it was stopped, or runs at another speed by now
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
        """Return the run that has just ended; None if it tells nothing of its machines."""
        # Of a job that ran when the trace started, its record does not say what it went through.
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
        """Return whether a wake-up still finds what it was set for."""
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
        """Put a gang that waits on its places."""
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
            # Once it has run so long it may be stopped, if its policy ever stops a gang.
            self._wake_after(job, self.cluster.min_runtime_seconds(job.gang))
        return job

    def stop(self, uid: str, ended_by: str) -> None:
        """Take its places from a running gang and let it wait again."""
        job = self.active[uid]
        running = job.running_now
        # Its work until now is counted at the speed it had before anything changes.
        job.advance(self.now, self._physics.checkpoint_interval_seconds)
        rows = self._vacate(running)
        job.stop(self.now, ended_by, self.cluster.table, self._physics.restart_seconds)
        self._enqueue(job)
        self._neighbours_changed(rows)

    def resize(self, action: Resize) -> None:
        """Move a running gang to other places, of another size."""
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
        """Whether a law says how fast each machine is; else all are alike, whatever labels say."""
        return self._physics.machines is not None

    # --- Places and speed ---------------------------------------------------------------------

    def _occupy(self, running: RunningGang, left: Iterable[int] = ()) -> None:
        """Give ``running`` its places; ``left`` are rows that it has just left."""
        self.cluster.occupy(running)
        self._run(running, left)

    def _run(self, running: RunningGang, left: Iterable[int] = ()) -> None:
        """Let ``running`` work on the places it holds."""
        self.cluster.service.begin(running, self.now)
        self.elastic += running.gang.is_elastic
        self.running_without_estimate += running.gang.estimated_seconds is None
        job = self.active[running.gang.uid]
        self._set_rate(job, self._rate(job))
        self._neighbours_changed([*left, *running.placement.node_rows().tolist()])

    def _vacate(self, running: RunningGang) -> list[int]:
        """Take its places from ``running``; return their rows."""
        self.cluster.release(running)
        self.cluster.service.end(running, self.now)
        self.elastic -= running.gang.is_elastic
        self.running_without_estimate -= running.gang.estimated_seconds is None
        return [int(row) for row in running.placement.node_rows()]

    def _neighbours_changed(self, rows: Iterable[int]) -> None:
        """Set the speed anew of all gangs on ``rows``, to which one came or which one left."""
        if not self._physics.interferes:
            return
        for uid in self.cluster.tenants_of(rows):
            job = self.active[uid]
            rate = self._rate(job)
            if rate != job.rate:  # else its finish stays, and no event becomes stale
                job.advance(self.now, self._physics.checkpoint_interval_seconds)
                self._set_rate(job, rate)

    def _rate(self, job: SimulatedJob) -> float:
        """Return the seconds of its own run time that ``job`` gets done in a second."""
        running = job.running_now
        nodes, racks = self.cluster.spread(running)
        neighbours = self.cluster.neighbours(running) if self._physics.interferes else 0
        return self._physics.rate(
            *(job.trace_job, running.sizes, nodes, racks, neighbours, job.straggler),
            places=replicas_by_node(running),
            others=self.cluster.others(running) if self._physics.machines is not None else {},
        )

    def _set_rate(self, job: SimulatedJob, rate: float) -> None:
        law, course = job.trace_job.speed, None
        if isinstance(law, PlacedSpeedLaw):
            course = law.course(replicas_by_node(job.running_now))
        finish = job.finish_at(rate, course)
        self.events.push(Event(finish, EventKind.FINISH, job.trace_job.name, job.version))

    def _wake_after(self, job: SimulatedJob, seconds: float) -> None:
        """Look again once ``job`` has run, or kept its size, for so long."""
        if seconds > 0:
            moment = moment_at(self.now, seconds)
            self.events.push(Event(moment, EventKind.WAKE, job.trace_job.name, job.starts))


def _first_row(gang: Gang, placement: Placement) -> int:
    """The node of replica 0 of the task that must be up before the others."""
    rows = {task.task: task.rows for task in placement.tasks}
    return next(int(rows[t.name][0]) for t in gang.tasks_in_order() if t.name in rows)
