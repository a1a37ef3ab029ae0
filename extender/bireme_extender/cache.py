"""The extender's own view of the cluster: four watches that feed one ClusterState.

Member pods and all others come as two streams, split by the API server. The cache is only ever
read by the verbs; it starts empty, may be behind, and is never waited for except by a pod whose
plan is on its way.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from bireme.core.settings import SchedulingSettings
from bireme.kube import names, wire
from bireme.kube.client import ApiClient, Params
from bireme.kube.cluster_state import ClusterState
from bireme.kube.reflector import Reflector, Timing
from bireme.kube.training_jobs import Key

_HOLDS_A_NODE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class ClusterCache:
    """Watches and their state. ``on_group(key)`` follows every change of a PodGroup."""

    def __init__(
        self,
        client: ApiClient,
        settings: SchedulingSettings,
        contact_limit_seconds: float,
        timing: Timing | None = None,
    ) -> None:
        self.state = ClusterState(settings)
        self.on_group: Callable[[Key], None] = _ignore
        self._contact_limit_seconds = contact_limit_seconds
        self._is_synced = False
        self.reflectors: dict[str, Reflector[Any]] = {}
        state = self.state

        def mirror(
            name: str,
            path: str,
            kind: type[Any],
            put: Callable[..., None],
            delete: Callable[..., None],
            params: Params | None = None,
        ) -> None:
            self.reflectors[name] = Reflector(
                client,
                path,
                kind,
                on_put=put,
                on_delete=delete,
                params=params,
                name=name,
                timing=timing or Timing(),
            )

        label, pods, groups = names.POD_GROUP_LABEL, "/api/v1/pods", names.path("podgroups")
        ours = {"labelSelector": label}
        others = {"labelSelector": f"!{label}", "fieldSelector": _HOLDS_A_NODE}
        mirror("nodes", "/api/v1/nodes", wire.Node, state.put_node, state.delete_node)
        mirror("members", pods, wire.Pod, state.put_member, state.delete_member, ours)
        mirror("others", pods, wire.Pod, state.put_other_pod, state.delete_other_pod, others)
        mirror("podgroups", groups, wire.Custom, self._put_group, self._delete_group)

    async def run(self) -> None:
        """Mirror until cancelled; the end of any one watch is the end of all."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Return once everything has been listed."""
        await asyncio.gather(*(r.synced.wait() for r in self.reflectors.values()))

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed once."""
        if not self._is_synced:
            self._is_synced = all(r.synced.is_set() for r in self.reflectors.values())
        return self._is_synced

    @property
    def is_live(self) -> bool:
        """Whether everything has been listed and every watch is open."""
        return all(r.synced.is_set() and r.is_live for r in self.reflectors.values())

    def ages(self) -> dict[str, float]:
        """Seconds since each watch was last heard."""
        now = time.monotonic()
        return {name: now - r.last_contact_seconds for name, r in self.reflectors.items()}

    def troubles(self) -> list[str]:
        """What keeps the cache from being ready, in words; nothing when it is."""
        unread = [n for n, r in self.reflectors.items() if not r.synced.is_set()]
        silent = [n for n, age in self.ages().items() if age > self._contact_limit_seconds]
        limit = f"{self._contact_limit_seconds:g} s"
        return [f"{name} have not been read yet" for name in unread] + [
            f"{name} have not been heard of for {limit}" for name in silent if name not in unread
        ]

    def _put_group(self, key: Key, group: wire.Custom) -> None:
        self.state.put_group(key, group)
        self.on_group(key)

    def _delete_group(self, key: Key, group: wire.Custom) -> None:
        self.state.delete_group(key, group)
        self.on_group(key)


def _ignore(key: Key) -> None:
    """Nobody waits for PodGroups yet."""
