"""PodGroups: gangs whose pods another controller made, such as a Job.

Bireme neither creates nor restarts these pods. It plans the whole gang in its PodGroup and releases
exactly the planned pods (test uid, add the pin, remove the scheduling gate, in one patch). A gang
that does not get onto its nodes in time is rolled back: its pods that hang are stopped, and their
controller makes gated ones again. So is a gang of whose pods too few run in time. The same happens
to the rest of a gang that lost members, when its new pods have found no room for as long.
"""

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from bireme.core.decision import Admit, Hold
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.core.resources import Amounts
from bireme.kube import names, plans, pod_groups, quantities, resuming, waits, wire
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
from bireme_operator.guests import Guests, KeptByBudget
from bireme_operator.lifecycle import Situation
from bireme_operator.node_troubles import NodeTroubles
from bireme_operator.start_failures import StartFailures
from bireme_operator.watches import Watches
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import Writes

# Fields of the status that a gang has until it runs, or is over.
_OF_FAILURES = ("startFailures", "observedGeneration", "retryTime")
_PREEMPTIONS = ("preemptions", "yields")
_OF_WAIT = (
    *("waitSeconds", "queuedTime", "parkedTime", "request"),
    *("uncountedSeconds", "uncountedTime"),
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Operations = list[dict[str, Any]]


def release(pod: wire.V1Pod, node: str, plan: PlanFacts) -> Operations:
    """Return the JSON patch that pins a gated pod to ``node`` and removes Bireme's gate.

    The pod has the label of its group; it gets that of the queue it was admitted in beside it, and
    the annotations by which autoscalers leave it in its place, unless it has them.

    The API server allows a gated pod's required node affinity to be tightened. Paths are as deep
    as the pod's own affinity goes, so that nothing of it is lost.
    """
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    at = gates.index(names.PLAN_GATE)
    operations: Operations = [
        # The tests fail the whole patch if the pod is another one of the name, or its gates have
        # changed: a JSON patch removes gates by position alone.
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"/spec/schedulingGates/{at}/name", "value": names.PLAN_GATE},
    ]
    label = names.QUEUE_LABEL.replace("/", "~1")
    operations.append({"op": "add", "path": f"/metadata/labels/{label}", "value": plan.queue})
    operations += _kept_in_place(pod.metadata.annotations)
    if plan.mode == "Pinned":
        operations.append(_pin(pod, node))
    operations.append({"op": "remove", "path": f"/spec/schedulingGates/{at}"})
    return operations


def _kept_in_place(given: wire.PodAnnotations | None) -> Operations:
    path = "/metadata/annotations"
    if given is None:
        # The test, which holds while there are none, keeps those that came in the meantime.
        missing: Operations = [{"op": "test", "path": path, "value": None}]
        return [*missing, {"op": "add", "path": path, "value": names.KEPT_IN_PLACE}]
    own = msgspec.to_builtins(given)
    return [
        {"op": "add", "path": f"{path}/{name.replace('/', '~1')}", "value": value}
        for name, value in names.KEPT_IN_PLACE.items()
        if name not in own
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
    troubles: NodeTroubles
    clock: Callable[[], float]
    _broken_since: dict[str, float] = field(default_factory=dict)
    _reported_failures: dict[str, set[str]] = field(default_factory=dict)

    def admit(self, group: GroupFacts, admit: Admit, plan: PlanFacts, now: float) -> None:
        """Write the plan, extended by the pods already placed, and release the gang."""
        if group.plan is not None:
            alive = {p.uid for p in self.state.members_of(group.key) if not p.is_terminal}
            plan = plans.merge(group.plan, plan, alive)
        wanted = planned_status(group, admit, plan, now)
        self._record_ends(group, wanted)
        assumed = AssumedPlan("", plan)
        self.work.start(group.key, self._admit(group, plan, wanted), assumed)

    async def _admit(self, group: GroupFacts, plan: PlanFacts, wanted: dict[str, Any]) -> None:
        await self.actuator.plan_group(group.key, group.resource_version, wanted)
        # Only now may the scheduler see the pods: the extender refuses those without a plan.
        await self._release(group.key, plan)

    async def _release(self, key: Key, plan: PlanFacts) -> None:
        lifts = []
        errors: list[ApiError] = []
        for member in plan.members:
            pod = self._gated_pod(key, member.uid)
            if pod is not None:
                pod_key = (key[0], pod.metadata.name)
                lifts.append(self._lift(pod_key, release(pod, member.node, plan), errors))
        newest = max(await asyncio.gather(*lifts), default=0)
        # Also after an error: no gate comes back, so a pod without one must be known as such, or it
        # would stay when the plan goes, and wait for a place for ever.
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
        # Without an answer it may have been done all the same.
        try:
            known = msgspec.json.decode(await self.writes.get_pod(pod), type=wire.MetadataOnly)
        except ApiError:
            return 0
        return int(known.metadata.resource_version)

    def _gated_pod(self, key: Key, uid: str) -> wire.V1Pod | None:
        for facts in self.state.members_of(key):
            if facts.uid == uid:
                return self.state.gated.get(facts.key)
        return None

    def reconcile(
        self,
        group: GroupFacts,
        view: GangView,
        at: Situation,
        rejection: tuple[Reason, str] | None = None,
    ) -> bool:
        """Start what the planned gang needs now; return False when it needs nothing.

        For a ``rejection`` by the API server a gang gives the places back of its gated pods.
        """
        self.troubles.observe_group(group, view)
        if group.is_stopping:
            if _has_work(view, self.guests.max_grace_seconds):
                self.work.start(group.key, self._give_way(group, view, at.now))
            return True
        if rejection is not None and any(pod and pod.is_gated for _, pod in view.members):
            kept = _bound(view) if group.status.get("phase") == "Running" else ()
            work = self._roll_back(group, view, kept, rejection[1], at.now, rejection[0])
            self.work.start(group.key, work)
            return True
        if (failure := _failed_start(group, view, at)) is not None:
            # What is bound of a gang that has not run goes back too: it cannot run without the
            # rest, which has to wait.
            has_run = group.status.get("phase") == "Running"
            kept = _bound(view) if has_run else ()
            if failure.is_silence:
                planned = view.plan.planned
                self.start_failures.add_silence(group, planned, at.now, is_own=True)
            self.work.start(group.key, self._pause(group, view, kept, failure, at.now))
            return True
        stuck = self._stuck(group, view, at)
        if stuck is None and (stuck := _silent(group, view, at)) is not None:
            self.start_failures.add_silence(group, view.plan.planned, at.now, is_own=False)
        elif not view.unbound:
            self.start_failures.end_silence(group.uid)
        why = stuck or self._incomplete(group, view, at)
        if why is not None:
            kept = _bound(view) if stuck else ()
            self.work.start(group.key, self._roll_back(group, view, kept, why, at.now))
            return True
        if any(pod is not None and pod.is_gated for _, pod in view.members):
            self.work.start(group.key, self._release(group.key, view.plan))
            return True
        wanted = progress_status(group, view, at.now, joins=self._joins(group, view))
        self._record_ends(group, wanted)
        is_recorded = wanted.get("endedPods") == group.status.get("endedPods")
        if (
            status.urgency(group.status, wanted) >= status.Urgency.EVENT
            or (view.members == () and group.plan is not None)
            or not is_recorded
        ):
            self.work.start(group.key, self._write(group, wanted))
            return True
        return self._report_failures(group, view)

    def _record_ends(self, group: GroupFacts, wanted: dict[str, Any]) -> None:
        """Add to a status which members have ended well: their pods may be gone in a moment."""
        ended = self.state.ended_pods(group)
        planned = group.plan.member_by_uid.keys() if group.plan is not None else ()
        there = {p.uid for p in self.state.members_of(group.key) if p.phase == "Succeeded"}
        if wanted.get("phase") == "Completed" and there.union(ended).issuperset(planned):
            # The next pods of a controller replace nobody: they are another run.
            wanted.pop("endedPods", None)
            return
        limit = group.spec.min_member if group.spec is not None else 1
        if record := pod_groups.manifest_of_ends(ended, limit):
            wanted["endedPods"] = record

    def _report_failures(self, group: GroupFacts, view: GangView) -> bool:
        """Say why members failed, once each: their controller may delete them in a moment."""
        failed = {pod.uid for _, pod in view.members if pod is not None and pod.phase == "Failed"}
        known = self._reported_failures.setdefault(group.uid, set())
        if failed <= known:
            return False
        known |= failed
        self.work.start(group.key, self._write_failures(group, view))
        return True

    async def _write_failures(self, group: GroupFacts, view: GangView) -> None:
        message = running_message(view)
        if group.status.get("reason") == Reason.GANG_RUNNING.value:
            await self._write(group, {**group.status, "message": message})
        await self.events.post("PodGroup", group.key, group.uid, Reason.POD_FAILED, message)

    def _joins(self, group: GroupFacts, view: GangView) -> bool:
        """Return whether pods without a place wait to join, as the status of the group has it."""
        if group.status.get("reason") == Reason.GANG_RUNNING.value:
            return False
        return bool(self._newcomers(group, view))

    def _newcomers(self, group: GroupFacts, view: GangView) -> list[PodFacts]:
        """Return the pods without a place that wait for one."""
        return [
            pod
            for pod in self.state.members_of(group.key)
            if pod.key in self.state.gated and not pod.is_leaving
            if pod.uid not in view.plan.member_by_uid and pod.key not in self.state.other_gates
        ]

    def _incomplete(self, group: GroupFacts, view: GangView, at: Situation) -> str | None:
        """Return why the rest of a gang that lost members must go, so that it starts again whole.

        Only once others wait in place of the lost ones: without them the gang goes on with fewer.
        """
        newcomers = self._newcomers(group, view)
        placed = self.state.placement_of(group, newcomers)
        there = placed.count
        needed = group.spec.min_member if group.spec is not None else 1
        # A raised minMember has lost nobody: the gang goes on until its newcomers have places.
        if not newcomers or there >= needed or not placed.lost:
            self._broken_since.pop(group.uid, None)
            return None
        waited = self.clock() - self._broken_since.setdefault(group.uid, self.clock())
        if waited <= at.bind_timeout_seconds:
            return None
        return (
            f"{there} of minMember {needed} pods have places, and none were found for others in "
            f"{waited:.0f} s"
        )

    def forget(self, uids: Container[str]) -> None:
        """Drop what is remembered of groups that are gone; ``uids`` are those that exist."""
        self._broken_since = {
            uid: since for uid, since in self._broken_since.items() if uid in uids
        }
        self._reported_failures = {
            uid: pods for uid, pods in self._reported_failures.items() if uid in uids
        }
        self.guests.forget(uids)

    def _stuck(self, group: GroupFacts, view: GangView, at: Situation) -> str | None:
        """Return why the gang must be planned again; None while it may still get onto its nodes."""
        # A pod without a pin may still get to another node than the planned one.
        pinned = view.unbound if view.plan.mode == "Pinned" else ()
        for node in (member.node for member in pinned):
            why = at.lost_node(node) or at.unusable_node(node, None) or at.taken_node(node)
            if why:
                return f"node {node}: {why}"
        return None

    async def preempt(
        self, group: GroupFacts, message: str, now: float, reason: Reason, was_lent: bool
    ) -> None:
        """Record that all pods of the gang stop for another one; :meth:`reconcile` does the rest.

        ``was_lent`` tells that it gives back places that it was lent.
        """
        wanted = {**group.status, "reason": reason.value, "message": cleaned(message)}
        wanted["stop"] = {"reason": reason.value, "message": cleaned(message)}
        wanted["preemptions"] = int(wanted.get("preemptions") or 0) + 1
        if was_lent:
            wanted["yields"] = int(wanted.get("yields") or 0) + 1
        await self._write(group, wanted)
        await self._post(group, wanted)

    async def stop_orphans(self, orphans: Orphans, message: str, reason: Reason) -> None:
        """Stop pods without a plan for another gang, and say so at each of them.

        No object records the stop: where it ends halfway, the next decision sees who is left.
        """
        is_forced = reason is Reason.BUDGET_OVERRIDDEN
        try:
            await self.guests.stop(orphans, orphans.pods, (), message, overrides_budgets=is_forced)
        except KeptByBudget as by_budget:
            raise ApiError(429, "TooManyRequests", str(by_budget)) from by_budget
        for pod in orphans.pods:
            await self.events.post("Pod", pod.key, pod.uid, reason, cleaned(message))

    async def _give_way(self, group: GroupFacts, view: GangView, now: float) -> None:
        """Stop what is left of a gang that makes room; its plan goes with the last pod."""
        stop = group.status["stop"]
        left = [pod for _, pod in view.members if pod is not None and not pod.is_terminal]
        gone = [pod for pod in left if not (pod.is_gated or pod.is_leaving)]
        if gone:
            is_forced = stop["reason"] == Reason.BUDGET_OVERRIDDEN
            why = str(stop["message"])
            try:
                await self.guests.stop(group, gone, (), why, overrides_budgets=is_forced)
            except KeptByBudget as by_budget:
                await self._say_kept(group, f"{why}; {by_budget}")
                raise ApiError(429, "TooManyRequests", str(by_budget)) from by_budget
            return
        slow = [pod for pod in left if lifecycle.outlasts(pod, self.guests.max_grace_seconds)]
        if slow:
            await self.guests.cut_short(slow)
            return
        wanted = {**_preemptions(group), **_failures(group)}
        wanted["conditions"] = group.status.get("conditions") or []
        self._record_ends(group, wanted)
        wanted |= {"phase": "Interrupted", "reason": stop["reason"], "message": stop["message"]}
        with_condition(wanted, "Admitted", False, wanted["reason"], wanted["message"], now)
        _set_not_running(wanted, now)
        await self._write(group, wanted)

    async def _pause(
        self,
        group: GroupFacts,
        view: GangView,
        kept: tuple[Member, ...],
        failure: "_FailedStart",
        now: float,
    ) -> None:
        """Give the places back for a while, because a start failed."""
        self.start_failures.add(group, failure.node)
        failures = group.start_failures + 1
        retry = quantities.format_timestamp(lifecycle.retry_time(failures, now))
        wanted: dict[str, Any] = {"startFailures": failures, "retryTime": retry}
        wanted |= {"observedGeneration": group.generation, "reason": failure.reason.value}
        wanted["waitSeconds"] = int(group.status.get("waitSeconds") or 0)
        if "request" in group.status:
            wanted["request"] = group.status["request"]
        wanted["message"] = f"{failure.why}; tried again at {retry}"
        await self._take_back(group, view, kept, failure.why, now, wanted)

    async def _roll_back(
        self,
        group: GroupFacts,
        view: GangView,
        kept: tuple[Member, ...],
        why: str,
        now: float,
        reason: Reason = Reason.GANG_NOT_BOUND_IN_TIME,
    ) -> None:
        wanted = {**_failures(group), **_wait(group), "reason": reason.value}
        await self._take_back(group, view, kept, why, now, wanted)

    async def _take_back(
        self,
        group: GroupFacts,
        view: GangView,
        kept: tuple[Member, ...],
        why: str,
        now: float,
        wanted: dict[str, Any],
    ) -> None:
        gone = [p for m, p in view.members if p is not None and m not in kept and not p.is_gated]
        gone = [p for p in gone if not p.is_terminal]
        has_run = group.status.get("phase") == "Running"
        stays = [p for m, p in view.members if p is not None and m in kept and not p.is_terminal]
        try:
            # What is bound of a gang that has not run may go with its owner: it waits for the rest.
            stopped = await self.guests.stop(group, gone, () if has_run else stays, why)
        except KeptByBudget as by_budget:
            await self._say_kept(group, f"{why}; {by_budget}")
            raise ApiError(429, "TooManyRequests", str(by_budget)) from by_budget
        kept = tuple(member for member in kept if member.uid not in stopped.uids)
        why = "; ".join((wanted.get("message", why), *stopped.notes))
        wanted |= _preemptions(group)
        wanted["conditions"] = group.status.get("conditions") or []
        self._record_ends(group, wanted)
        if kept:
            wanted["plan"] = plans.to_manifest(replace(view.plan, members=kept))
        wanted |= {"phase": "Interrupted", "message": cleaned(why)}
        with_condition(wanted, "Admitted", False, wanted["reason"], wanted["message"], now)
        _set_not_running(wanted, now)
        await self._write(group, wanted)
        await self._post(group, wanted)

    async def _say_kept(self, group: GroupFacts, why: str) -> None:
        """Say that the gang is to stop and a budget keeps it; once, as the words have numbers."""
        reason = Reason.STOPPING.value
        if group.status.get("reason") != reason:
            message = cleaned(f"{why}; asked again for {lifecycle.EVICTING_SECONDS:.0f} s at most")
            wanted = {**group.status, "reason": reason, "message": message}
            await self._write(group, wanted)
            await self._post(group, wanted)

    async def _post(self, group: GroupFacts, wanted: dict[str, Any]) -> None:
        """Post an event: why it waits again soon stands in its status instead."""
        reason = Reason(wanted["reason"])
        await self.events.post("PodGroup", group.key, group.uid, reason, wanted["message"])

    async def _write(self, group: GroupFacts, wanted: dict[str, Any]) -> None:
        await self.actuator.write_group(group.key, group.resource_version, wanted)


@dataclass(frozen=True, slots=True)
class _FailedStart:
    """A start that failed, on which node, and why."""

    reason: Reason
    node: str
    why: str
    is_silence: bool = False
    """kube-scheduler said nothing of it, and served others."""


def _failed_start(group: GroupFacts, view: GangView, at: Situation) -> _FailedStart | None:
    """Return why a gang is to give its places back and pause; None while it is not."""
    return _refused(group, view, at) or _passed_over(group, view, at) or _late(group, view, at)


def _has_work(view: GangView, max_grace_seconds: float) -> bool:
    """Return whether pods of a gang that makes room are to be stopped, or all of them have gone."""
    left = [pod for _, pod in view.members if pod is not None]
    left = [pod for pod in left if not (pod.is_terminal or pod.is_gated)]
    return not left or any(
        not pod.is_leaving or lifecycle.outlasts(pod, max_grace_seconds) for pod in left
    )


def _silent(group: GroupFacts, view: GangView, at: Situation) -> str | None:
    """Return that kube-scheduler has said nothing of pods for too long; None while it may."""
    if not view.unbound or lifecycle.is_judged(view):
        return None
    waited = at.seconds_since(group.key, view.plan.planned)
    if waited <= lifecycle.silence_seconds(view, at):
        return None
    words = lifecycle.silence(group, view, waited, at)
    return f"{len(view.unbound)} of {len(view.members)} pods {words}"


def _passed_over(group: GroupFacts, view: GangView, at: Situation) -> _FailedStart | None:
    """Return that kube-scheduler says nothing of the pods of a gang while it serves others."""
    why = _silent(group, view, at)
    if why is None or not lifecycle.is_passed_over(group, view, at):
        return None
    return _FailedStart(Reason.GANG_NOT_BOUND_IN_TIME, view.unbound[0].node, why, True)


def _refused(group: GroupFacts, view: GangView, at: Situation) -> _FailedStart | None:
    """Return kube-scheduler's verdict that a pod cannot be bound to its node."""
    for member, pod in view.members:
        if words := lifecycle.refusal(group.key, view.plan, member, pod, at):
            name = pod.key[1] if pod is not None else member.uid
            where = "" if view.plan.mode == "Score" else f" on node {member.node}"
            why = f"kube-scheduler cannot bind pod {name}{where}: {words[:700]}"
            return _FailedStart(Reason.UNSCHEDULABLE, member.node, why)
    return None


def _late(group: GroupFacts, view: GangView, at: Situation) -> _FailedStart | None:
    """Return which pods keep a gang from running for longer than its start may take.

    Once it runs there is no such limit, also where it lost members and others join in their place.
    """
    if (
        group.status.get("phase") != "Inqueue"
        or _has_run(group)
        or not lifecycle.is_late(group, view, at)
    ):
        return None
    there = [(m, pod) for m, pod in view.members if pod is not None]
    hangs = [
        (m, pod) for m, pod in there if not (_has_started(pod) or pod.is_terminal or pod.is_leaving)
    ]
    if not hangs:
        return None  # fewer than it needs, and nobody to wait for
    member, pod = min(hangs, key=lambda hung: not lifecycle.trouble(hung[1]))
    node = pod.node or member.node
    words = lifecycle.trouble(pod) or "its containers have not all started"
    why = (
        f"{len(hangs)} of {len(there)} pods did not run within startTimeoutSeconds "
        f"{at.start_timeout_seconds(group):.0f}; pod {pod.key[1]} on node {node}: {words[:700]}"
    )
    return _FailedStart(Reason.START_TIMED_OUT, node, why)


def _has_run(group: GroupFacts) -> bool:
    """Return whether the gang has run since it last had no place."""
    given = group.status.get("conditions") or ()
    return any(each["type"] == "Running" and each["status"] == "True" for each in given)


def _has_started(pod: PodFacts) -> bool:
    """Return whether all containers of a pod have started, and none of them hangs.

    What a readiness probe says of it is between the pod and its controller.
    """
    if pod.phase == "Running":
        return pod.obstacles is None or not pod.obstacles.waiting
    return pod.is_ready or pod.phase == "Succeeded"


def _bound(view: GangView) -> tuple[Member, ...]:
    return tuple(member for member, pod in view.members if pod is not None and pod.node)


def _preemptions(group: GroupFacts) -> dict[str, Any]:
    """Return how often the gang has made room, which its status keeps."""
    return {name: group.status[name] for name in _PREEMPTIONS if name in group.status}


def _failures(group: GroupFacts) -> dict[str, Any]:
    """Return what stays in the status of a gang that is tried again after failed starts."""
    if not group.start_failures:
        return {}
    kept = ("startFailures", "observedGeneration", "waitSeconds")
    return {name: group.status[name] for name in kept if name in group.status}


def _wait(group: GroupFacts) -> dict[str, Any]:
    """Return what stays of its wait, as the same pods may have to wait again."""
    kept: tuple[str, ...] = ("request", "uncountedSeconds")
    if "queuedTime" in group.status:
        kept = (*kept, "waitSeconds", "queuedTime")
    return {name: group.status[name] for name in kept if name in group.status}


def planned_status(group: GroupFacts, admit: Admit, plan: PlanFacts, now: float) -> dict[str, Any]:
    """Return a PodGroup's status at the moment its plan is written."""
    message = cleaned(admit.message)
    wanted: dict[str, Any] = {
        **_failures(group),
        **_preemptions(group),
        **_wait(group),
        "phase": "Inqueue",
        "reason": Reason.ADMITTED.value,
        "queue": plan.queue,
        "message": message,
        "conditions": group.status.get("conditions") or [],
        "plan": plans.to_manifest(plan),
        **resuming.status_fields(admit.gang),
    }
    if group.plan is None:
        wanted["waitSeconds"] = int(admit.gang.wait_seconds(now))
        if {"queuedTime", "parkedTime"} & group.status.keys():  # it is not as old as its pods
            wanted["queuedTime"] = quantities.format_timestamp(now)
    elif "waitSeconds" in group.status:
        wanted["waitSeconds"] = group.status["waitSeconds"]
    with_condition(wanted, "Admitted", True, Reason.ADMITTED, message, now)
    return wanted


def progress_status(
    group: GroupFacts, view: GangView, now: float, *, joins: bool = False
) -> dict[str, Any]:
    """A planned PodGroup's status as its pods come and go; ``joins``: others wait to join them."""
    alive: list[PodFacts] = [p for _, p in view.members if p is not None and not p.is_terminal]
    wanted = dict(group.status)
    if not alive:
        for stale in ("plan", "queuePosition", *_OF_FAILURES, *_OF_WAIT):
            wanted.pop(stale, None)
        failure = _failure(view)
        reason = Reason.POD_FAILED if failure else Reason.SUCCEEDED
        wanted |= {"phase": "Completed", "reason": reason.value}
        wanted["message"] = cleaned(f"all members have ended{failure}")
        _set_not_running(wanted, now)
        return wanted
    needed = group.spec.min_member if group.spec is not None else 1
    started = _started(view)
    is_reported = wanted.get("phase") == "Running" and (
        joins or wanted.get("reason") == Reason.GANG_RUNNING.value
    )
    if not is_reported and started >= min(needed, len(view.members)):
        for over in ("queuePosition", *_OF_FAILURES, *_OF_WAIT):
            wanted.pop(over, None)
        set_running(wanted, view, now)
    return wanted


def set_running(wanted: dict[str, Any], view: GangView, now: float) -> None:
    """Set in a status that the gang runs, in place."""
    message = running_message(view)
    wanted |= {"phase": "Running", "reason": Reason.GANG_RUNNING.value, "message": message}
    with_condition(wanted, "Running", True, Reason.GANG_RUNNING, message, now)


def running_message(view: GangView) -> str:
    """Return how many members have started, and how many failed and why the first did."""
    return cleaned(f"{_started(view)} members have started{_failure(view)}")


def _started(view: GangView) -> int:
    return sum(pod is not None and _has_started(pod) for _, pod in view.members)


def _failure(view: GangView) -> str:
    """Return how many members failed and why the first did, as the end of a message."""
    failed = [pod for _, pod in view.members if pod is not None and pod.phase == "Failed"]
    if not failed:
        return ""
    first = failed[0]
    return f"; {len(failed)} of {len(view.members)} failed, pod {first.key[1]}: {first.ending}"


def _set_not_running(wanted: dict[str, Any], now: float) -> None:
    """Set the condition Running to False, if there is one."""
    if any(condition["type"] == "Running" for condition in wanted.get("conditions") or ()):
        with_condition(wanted, "Running", False, wanted["reason"], wanted["message"], now)


def waiting_status(group: GroupFacts, hold: Hold, now: float, asked: Amounts) -> dict[str, Any]:
    """The status of a PodGroup that waits, or whose newest pods wait to join those that run.

    ``asked`` is what all pods that wait ask together.
    """
    wanted = {k: v for k, v in group.status.items() if k != "queuePosition"}
    wanted["reason"] = hold.reason.value
    wanted["queue"] = hold.gang.queue
    wanted |= resuming.status_fields(hold.gang)
    if not group.start_failures:  # there was none, or of an earlier spec
        for over in _OF_FAILURES:
            wanted.pop(over, None)
    elif "retryTime" in wanted and not group.is_pausing(now):
        # It waits from then on. The clock of who wrote it may have been ahead.
        wanted["retryTime"] = quantities.format_timestamp(min(now, group.retry_time))
    if "queuedTime" not in wanted and not group.start_failures:
        wanted.pop("waitSeconds", None)
    is_anew = waits.is_raised(group.status, asked)
    is_anew = is_anew or waits.is_other(group.status, hold.gang.queue)
    seconds, request = hold.gang.wait_seconds(now), waits.request_manifest(asked)
    waits.record(
        *(wanted, seconds, now, request),
        is_anew=is_anew,
        is_parked=hold.is_parked,
        is_counted=hold.counts_as_wait,
    )
    if hold.position is not None:
        wanted["queuePosition"] = hold.position
    if group.plan is not None:
        wanted["message"] = cleaned(f"{hold.gang.replicas} more wait to join: {hold.message}")
        return wanted
    wanted["phase"] = "Interrupted" if wanted.get("phase") == "Interrupted" else "Pending"
    message = wanted["message"] = cleaned(hold.message)
    with_condition(wanted, "Admitted", False, hold.reason, message, now)
    return wanted
