"""Occupants of nodes that affinity rules refer to: bound pods, planned members, users of claims."""

from collections.abc import Iterable, Iterator, Set
from itertools import chain

import numpy as np

from bireme.core.gangs import Gang, Key
from bireme.core.nodes import NodeTable
from bireme.core.pod_constraints import PodKind
from bireme.core.pod_rules import NOBODY, KindIndex, Occupants, PodsOf
from bireme.core.running import RunningGang
from bireme.kube import volume_usage
from bireme.kube.allocations import Allocation
from bireme.kube.gang_demands import GangDemands
from bireme.kube.node_cache import NodeCache
from bireme.kube.pods import PodFacts
from bireme.kube.running_gangs import RunningGangs
from bireme.kube.volumes import Volumes
from bireme.kube.watched_objects import WatchedObjects, kinds_of

_PodClass = tuple[PodKind, str, bool, bool]
"""Kind of pods, uid of their gang, whether they never leave, whether they are leaving."""
_Volume = tuple[str, str]


class RuleOccupants:
    """The pods that the affinity rules of gangs refer to, by their place and gang."""

    def __init__(
        self,
        objects: WatchedObjects,
        running: RunningGangs,
        demands: GangDemands,
        nodes: NodeCache,
        volumes: Volumes,
    ) -> None:
        self._objects = objects
        self._running = running
        self._demands = demands
        self._nodes = nodes
        self._volumes = volumes
        # The pod kinds of waiting gangs with rules, from the last cycles.
        self._kind_index = KindIndex()

    def of_gangs(
        self, waiting: Iterable[Gang], running: Iterable[RunningGang], table: NodeTable
    ) -> Occupants:
        """Return the bound pods that affinity rules of schedulable gangs refer to."""
        growing = (running_gang.gang for running_gang in running if running_gang.gang.is_elastic)
        gangs = chain(waiting, growing)
        asking = (task for g in gangs if g.has_rules or g.has_preferences for task in g.tasks)
        kinds_with_rules = set(kinds_of(asking))
        if not kinds_with_rules:
            return NOBODY  # the common case: no gang has rules
        return Occupants(
            [
                *self._selectable(kinds_with_rules, table),
                *self._users_of_volumes(kinds_with_rules, table),
                *self._users_of_claims(kinds_with_rules, table),
            ]
        )

    def _selectable(self, kinds_with_rules: Set[PodKind], table: NodeTable) -> Iterator[PodsOf]:
        index = self._index_of(kinds_with_rules)
        matters: dict[PodKind, bool] = {}
        rows: dict[_PodClass, list[int]] = {}
        for group, node in self._pods():
            kind = group[0]
            if kind not in matters:
                matters[kind] = not kinds_with_rules.isdisjoint(index.about(kind))
            if matters[kind] and node in table.row:
                rows.setdefault(group, []).append(table.row[node])
        for (kind, owner, is_fixed, is_leaving), node_rows in rows.items():
            yield PodsOf(kind, np.array(node_rows, dtype=np.int64), owner, is_fixed, is_leaving)

    def _users_of_volumes(
        self, kinds_with_rules: Set[PodKind], table: NodeTable
    ) -> Iterator[PodsOf]:
        volumes = {volume for kind in kinds_with_rules for volume in kind.volumes}
        for volume, node_names in self._nodes_with(volumes):
            rows = sorted(table.row[name] for name in node_names if name in table.row)
            yield PodsOf(PodKind(volumes=(volume,)), np.array(rows, dtype=np.int64))

    def _users_of_claims(
        self, kinds_with_rules: Set[PodKind], table: NodeTable
    ) -> Iterator[PodsOf]:
        claims = {claim for kind in kinds_with_rules for claim in kind.alone}
        if claims and len(table):
            anywhere = np.zeros(1, dtype=np.int64)  # the rule is about all nodes
            for claim, owner in sorted(self._users_of(claims)):
                yield PodsOf(PodKind(alone=(claim,)), anywhere, owner)

    def _index_of(self, pod_kinds: Set[PodKind]) -> KindIndex:
        """Return an index of ``pod_kinds``, and maybe of kinds from earlier calls."""
        # Few of tens of thousands of kinds change between two cycles.
        if len(self._kind_index) > 2 * len(pod_kinds):
            self._kind_index = KindIndex()
        for kind in pod_kinds:
            self._kind_index.add(kind)
        return self._kind_index

    def _nodes_with(self, volumes: Set[_Volume]) -> Iterator[tuple[_Volume, Set[str]]]:
        """Yield each of ``volumes`` with the nodes of its pods and planned members."""
        planned: dict[_Volume, set[str]] = {}
        for key, gang_usage in self._running.usages.items() if volumes else ():
            for node, used, _ in gang_usage.claims:
                for name in used.claims:
                    planned.setdefault(self._volumes.of_claim((key[0], name)), set()).add(node)
        for volume in sorted(volumes):
            bound = volume_usage.nodes_with(self._volumes, volume)
            yield volume, bound | planned.get(volume, frozenset())

    def _users_of(self, claims: Set[Key]) -> set[tuple[Key, str]]:
        """Return every user of ``claims``: the claim and the uid of the gang, empty for no gang."""
        members = self._objects.members
        users = {
            (claim, self._gang_of(members[pod]) if pod in members else "")
            for claim in claims
            for pod in self._volumes.users(claim)
        }
        for key, gang_usage in self._running.usages.items():
            if gang_usage.allocation is None:
                continue
            for _, used, _ in gang_usage.claims:
                named = {(key[0], name) for name in used.claims}
                users.update(
                    (claim, self._uid_of(gang_usage.allocation)) for claim in named & claims
                )
        return users

    def _pods(self) -> Iterator[tuple[_PodClass, str]]:
        """Yield the class and the node of every pod that affinity rules can select."""
        objects, rules = self._objects, self._objects.rules
        for key, kind in rules.pods():
            if node := objects.usage.node_of(key):
                is_member = key in objects.members
                owner = self._gang_of(objects.members[key]) if is_member else ""
                namespace, _, name = key[1].partition("/")
                is_fixed = not is_member and self._nodes.is_fixed((namespace, name))
                yield (kind, owner, is_fixed, key in rules.leaving), node
        for allocation in self._running.allocations:
            yield from self._planned_members(allocation)

    def _planned_members(self, allocation: Allocation) -> Iterator[tuple[_PodClass, str]]:
        """Yield the planned members whose pods are not bound or do not exist yet."""
        job, rules = self._objects.jobs.get(allocation.key), self._objects.rules
        tasks = self._demands.with_pod_kinds(job.tasks, job) if job is not None else ()
        kinds = {task.name: task.pod for task in tasks}
        uid = self._uid_of(allocation)
        for node, member, pod in allocation.view.open_places():
            kind = rules.of_pod(pod.key) if pod is not None else kinds.get(member.task)
            if kind is not None:
                yield (kind, uid, False, False), node

    def _uid_of(self, allocation: Allocation) -> str:
        group = self._objects.groups.get(allocation.key)
        return allocation.job_uid or (group.uid if group is not None else "")

    def _gang_of(self, pod: PodFacts) -> str:
        """Return the uid of the running gang of a bound pod; empty for none."""
        gang_usage = self._running.usages.get(pod.gang)
        allocation = gang_usage.allocation if gang_usage is not None else None
        if allocation is None or pod.uid not in allocation.view.uids:
            return f"{pod.job_uid}/leaving" if pod.job_uid else ""
        uid = self._uid_of(allocation)
        is_left = any(pod.key == leftover.key for leftover in allocation.view.leftovers)
        return f"{uid}/leaving" if is_left else uid
