"""The operator's reflectors: which collections it mirrors, and into what they feed.

Pods come as two streams, split by the API server: members of gangs whole, because their state
is a job's state, and all others only while they hold a node, because they merely take room.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from bireme.kube import names, wire
from bireme.kube.client import ApiClient, Params
from bireme.kube.cluster_state import ClusterState
from bireme.kube.reflector import Reflector

_log = structlog.get_logger(__name__)
_HOLDS_A_NODE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class Watches:
    """All reflectors of one leading operator."""

    def __init__(self, client: ApiClient, state: ClusterState) -> None:
        standing = state.standing

        def mirror(
            path: str,
            kind: type[Any],
            put: Callable[..., None],
            delete: Callable[..., None],
            name: str,
            params: Params | None = None,
        ) -> Reflector[Any]:
            return Reflector(
                client, path, kind, on_put=put, on_delete=delete, params=params, name=name
            )

        self.nodes = mirror("/api/v1/nodes", wire.Node, state.put_node, state.delete_node, "nodes")
        self.members = mirror(
            "/api/v1/pods",
            wire.Pod,
            state.put_member,
            state.delete_member,
            "member pods",
            {"labelSelector": names.POD_GROUP_LABEL},
        )
        self.others = mirror(
            "/api/v1/pods",
            wire.Pod,
            state.put_other_pod,
            state.delete_other_pod,
            "other pods",
            {"labelSelector": f"!{names.POD_GROUP_LABEL}", "fieldSelector": _HOLDS_A_NODE},
        )
        custom = wire.Custom
        self.jobs = mirror(
            names.path("trainingjobs"), custom, state.put_job, state.delete_job, "trainingjobs"
        )
        self.groups = mirror(
            names.path("podgroups"), custom, state.put_group, state.delete_group, "podgroups"
        )
        self.queues = mirror(
            names.path("queues"), custom, standing.put_queue, standing.delete_queue, "queues"
        )
        self.namespaces = mirror(
            "/api/v1/namespaces",
            wire.Namespace,
            standing.put_namespace,
            standing.delete_namespace,
            "namespaces",
        )
        self.priorities = mirror(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            wire.PriorityClass,
            standing.put_priority_class,
            standing.delete_priority_class,
            "priorityclasses",
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
            self.namespaces,
            self.priorities,
        )

    async def run(self) -> None:
        """Mirror until cancelled; the end of any one reflector is the end of all."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.all:
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Return once every collection has been listed."""
        await asyncio.gather(*(reflector.synced.wait() for reflector in self.all))

    async def wait_past(
        self, reflector: Reflector[Any], resource_version: int, timeout_seconds: float = 10.0
    ) -> None:
        """Return once our own write is in the cache, or after the time with a warning."""
        try:
            await reflector.wait_past(resource_version, timeout_seconds)
        except TimeoutError:
            _log.warning("the cache has not caught up", resource_version=resource_version)
