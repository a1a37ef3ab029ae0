"""Reconciles gangs one by one: compares the recorded state with the existing pods, and acts.

All work on one gang runs inside :meth:`ReconcileErrors.isolate`. No input should make the
operator's own code fail, but an escaped exception would end the process. The next leader would read
the same object and end too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import structlog

from bireme.core.errors import error_text
from bireme.core.gangs import Gang, Key
from bireme.core.nodes import CORDON
from bireme.core.pod_constraints import Toleration
from bireme.core.reasons import Reason
from bireme.core.resources import NODE_ONLY
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.changes import Change
from bireme.kube.client import NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.conditions import cleaned
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import lifecycle
from bireme_operator.actuator import Actuator
from bireme_operator.adoptions import Adoptions
from bireme_operator.jobs import JobReconciler
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_troubles import NodeHealthHistory
from bireme_operator.pod_groups import PodGroups
from bireme_operator.reconcile_context import ReconcileContext
from bireme_operator.rejections import Rejection
from bireme_operator.settings import OperatorSettings
from bireme_operator.start_failures import StartFailures
from bireme_operator.status_writer import StatusWriter
from bireme_operator.success_counts import SuccessCounts
from bireme_operator.workqueue import WorkQueue

# A node counts as overfull after this time: a pod just bound may briefly count as planned, too.
_OVERFULL_SECONDS = 2.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcileErrors:
    """Isolates an exception about one gang: reports it, and lets all other work go on.

    The gang that caused it pauses, for longer each time.
    """

    state: ClusterState
    work: WorkQueue
    reports: StatusWriter
    metrics: OperatorMetrics

    @contextmanager
    def isolate(self, key: Key) -> Iterator[None]:
        """Catch exceptions of the work on the gang ``key`` and report them there."""
        try:
            yield
        except NotLeader:
            raise
        except Exception as error:  # noqa: BLE001  # any error concerns this gang only
            self.add(key, error)

    def add(self, key: Key, error: Exception) -> None:
        """Report an error of the gang ``key``; ignore it in the pause after an earlier one."""
        if self.work.is_pausing(key):
            return
        _log.error("an object was not understood", object=key, exc_info=error)
        self.metrics.reconcile_errors.inc()
        self.work.back_off(key, error)
        self._report(key, cleaned(f"the operator failed on this object: {error_text(error)}"))

    def _report(self, key: Key, message: str) -> None:
        job, group = self.state.objects.jobs.get(key), self.state.objects.groups.get(key)
        reason = Reason.OPERATOR_FAILED
        if job is not None and job.plan is None and job.phase in ("Pending", "Restarting"):
            fields = {"phase": job.phase, "reason": reason.value, "message": message}
            self.reports.submit_job(job, {**job.status, **fields})
        elif job is not None:
            self.reports.post_event("TrainingJob", key, job.uid, reason, message)
        elif group is not None:
            self.reports.post_event("PodGroup", key, group.uid, reason, message)


@dataclass(slots=True)
class MonotonicAge:
    """Age of a gang's timestamp: the larger of the ages by the wall and the monotonic clock.

    Times in objects come from the wall clock, which may be set back: a wait of a minute could then
    take an hour. A monotonic clock cannot be set, but starts anew with every leader. ``clock``
    gives monotonic seconds.
    """

    clock: Callable[[], float]
    _first_seen: dict[tuple[Key, float], float] = field(default_factory=dict)
    _recent: set[tuple[Key, float]] = field(default_factory=set)

    def seconds(self, key: Key, since: float, now: float) -> float:
        """Return the age of ``since``, at least the time since the first call for it.

        ``since`` and ``now`` are POSIX seconds.
        """
        self._recent.add((key, since))
        first = self._first_seen.setdefault((key, since), self.clock())
        return max(now - since, self.clock() - first)

    def forget(self) -> None:
        """Drop the timestamps without a call of :meth:`seconds` since the last call of this."""
        self._first_seen = {pair: self._first_seen[pair] for pair in self._recent}
        self._recent.clear()


@dataclass(slots=True)
class NodeHealth:
    """Verdicts on nodes, for gangs that are placed or planned on them.

    ``clock`` gives monotonic seconds; a node not ready for ``lost_seconds`` is lost.
    """

    state: ClusterState
    clock: Callable[[], float]
    lost_seconds: float
    _not_ready_since: dict[str, float] = field(default_factory=dict)
    _overfull_since: dict[str, float] = field(default_factory=dict)

    def observe(self, snapshot: ClusterSnapshot) -> None:
        """Observe the nodes that are not ready or overfull."""
        now, nodes = self.clock(), snapshot.nodes
        # Ignore local volumes: each is claimed just before its pod is bound, and counts twice.
        counts = np.array([not name.startswith(NODE_ONLY) for name in nodes.axis.names])
        overfull = ((snapshot.used > nodes.allocatable) & counts).any(axis=1)
        not_ready = {nodes.names[row] for row in np.flatnonzero(~nodes.is_ready)}
        full = {nodes.names[row] for row in np.flatnonzero(overfull)}
        self._not_ready_since = {n: self._not_ready_since.get(n, now) for n in not_ready}
        self._overfull_since = {n: self._overfull_since.get(n, now) for n in full}

    def lost(self, name: str) -> str:
        """Return why the node is lost, so that no kubelet confirms the end of pods; else empty.

        A node in deletion is not lost: its kubelet works until the node is gone.
        """
        node = self.state.nodes.get(name)
        if node is None:
            return "the node was deleted"
        since = self._not_ready_since.get(name)
        if since is not None and self.clock() - since >= self.lost_seconds:
            return f"the node has not been ready for {self.lost_seconds:.0f} s"
        return ""

    def unusable(self, name: str, tolerations: Sequence[Toleration] | None) -> str:
        """Return why a planned, unbound pod cannot be bound to the node; empty if it can.

        If its ``tolerations`` are unknown, None, kube-scheduler judges the taints.
        """
        node = self.state.nodes.get(name)
        if node is None:
            return ""
        if node.is_leaving:
            return "the deletion of the node began before the pod was bound"
        taints = node.taints if tolerations is not None else ()
        for taint in (*taints, *((CORDON,) if node.is_cordoned else ())):
            if any(toleration.tolerates(taint) for toleration in tolerations or ()):
                continue
            if taint == CORDON:
                return "the node was cordoned before the pod was bound"
            return f"the node got the taint {taint.key}:{taint.effect} before the pod was bound"
        return ""

    def overfull(self, name: str) -> str:
        """Return a message if other pods took the room of a planned pod; else empty."""
        since = self._overfull_since.get(name)
        if since is not None and self.clock() - since >= _OVERFULL_SECONDS:
            return "another pod took the planned room"
        return ""


@dataclass(slots=True)
class GangReconciler:
    """Starts the next step of every changed gang, and collects the gangs to decide on."""

    state: ClusterState
    work: WorkQueue
    actuator: Actuator
    jobs: JobReconciler
    pod_groups: PodGroups
    adoptions: Adoptions
    success_counts: SuccessCounts
    reports: StatusWriter
    errors: ReconcileErrors
    health: NodeHealth
    ages: MonotonicAge
    settings: OperatorSettings
    start_failures: StartFailures
    troubles: NodeHealthHistory
    changed_gangs: set[Key] = field(init=False)
    """Gangs to reconcile in the next turn."""
    _rejected: dict[str, Rejection] = field(default_factory=dict)
    _unseen: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed_gangs = self.state.changes.follow(Change.OBJECT)

    def reconcile(self, now: float, looks: int) -> None:
        """Start the next step of each changed gang, and of up to ``looks`` others in turn.

        ``now`` is POSIX seconds.
        """
        keys = sorted(self.changed_gangs.union(self._next(looks)))
        self.changed_gangs.clear()
        gangs: Iterable[JobFacts | GroupFacts]
        gangs = chain(self.state.objects.jobs.values(), self.state.objects.groups.values())
        self._rejected = self.work.rejections.current(gangs)
        jobs = (job for key in keys if (job := self.state.objects.jobs.get(key)))
        self.state.objects.learn(jobs, self.errors.isolate)
        context = ReconcileContext(
            now=now,
            bind_timeout_seconds=self.settings.bind_timeout_seconds,
            start_timeout_seconds=self._start_timeout_seconds,
            lost_node=self.health.lost,
            unusable_node=self.health.unusable,
            taken_node=self.health.overfull,
            is_emptying=self.state.objects.is_emptying,
            label_drift=self.state.demands.label_drift,
            serves_others=self.start_failures.serves_others,
            seconds_since=lambda key, since: self.ages.seconds(key, since, now),
        )
        for key in keys:
            with self.errors.isolate(key):
                self._reconcile(key, context)

    def _start_timeout_seconds(self, gang: JobFacts | GroupFacts) -> float:
        """Return the smallest limit of the job and the gang's queues, else the setting."""
        job_limit = None
        if isinstance(gang, JobFacts) and gang.spec is not None:
            job_limit = gang.spec.run_policy.start_timeout_seconds
        queue = gang.plan.queue if gang.plan is not None else ""
        limits = job_limit, self.state.tenancy.start_timeout_seconds(queue)
        return min(filter(None, limits), default=self.settings.start_timeout_seconds)

    def _next(self, count: int) -> list[Key]:
        """Return the next ``count`` gangs to reconcile even without a change."""
        if not count:
            return []
        if not self._unseen:
            objects = self.state.objects
            self._unseen = sorted({*objects.jobs, *objects.groups}, reverse=True)
        keys, self._unseen = self._unseen[-count:], self._unseen[:-count]
        return keys

    def _reconcile(self, key: Key, context: ReconcileContext) -> None:
        if not self.work.is_free(key):
            return
        job, group = self.state.objects.jobs.get(key), self.state.objects.groups.get(key)
        views = self.state.views
        is_rejected = job is not None and job.uid in self._rejected
        if job is not None and is_rejected and lifecycle.is_incomplete(job, views.get(key)):
            self.work.start(key, self.actuator.roll_back(job))
        elif job is not None:
            self.jobs.reconcile(job, context)
        # A group may have the name of a job, which then waits until one of them is deleted.
        planned = self.state.objects.plan_of(key)
        is_own = group is not None and planned is not None and planned.uid == group.uid
        if group is None or group.is_leaving or not self.work.is_free(key):
            return
        view = views.get(key) if is_own else None
        if view is not None:
            rejection = self._rejected.get(group.uid)
            has_work = self.pod_groups.reconcile(group, view, context, rejection)
        else:
            has_work = planned is not None or self.adoptions.adopt(group, context)
        if not (has_work or self.adoptions.stop_stranded(group, context)):
            self.success_counts.read(group)

    def waiting(self, now: float) -> list[Gang]:
        """Return the gangs to decide on at ``now``, POSIX seconds."""
        faults = self.start_failures.pauses(now) | self._rejected
        gangs = self.state.waiting.gangs(self.work.keys_to_skip(), faults, self.errors.add)
        self.troubles.review()
        gangs = [self.troubles.avoid_nodes(gang) for gang in gangs]
        return [
            gang if self._may_preempt(gang, now) else replace(gang, may_preempt=False)
            for gang in gangs
        ]

    def _may_preempt(self, gang: Gang, now: float) -> bool:
        """Return whether a gang may preempt others, judged by its own starts."""
        if not self.work.rejections.may_preempt(gang.uid):
            return False
        job = self.state.objects.jobs.get(gang.key) if gang.kind != "PodGroup" else None
        is_answered = job is None or self.jobs.admission.dry_runs.is_answered(job)
        return is_answered and self.start_failures.may_preempt(gang, now)

    def snapshot(self, now: float, waiting: list[Gang]) -> ClusterSnapshot:
        """Return the cluster at ``now``, with plans under way counted as placed."""
        assumed = self.work.assumed_plans()
        snapshot = self.state.snapshot(now, assumed, waiting, self.errors.add)
        self.health.observe(snapshot)
        return snapshot

    def forget(self) -> None:
        """Drop the records of deleted gangs."""
        self.work.forget({*self.state.objects.jobs, *self.state.objects.groups})
        self.ages.forget()
        alive = {job.uid for job in self.state.objects.jobs.values()}
        alive |= {group.uid for group in self.state.objects.groups.values()}
        alive |= {orphans.uid for orphans in self.state.running.orphans()}
        self.reports.forget(alive)
        self.jobs.forget(alive)
        self.pod_groups.forget(alive)
        self.adoptions.forget(alive)
        self.success_counts.forget(alive)
        self.state.run_times.forget(alive)
        self.start_failures.forget(alive)
        self.troubles.forget(alive)
