"""The extender's own cache of the cluster: watches that feed one ClusterState.

The plans in TrainingJobs and PodGroups are watched from the start: pinned pods need nothing else.
Nodes and pods matter only in score mode, so their watches start with the first plan in that mode.
SchedulingPolicies choose the scorer; readiness does not wait for them. The cache starts empty and
may lag behind the API server; :class:`PlanWaits` bridges that lag.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from bireme.core.gangs import Key
from bireme.kube import names, plans, pods, wire
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import PlannedGang
from bireme.kube.watch import Reflector, Timing

PLANNED: Final = {"fieldSelector": f"{names.PLAN_MODE_PATH[1:]}!="}
"""Selects TrainingJobs with a plan. Thousands of waiting ones may exist and are not sent."""
# Number of pods whose one wait is remembered; older pods may wait again. It is bounded because
# tenants choose the number of pods.
_REMEMBERED_PODS = 8192
MAX_SILENCE_SECONDS = 90.0
"""Time without an event or bookmark of a watch after which the extender is not ready: bookmarks
come about once a minute."""
# Seconds of waiting earned per second.
_CREDIT_PER_SECOND = 0.1
# Capacity of the bucket, in waits of full length.
_MAX_CREDITED_WAITS = 10


class ClusterCache:
    """The watches that fill ``state``; ``on_plan(key)`` is called when a gang's object changes."""

    def __init__(
        self,
        client: ApiClient,
        state: ClusterState,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_plan: Callable[[Key], None] = lambda _: None,
    ) -> None:
        mirror = partial(Reflector[Any], client, timing=timing or Timing(), clock=clock)
        self.state = state
        self._on_plan = on_plan
        self._clock = clock
        self._has_scores = asyncio.Event()
        custom, pod, policies = wire.CustomObject, wire.V1Pod, state.policies
        path = names.path("schedulingpolicies")
        self._policies = mirror(path, custom, policies.put, policies.delete)
        path, read = names.path("trainingjobs"), wire.PlannedObject
        self._jobs = mirror(path, read, self._put_job, self._delete_job, PLANNED)
        path = names.path("podgroups")
        self._groups = mirror(path, custom, self._put_group, self._delete_group)
        nodes = mirror("/api/v1/nodes", wire.V1Node, state.nodes.put, state.nodes.delete)
        objects = state.objects
        put, delete, params = objects.put_member, objects.delete_member, pods.MEMBERS
        members = mirror(pods.PATH, pod, put, delete, params, "members")
        put, delete, params = objects.put_other_pod, objects.delete_other_pod, pods.NON_MEMBERS
        other_pods = mirror(pods.PATH, pod, put, delete, params, "others")
        self._for_scores = {"nodes": nodes, "members": members, "others": other_pods}
        # The watches that readiness depends on, by the name in metrics.
        self._watched = {"trainingjobs": self._jobs, "podgroups": self._groups}
        self._plans: dict[Key, tuple[bytes, PlannedGang | None]] = {}

    async def run(self) -> None:
        """Watch until cancelled; if one watch ends, all end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._jobs.run())
            group.create_task(self._groups.run())
            group.create_task(self._policies.run())
            await self._has_scores.wait()
            self._watched |= self._for_scores
            for reflector in self._for_scores.values():
                group.create_task(reflector.run())

    async def wait_synced(self) -> None:
        """Return once all watched collections have been listed."""
        await asyncio.gather(*(r.synced.wait() for r in self._watched.values()))

    @property
    def is_live(self) -> bool:
        """True if all plans have been listed and their watches are open."""
        return all(r.synced.is_set() and r.is_live for r in (self._jobs, self._groups))

    @property
    def knows_nodes(self) -> bool:
        """True if all nodes and pods have been listed."""
        return all(reflector.synced.is_set() for reflector in self._for_scores.values())

    async def has_nodes(self, timeout_seconds: float) -> bool:
        """Start to watch nodes and pods; return whether all are listed within the time."""
        self._has_scores.set()
        if self.knows_nodes:
            return True
        listed = [reflector.synced for reflector in self._for_scores.values()]
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.gather(*(event.wait() for event in listed))
        except TimeoutError:
            return False
        return True

    def ages(self) -> dict[str, float]:
        """Return the seconds since each watch last heard from the API server."""
        now = self._clock()
        return {name: now - r.last_contact_seconds for name, r in self._watched.items()}

    def troubles(self) -> list[str]:
        """Return the reasons why the cache is not ready; empty when it is ready."""
        unread = [n for n, r in self._watched.items() if not r.synced.is_set()]
        silent = [n for n, age in self.ages().items() if age > MAX_SILENCE_SECONDS]
        limit = f"{MAX_SILENCE_SECONDS:g} s"
        return [f"{name} have not been read yet" for name in unread] + [
            f"the watch of {name} has been silent for {limit}"
            for name in silent
            if name not in unread
        ]

    def _put_job(self, key: Key, job: wire.PlannedObject) -> None:
        raw, cached = bytes(job.status.plan), self._plans.get(key)
        # Most events of a running job do not change its plan.
        if cached is None or cached[0] != raw or self._is_of_another(cached[1], job):
            plan = plans.read({"plan": msgspec.json.decode(raw)}) if raw else None
            planned = None if plan is None else PlannedGang(job.metadata.uid, True, plan)
            self._plans[key] = (raw, planned)
            self.state.objects.put_job_plan(key, planned)
            self._notify(key)

    def _is_of_another(self, planned: PlannedGang | None, job: wire.PlannedObject) -> bool:
        return planned is not None and planned.uid != job.metadata.uid

    def _delete_job(self, key: Key) -> None:
        self._plans.pop(key, None)
        self.state.objects.put_job_plan(key, None)
        self._notify(key)

    def _put_group(self, key: Key, group: wire.CustomObject) -> None:
        self.state.objects.put_group(key, group)
        self._notify(key)

    def _delete_group(self, key: Key) -> None:
        self.state.objects.delete_group(key)
        self._notify(key)

    def _notify(self, key: Key) -> None:
        planned = self.state.objects.plan_of(key)
        if planned is not None and planned.plan.mode == "Score":
            # Start before the first call for a pod in score mode: listing all pods takes a while.
            self._has_scores.set()
        self._on_plan(key)


class PlanWaits:
    """Short, bounded waits of filter calls for a plan that the watch has not delivered yet.

    The scheduler calls for one pod at a time, so every wait delays all other pods. Each pod waits
    at most once. All waits together use a token bucket that refills by 0.1 s per second. Pods that
    try to stall the scheduler empty the bucket and are then refused at once.

    ``limit_seconds`` bounds one wait; 0 turns waiting off.
    """

    def __init__(self, limit_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._credit_seconds = _MAX_CREDITED_WAITS * limit_seconds
        self._credited_at = clock()
        self._pods_that_waited: OrderedDict[str, None] = OrderedDict()
        self._waiters: dict[Key, set[asyncio.Future[None]]] = {}

    def may_wait(self, uid: str) -> bool:
        """Return whether the pod may wait now; the call uses up its one wait."""
        if not uid or uid in self._pods_that_waited or self._limit_seconds <= 0:
            return False
        self._pods_that_waited[uid] = None
        if len(self._pods_that_waited) > _REMEMBERED_PODS:
            self._pods_that_waited.popitem(last=False)
        return self._credit() >= self._limit_seconds

    async def until(self, is_available: Callable[[], bool], key: Key) -> bool:
        """Wait until ``is_available()`` is true; return False on timeout.

        It is called at once and after each change of gang ``key``; there is no polling.
        """
        began = self._clock()
        try:
            async with asyncio.timeout(self._limit_seconds):
                while not is_available():
                    await self._next_change(key)
        except TimeoutError:
            return False
        finally:
            self._credit_seconds -= self._clock() - began
        return True

    def notify(self, key: Key) -> None:
        """Wake the calls that wait for the plan of gang ``key``."""
        for waiter in self._waiters.get(key, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def _next_change(self, key: Key) -> None:
        changed = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(key, set())
        waiters.add(changed)
        try:
            await changed
        finally:
            waiters.discard(changed)
            if not waiters and self._waiters.get(key) is waiters:
                del self._waiters[key]

    def _credit(self) -> float:
        now = self._clock()
        earned = self._credit_seconds + _CREDIT_PER_SECOND * (now - self._credited_at)
        self._credit_seconds = min(_MAX_CREDITED_WAITS * self._limit_seconds, earned)
        self._credited_at = now
        return self._credit_seconds
