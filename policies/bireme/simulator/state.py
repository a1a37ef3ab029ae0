"""The world that decisions act on: jobs, machines and the events to come, moved by physics.

Everything that happens to a job passes through here: it arrives, starts, changes its size, is
stopped, loses a node, finishes. What should happen is decided elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bireme.core.decision import Admit, Resize
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.placement import Placement, placement_at
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.simulator.arrivals import Estimator, gang_of, jobs_by_name, template_of
from bireme.simulator.cluster import Cluster, replicas_by_node
from bireme.simulator.equivalence import Lines
from bireme.simulator.events import Event, EventQueue, Kind, moment_at, moment_past
from bireme.simulator.job_state import Life
from bireme.simulator.node_pools import NodePool, Pools
from bireme.simulator.outcome import JobRecord
from bireme.simulator.physics import Physics
from bireme.simulator.workload import Trace, TraceJob, Underway


class World:
    """Jobs on machines at one moment.

    Attributes:
        now: Seconds after the start of the trace.
        lives: Jobs that have arrived and not finished, by name, which is also the gang's uid.
        waiting: Gangs that want to start.
        records: Finished jobs, by name.
        elastic: How many elastic gangs run.
        unforeseen: How many gangs run without an estimate.
        pools: Node pools that grow and shrink.
    """

    def __init__(
        self,
        trace: Trace,
        nodes: Sequence[Node],
        settings: SchedulingSettings,
        physics: Physics,
        seed: int,
        estimator: Estimator | None,
        pools: Sequence[NodePool] = (),
    ) -> None:
        self.now = 0.0
        self.jobs = jobs_by_name(trace)
        self.cluster = Cluster(nodes, {queue.name: queue for queue in trace.queues}, settings)
        self.lives: dict[str, Life] = {}
        self.waiting = Lines()
        self.records: dict[str, JobRecord] = {}
        self.elastic = 0
        self.unforeseen = 0
        self.settings = settings
        self._physics = physics
        self._seed = seed
        self._estimator = estimator
        self._reporting = any(job.reporting is not None for job in trace.jobs)
        there = {found.job for found in trace.underway}
        arrivals = [
            Event(job.submitted, Kind.ARRIVAL, job.name)
            for job in trace.jobs
            if job.name not in there
        ]
        self.events = EventQueue([*arrivals, *self._failures(nodes)])
        for found in trace.underway:
            self._adopt(found)
        self.pools = Pools(pools, self.cluster, self.events)

    def _failures(self, nodes: Sequence[Node]) -> Iterator[Event]:
        """Nodes fail until the last job, started on arrival, would be done; then they stay up."""
        ends = (job.submitted + job.duration_seconds for job in self.jobs.values())
        for failure in self._physics.failures(nodes, max(ends, default=0.0), self._seed):
            yield Event(failure.time, Kind.NODE, failure.node, int(failure.is_up))

    def snapshot(self, waiting: tuple[Gang, ...]) -> ClusterSnapshot:
        """What the cycle may know, of those that wait only ``waiting``."""
        if self._reporting:
            self._hear_reports()
        return self.cluster.snapshot(self.now, waiting, self.pools.growable())

    def _hear_reports(self) -> None:
        """Those who run and have not reported for a while do."""
        found = (
            (before, self.lives[uid].report(self.now))
            for uid, before in tuple(self.cluster.running.items())
        )
        told = [(before, after) for before, after in found if after is not None]
        for before, after in told:
            self.unforeseen -= before.gang.estimated_seconds is None
            self.unforeseen += after.gang.estimated_seconds is None
        if told:
            self.cluster.retell(after for _, after in told)

    def all_records(self, verdicts: Mapping[str, str]) -> tuple[JobRecord, ...]:
        """Every job in order of submission; ``verdicts`` say why those that wait do so."""
        for life in self.lives.values():
            if life.running is not None:
                life.cut_off(self.now, self.cluster.table)
        jobs = sorted(self.jobs.values(), key=lambda job: (job.submitted, job.name))
        return tuple(self._record(job, verdicts.get(job.name, "")) for job in jobs)

    def _record(self, job: TraceJob, verdict: str) -> JobRecord:
        if job.name in self.records:
            return self.records[job.name]
        if job.name in self.lives:
            return self.lives[job.name].record(verdict=verdict)
        return JobRecord(job, started=None, finished=None)  # the simulation ended before it came

    # --- what happens by itself -----------------------------------------------------------

    def hear(self, event: Event) -> bool:
        """Let ``event`` happen; whether it can matter to a decision."""
        match event.kind:
            case Kind.FINISH:
                return self._finish(event)
            case Kind.NODE:
                return self._put_node(event)
            case Kind.ARRIVAL:
                self._arrive(event.name)
                return True
            case Kind.WAKE:
                return self._is_awaited(event)
            case Kind.POOL:
                return self.pools.hear(event, self.now)

    def _arrive(self, name: str) -> None:
        job = self.jobs[name]
        gang = gang_of(job, self._estimator)
        self.lives[name] = Life(job, gang, self.cluster.wait_bound_seconds(gang))
        self._await(self.lives[name])

    def _await(self, life: Life) -> None:
        """A gang waits, and is overdue some day."""
        self.waiting.add(life.gang)
        overdue = max(self.now, moment_past(life.gang.arrived, life.wait_bound_seconds))
        self.events.push(Event(overdue, Kind.WAKE, life.gang.uid))

    def _adopt(self, found: Underway) -> None:
        """A job is found running when the trace starts."""
        job, nodes = self.jobs[found.job], self.cluster.table
        gang = gang_of(job, self._estimator)
        life = self.lives[found.job] = Life(job, gang, self.cluster.wait_bound_seconds(gang))
        anchor = nodes.row[found.anchor] if found.anchor else -1
        places = placement_at(found.places, nodes)
        running = RunningGang(gang, places, found.started, anchor_row=anchor)
        life.start(running, self.now, 0.0)
        self.cluster.adopt(running)
        self._run(running)
        self._wake_after(life, self.settings.min_runtime_seconds)

    def _finish(self, event: Event) -> bool:
        life = self.lives.get(event.name)
        if life is None or life.version != event.version or life.running is None:
            return False  # it was stopped, or goes at another pace by now
        rows = self._vacate(life.running)
        seconds = life.finish(self.now, self.cluster.table)
        if self._estimator is not None:
            self._estimator.observe(life.job.user, template_of(life.job), seconds)
        self.records[event.name] = life.record(finished=self.now)
        del self.lives[event.name]
        self._crowd_changed(rows)
        return True

    def _is_awaited(self, event: Event) -> bool:
        """Whether a wake-up still finds what it was set for."""
        if not event.version:
            return event.name in self.waiting  # its wait bound has passed
        life = self.lives.get(event.name)
        return life is not None and life.running is not None and life.starts == event.version

    def _put_node(self, event: Event) -> bool:
        is_ready = bool(event.version)
        if is_ready is self.cluster.is_up(event.name):
            return False
        if not is_ready:
            for uid in self.cluster.tenants_of([self.cluster.table.row[event.name]]):
                self.stop(uid, "node lost")
        self.cluster.put_node(event.name, is_ready)
        return True

    # --- what is decided ------------------------------------------------------------------

    def start(self, action: Admit) -> Life:
        """A gang that waits takes its places."""
        life = self.lives[action.gang.uid]
        self.waiting.remove(life.gang.uid)
        anchor = _first_row(life.gang, action.placement)
        running = RunningGang(life.gang, action.placement, self.now, anchor_row=anchor)
        physics = self._physics
        delay_seconds = physics.restart_seconds if life.starts else physics.start_seconds
        life.start(running, self.now, delay_seconds)
        life.straggler = self._physics.straggler(life.job.name, life.starts, self._seed)
        self._occupy(running)
        if self.settings.preemption and action.ranked.claim is not None:
            # Once it has run so long it may be stopped, if its policy ever stops anybody.
            self._wake_after(life, self.settings.min_runtime_seconds)
        return life

    def stop(self, uid: str, ended_by: str) -> None:
        """A running gang loses its places and waits again."""
        life = self.lives[uid]
        running = life.running_now
        life.advance(self.now, self._physics.checkpoint_interval_seconds)
        rows = self._vacate(running)
        life.stop(self.now, ended_by, self.cluster.table, self._physics.restart_seconds)
        self._await(life)
        self._crowd_changed(rows)

    def resize(self, action: Resize) -> None:
        """A running gang goes on with other places."""
        life = self.lives[action.running.gang.uid]
        old = life.running_now
        life.advance(self.now, self._physics.checkpoint_interval_seconds)
        rows = self._vacate(old)
        life.count_steps()
        running = RunningGang(
            life.gang, action.placement, old.started, self.now, anchor_row=old.anchor_row
        )
        life.resize(running, self.now, self.cluster.table, self._physics.restart_seconds)
        self._occupy(running, rows)
        self._wake_after(life, self.settings.resize_settle_seconds)

    # --- places and pace ------------------------------------------------------------------

    def _occupy(self, running: RunningGang, left: Iterable[int] = ()) -> None:
        """``running`` takes its places; ``left`` are rows that somebody else has just left."""
        self.cluster.hold(running)
        self._run(running, left)

    def _run(self, running: RunningGang, left: Iterable[int] = ()) -> None:
        """``running`` works on the places it holds."""
        self.elastic += running.gang.is_elastic
        self.unforeseen += running.gang.estimated_seconds is None
        life = self.lives[running.gang.uid]
        self._set_pace(life, self._rate(life))
        self._crowd_changed([*left, *running.placement.node_rows().tolist()])

    def _vacate(self, running: RunningGang) -> list[int]:
        """``running`` gives its places back; their rows."""
        self.cluster.release(running)
        self.elastic -= running.gang.is_elastic
        self.unforeseen -= running.gang.estimated_seconds is None
        return [int(row) for row in running.placement.node_rows()]

    def _crowd_changed(self, rows: Iterable[int]) -> None:
        """Somebody came to or left ``rows``: those who run there may go at another pace."""
        if not self._physics.interferes:
            return
        for uid in self.cluster.tenants_of(rows):
            life = self.lives[uid]
            rate = self._rate(life)
            if rate != life.rate:
                life.advance(self.now, self._physics.checkpoint_interval_seconds)
                self._set_pace(life, rate)

    def _rate(self, life: Life) -> float:
        """Seconds of its own run time that ``life`` gets done in a second."""
        running = life.running_now
        nodes, racks = self.cluster.spread(running)
        neighbours = self.cluster.neighbours(running) if self._physics.interferes else 0
        return self._physics.rate(
            *(life.job, running.sizes, nodes, racks, neighbours, life.straggler),
            places=replicas_by_node(running),
            others=self.cluster.others(running) if self._physics.machines is not None else {},
        )

    def _set_pace(self, life: Life, rate: float) -> None:
        course = self._physics.course(life.job, replicas_by_node(life.running_now))
        finish = life.finish_at(rate, course)
        self.events.push(Event(finish, Kind.FINISH, life.job.name, life.version))

    def _wake_after(self, life: Life, seconds: float) -> None:
        """Look again once ``life`` has run, or kept its size, for so long."""
        if seconds > 0:
            moment = moment_at(self.now, seconds)
            self.events.push(Event(moment, Kind.WAKE, life.job.name, life.starts))


def _first_row(gang: Gang, placement: Placement) -> int:
    """The node of replica 0 of the task that must be up before the others."""
    rows = {task.task: task.rows for task in placement.tasks}
    return next(int(rows[t.name][0]) for t in gang.tasks_in_order() if t.name in rows)
