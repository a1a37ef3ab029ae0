"""The operator's reflectors: which collections it mirrors, and into what they feed.

Pods come as two streams, split by the API server (:mod:`bireme.kube.pods`).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from bireme.kube import names, pods, wire
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.watch import Reflector

_log = structlog.get_logger(__name__)


class Watches:
    """All reflectors of one leading operator; ``clock`` gives monotonic seconds."""

    def __init__(
        self,
        client: ApiClient,
        state: ClusterState,
        scalers: NodePoolScalers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        def mirror(
            path: str,
            kind: type[Any],
            put: Callable[..., None],
            delete: Callable[..., None],
            **options: Any,
        ) -> Reflector[Any]:
            return Reflector(
                client, path, kind, on_put=put, on_delete=delete, clock=clock, **options
            )

        standing, policies, path = state.tenancy, state.policies, names.path
        custom, pod = wire.CustomObject, wire.V1Pod
        self.nodes = mirror("/api/v1/nodes", wire.V1Node, state.put_node, state.delete_node)
        put, delete = state.put_member, state.delete_member
        self.members = mirror(pods.PATH, pod, put, delete, params=pods.MEMBERS, name="members")
        put, delete = state.put_other_pod, state.delete_other_pod
        self.others = mirror(pods.PATH, pod, put, delete, params=pods.OTHERS, name="other pods")
        self.jobs = mirror(path("trainingjobs"), custom, state.put_job, state.delete_job)
        self.groups = mirror(path("podgroups"), custom, state.put_group, state.delete_group)
        self.queues = mirror(path("queues"), custom, standing.put_queue, standing.delete_queue)
        self.policies = mirror(path("schedulingpolicies"), custom, policies.put, policies.delete)
        self.scalers = mirror(path("nodepoolscalers"), custom, scalers.put, scalers.delete)
        self.namespaces = mirror(
            "/api/v1/namespaces",
            wire.V1Namespace,
            standing.put_namespace,
            standing.delete_namespace,
        )
        self.priorities = mirror(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            wire.V1PriorityClass,
            standing.put_priority_class,
            standing.delete_priority_class,
        )

    @property
    def all(self) -> tuple[Reflector[Any], ...]:
        """Every reflector."""
        return (
            self.nodes,
            self.members,
            self.others,
            self.jobs,
            self.groups,
            self.queues,
            self.policies,
            self.namespaces,
            self.priorities,
            self.scalers,
        )

    @property
    def _needed(self) -> tuple[Reflector[Any], ...]:
        """Those without which nothing is decided: pools that cannot be read merely do not grow."""
        return tuple(reflector for reflector in self.all if reflector is not self.scalers)

    @property
    def are_synced(self) -> bool:
        """Whether every collection that is needed has been listed."""
        return all(reflector.synced.is_set() for reflector in self._needed)

    async def run(self) -> None:
        """Mirror until cancelled; the end of any one reflector is the end of all."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.all:
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Return once every collection that is needed has been listed."""
        await asyncio.gather(*(reflector.synced.wait() for reflector in self._needed))

    async def wait_past(
        self, reflector: Reflector[Any], resource_version: int, timeout_seconds: float = 180.0
    ) -> None:
        """Return once our own write is in the cache, or after the time with a warning.

        By default longer than a silent watch lives: who goes on before would undo what he did.
        """
        try:
            await reflector.wait_past(resource_version, timeout_seconds)
        except TimeoutError:
            _log.warning("the cache has not caught up", resource_version=resource_version)
