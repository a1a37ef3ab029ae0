"""The one level-triggered loop: look at everything that changed, decide, hand over, repeat.

A change only marks the loop dirty. Each turn first tends gangs that already have a plan (their
life cycle), then runs one scheduling cycle over the whole cluster. Nothing is carried from turn
to turn that could not be recomputed, except refusals, which expire or end with an edit.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import structlog

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Hold
from bireme.core.errors import error_text
from bireme.core.eta import StartRange, StartRanges
from bireme.core.gangs import Gang, Key
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.client import NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.conditions import cleaned
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import lifecycle, pod_groups, status
from bireme_operator.actuator import Actuator, AdmissionRejections, Verdict
from bireme_operator.jobs import Jobs
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import Pools
from bireme_operator.object_status import PolicyReports, PoolReports, QueueReports
from bireme_operator.pod_groups import ExternalPodGroups
from bireme_operator.policies import Policies, Shadows
from bireme_operator.preemptions import Preemptions
from bireme_operator.recording import Recording
from bireme_operator.resizes import Resizes
from bireme_operator.settings import OperatorSettings
from bireme_operator.status import Reports

# Errors of the operator's own code about one object: told, waited out, and nothing else stops.
#
# No input should cause one. But one that escaped would end the process, and the next leader would
# read the same object and end too. So whatever is done about one object is done in :meth:`about`.

_log = structlog.get_logger(__name__)


class ReconcileErrors:
    """Those of one term. A gang that has had one is left alone for ever longer pauses."""

    def __init__(self, actuator: Actuator, reports: Reports, metrics: OperatorMetrics) -> None:
        self._actuator = actuator
        self._state = actuator.state
        self._reports = reports
        self._metrics = metrics

    @contextmanager
    def about(self, key: Key) -> Iterator[None]:
        """Work on the gang ``key`` alone, whose failure is that gang's."""
        try:
            yield
        except NotLeader:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it is about this gang alone
            self.note(key, error)

    def note(self, key: Key, error: Exception) -> None:
        """``error`` was met at the gang ``key``; during its pause that is known already."""
        if not self._actuator.back_offs.are_over(key):
            return
        _log.error("an object was not understood", object=key, exc_info=error)
        self._metrics.reconcile_errors.inc()
        self._actuator.back_off(key, error)
        self._say(key, cleaned(f"the operator failed on this object: {error_text(error)}"))

    def _say(self, key: Key, message: str) -> None:
        job, group = self._state.jobs.get(key), self._state.groups.get(key)
        holds = group is not None and group.plan is not None
        reason = Reason.OPERATOR_FAILED
        if job is not None and not holds and job.phase in ("Pending", "Restarting"):
            said = {"phase": job.phase, "reason": reason.value, "message": message}
            self._reports.offer_job(job, {**job.status, **said})
        elif job is not None:
            self._reports.tell("TrainingJob", key, job.uid, reason, message)
        elif group is not None:
            self._reports.tell("PodGroup", key, group.uid, reason, message)


# How long something has lasted, by the wall clock and by our own watch, whichever says more.
#
# Times in objects are of the wall clock, which somebody may set back; what was to end in a minute
# would then end an hour later. A monotonic clock cannot be set, but begins anew with every leader.


class MonotonicAge:
    """Of gangs; ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first_asked: dict[tuple[Key, float], float] = {}
        self._asked: set[tuple[Key, float]] = set()

    def seconds(self, key: Key, since: float, now: float) -> float:
        """Since ``since``, POSIX seconds as ``now``; at least since this was first asked."""
        self._asked.add((key, since))
        first = self._first_asked.setdefault((key, since), self._clock())
        return max(now - since, self._clock() - first)

    def forget(self) -> None:
        """Drop what nobody has asked for since this was called last."""
        self._first_asked = {asked: self._first_asked[asked] for asked in self._asked}
        self._asked.clear()


# Which nodes can be trusted with what was planned on them, and since when they cannot.

_OVERFULL_SECONDS = 2.0
"""How long a node may look overfull before it counts: a pod just bound and still planned."""


class NodeHealth:
    """Verdicts on nodes, for gangs that sit or are about to sit on them."""

    def __init__(
        self, state: ClusterState, clock: Callable[[], float], lost_seconds: float
    ) -> None:
        self._state = state
        self._clock = clock
        self._lost_seconds = lost_seconds
        self._not_ready_since: dict[str, float] = {}
        self._overfull_since: dict[str, float] = {}

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Note which nodes are not ready or hold more than they offer."""
        now, nodes = self._clock(), snapshot.nodes
        overfull = (snapshot.used > nodes.allocatable).any(axis=1)
        not_ready = {nodes.names[row] for row in np.flatnonzero(~nodes.is_ready)}
        full = {nodes.names[row] for row in np.flatnonzero(overfull)}
        self._not_ready_since = {n: self._not_ready_since.get(n, now) for n in not_ready}
        self._overfull_since = {n: self._overfull_since.get(n, now) for n in full}

    def lost(self, name: str) -> str:
        """Why the node is lost; empty when it is not."""
        node = self._state.node(name)
        if node is None:
            return "the node was deleted"
        since = self._not_ready_since.get(name)
        if since is not None and self._clock() - since >= self._lost_seconds:
            return f"the node has not been ready for {self._lost_seconds:.0f} s"
        return ""

    def unusable(self, name: str) -> str:
        """Why a planned pod that is not bound yet cannot get there; empty when it can."""
        node = self._state.node(name)
        if node is not None and node.is_cordoned:
            return "the node was cordoned before the pod was bound"
        since = self._overfull_since.get(name)
        if since is not None and self._clock() - since >= _OVERFULL_SECONDS:
            return "the planned room was taken by another pod"
        return ""


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
    reconcile_errors: ReconcileErrors
    recording: Recording
    metrics: OperatorMetrics
    settings: OperatorSettings
    refusals: AdmissionRejections
    fence: Callable[[], None]
    now: Callable[[], float]
    clock: Callable[[], float]
    dirty: asyncio.Event = field(default_factory=asyncio.Event)
    finished_at: float = field(init=False)
    """When the last turn ended; the liveness probe watches it."""
    _swept_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.finished_at = self.clock()
        self._foreign = ExternalPodGroups(self.actuator, self.clock)
        self._starts = StartRanges()
        self._watch = MonotonicAge(self.clock)
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
        self.state.run_times.learn(finished, self.reconcile_errors.about)
        for key in keys:
            with self.reconcile_errors.about(key):
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
            with self.reconcile_errors.about(admit.gang.key):
                self._admit(admit, snapshot, jobs, groups)
        self.preemptions.carry_out(decision, jobs)
        self.resizes.carry_out(decision, snapshot, groups)
        starts = self._starts.update(snapshot, decision)
        for hold in (hold for hold in decision.held if free(hold.gang.key)):
            with self.reconcile_errors.about(hold.gang.key):
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
                self.reports.offer_group(group, pod_groups.waiting_status(group, hold, now))
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
