"""Resizes carried out: one write of the plan says who is in the gang, and its life cycle follows.

Pods that a plan no longer names are deleted, those that it names anew are created, and all the
others run on: epoch, attempt and label of the plan stay. What is left to do follows from plan and
pods, so a crash after any write loses nothing. While the plan is written its places are promised.
"""

from collections.abc import Callable, Mapping

import structlog

from bireme.core.decision import Decision, Resize
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import allocations, plans
from bireme.kube.allocations import AssumedPlan, GangView
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import lifecycle
from bireme_operator.actuator import Actuator, AdmissionRejected
from bireme_operator.events import Events
from bireme_operator.lifecycle import Situation
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.status import Reports

_log = structlog.get_logger(__name__)


class Resizes:
    """Changes the size of running gangs; ``now`` gives POSIX seconds."""

    def __init__(
        self,
        actuator: Actuator,
        reports: Reports,
        events: Events,
        metrics: OperatorMetrics,
        now: Callable[[], float],
    ) -> None:
        self._actuator = actuator
        self._state = actuator.state
        self._reports = reports
        self._events = events
        self._metrics = metrics
        self._now = now

    def carry_out(
        self, decision: Decision, snapshot: ClusterSnapshot, groups: Mapping[Key, GroupFacts]
    ) -> None:
        """Begin the resizes of ``decision``, made of ``snapshot`` and ``groups``.

        A gang that has changed since is left alone: the next cycle decides on what is new.
        """
        for resize in decision.resized:
            key = resize.gang.key
            job, group, view = self._state.jobs.get(key), groups.get(key), self._state.view(key)
            if job is None or group is None or view is None:
                continue
            is_same = job.uid == resize.running.gang.uid and group is self._state.groups.get(key)
            if (
                is_same
                and lifecycle.is_resizable(job)
                and view.is_whole
                and self._is_free(job, group)
            ):
                self._resize(job, group, view, resize, snapshot)

    def _is_free(self, job: JobFacts, group: GroupFacts) -> bool:
        is_told = self._reports.is_writing(job.uid) or self._reports.is_writing(group.uid)
        return self._actuator.is_free(job.key) and not is_told

    def _resize(
        self,
        job: JobFacts,
        group: GroupFacts,
        view: GangView,
        resize: Resize,
        snapshot: ClusterSnapshot,
    ) -> None:
        before = view.plan_in_place
        plan = plans.resized(before, resize.placement, snapshot.nodes, self._now())
        if plan.members[:1] != before.members[:1]:
            _log.error("resize left out the replica where the others meet", gang=job.key)
            return
        work = self._write(job, plan, resize.reason, resize.message)
        self._actuator.start(job.key, work, _promise(group, plan))

    def mend(self, job: JobFacts, group: GroupFacts, view: GangView, at: Situation) -> bool:
        """Start what a running elastic gang needs to be what its plan says; False for nothing.

        To be asked of gangs that go on (:func:`bireme_operator.lifecycle.going_on`).
        """
        if not lifecycle.is_resizable(job):
            return False
        if lost := lifecycle.lost(job, view, at):
            if self._is_free(job, group):
                plan = plans.given_up(view.plan, lost, at.now)
                work = self._write(job, plan, Reason.SHRUNK, _farewell(lost))
                self._actuator.start(job.key, work, _promise(group, plan))
            return True
        is_same = view.plan.spec_hash == job.spec_hash
        if view.missing and not view.leftovers and is_same:
            self._actuator.start(job.key, self._complete(job, view))
            return True
        return False

    async def _complete(self, job: JobFacts, view: GangView) -> None:
        """Create what is missing; what the API server refuses is given up."""
        try:
            await self._actuator.create_pods(job, view.plan, view.missing)
        except AdmissionRejected as refused:
            plan = plans.given_up(view.plan, view.missing, self._now())
            message = _farewell(dict.fromkeys(view.missing, str(refused)))
            await self._write(job, plan, Reason.SHRUNK, message)

    async def _write(self, job: JobFacts, plan: PlanFacts, reason: Reason, message: str) -> None:
        group = self._state.groups.get(job.key)
        if group is None or group.plan is None or group.plan.label != plan.label:
            return
        status = {**group.status, "plan": plans.to_manifest(plan)}
        actuator = self._actuator
        written = await actuator.writes.write_group_status(job.key, group.resource_version, status)
        self._metrics.resizes.labels(reason).inc()
        await actuator.watches.wait_past(actuator.watches.groups, written)
        await self._events.post("TrainingJob", job.key, job.uid, reason, message)


def _promise(group: GroupFacts, plan: PlanFacts) -> AssumedPlan:
    return AssumedPlan(allocations.queue_of(group, plan), group.job_uid, plan)


def _farewell(lost: Mapping[Member, str]) -> str:
    """Whom a gang goes on without, and why, in one line."""
    (member, why), *others = lost.items()
    more = f" (and without {len(others)} more)" if others else ""
    name = f"replica {member.index} of {member.task} on node {member.node}"
    return f"goes on without {name}{more}: {why}"[:1000]
