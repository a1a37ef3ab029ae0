"""Snapshot of a cluster: everything a decision may depend on, immutable, including the time.

The operator builds it from watched objects, the simulator from its own state; equal snapshots
give equal decisions.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bireme.core.errors import SnapshotError, find_duplicate
from bireme.core.finished_runs import NO_RUNS, FinishedRuns
from bireme.core.gangs import Gang, Key, Shape
from bireme.core.nodes import GrowablePool, NodeTable
from bireme.core.pod_constraints import PodKind
from bireme.core.pod_rules import NOBODY, KindIndex, Occupants, shape_alone
from bireme.core.queues import (
    Queue,
    max_min_runtime_seconds,
    overdue_after_seconds,
    wait_bound_seconds,
)
from bireme.core.quotas import Quota
from bireme.core.resources import Amounts, IntArray
from bireme.core.running import RunningGang, RunningTable
from bireme.core.settings import SchedulingSettings

_OVER_SERVED = 1.1
"""The multiple of the mean from which a submitter is over-served: 55 % of the service of two."""


@dataclass(frozen=True, eq=False)
class ClusterSnapshot:
    """The cluster at one moment.

    Attributes:
        now: POSIX seconds.
        nodes: All nodes.
        used: int64, shape (nodes, resources): bound pods plus planned, not yet bound replicas.
        waiting: Gangs that want to start, in any order.
        queues: By name.
        queue_usage: The demand of the admitted gangs of each queue itself, by queue name.
        running: Gangs that hold places, in any order; ``used`` contains their usage.
        known_table: ``running`` as arrays, if the caller has them; otherwise built when needed.
        growable: Node pools that may be asked for more nodes, each name once.
        quotas: Quotas by namespace and name.
        occupants: Pods on nodes that rules over pods concern, of ``waiting`` gangs or their own.
        finished_runs: The last runs that ended.
        service: Recent device-seconds of the gangs of each submitter, see
            :class:`~bireme.core.service.ServiceLedger`.
    """

    now: float
    nodes: NodeTable
    used: IntArray
    waiting: tuple[Gang, ...]
    queues: Mapping[str, Queue]
    queue_usage: Mapping[str, Amounts] = field(default_factory=dict)
    settings: SchedulingSettings = field(default_factory=SchedulingSettings)
    running: tuple[RunningGang, ...] = ()
    known_table: RunningTable | None = None
    growable: tuple[GrowablePool, ...] = ()
    quotas: Mapping[Key, Quota] = field(default_factory=dict)
    occupants: Occupants = NOBODY
    finished_runs: FinishedRuns = NO_RUNS
    service: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.used.shape != self.nodes.allocatable.shape:
            raise SnapshotError(
                f"used has shape {self.used.shape}, the nodes {self.nodes.allocatable.shape}"
            )
        if twice := find_duplicate(pool.name for pool in self.growable):
            raise SnapshotError(f"two growable pools have the same name, {twice!r}")

    def wait_bound_seconds(self, gang: Gang) -> int:
        """Return the wait bound of the queue of ``gang``, in seconds."""
        return wait_bound_seconds(gang.queue, self.queues, self.settings)

    def overdue_after_seconds(self, gang: Gang) -> float:
        """Return the wait, in seconds, after which ``gang`` precedes all others."""
        return overdue_after_seconds(gang, self.queues, self.settings)

    def max_min_runtime_seconds(self, gang: Gang) -> int:
        """Return the upper bound, in seconds, on the minimum run time of ``gang``."""
        return max_min_runtime_seconds(gang.queue, self.queues, self.settings)

    @cached_property
    def has_runtime_caps(self) -> bool:
        """True if a queue bounds minimum run times."""
        return any(queue.max_min_runtime_seconds is not None for queue in self.queues.values())

    def wait_seconds(self, gang: Gang) -> float:
        """Return the waiting time of ``gang``; never negative, whatever the clocks say.

        For a running gang it ends at its start: run time is no waiting time.
        """
        running = self.running_by_uid.get(gang.uid)
        # A gang of another controller may run and, with later members, wait as well.
        until = running.started if running is not None and running.gang is gang else self.now
        return gang.wait_seconds(until)

    @property
    def may_change(self) -> bool:
        """True if a cycle could do anything: start, resize or move a gang."""
        if self.waiting or any(running.gang.is_elastic for running in self.running):
            return True
        return bool(self.running) and bool(self.nodes.windows or self.nodes.differ_in_gpu_speed)

    def overdue_seconds(self, gang: Gang) -> float:
        """Return seconds that ``gang`` is past its wait bound, or was at its start; else 0."""
        wait, since = self.wait_seconds(gang), gang.uncounted_since
        if since is not None:
            wait -= max(0.0, self.now - since)
        return max(0.0, wait - self.overdue_after_seconds(gang))

    @cached_property
    def memo(self) -> dict[object, object]:
        """Answers that depend only on this snapshot, cached for its lifetime."""
        return {}

    def shape(self, gang: Gang) -> Shape:
        """Return the equivalence class of ``gang`` in this snapshot: gangs of one class fit alike.

        Thousands of gangs have few shapes if their pods' rules only concern each other, each by a
        label of its own.
        """
        if not gang.has_rules:
            return gang.shape
        cached = self._shapes.get(gang.shape)
        if cached is None:
            cached = shape_alone(gang) if self._is_alone(gang) else gang.shape
            # One object for all equal shapes: it is the key of most caches of a cycle.
            cached = self._shapes[gang.shape] = self._shapes.setdefault(cached, cached)
        return cached

    @cached_property
    def _shapes(self) -> dict[Shape, Shape]:
        return {}

    def _is_alone(self, gang: Gang) -> bool:
        """Return whether no rule connects its pods with present pods or possible pods of a
        cycle.
        """
        own_kinds = {task.pod for task in gang.tasks if task.pod is not None}
        count, index = self._kinds
        return all(count[kind] == 1 for kind in own_kinds) and all(
            other in own_kinds for kind in own_kinds for other in index.about(kind)
        )

    @cached_property
    def _kinds(self) -> tuple[Counter[PodKind], KindIndex]:
        """The number of waiting gangs, and of groups of pods on nodes, of each kind; and all
        kinds.
        """
        count = Counter(group.kind for group in self.occupants.groups)
        for gang in self.waiting:
            if gang.has_rules:
                count.update({task.pod for task in gang.tasks if task.pod is not None})
        return count, KindIndex(count)

    @cached_property
    def node_pools(self) -> IntArray:
        """The pool of every node, shape (nodes,), from 0 on: one per value of the pool label."""
        # Nodes without the label, code -1, form one pool.
        codes = self.nodes.label(self.settings.node_pool_label).codes
        return np.unique(codes, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def total(self) -> dict[str, int]:
        """Allocatable amounts of all nodes together."""
        sums = self.nodes.allocatable.sum(axis=0).tolist()
        return dict(zip(self.nodes.axis.names, sums, strict=True))

    @cached_property
    def running_table(self) -> RunningTable:
        """Gangs that hold places, as arrays."""
        table = self.known_table
        # A copy of the snapshot may have other ``running`` gangs.
        if table is not None and table.gangs is self.running:
            return table
        return RunningTable.of(self.running, self.nodes.axis)

    @cached_property
    def running_by_uid(self) -> Mapping[str, RunningGang]:
        """Gangs that hold places, by uid."""
        return {running.gang.uid: running for running in self.running}

    def attained_seconds(self, gang: Gang) -> float:
        """Return the run time of ``gang`` so far, over all its starts."""
        running = self.running_by_uid.get(gang.uid)
        return gang.attained_seconds + (running.elapsed_seconds(self.now) if running else 0.0)

    @cached_property
    def over_served(self) -> frozenset[str]:
        """Submitters with more recent service than their competitors.

        Competitors are all submitters of a waiting or running gang. A tenth above their mean is too
        little to stop a gang, and so is less than one step of a gang's service.
        """
        users = {gang.user for gang in self.waiting}
        users.update(running.gang.user for running in self.running)
        served = {user: self.service.get(user, 0.0) for user in users}
        threshold = self.settings.service_threshold
        if len(users) < 2 or not threshold:
            return frozenset()
        limit = _OVER_SERVED * sum(served.values()) / len(served) + threshold
        return frozenset(user for user, seconds in served.items() if seconds > limit)

    def remaining_seconds(self, gang: Gang) -> float | None:
        """Return the remaining run time of ``gang`` by its estimate; None if unknown."""
        if gang.estimated_seconds is None:
            return None
        # The estimate is of one start: earlier starts do not shorten it.
        running = self.running_by_uid.get(gang.uid)
        elapsed = running.elapsed_seconds(self.now) if running else 0.0
        return max(0.0, gang.estimated_seconds - elapsed)  # 0 once it has outrun the estimate
