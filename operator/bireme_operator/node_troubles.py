"""Nodes that pods of gangs had trouble with: other gangs go elsewhere for a while.

Trouble is a kubelet that refuses a pod, or the first replica of a gang to fail, which may be the
fault of its node or of the gang's own program. One namespace's trouble with a node is its own, as
its pods may be the cause: its gangs avoid a node that refused them, those of others do not. A node
that gangs of two namespaces had trouble with is suspected, and all gangs avoid it. A gang that ends
well there shows that the failures of others were not the node's.

Of each pool (nodes with one value of the pool label; of nodes without it, those of one GPU model)
at most a tenth is avoided by all, so that of fewer than ten nodes none is: no tenant takes more
from the others, and where many nodes have trouble at once it is no node's own. A gang that fits
nowhere else is kept from no node.

It is memory: a new leader learns it anew.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from prometheus_client import Gauge

from bireme.core.decision import Hold
from bireme.core.gangs import (
    Gang,
)
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.maintenance import off_nodes
from bireme.core.nodes import NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.allocations import GangView
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import Transition
from bireme_operator.metrics import show
from bireme_operator.status_writer import StatusWriter

_AVOIDED_SECONDS = 600.0
# Trouble that two namespaces had within this time counts together.
_REMEMBERED_SECONDS = 3600.0
_NAMESPACES = 2
_SHARE_OF_POOL = 10
_MAX_NAMED = 3
_FAILURES = (Reason.POD_FAILED, Reason.BACKOFF_LIMIT_EXCEEDED)
_MEMO = "room by which nodes in trouble are explained"


@dataclass(slots=True)
class _Trouble:
    """Of one namespace with one node; times are monotonic seconds."""

    refused: float = float("-inf")
    """When its kubelet last refused a pod."""
    failed: float = float("-inf")
    """When a replica last was the first of its gang to fail there."""

    @property
    def last(self) -> float:
        return max(self.refused, self.failed)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A gang as it was, the nodes it is kept from, and what it became by that."""

    gang: Gang
    nodes: tuple[str, ...]
    around: Gang


@dataclass(slots=True)
class NodeTroubles:
    """Nodes in trouble; ``clock`` is monotonic seconds, ``suspected`` a gauge by node."""

    state: ClusterState
    reports: StatusWriter
    suspected: Gauge
    clock: Callable[[], float]
    _known: dict[str, dict[str, _Trouble]] = field(default_factory=dict)
    """By node and namespace."""
    _avoided: tuple[str, ...] = ()
    """By all gangs."""
    _avoided_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By the gangs of a namespace, those of all included."""
    _told: frozenset[str] = frozenset()
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _exempt: dict[str, float] = field(default_factory=dict)
    _failed: dict[str, frozenset[str]] = field(default_factory=dict)
    """Uids of the failed pods of each PodGroup that is watched."""

    # --- what happened ------------------------------------------------------------------------

    def observe(self, job: JobFacts, move: Transition, view: GangView | None) -> None:
        """Take note of a change of phase that was recorded."""
        if move.phase == "Succeeded" and view is not None and self._known:
            self._clear_failures(view.nodes)
        elif move.node and move.reason is Reason.POD_REJECTED:
            self._trouble(job.key[0], move.node).refused = self.clock()
        elif move.node and move.reason in _FAILURES:
            self._trouble(job.key[0], move.node).failed = self.clock()

    def observe_pods(self, namespace: str, failed: Iterable[PodFacts]) -> None:
        """Take note of pods of one gang that have failed without its stopping for it."""
        own = []
        for pod in failed:
            if pod.is_rejected:
                self._trouble(namespace, pod.node).refused = self.clock()
            else:
                own.append(pod)
        if len(own) == 1:  # of several it cannot be told which was the first
            self._trouble(namespace, own[0].node).failed = self.clock()

    def observe_group(self, group: GroupFacts, view: GangView) -> None:
        """Take note of pods of a PodGroup that have failed since it was last looked at."""
        there = [pod for _, pod in view.members if pod is not None]
        failed = {pod.uid: pod for pod in there if has_failed(pod)}
        before = self._failed.get(group.uid)
        self._failed[group.uid] = frozenset(failed)
        # What failed before this leader looked may have done so long ago.
        if before is None or failed.keys() <= before:
            return
        new = [pod for uid, pod in failed.items() if uid not in before]
        self.observe_pods(group.key[0], [p for p in new if p.is_rejected or not before])

    def _trouble(self, namespace: str, node: str) -> _Trouble:
        return self._known.setdefault(node, {}).setdefault(namespace, _Trouble())

    def _clear_failures(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            for trouble in self._known.get(node, {}).values():
                trouble.failed = float("-inf")

    # --- what follows -------------------------------------------------------------------------

    def review(self) -> None:
        """Decide anew which nodes gangs avoid, and tell administrators of those that are suspected.

        To be called before every round of :meth:`around`.
        """
        if not self._known and not self._told:
            return
        now, nodes = self.clock(), self.state.node_table
        self._forget_old(now, nodes)
        suspected = sorted(self._suspected(now))
        names = [name for _, name in suspected]
        pools = self._pools(nodes) if names else []
        self._avoided = tuple(sorted(_within_pools(names, nodes, pools)))
        self._avoided_by = self._of_namespaces(now)
        show({self.suspected: {name: float(name in self._avoided) for name in names}})
        for name in names:
            if name not in self._told:
                self.reports.post_event(
                    "Node", ("", name), name, Reason.NODE_SUSPECTED, self._words(name)
                )
        self._told = frozenset(names)

    def _forget_old(self, now: float, nodes: NodeTable) -> None:
        for name, troubles in list(self._known.items()):
            last = max(trouble.last for trouble in troubles.values())
            # A node that was deleted comes back as another machine.
            if name not in nodes.row or now - last >= _REMEMBERED_SECONDS:
                del self._known[name]
                continue
            self._known[name] = {
                namespace: trouble
                for namespace, trouble in troubles.items()
                if last - trouble.last < _REMEMBERED_SECONDS
            }
        self._exempt = {uid: until for uid, until in self._exempt.items() if now < until}

    def _suspected(self, now: float) -> Iterator[tuple[float, str]]:
        """Yield the nodes that two namespaces had trouble with, and since when."""
        for name, troubles in self._known.items():
            times = sorted(trouble.last for trouble in troubles.values())
            if len(times) >= _NAMESPACES and now - times[-1] < _AVOIDED_SECONDS:
                yield times[_NAMESPACES - 1], name

    def _of_namespaces(self, now: float) -> dict[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for name, troubles in self._known.items():
            for namespace, trouble in troubles.items():
                if now - trouble.refused < _AVOIDED_SECONDS:
                    found.setdefault(namespace, {*self._avoided}).add(name)
        return {namespace: tuple(sorted(nodes)) for namespace, nodes in found.items()}

    def _pools(self, nodes: NodeTable) -> list[tuple[str, str]]:
        """Return the pool of every node, by row."""
        label = self.state.settings.node_pool_label
        pools = []
        for node in nodes.nodes:
            pool, model = node.labels.get(label), node.labels.get(GPU_MODEL_LABEL, "")
            pools.append(("", model) if pool is None else (pool, ""))
        return pools

    def _words(self, node: str) -> str:
        troubles = self._known[node].values()
        kinds = (
            ("its kubelet refused pods", any(t.refused > t.failed for t in troubles)),
            ("replicas failed here first", any(t.failed > t.refused for t in troubles)),
        )
        what = " and ".join(words for words, happened in kinds if happened)
        minutes = round(_AVOIDED_SECONDS / 60)
        then = f"gangs avoid it for {minutes} minutes"
        if node not in self._avoided:
            then = "it is not avoided, as no more than a tenth of its pool may be"
        return f"gangs of {len(troubles)} namespaces had trouble with this node: {what}; {then}"

    def around(self, gang: Gang) -> Gang:
        """Return ``gang`` such that it is not placed on nodes that it is to avoid."""
        nodes = self._avoided_by.get(gang.namespace, self._avoided)
        if not nodes or self.clock() < self._exempt.get(gang.uid, 0.0):
            self._kept.pop(gang.uid, None)
            return gang
        known = self._kept.get(gang.uid)
        # Of thousands of gangs few change between two cycles.
        if known is None or known.gang is not gang or known.nodes != nodes:
            known = self._kept[gang.uid] = _Kept(gang, nodes, off_nodes(gang, nodes))
        return known.around

    def exempt(self, gang: Gang) -> bool:
        """Keep a gang from no node any more, as it fits nowhere else; say if it was kept."""
        if self._kept.pop(gang.uid, None) is None:
            return False
        self._exempt[gang.uid] = self.clock() + _AVOIDED_SECONDS
        return True

    def explain(self, hold: Hold, snapshot: ClusterSnapshot) -> Hold:
        """Return ``hold`` with the nodes that have room for its gang, and that it is kept from."""
        kept = self._kept.get(hold.gang.uid)
        if kept is None or hold.reason not in (Reason.WAITING_FOR_CAPACITY, Reason.SCALING_UP):
            return hold
        capacity = snapshot.memo.get(_MEMO)
        if not isinstance(capacity, FreeCapacity):
            capacity = FreeCapacity(snapshot.nodes, snapshot.used, snapshot.occupants)
            snapshot.memo[_MEMO] = capacity
        rows = [row for name in kept.nodes if (row := snapshot.nodes.row.get(name)) is not None]
        room = np.zeros(len(rows), dtype=np.int64)
        for task in kept.gang.tasks:
            room += capacity.replicas(task)[rows]
        named = [snapshot.nodes.names[row] for row, fits in zip(rows, room, strict=True) if fits]
        if not named:
            return hold
        more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
        which = f"{', '.join(named[:_MAX_NAMED])}{more}"
        words = f"room on {which} is avoided for some minutes: pods were refused or failed there"
        return replace(hold, message=f"{hold.message}; {words}")

    def forget(self, uids: set[str]) -> None:
        """Drop what is remembered of gangs that are gone; ``uids`` are those that exist."""
        self._kept = {uid: kept for uid, kept in self._kept.items() if uid in uids}
        self._failed = {uid: pods for uid, pods in self._failed.items() if uid in uids}


def has_failed(pod: PodFacts) -> bool:
    """Return whether a pod failed, be it by itself or by its kubelet's refusal."""
    return pod.phase == "Failed" and not (pod.is_leaving or pod.is_disrupted)


def _within_pools(
    names: Sequence[str], nodes: NodeTable, pools: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield the first of ``names`` that are no more than a tenth of their pools."""
    left = {pool: size // _SHARE_OF_POOL for pool, size in Counter(pools).items()}
    for name in names:
        pool = pools[nodes.row[name]]
        if left[pool] > 0:
            left[pool] -= 1
            yield name
