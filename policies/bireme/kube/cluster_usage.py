"""Usage of the nodes and quotas of a cluster: pods, planned members, claims and devices."""

from collections import Counter

import numpy as np

from bireme.core.gangs import Key
from bireme.core.nodes import NodeTable
from bireme.core.quotas import Quota
from bireme.core.resources import IntArray, add
from bireme.kube import volume_usage
from bireme.kube.changes import Change, Changes
from bireme.kube.devices import Devices
from bireme.kube.gang_demands import GangDemands
from bireme.kube.gang_views import GangViews
from bireme.kube.node_cache import NodeCache
from bireme.kube.node_usage import PlannedUsage, add_members
from bireme.kube.resource_quotas import ResourceQuotas
from bireme.kube.running_gangs import RunningGangs
from bireme.kube.volumes import Attached, Volumes
from bireme.kube.watched_objects import WatchedObjects


class ClusterUsage:
    """Usage per node and resource, and of quotas. Only nodes with changes are summed again.

    Arrays are int64 of shape (nodes, resources), with the rows of the table of nodes.
    """

    def __init__(
        self,
        objects: WatchedObjects,
        views: GangViews,
        running: RunningGangs,
        demands: GangDemands,
        nodes: NodeCache,
        volumes: Volumes,
        devices: Devices,
        quotas: ResourceQuotas,
        changes: Changes,
    ) -> None:
        self._objects = objects
        self._views = views
        self._running = running
        self._demands = demands
        self._nodes = nodes
        self._volumes = volumes
        self._devices = devices
        self._quotas = quotas
        self._changes = changes
        # Created by the first query for usage: not every program needs it.
        self._planned: PlannedUsage | None = None
        # Usage of claims per node. Its key: the node table, the revision of the volumes and the
        # volumes that plans attach.
        self._claimed: tuple[tuple[NodeTable, int, frozenset[Attached]], IntArray] | None = None

    def of_snapshot(self, table: NodeTable) -> IntArray:
        """Return the usage of pods, planned members, claims and devices; a fresh copy.

        ``table`` has the nodes of the snapshot. The running gangs must have been renewed.
        """
        used = self._of_pods_and_plans(table)
        if self._volumes.is_known:
            used += self._of_claims(table)
        if self._devices.is_known:
            add_members(used, table, self._devices.usage(self._is_planned))
        return used

    def without(self, gang: Key) -> IntArray:
        """Return the usage of all bound pods, and of planned members of all gangs but ``gang``.

        A fresh copy.
        """
        table = self._nodes.table
        used = self._of_pods_and_plans(table)
        view = self._views.get(gang)
        if view is not None:
            planned = np.zeros_like(used)
            add_members(planned, table, view.usage())
            used -= planned
        return used

    def quotas(self) -> dict[Key, Quota]:
        """Return all quotas. Planned pods that do not exist yet count as used."""
        promised: dict[Key, dict[str, int]] = {}
        for allocation in self._running.allocations if self._quotas.namespaces else ():
            key = allocation.key
            job = self._objects.jobs.get(key)
            if job is None or self._quotas.rules(key[0]) is None:
                continue
            if allocation.job_uid != job.uid or not allocation.view.missing:
                continue
            missing = Counter(member.task for member in allocation.view.missing)
            for task in self._demands.with_charges(job.tasks, job):
                for quota, amounts in task.charges:
                    amounts_so_far = promised.get((key[0], quota), {})
                    promised[key[0], quota] = add(amounts_so_far, amounts, missing[task.name])
        return self._quotas.with_promised(promised)

    def _of_pods_and_plans(self, table: NodeTable) -> IntArray:
        if self._planned is None:
            objects = self._objects
            self._planned = PlannedUsage(self._changes.follow(Change.MEMBERS, Change.ASSUMED_PLAN))
            plans = objects.group_plans, objects.job_plans, self._views.reserved
            self._planned.changed.update(*plans)
        self._planned.update(self._views.effective)
        used = self._objects.usage.matrix(table)
        used += self._planned.usage.matrix(table)
        return used

    def _of_claims(self, table: NodeTable) -> IntArray:
        basis = table, self._volumes.revision, self._attachments_of_plans()
        if self._claimed is None or self._claimed[0] != basis:
            used = np.zeros_like(table.allocatable)
            add_members(used, table, volume_usage.usage(self._volumes, table.nodes, basis[2]))
            self._claimed = basis, used
        return self._claimed[1]

    def _attachments_of_plans(self) -> frozenset[Attached]:
        """Return the shared volumes of planned members, with the nodes of their plan."""
        if not self._volumes.has_limits:
            return frozenset()
        return frozenset(
            (node, *volume)
            for key, gang_usage in self._running.usages.items()
            for node, used, request in gang_usage.claims
            for volume in volume_usage.attachments_of(self._volumes, key[0], used, request)
        )

    def _is_planned(self, pod: Key) -> bool:
        """Return whether a pod is a member of a gang and not bound yet."""
        facts = self._objects.members.get(pod)
        return facts is not None and not facts.node
