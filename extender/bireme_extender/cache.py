"""The extender's own view of the cluster: watches that feed one ClusterState.

Plans are all that pinned pods need, so PodGroups are followed from the start. Nodes and pods are
only asked about by pods in score mode: they are mirrored from the first plan in that mode on,
member pods and all others as two streams, split by the API server. SchedulingPolicies say who
scores; readiness does not wait for them. The cache is only ever read by the verbs; it starts empty
and may be behind.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from bireme.core.gangs import Key
from bireme.core.settings import SchedulingSettings
from bireme.kube import names, pods, wire
from bireme.kube.client import ApiClient, Params
from bireme.kube.cluster_state import ClusterState
from bireme.kube.watch import Reflector, Timing


class ClusterCache:
    """Watches and their state. ``on_group(key)`` follows every change of a PodGroup."""

    def __init__(
        self,
        client: ApiClient,
        settings: SchedulingSettings,
        contact_limit_seconds: float,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = ClusterState(settings)
        self.on_group: Callable[[Key], None] = _ignore
        self._contact_limit_seconds = contact_limit_seconds
        self.reflectors: dict[str, Reflector[Any]] = {}
        self._for_scores: dict[str, Reflector[Any]] = {}
        self._apart: dict[str, Reflector[Any]] = {}
        self._has_scores = asyncio.Event()
        self._client, self._timing, self._clock = client, timing or Timing(), clock
        state, scores = self.state, self._for_scores
        pod, groups = wire.V1Pod, names.path("podgroups")
        mirror, bsp, policies = self._mirror, "schedulingpolicies", state.policies
        mirror(self._apart, bsp, names.path(bsp), wire.CustomObject, policies.put, policies.delete)
        mirror(scores, "nodes", "/api/v1/nodes", wire.V1Node, state.put_node, state.delete_node)
        put, delete = state.put_member, state.delete_member
        mirror(scores, "members", pods.PATH, pod, put, delete, pods.MEMBERS)
        put, delete = state.put_other_pod, state.delete_other_pod
        mirror(scores, "others", pods.PATH, pod, put, delete, pods.OTHERS)
        mirror(
            self.reflectors,
            "podgroups",
            groups,
            wire.CustomObject,
            self._put_group,
            self._delete_group,
        )

    def _mirror(
        self,
        reflectors: dict[str, Reflector[Any]],
        name: str,
        path: str,
        kind: type[Any],
        put: Callable[..., None],
        delete: Callable[..., None],
        params: Params | None = None,
    ) -> None:
        """Add the reflector ``name`` to ``reflectors``."""
        reflectors[name] = Reflector(
            self._client,
            path,
            kind,
            on_put=put,
            on_delete=delete,
            params=params,
            name=name,
            timing=self._timing,
            clock=self._clock,
        )

    async def run(self) -> None:
        """Mirror until cancelled; the end of any one watch is the end of all."""
        async with asyncio.TaskGroup() as group:
            for reflector in (*self.reflectors.values(), *self._apart.values()):
                group.create_task(reflector.run())
            await self._has_scores.wait()
            self.reflectors |= self._for_scores
            for reflector in self._for_scores.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Return once everything that is followed has been listed."""
        await asyncio.gather(*(r.synced.wait() for r in self.reflectors.values()))

    @property
    def is_live(self) -> bool:
        """Whether all plans have been listed and are being followed."""
        plans = self.reflectors["podgroups"]
        return plans.synced.is_set() and plans.is_live

    async def has_nodes(self, timeout_seconds: float) -> bool:
        """Follow nodes and pods from now on; whether all have been listed, in time or before."""
        self._has_scores.set()
        listed = [reflector.synced for reflector in self._for_scores.values()]
        if all(event.is_set() for event in listed):
            return True
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.gather(*(event.wait() for event in listed))
        except TimeoutError:
            return False
        return True

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was last heard."""
        now = self._clock()
        return {name: now - r.last_contact_seconds for name, r in self.reflectors.items()}

    def troubles(self) -> list[str]:
        """What keeps the cache from being ready, in words; nothing when it is."""
        unread = [n for n, r in self.reflectors.items() if not r.synced.is_set()]
        silent = [n for n, age in self.ages().items() if age > self._contact_limit_seconds]
        limit = f"{self._contact_limit_seconds:g} s"
        return [f"{name} have not been read yet" for name in unread] + [
            f"{name} have not been heard of for {limit}" for name in silent if name not in unread
        ]

    def _put_group(self, key: Key, group: wire.CustomObject) -> None:
        self.state.put_group(key, group)
        plan = self.state.groups[key].plan
        if plan is not None and plan.mode == "Score":
            self._has_scores.set()
        self.on_group(key)

    def _delete_group(self, key: Key, group: wire.CustomObject) -> None:
        self.state.delete_group(key, group)
        self.on_group(key)


def _ignore(key: Key) -> None:
    """Nobody waits for PodGroups yet."""
