"""Adoptions: what the operator does about released pods that belong to no plan.

A PodGroup that is deleted and created again begins without a plan, while its pods run on. What runs
becomes the plan of the new PodGroup. A pod whose gate was lifted before, and that has no node yet,
can get none any more: it is stopped, so that its controller creates a gated one.
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
from bireme_operator.guests import Guests, KeptByBudget
from bireme_operator.lifecycle import Situation
from bireme_operator.pod_groups import set_running
from bireme_operator.workqueue import WorkQueue

# A PodGroup in these phases has given its places back: the cache may only not know it of its pods.
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

    def adopt(self, group: GroupFacts, at: Situation) -> bool:
        """Start the adoption of what runs; return False where nothing is to be adopted."""
        if group.is_leaving or group.status.get("phase") in _GIVEN_BACK:
            return False
        pods = self.state.members_of(group.key)
        is_lent = self.state.is_lent
        plan = adoption_plan(group, pods, epoch=self.epoch, now=at.now, is_lent=is_lent)
        if plan is not None:
            work = self._adopt(group, view_of(group.key, "", plan, pods), at.now)
            self.work.start(group.key, work, AssumedPlan("", plan))
            return True
        return False

    async def _adopt(self, group: GroupFacts, view: GangView, now: float) -> None:
        plan = view.plan
        message = f"{len(plan.members)} pods that run already became its members"
        wanted: dict[str, Any] = {
            "phase": "Inqueue",
            "reason": Reason.ADMITTED.value,
            "queue": plan.queue,
            "message": message,
            "conditions": group.status.get("conditions") or [],
            "plan": plans.to_manifest(plan),
        }
        with_condition(wanted, "Admitted", True, Reason.ADMITTED, message, now)
        # Containers of it have started, also where some hang now: it is not a start to be judged.
        if any(pod is not None and pod.phase == "Running" for _, pod in view.members):
            set_running(wanted, view, now)
        await self.actuator.plan_group(group.key, group.resource_version, wanted)
        await self.events.post("PodGroup", group.key, group.uid, Reason.ADMITTED, message)

    def stop_stranded(self, group: GroupFacts, at: Situation) -> bool:
        """Start to stop released pods that no plan names and no node has; False for none."""
        planned = group.plan.member_by_uid if group.plan is not None else {}
        # Nobody adopts those of another queue either.
        stranded = [
            pod
            for pod in list_released_pods(None, self.state.members_of(group.key))
            if not pod.node and pod.uid not in planned
        ]
        if not stranded or group.is_leaving:
            self._stranded_since.pop(group.uid, None)
            return False
        since = self._stranded_since.setdefault(group.uid, self.clock())
        # Half of it leaves time for their end, and for others in their place: until then those
        # that were adopted are a part of a gang.
        if self.clock() - since <= at.bind_timeout_seconds / 2:
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
        """Drop what is remembered of groups that are gone; ``uids`` are those that exist."""
        self._stranded_since = {u: at for u, at in self._stranded_since.items() if u in uids}
