"""The operator's mirrors of the API server, and the caches that they feed.

Bireme's own kinds come from kopf (:mod:`bireme_operator.custom_resources`), all others from
:class:`~bireme.kube.watch.Reflector`. Pods come as three streams, split by the API server
(:mod:`bireme.kube.pods`).
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import structlog

from bireme.core.gangs import Key
from bireme.kube import names, pods, wire
from bireme.kube.client import ApiClient
from bireme.kube.cluster_state import ClusterState
from bireme.kube.devices import Devices
from bireme.kube.job_services import JobServices
from bireme.kube.node_pool_scalers import NodePoolScalers
from bireme.kube.volumes import Volumes
from bireme.kube.watch import Reflector
from bireme_operator.custom_resources import Source, Sources

_log = structlog.get_logger(__name__)
# Longer than the life of a silent watch: work that went on earlier would undo its own writes.
_PATIENCE_SECONDS = 180.0


class Watches:
    """All watches of one leading operator; ``clock`` gives monotonic seconds."""

    def __init__(
        self,
        client: ApiClient,
        state: ClusterState,
        scalers: NodePoolScalers,
        custom: Sources,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        mirror = partial(Reflector[Any], client, clock=clock)
        objects, tenancy, policies = state.objects, state.tenancy, state.policies
        self._custom = custom
        self.jobs = custom.source("trainingjobs", objects.put_job, objects.delete_job)
        self.groups = custom.source("podgroups", objects.put_group, objects.delete_group)
        queues = custom.source("queues", tenancy.put_queue, tenancy.delete_queue)
        policy_source = custom.source("schedulingpolicies", policies.put, policies.delete)
        # Without a watch of scalers their pools merely do not grow.
        custom.source("nodepoolscalers", scalers.put, scalers.delete, is_needed=False)
        self.nodes = mirror("/api/v1/nodes", wire.V1Node, state.nodes.put, state.nodes.delete)
        put, delete, params = objects.put_member, objects.delete_member, pods.MEMBERS
        self.members = mirror(pods.PATH, wire.V1Pod, put, delete, params, "members")
        put, delete, params = objects.put_other_pod, objects.delete_other_pod, pods.NON_MEMBERS
        self.others = mirror(pods.PATH, wire.V1Pod, put, delete, params, "other pods")
        put, delete, params = (
            objects.put_nominated_pod,
            objects.delete_nominated_pod,
            pods.NOMINATED,
        )
        self.nominated = mirror(pods.PATH, wire.V1Pod, put, delete, params, "nominated pods")
        path, kind = "/api/v1/namespaces", wire.MetadataOnly
        self.namespaces = mirror(path, kind, tenancy.put_namespace, tenancy.delete_namespace)
        path, changed = "/apis/scheduling.k8s.io/v1/priorityclasses", tenancy.put_priority_class
        self.priorities = mirror(path, wire.V1PriorityClass, changed, tenancy.delete_priority_class)
        path, quotas = "/api/v1/resourcequotas", state.quotas
        self.quotas = mirror(path, wire.V1ResourceQuota, quotas.put, quotas.delete)
        self._reflectors: tuple[Reflector[Any], ...] = (
            self.nodes,
            self.members,
            self.others,
            self.nominated,
            self.namespaces,
            self.priorities,
            self.quotas,
        )
        # These start with the first gang that names a claim: until then they affect no decision.
        self._on_demand = (
            _OnDemand(state.volumes, tuple(_of_volumes(mirror, state.volumes))),
            _OnDemand(state.devices, tuple(_of_devices(mirror, state.devices))),
            _OnDemand(state.services, (_of_services(mirror, state.services),)),
        )
        # The first decision waits until each of these has been listed.
        self._needed = (*self._reflectors, self.jobs, self.groups, queues, policy_source)

    @property
    def are_synced(self) -> bool:
        """True if every needed collection has been listed."""
        return all(source.synced.is_set() for source in self._needed)

    async def run(self) -> None:
        """Mirror until cancelled; the end of any mirror ends all."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._custom.run())
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            for on_demand in self._on_demand:
                group.create_task(on_demand.run(group))

    async def wait_until_synced(self) -> None:
        """Return once every needed collection has been listed."""
        await asyncio.gather(*(source.synced.wait() for source in self._needed))

    async def wait_for(self, source: Source, key: Key, version: int) -> None:
        """Return once the cache has this process's write to one of Bireme's objects."""
        await self._until_known(source.wait_past(key, version, _PATIENCE_SECONDS), version)

    async def wait_for_pods(self, version: int) -> None:
        """Return once the cache has this process's writes to members, ``version`` the last.

        Pods arrive in the order of their versions, so the last is enough. Bireme's own kinds do
        not.
        """
        await self._until_known(self.members.wait_past(version, _PATIENCE_SECONDS), version)

    async def _until_known(self, waiting: Coroutine[Any, Any, None], version: int) -> None:
        try:
            await waiting
        except TimeoutError:
            _log.warning("the cache has not caught up", resource_version=version)


class _OnDemand:
    """Mirrors of related kinds, started once ``cache`` wants them."""

    def __init__(
        self, cache: Volumes | Devices | JobServices, reflectors: tuple[Reflector[Any], ...]
    ) -> None:
        self._cache, self._reflectors = cache, reflectors
        self._wanted = asyncio.Event()
        cache.on_wanted = self._wanted.set

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Start the mirrors in ``group`` once they are wanted; return when all have been listed."""
        await self._wanted.wait()
        for reflector in self._reflectors:
            group.create_task(reflector.run())
        await asyncio.gather(*(reflector.synced.wait() for reflector in self._reflectors))
        self._cache.all_listed()


def _of_services(mirror: Callable[..., Reflector[Any]], services: JobServices) -> Reflector[Any]:
    """Return a mirror of the Services of jobs, which carry their label."""
    params = {"labelSelector": names.JOB_LABEL}
    path, kind = "/api/v1/services", wire.MetadataOnly
    return mirror(path, kind, services.put, services.delete, params, "services of jobs")


def _of_devices(
    mirror: Callable[..., Reflector[Any]], devices: Devices
) -> Iterator[Reflector[Any]]:
    """Yield a mirror of every kind on which devices depend."""
    base = "/apis/resource.k8s.io/v1/"
    yield mirror(
        f"{base}resourceslices", wire.V1ResourceSlice, devices.put_slice, devices.delete_slice
    )
    yield mirror(
        f"{base}deviceclasses", wire.V1DeviceClass, devices.put_class, devices.delete_class
    )
    yield mirror(
        f"{base}devicetaintrules", wire.V1DeviceTaintRule, devices.put_rule, devices.delete_rule
    )
    yield mirror(
        f"{base}resourceclaimtemplates",
        wire.V1ResourceClaimTemplate,
        devices.put_template,
        devices.delete_template,
    )
    yield mirror(
        f"{base}resourceclaims", wire.V1ResourceClaim, devices.put_claim, devices.delete_claim
    )


def _of_volumes(
    mirror: Callable[..., Reflector[Any]], volumes: Volumes
) -> Iterator[Reflector[Any]]:
    """Yield a mirror of every kind on which volumes depend."""
    core, storage = "/api/v1/", "/apis/storage.k8s.io/v1/"
    yield mirror(
        f"{core}persistentvolumeclaims",
        wire.V1PersistentVolumeClaim,
        volumes.put_claim,
        volumes.delete_claim,
    )
    yield mirror(
        f"{core}persistentvolumes",
        wire.V1PersistentVolume,
        volumes.put_volume,
        volumes.delete_volume,
    )
    yield mirror(
        f"{storage}storageclasses", wire.V1StorageClass, volumes.put_class, volumes.delete_class
    )
    yield mirror(
        f"{storage}csinodes", wire.V1CsiNode, volumes.put_csi_node, volumes.delete_csi_node
    )
    yield mirror(
        f"{storage}volumeattachments",
        wire.V1VolumeAttachment,
        volumes.put_attachment,
        volumes.delete_attachment,
    )
    yield mirror(
        f"{storage}csidrivers", wire.V1CsiDriver, volumes.put_driver, volumes.delete_driver
    )
    yield mirror(
        f"{storage}csistoragecapacities",
        wire.V1CsiStorageCapacity,
        volumes.put_capacity,
        volumes.delete_capacity,
    )
