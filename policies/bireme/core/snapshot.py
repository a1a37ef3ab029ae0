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
from bireme.core.gangs import Gang, Key, PodKind, Shape
from bireme.core.nodes import GrowablePool, NodeTable
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
"""A submitter above so many times the mean is over-served: of two, one with 55 % of the service."""


@dataclass(frozen=True, eq=False)
class ClusterSnapshot:
    """The cluster at one moment.

    Attributes:
        now: POSIX seconds.
        nodes: All nodes.
        used: int64, shape (nodes, resources): bound pods plus planned, not yet bound replicas.
        waiting: Gangs that want to start, in any order.
        queues: By name.
        queue_usage: By queue name, what its own admitted gangs ask together.
        running: Gangs that hold places, in any order; ``used`` contains what they use.
        known_table: ``running`` as arrays, where the caller keeps them; made when needed otherwise.
        growable: Node pools that may be asked for more nodes, each name once.
        quotas: Quotas by namespace and name.
        occupants: Pods on nodes that rules over pods are about, of ``waiting`` gangs or their own.
        finished_runs: The last runs that ended.
        service: Device-seconds that the gangs of each submitter have had of late, see
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
        """Return the wait, in seconds, after which ``gang`` goes before all others."""
        return overdue_after_seconds(gang, self.queues, self.settings)

    def max_min_runtime_seconds(self, gang: Gang) -> int:
        """Return the most seconds that count of the minimum run time of ``gang``."""
        return max_min_runtime_seconds(gang.queue, self.queues, self.settings)

    @cached_property
    def has_runtime_caps(self) -> bool:
        """True if a queue says how much of a minimum run time counts."""
        return any(queue.max_min_runtime_seconds is not None for queue in self.queues.values())

    def wait_seconds(self, gang: Gang) -> float:
        """Return how long ``gang`` has waited; never negative, whatever the clocks say.

        For a running gang, until it started: its run time is no wait.
        """
        running = self.running_by_uid.get(gang.uid)
        # A gang of another controller may run and, with members that came later, wait as well.
        until = running.started if running is not None and running.gang is gang else self.now
        return gang.wait_seconds(until)

    @property
    def may_change(self) -> bool:
        """True if a cycle could do anything: start, resize or move a gang."""
        if self.waiting or any(running.gang.is_elastic for running in self.running):
            return True
        return bool(self.running) and bool(self.nodes.windows or self.nodes.differ_in_gpu_speed)

    def overdue_seconds(self, gang: Gang) -> float:
        """Return seconds that ``gang`` is past its wait bound, or was when it started; else 0."""
        wait, since = self.wait_seconds(gang), gang.uncounted_since
        if since is not None:
            wait -= max(0.0, self.now - since)
        return max(0.0, wait - self.overdue_after_seconds(gang))

    @cached_property
    def memo(self) -> dict[object, object]:
        """Answers that depend on this snapshot alone, kept for as long as it is."""
        return {}

    def shape(self, gang: Gang) -> Shape:
        """Return the equivalence class of ``gang`` in this snapshot: gangs of one fit alike.

        Thousands of gangs whose pods are only about each other, each by a label of its own, are of
        few shapes.
        """
        if not gang.has_rules:
            return gang.shape
        known = self._shapes.get(gang.shape)
        if known is None:
            known = shape_alone(gang) if self._is_alone(gang) else gang.shape
            # One object for all that are equal: it is the key of most caches of a cycle.
            known = self._shapes[gang.shape] = self._shapes.setdefault(known, known)
        return known

    @cached_property
    def _shapes(self) -> dict[Shape, Shape]:
        return {}

    def _is_alone(self, gang: Gang) -> bool:
        """Return whether no rules are between its pods and any that are or may come in a cycle."""
        own = {task.pod for task in gang.tasks if task.pod is not None}
        count, index = self._kinds
        return all(count[kind] == 1 for kind in own) and all(
            other in own for kind in own for other in index.about(kind)
        )

    @cached_property
    def _kinds(self) -> tuple[Counter[PodKind], KindIndex]:
        """How many waiting gangs, and groups of pods on nodes, are of each kind; and all kinds."""
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
        known = self.known_table
        # Somebody may have replaced ``running`` in a copy of the snapshot.
        if known is not None and known.gangs is self.running:
            return known
        return RunningTable.of(self.running, self.nodes.axis)

    @cached_property
    def running_by_uid(self) -> Mapping[str, RunningGang]:
        """Gangs that hold places, by uid."""
        return {running.gang.uid: running for running in self.running}

    def attained_seconds(self, gang: Gang) -> float:
        """Return how long ``gang`` has run so far, over all its starts."""
        running = self.running_by_uid.get(gang.uid)
        return gang.attained_seconds + (running.elapsed_seconds(self.now) if running else 0.0)

    @cached_property
    def over_served(self) -> frozenset[str]:
        """Submitters that have had more service of late than those that compete with them.

        These are all that have a gang that waits or runs. To be a tenth above their mean is too
        little to stop anybody for, and so is as much as makes no step of the service of a gang.
        """
        users = {gang.user for gang in self.waiting}
        users.update(held.gang.user for held in self.running)
        served = {user: self.service.get(user, 0.0) for user in users}
        threshold = self.settings.service_threshold
        if len(users) < 2 or not threshold:
            return frozenset()
        most = _OVER_SERVED * sum(served.values()) / len(served) + threshold
        return frozenset(user for user, seconds in served.items() if seconds > most)

    def remaining_seconds(self, gang: Gang) -> float | None:
        """Return how much longer ``gang`` is expected to run; None when unknown."""
        if gang.estimated_seconds is None:
            return None
        # The estimate is of one start: what earlier ones ran does not shorten it.
        running = self.running_by_uid.get(gang.uid)
        elapsed = running.elapsed_seconds(self.now) if running else 0.0
        return max(0.0, gang.estimated_seconds - elapsed)  # 0 once it has outrun the estimate
