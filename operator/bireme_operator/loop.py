"""The one level-triggered loop: look at everything that changed, decide, hand over, repeat.

A change only marks the loop dirty. Each turn first tends gangs that already have a plan (their
life cycle), then runs one scheduling cycle over the whole cluster. Nothing is carried from turn
to turn that could not be recomputed, except refusals, which expire or end with an edit.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Hold
from bireme.core.gangs import Gang, Key
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.start_ranges import StartRange, StartRanges
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import foreign, lifecycle, status
from bireme_operator.actuator import Actuator
from bireme_operator.foreign import ForeignGangs
from bireme_operator.health import NodeHealth
from bireme_operator.jobs import Jobs
from bireme_operator.metrics import Metrics
from bireme_operator.mishaps import Mishaps
from bireme_operator.policies import Policies
from bireme_operator.policy_reports import PolicyReports
from bireme_operator.pool_reports import PoolReports
from bireme_operator.pools import Pools
from bireme_operator.preemptions import Preemptions
from bireme_operator.queue_reports import QueueReports
from bireme_operator.recording import Recording
from bireme_operator.refusals import Refusals, Verdict
from bireme_operator.reports import Reports
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.shadows import Shadows
from bireme_operator.stopwatch import Stopwatch

_log = structlog.get_logger(__name__)
_REST = 3.0
"""After a turn of t seconds the loop rests at least ``_REST * t``: deciding more often than that
takes processor time from the writes that carry decisions out."""


@dataclass(kw_only=True)
class SchedulingLoop:
    """Runs until cancelled. ``now`` gives POSIX seconds, ``clock`` monotonic ones."""

    state: ClusterState
    policies: Policies
    shadows: Shadows
    actuator: Actuator
    reports: Reports
    jobs: Jobs
    preemptions: Preemptions
    resizes: Resizes
    queue_reports: QueueReports
    policy_reports: PolicyReports
    pools: Pools
    pool_reports: PoolReports
    mishaps: Mishaps
    recording: Recording
    metrics: Metrics
    settings: OperatorSettings
    refusals: Refusals
    fence: Callable[[], None]
    now: Callable[[], float]
    clock: Callable[[], float]
    dirty: asyncio.Event = field(default_factory=asyncio.Event)
    finished_at: float = field(init=False)
    """When the last turn ended; the liveness probe watches it."""
    _swept_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.finished_at = self.clock()
        self._foreign = ForeignGangs(self.actuator, self.clock)
        self._starts = StartRanges()
        self._watch = Stopwatch(self.clock)
        self._health = NodeHealth(self.state, self.clock, self.settings.node_lost_seconds)

    async def run(self) -> None:
        """Turn after turn, at the latest every ``sweep_interval_seconds``."""
        while True:
            try:
                async with asyncio.timeout(self.settings.sweep_interval_seconds):
                    await self.dirty.wait()
                await asyncio.sleep(self.settings.cycle_debounce_seconds)
            except TimeoutError:
                pass
            self.dirty.clear()
            began = self.clock()
            with self.metrics.turns.time():
                await self.turn()
            self.finished_at = self.clock()
            await asyncio.sleep(_REST * (self.finished_at - began))

    async def turn(self) -> None:
        """Look at what changed, or at everything when a sweep is due, and decide."""
        self.fence()
        sweeps = self.clock() - self._swept_at >= self.settings.sweep_interval_seconds
        changed, self.state.changed = self.state.changed, set()
        keys = sorted({*self.state.jobs, *self.state.groups} if sweeps else changed)
        at = self._situation(self.now())
        refused = self.refusals.current(self.state.jobs)
        finished = (job for key in keys if (job := self.state.jobs.get(key)))
        self.state.run_times.learn(finished, self.mishaps.about)
        for key in keys:
            with self.mishaps.about(key):
                self._tend(key, at, refused)
        waiting = self._waiting(refused)
        if not (waiting or sweeps):
            return  # most turns only follow what gangs that have their places do
        snapshot = self.state.snapshot(at.now, self.actuator.promises(), waiting)
        self._health.observe(snapshot)
        if sweeps:
            self._swept_at = self.clock()
            self._sweep(snapshot)
        known, decision = self.pools.as_known(self.preemptions.as_known(snapshot)), Decision()
        if known.waiting or any(running.gang.is_elastic for running in known.running):
            decision = await self._decide(known)
        else:
            self.recording.offer(known, decision)
        self.metrics.gangs.show_waiting(decision.held, snapshot)
        self.pools.look(snapshot, decision)

    def _situation(self, now: float) -> lifecycle.Situation:
        return lifecycle.Situation(
            now=now,
            bind_timeout_seconds=self.settings.bind_timeout_seconds,
            lost_node=self._health.lost,
            unusable_node=self._health.unusable,
            seconds_since=lambda key, since: self._watch.seconds(key, since, now),
        )

    def _sweep(self, snapshot: ClusterSnapshot) -> None:
        """Forget what is gone, and report on what administrators look at."""
        keys = {*self.state.jobs, *self.state.groups}
        self.actuator.back_offs.forget(keys)
        self._watch.forget()
        alive = {job.uid for job in self.state.jobs.values()}
        alive |= {group.uid for group in self.state.groups.values()}
        self.reports.forget(alive)
        self.jobs.forget(alive)
        self._foreign.forget(alive)
        self.state.run_times.forget(alive)
        self.queue_reports.report(snapshot)
        self.policy_reports.offer()
        self.pool_reports.offer()
        self.metrics.gangs.show_partial(self.state, snapshot.now)

    def _tend(self, key: Key, at: lifecycle.Situation, refused: Mapping[str, Verdict]) -> None:
        if not self.actuator.is_free(key):
            return
        job, group = self.state.jobs.get(key), self.state.groups.get(key)
        plan = group.plan if group is not None else None
        owner = group.job_uid if group is not None and plan is not None else None
        if job is not None and job.uid in refused and owner == job.uid:
            self.actuator.start(key, self.actuator.take_back(job))
        elif job is not None:
            self.jobs.tend(job, group, at)
        # A user's own group may have the name of a job, which then waits for one of them to go.
        if group is not None and owner == "" and self.actuator.is_free(key):
            view = self.state.view(key)
            if view is not None and not group.is_leaving:
                self._foreign.tend(group, view, at)

    def _waiting(self, refused: Mapping[str, Verdict]) -> list[Gang]:
        """Gangs to decide on."""
        gangs = self.state.waiting(self.actuator.undecided(), refused)
        may = self.refusals.may_preempt
        return [gang if may(gang.uid) else replace(gang, may_preempt=False) for gang in gangs]

    async def _decide(self, snapshot: ClusterSnapshot) -> Decision:
        """The decision on ``snapshot``, once everything in it is under way."""
        jobs, groups = dict(self.state.jobs), dict(self.state.groups)
        decider = self.policies.deciding
        with self.metrics.cycles.time():
            decision = await asyncio.to_thread(run_cycle, snapshot, decider.policy)
        self.fence()
        self.recording.offer(snapshot, decision, decider.source)
        decider.tally.add(decision)
        if decision.fallback:
            self.metrics.fallbacks.inc()
            _log.warning("policy overruled", why=decision.fallback)
        # Who is busy, or failed just now, has only kept its turn; soon it is decided on again.
        free = self.actuator.is_free
        for admit in (admit for admit in decision.admitted if free(admit.gang.key)):
            with self.mishaps.about(admit.gang.key):
                self._admit(admit, snapshot, jobs, groups)
        self.preemptions.carry_out(decision, jobs)
        self.resizes.carry_out(decision, snapshot, groups)
        starts = self._starts.tell(snapshot, decision)
        for hold in (hold for hold in decision.held if free(hold.gang.key)):
            with self.mishaps.about(hold.gang.key):
                self._hold(hold, starts.get(hold.gang.uid), snapshot.now, jobs, groups)
        self.shadows.offer(snapshot, decision)
        return decision

    def _admit(
        self,
        admit: Admit,
        snapshot: ClusterSnapshot,
        jobs: dict[Key, JobFacts],
        groups: dict[Key, GroupFacts],
    ) -> None:
        key = admit.gang.key
        if admit.gang.kind == "PodGroup":
            current = self.state.groups.get(key)
            if current is not None and current is groups.get(key):
                plan = self.jobs.plan(admit, snapshot, 0, "")
                self.metrics.gangs.count_admission(admit, snapshot)
                self._foreign.admit(current, admit, plan, self.now())
            return
        job, seen = self.state.jobs.get(key), jobs.get(key)
        # The objects may have changed while the cycle ran; the next turn decides on what is new.
        if job is not None and seen is not None and _same_demand(job, seen):
            self.metrics.gangs.count_admission(admit, snapshot)
            self.jobs.admit(job, admit, snapshot)

    def _hold(
        self,
        hold: Hold,
        start: StartRange | None,
        now: float,
        jobs: dict[Key, JobFacts],
        groups: dict[Key, GroupFacts],
    ) -> None:
        key = hold.gang.key
        if hold.gang.kind == "PodGroup":
            group = self.state.groups.get(key)
            if group is not None and group is groups.get(key):
                self.reports.offer_group(group, foreign.waiting_status(group, hold, now))
            return
        job = self.state.jobs.get(key)
        if job is not None and job is jobs.get(key):
            self.reports.offer_job(job, status.waiting(job, hold, now, start))
            self.jobs.check_template(job, hold)


def _same_demand(job: JobFacts, seen: JobFacts) -> bool:
    return (
        job.uid == seen.uid
        and job.generation == seen.generation
        and job.attempt == seen.attempt
        and not job.is_leaving
        and not job.is_finished
    )
