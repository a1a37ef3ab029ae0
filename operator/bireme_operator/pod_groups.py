"""PodGroups: gangs whose pods another controller creates, such as a Job.

Bireme neither creates nor restarts these pods. It plans the whole gang in its PodGroup and releases
exactly the planned pods. One patch tests the uid, adds the pin and removes the scheduling gate.

Bireme rolls a gang back in three cases: its pods are not bound in time, too few of them run in
time, or the replacements of lost members find no room. Then it stops the pods, and their controller
creates gated ones again.
"""

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from bireme.core.decision import Admit
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube import names, plans, pod_groups, quantities, wire
from bireme.kube.allocations import AssumedPlan, GangView, Orphans
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts, pin_terms
from bireme_operator import lifecycle, status
from bireme_operator.actuator import Actuator
from bireme_operator.events import Events
from bireme_operator.group_failures import FailedStart, silence_message, start_failure
from bireme_operator.group_status import (
    admission_status,
    failure_fields,
    preemption_counts,
    progress_status,
    running_message,
    set_not_running,
    wait_fields,
)
from bireme_operator.guests import Guests, KeptByBudget
from bireme_operator.node_troubles import NodeHealthHistory
from bireme_operator.reconcile_context import ReconcileContext
from bireme_operator.start_failures import StartFailures
from bireme_operator.watches import Watches
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import Writes

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Operations = list[dict[str, Any]]


def release(pod: wire.V1Pod, node: str, plan: PlanFacts) -> Operations:
    """Return the JSON patch that pins a gated pod to ``node`` and removes Bireme's gate.

    The patch also adds the label of the queue, and missing annotations that keep autoscalers from
    moving the pod. The pod already has the label of its group.

    The API server lets a client tighten a gated pod's required node affinity. Each path is as deep
    as the pod's existing affinity, so the patch keeps all of it.
    """
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    index = gates.index(names.PLAN_GATE)
    operations: Operations = [
        # The tests fail the whole patch if another pod has the name, or if the gates have changed:
        # a JSON patch removes gates by position.
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"/spec/schedulingGates/{index}/name", "value": names.PLAN_GATE},
    ]
    label = names.QUEUE_LABEL.replace("/", "~1")
    operations.append({"op": "add", "path": f"/metadata/labels/{label}", "value": plan.queue})
    operations += _annotation_operations(pod.metadata.annotations)
    if plan.mode == "Pinned":
        operations.append(_pin(pod, node))
    operations.append({"op": "remove", "path": f"/spec/schedulingGates/{index}"})
    return operations


def _annotation_operations(annotations: wire.PodAnnotations | None) -> Operations:
    path = "/metadata/annotations"
    if annotations is None:
        # The test passes only without annotations, so the patch overwrites no newer ones.
        missing: Operations = [{"op": "test", "path": path, "value": None}]
        return [*missing, {"op": "add", "path": path, "value": names.KEPT_IN_PLACE}]
    existing = msgspec.to_builtins(annotations)
    return [
        {"op": "add", "path": f"{path}/{name.replace('/', '~1')}", "value": value}
        for name, value in names.KEPT_IN_PLACE.items()
        if name not in existing
    ]


def _pin(pod: wire.V1Pod, node: str) -> dict[str, Any]:
    affinity = pod.spec.affinity
    node_affinity = affinity.node_affinity if affinity else None
    required = (
        node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    )
    own_terms = (required.node_selector_terms if required else None) or ()
    terms = msgspec.json.decode(msgspec.json.encode(own_terms))
    value: dict[str, Any] = {"nodeSelectorTerms": pin_terms(node, terms or None)}
    path = "/spec/affinity"
    for step, exists in (("nodeAffinity", affinity), (_REQUIRED, node_affinity)):
        if exists is None:
            break
        path += f"/{step}"
    if affinity is None:
        value = {"nodeAffinity": {_REQUIRED: value}}
    elif node_affinity is None:
        value = {_REQUIRED: value}
    return {"op": "add", "path": path, "value": value}


@dataclass(slots=True)
class PodGroups:
    """Admits, releases and reconciles PodGroups; ``clock`` is monotonic seconds."""

    state: ClusterState
    watches: Watches
    writes: Writes
    work: WorkQueue
    actuator: Actuator
    guests: Guests
    events: Events
    start_failures: StartFailures
    troubles: NodeHealthHistory
    clock: Callable[[], float]
    _broken_since: dict[str, float] = field(default_factory=dict)
    _reported_failures: dict[str, set[str]] = field(default_factory=dict)

    def admit(self, group: GroupFacts, admit: Admit, plan: PlanFacts, now: float) -> None:
        """Write the plan, merged with that of the placed pods, and release the gang."""
        if group.plan is not None:
            alive = {p.uid for p in self.state.objects.members_of(group.key) if not p.is_terminal}
            plan = plans.merge(group.plan, plan, alive)
        new_status = admission_status(group, admit, plan, now)
        self._record_ends(group, new_status)
        assumed = AssumedPlan("", plan)
        self.work.start(group.key, self._admit(group, plan, new_status), assumed)

    async def _admit(self, group: GroupFacts, plan: PlanFacts, new_status: dict[str, Any]) -> None:
        await self.actuator.plan_group(group.key, group.resource_version, new_status)
        # Only now may the scheduler see the pods: the extender refuses those without a plan.
        await self._release(group.key, plan)

    async def _release(self, key: Key, plan: PlanFacts) -> None:
        lifts = []
        errors: list[ApiError] = []
        for member in plan.members:
            pod = self._find_gated(key, member.uid)
            if pod is not None:
                pod_key = (key[0], pod.metadata.name)
                lifts.append(self._lift(pod_key, release(pod, member.node, plan), errors))
        newest = max(await asyncio.gather(*lifts), default=0)
        # Wait also after an error: no gate comes back. If the cache did not see that a pod lost its
        # gate, the pod would outlive the plan and stay pending for ever.
        await self.watches.wait_for_pods(newest)
        for error in errors:
            raise error

    async def _lift(self, pod: Key, operations: Operations, errors: list[ApiError]) -> int:
        """Lift the gate of a pod; return a version of it without the gate, or 0."""
        try:
            return await self.writes.patch_pod(pod, operations)
        except ApiError as error:
            errors.append(error)
            if error.status:
                return 0
        # The patch may have succeeded although no answer arrived.
        try:
            latest = msgspec.json.decode(await self.writes.get_pod(pod), type=wire.MetadataOnly)
        except ApiError:
            return 0
        return int(latest.metadata.resource_version)

    def _find_gated(self, key: Key, uid: str) -> wire.V1Pod | None:
        for facts in self.state.objects.members_of(key):
            if facts.uid == uid:
                return self.state.objects.gated.manifests.get(facts.key)
        return None

    def reconcile(
        self,
        group: GroupFacts,
        view: GangView,
        context: ReconcileContext,
        rejection: tuple[Reason, str] | None = None,
    ) -> bool:
        """Start the work that the planned gang needs now; return False when it needs none.

        After a ``rejection`` by the API server the gang gives its gated pods' places back.
        """
        self.troubles.observe_group(group, view)
        if group.is_stopping:
            if _has_work(view, self.guests.max_grace_seconds):
                self.work.start(group.key, self._give_way(group, view, context.now))
            return True
        if rejection is not None and any(pod and pod.is_gated for _, pod in view.members):
            bound_members = (
                _members_on_nodes(view) if group.status.get("phase") == "Running" else ()
            )
            work = self._roll_back(
                group, view, bound_members, rejection[1], context.now, rejection[0]
            )
            self.work.start(group.key, work)
            return True
        if (failure := start_failure(group, view, context)) is not None:
            # A gang that has not run gives its bound pods' places back too: it cannot run without
            # the rest, which has to wait.
            has_run = group.status.get("phase") == "Running"
            bound_members = _members_on_nodes(view) if has_run else ()
            if failure.is_silence:
                planned = view.plan.planned
                self.start_failures.add_silence(group, planned, context.now, is_own=True)
            self.work.start(
                group.key, self._pause(group, view, bound_members, failure, context.now)
            )
            return True
        stuck = self._stuck(group, view, context)
        if stuck is None and (stuck := silence_message(group, view, context)) is not None:
            self.start_failures.add_silence(group, view.plan.planned, context.now, is_own=False)
        elif not view.unbound:
            self.start_failures.end_silence(group.uid)
        cause = stuck or self._incomplete(group, view, context)
        if cause is not None:
            bound_members = _members_on_nodes(view) if stuck else ()
            self.work.start(
                group.key, self._roll_back(group, view, bound_members, cause, context.now)
            )
            return True
        if any(pod is not None and pod.is_gated for _, pod in view.members):
            self.work.start(group.key, self._release(group.key, view.plan))
            return True
        new_status = progress_status(group, view, context.now, joins=self._joins(group, view))
        self._record_ends(group, new_status)
        is_recorded = new_status.get("endedPods") == group.status.get("endedPods")
        if (
            status.urgency(group.status, new_status) >= status.Urgency.EVENT
            or (view.members == () and group.plan is not None)
            or not is_recorded
        ):
            self.work.start(group.key, self._write(group, new_status))
            return True
        return self._report_failures(group, view)

    def _record_ends(self, group: GroupFacts, new_status: dict[str, Any]) -> None:
        """Record the succeeded members in a status, because their pods may soon be deleted."""
        ended_members = self.state.objects.history.ended_pods(group)
        planned = group.plan.member_by_uid.keys() if group.plan is not None else ()
        succeeded_uids = {
            p.uid for p in self.state.objects.members_of(group.key) if p.phase == "Succeeded"
        }
        if new_status.get("phase") == "Completed" and succeeded_uids.union(
            ended_members
        ).issuperset(planned):
            # The controller's next pods are another run and replace no member.
            new_status.pop("endedPods", None)
            return
        limit = group.spec.min_member if group.spec is not None else 1
        if record := pod_groups.manifest_of_ends(ended_members, limit):
            new_status["endedPods"] = record

    def _report_failures(self, group: GroupFacts, view: GangView) -> bool:
        """Report each failed member once, because its controller may soon delete the pod."""
        failed = {pod.uid for _, pod in view.members if pod is not None and pod.phase == "Failed"}
        reported_uids = self._reported_failures.setdefault(group.uid, set())
        if failed <= reported_uids:
            return False
        reported_uids |= failed
        self.work.start(group.key, self._write_failures(group, view))
        return True

    async def _write_failures(self, group: GroupFacts, view: GangView) -> None:
        message = running_message(view)
        if group.status.get("reason") == Reason.GANG_RUNNING.value:
            await self._write(group, {**group.status, "message": message})
        await self.events.post("PodGroup", group.key, group.uid, Reason.POD_FAILED, message)

    def _joins(self, group: GroupFacts, view: GangView) -> bool:
        """Return whether pods without a place wait to join, by the status of the group."""
        if group.status.get("reason") == Reason.GANG_RUNNING.value:
            return False
        return bool(self._newcomers(group, view))

    def _newcomers(self, group: GroupFacts, view: GangView) -> list[PodFacts]:
        """Return the pods without a place that wait for one."""
        objects, gated = self.state.objects, self.state.objects.gated
        return [
            pod
            for pod in objects.members_of(group.key)
            if pod.key in gated.manifests and not pod.is_leaving
            if pod.uid not in view.plan.member_by_uid and pod.key not in gated.other_gates
        ]

    def _incomplete(
        self, group: GroupFacts, view: GangView, context: ReconcileContext
    ) -> str | None:
        """Return why a gang that lost members must stop and start again whole; None if it goes on.

        It stops only if replacements wait for places: without them it goes on with fewer members.
        """
        newcomers = self._newcomers(group, view)
        places = self.state.waiting.placement_of(group, newcomers)
        count = places.count
        needed = group.spec.min_member if group.spec is not None else 1
        # A raised minMember is no loss: the gang goes on until its newcomers have places.
        if not newcomers or count >= needed or not places.lost:
            self._broken_since.pop(group.uid, None)
            return None
        waited = self.clock() - self._broken_since.setdefault(group.uid, self.clock())
        if waited <= context.bind_timeout_seconds:
            return None
        return (
            f"{count} of minMember {needed} pods have places, and no places for others were found "
            f"in {waited:.0f} s"
        )

    def forget(self, uids: Container[str]) -> None:
        """Drop the records of deleted groups; ``uids`` are those of the existing ones."""
        self._broken_since = {
            uid: since for uid, since in self._broken_since.items() if uid in uids
        }
        self._reported_failures = {
            uid: pods for uid, pods in self._reported_failures.items() if uid in uids
        }
        self.guests.forget(uids)

    def _stuck(self, group: GroupFacts, view: GangView, context: ReconcileContext) -> str | None:
        """Return why the gang must be planned again; None while its pods may still be bound."""
        # A pod without a pin may still get to another node than the planned one.
        pinned = view.unbound if view.plan.mode == "Pinned" else ()
        for node in (member.node for member in pinned):
            obstacle = (
                context.lost_node(node)
                or context.unusable_node(node, None)
                or context.taken_node(node)
            )
            if obstacle:
                return f"node {node}: {obstacle}"
        return None

    async def preempt(
        self, group: GroupFacts, message: str, now: float, reason: Reason, was_lent: bool
    ) -> None:
        """Record that all pods of the gang stop for another gang; :meth:`reconcile` stops them.

        ``was_lent`` is true if the gang returns borrowed places.
        """
        new_status = {**group.status, "reason": reason.value, "message": cleaned(message)}
        new_status["stop"] = {"reason": reason.value, "message": cleaned(message)}
        new_status["preemptions"] = int(new_status.get("preemptions") or 0) + 1
        if was_lent:
            new_status["yields"] = int(new_status.get("yields") or 0) + 1
        await self._write(group, new_status)
        await self._post(group, new_status)

    async def stop_orphans(self, orphans: Orphans, message: str, reason: Reason) -> None:
        """Stop pods without a plan for another gang, and post an event for each of them.

        No object records the stop. After a partial stop the next decision sees the remaining pods.
        """
        is_forced = reason is Reason.BUDGET_OVERRIDDEN
        try:
            await self.guests.stop(orphans, orphans.pods, (), message, overrides_budgets=is_forced)
        except KeptByBudget as by_budget:
            raise ApiError(429, "TooManyRequests", str(by_budget)) from by_budget
        for pod in orphans.pods:
            await self.events.post("Pod", pod.key, pod.uid, reason, cleaned(message))

    async def _give_way(self, group: GroupFacts, view: GangView, now: float) -> None:
        """Stop the remaining pods of a preempted gang; clear its plan after the last pod."""
        stop = group.status["stop"]
        alive_pods = [pod for _, pod in view.members if pod is not None and not pod.is_terminal]
        pods_to_stop = [pod for pod in alive_pods if not (pod.is_gated or pod.is_leaving)]
        if pods_to_stop:
            is_forced = stop["reason"] == Reason.BUDGET_OVERRIDDEN
            cause = str(stop["message"])
            try:
                await self.guests.stop(group, pods_to_stop, (), cause, overrides_budgets=is_forced)
            except KeptByBudget as by_budget:
                await self._report_budget(group, f"{cause}; {by_budget}")
                raise ApiError(429, "TooManyRequests", str(by_budget)) from by_budget
            return
        slow_pods = [
            pod for pod in alive_pods if lifecycle.outlasts(pod, self.guests.max_grace_seconds)
        ]
        if slow_pods:
            await self.guests.cut_short(slow_pods)
            return
        new_status = {**preemption_counts(group), **failure_fields(group)}
        new_status["conditions"] = group.status.get("conditions") or []
        self._record_ends(group, new_status)
        new_status |= {"phase": "Interrupted", "reason": stop["reason"], "message": stop["message"]}
        with_condition(
            new_status, "Admitted", False, new_status["reason"], new_status["message"], now
        )
        set_not_running(new_status, now)
        await self._write(group, new_status)

    async def _pause(
        self,
        group: GroupFacts,
        view: GangView,
        bound_members: tuple[Member, ...],
        failure: "FailedStart",
        now: float,
    ) -> None:
        """Give the places back after a failed start, until the retry time."""
        self.start_failures.add(group, failure.node)
        failures = group.start_failures + 1
        retry = quantities.format_timestamp(lifecycle.retry_time(failures, now))
        new_status: dict[str, Any] = {"startFailures": failures, "retryTime": retry}
        new_status |= {"observedGeneration": group.generation, "reason": failure.reason.value}
        new_status["waitSeconds"] = int(group.status.get("waitSeconds") or 0)
        if "request" in group.status:
            new_status["request"] = group.status["request"]
        new_status["message"] = f"{failure.message}; the next try is at {retry}"
        await self._take_back(group, view, bound_members, failure.message, now, new_status)

    async def _roll_back(
        self,
        group: GroupFacts,
        view: GangView,
        bound_members: tuple[Member, ...],
        cause: str,
        now: float,
        reason: Reason = Reason.GANG_NOT_BOUND_IN_TIME,
    ) -> None:
        new_status = {**failure_fields(group), **wait_fields(group), "reason": reason.value}
        await self._take_back(group, view, bound_members, cause, now, new_status)

    async def _take_back(
        self,
        group: GroupFacts,
        view: GangView,
        bound_members: tuple[Member, ...],
        cause: str,
        now: float,
        new_status: dict[str, Any],
    ) -> None:
        pods_to_stop = [
            p
            for m, p in view.members
            if p is not None and m not in bound_members and not p.is_gated
        ]
        pods_to_stop = [p for p in pods_to_stop if not p.is_terminal]
        has_run = group.status.get("phase") == "Running"
        staying_pods = [
            p for m, p in view.members if p is not None and m in bound_members and not p.is_terminal
        ]
        try:
            # If the gang has not run, its bound pods may stop with their owner too.
            stopped = await self.guests.stop(
                group, pods_to_stop, () if has_run else staying_pods, cause
            )
        except KeptByBudget as by_budget:
            await self._report_budget(group, f"{cause}; {by_budget}")
            raise ApiError(429, "TooManyRequests", str(by_budget)) from by_budget
        bound_members = tuple(member for member in bound_members if member.uid not in stopped.uids)
        cause = "; ".join((new_status.get("message", cause), *stopped.notes))
        new_status |= preemption_counts(group)
        new_status["conditions"] = group.status.get("conditions") or []
        self._record_ends(group, new_status)
        if bound_members:
            new_status["plan"] = plans.to_manifest(replace(view.plan, members=bound_members))
        new_status |= {"phase": "Interrupted", "message": cleaned(cause)}
        with_condition(
            new_status, "Admitted", False, new_status["reason"], new_status["message"], now
        )
        set_not_running(new_status, now)
        await self._write(group, new_status)
        await self._post(group, new_status)

    async def _report_budget(self, group: GroupFacts, cause: str) -> None:
        """Report that a budget keeps the gang from stopping; once, as the numbers change."""
        reason = Reason.STOPPING.value
        if group.status.get("reason") != reason:
            message = cleaned(
                f"{cause}; the eviction is tried again for at most "
                f"{lifecycle.EVICTING_SECONDS:.0f} s"
            )
            new_status = {**group.status, "reason": reason, "message": message}
            await self._write(group, new_status)
            await self._post(group, new_status)

    async def _post(self, group: GroupFacts, new_status: dict[str, Any]) -> None:
        """Post an event, because the next waiting reason soon replaces the message."""
        reason = Reason(new_status["reason"])
        await self.events.post("PodGroup", group.key, group.uid, reason, new_status["message"])

    async def _write(self, group: GroupFacts, new_status: dict[str, Any]) -> None:
        await self.actuator.write_group(group.key, group.resource_version, new_status)


def _has_work(view: GangView, max_grace_seconds: float) -> bool:
    """Return whether a preempted gang has pods to stop, or all of its pods have left."""
    pods = [pod for _, pod in view.members if pod is not None]
    pods = [pod for pod in pods if not (pod.is_terminal or pod.is_gated)]
    return not pods or any(
        not pod.is_leaving or lifecycle.outlasts(pod, max_grace_seconds) for pod in pods
    )


def _members_on_nodes(view: GangView) -> tuple[Member, ...]:
    return tuple(member for member, pod in view.members if pod is not None and pod.node)
