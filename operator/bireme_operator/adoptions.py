"""Adoptions: plans for released pods that belong to no plan, or the stop of such pods.

A PodGroup that is deleted and created again has no plan at first, while its pods run on. The
running pods become the plan of the new PodGroup. A pod released before, without a node, cannot get
one any more: the operator stops it, so that its controller creates a gated one.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from bireme.core.reasons import Reason
from bireme.kube import plans
from bireme.kube.adoptions import adoption_plan, list_released_pods
from bireme.kube.allocations import AssumedPlan, GangView, view_of
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.conditions import with_condition
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme_operator.actuator import Actuator
from bireme_operator.events import Events
from bireme_operator.group_status import set_running
from bireme_operator.guests import Guests, KeptByBudget
from bireme_operator.reconcile_context import ReconcileContext
from bireme_operator.workqueue import WorkQueue

# A PodGroup in these phases has given its places back; the cache may still have its pods.
_GIVEN_BACK = ("Interrupted", "Completed")


@dataclass(slots=True)
class Adoptions:
    """Adopts pods for PodGroups; ``epoch`` is that of the leader, ``clock`` monotonic seconds."""

    state: ClusterState
    work: WorkQueue
    actuator: Actuator
    guests: Guests
    events: Events
    epoch: int
    clock: Callable[[], float]
    _stranded_since: dict[str, float] = field(default_factory=dict)

    def adopt(self, group: GroupFacts, context: ReconcileContext) -> bool:
        """Start the adoption of running pods; return False if there are none to adopt."""
        if group.is_leaving or group.status.get("phase") in _GIVEN_BACK:
            return False
        pods = self.state.objects.members_of(group.key)
        is_lent = self.state.objects.history.is_lent
        plan = adoption_plan(group, pods, epoch=self.epoch, now=context.now, is_lent=is_lent)
        if plan is not None:
            work = self._adopt(group, view_of(group.key, "", plan, pods), context.now)
            self.work.start(group.key, work, AssumedPlan("", plan))
            return True
        return False

    async def _adopt(self, group: GroupFacts, view: GangView, now: float) -> None:
        plan = view.plan
        message = f"{len(plan.members)} running pods became its members"
        new_status: dict[str, Any] = {
            "phase": "Inqueue",
            "reason": Reason.ADMITTED.value,
            "queue": plan.queue,
            "message": message,
            "conditions": group.status.get("conditions") or [],
            "plan": plans.to_manifest(plan),
        }
        with_condition(new_status, "Admitted", True, Reason.ADMITTED, message, now)
        # Some containers have started, so the start timeout does not apply, even if others hang.
        if any(pod is not None and pod.phase == "Running" for _, pod in view.members):
            set_running(new_status, view, now)
        await self.actuator.plan_group(group.key, group.resource_version, new_status)
        await self.events.post("PodGroup", group.key, group.uid, Reason.ADMITTED, message)

    def stop_stranded(self, group: GroupFacts, context: ReconcileContext) -> bool:
        """Start to stop released pods without a plan and a node; return False if none."""
        planned = group.plan.member_by_uid if group.plan is not None else {}
        # This includes pods of another queue, which no group adopts either.
        stranded = [
            pod
            for pod in list_released_pods(None, self.state.objects.members_of(group.key))
            if not pod.node and pod.uid not in planned
        ]
        if not stranded or group.is_leaving:
            self._stranded_since.pop(group.uid, None)
            return False
        since = self._stranded_since.setdefault(group.uid, self.clock())
        # Half the timeout leaves time to stop these pods and to create others: until then the
        # adopted pods are only part of a gang.
        if self.clock() - since <= context.bind_timeout_seconds / 2:
            return False
        self.work.start(group.key, self._stop(group, stranded))
        return True

    async def _stop(self, group: GroupFacts, pods: list[PodFacts]) -> None:
        message = f"{len(pods)} pods were released for an earlier PodGroup and have no place"
        try:
            await self.guests.stop(group, pods, (), message)
        except KeptByBudget as by_budget:
            raise ApiError(429, "TooManyRequests", str(by_budget)) from by_budget
        reason = Reason.GANG_NOT_BOUND_IN_TIME
        await self.events.post("PodGroup", group.key, group.uid, reason, message)

    def forget(self, uids: Container[str]) -> None:
        """Drop the records of deleted groups; ``uids`` are those of the existing ones."""
        self._stranded_since = {u: since for u, since in self._stranded_since.items() if u in uids}
