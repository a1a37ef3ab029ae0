"""Nodes on which pods of gangs had trouble: gangs avoid them for a while.

Trouble is a kubelet that refuses a pod, or the first failed replica of a gang. The cause of a
failure may be the node or the gang's own program. If one namespace has trouble with a node, its
pods may be the cause: its gangs avoid a node that refused them, and other gangs do not. A node is
suspected if gangs of two namespaces had trouble with it, and all gangs avoid it. A gang that
succeeds there shows that the earlier failures were not the node's.

All gangs avoid at most a tenth of each pool, and none of a pool with fewer than ten nodes. A pool
is the nodes with one value of the pool label; nodes without the label form a pool by GPU model. The
limit bounds the loss that one tenant can cause, and many failures at once mean a common cause. A
gang that fits on no other nodes avoids none.

The records are in memory: a new leader learns them anew.
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
# Trouble of two namespaces counts together within this time.
_REMEMBERED_SECONDS = 3600.0
_NAMESPACES = 2
_SHARE_OF_POOL = 10
_MAX_NAMED = 3
_FAILURES = (Reason.POD_FAILED, Reason.BACKOFF_LIMIT_EXCEEDED)
_MEMO = "room by which nodes in trouble are explained"


@dataclass(slots=True)
class _Trouble:
    """Trouble of one namespace with one node; times are monotonic seconds."""

    refused: float = float("-inf")
    """Time of the latest pod that its kubelet refused."""
    failed: float = float("-inf")
    """Time of the latest replica that failed there as the first of its gang."""

    @property
    def last(self) -> float:
        return max(self.refused, self.failed)


@dataclass(frozen=True, slots=True)
class _Avoidance:
    """A gang, the nodes that it avoids, and the gang restricted to other nodes."""

    gang: Gang
    nodes: tuple[str, ...]
    restricted: Gang


@dataclass(slots=True)
class NodeHealthHistory:
    """Nodes in trouble; ``clock`` is monotonic seconds, ``suspected`` a gauge by node."""

    state: ClusterState
    reports: StatusWriter
    suspected: Gauge
    clock: Callable[[], float]
    _troubles: dict[str, dict[str, _Trouble]] = field(default_factory=dict)
    """Troubles by node and namespace."""
    _avoided: tuple[str, ...] = ()
    """Nodes that all gangs avoid."""
    _avoided_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes that the gangs of a namespace avoid, including ``_avoided``."""
    _reported_nodes: frozenset[str] = frozenset()
    _avoidances: dict[str, _Avoidance] = field(default_factory=dict)
    _exempt: dict[str, float] = field(default_factory=dict)
    _failed: dict[str, frozenset[str]] = field(default_factory=dict)
    """Uids of the failed pods of each watched PodGroup."""

    # --- observations -------------------------------------------------------------------------

    def observe(self, job: JobFacts, move: Transition, view: GangView | None) -> None:
        """Observe a recorded change of phase."""
        if move.phase == "Succeeded" and view is not None and self._troubles:
            self._clear_failures(view.nodes)
        elif move.node and move.reason is Reason.POD_REJECTED:
            self._trouble(job.key[0], move.node).refused = self.clock()
        elif move.node and move.reason in _FAILURES:
            self._trouble(job.key[0], move.node).failed = self.clock()

    def observe_pods(self, namespace: str, failed: Iterable[PodFacts]) -> None:
        """Observe failed pods of one gang that goes on without them."""
        own_failures = []
        for pod in failed:
            if pod.is_rejected:
                self._trouble(namespace, pod.node).refused = self.clock()
            else:
                own_failures.append(pod)
        if len(own_failures) == 1:  # with several failures the first one is unknown
            self._trouble(namespace, own_failures[0].node).failed = self.clock()

    def observe_group(self, group: GroupFacts, view: GangView) -> None:
        """Observe the pods of a PodGroup that have failed since the last call."""
        pods = [pod for _, pod in view.members if pod is not None]
        failed = {pod.uid: pod for pod in pods if has_failed(pod)}
        previous = self._failed.get(group.uid)
        self._failed[group.uid] = frozenset(failed)
        # Failures before this leader's first look may be old.
        if previous is None or failed.keys() <= previous:
            return
        new = [pod for uid, pod in failed.items() if uid not in previous]
        self.observe_pods(group.key[0], [p for p in new if p.is_rejected or not previous])

    def _trouble(self, namespace: str, node: str) -> _Trouble:
        return self._troubles.setdefault(node, {}).setdefault(namespace, _Trouble())

    def _clear_failures(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            for trouble in self._troubles.get(node, {}).values():
                trouble.failed = float("-inf")

    # --- consequences -------------------------------------------------------------------------

    def review(self) -> None:
        """Update the nodes that gangs avoid, and report suspected ones to administrators.

        Call it before every round of :meth:`avoid_nodes`.
        """
        if not self._troubles and not self._reported_nodes:
            return
        now, nodes = self.clock(), self.state.nodes.table
        self._forget_old(now, nodes)
        suspected = sorted(self._iter_suspects(now))
        names = [name for _, name in suspected]
        pools = self._pools(nodes) if names else []
        self._avoided = tuple(sorted(_within_pools(names, nodes, pools)))
        self._avoided_by = self._of_namespaces(now)
        show({self.suspected: {name: float(name in self._avoided) for name in names}})
        for name in names:
            if name not in self._reported_nodes:
                self.reports.post_event(
                    "Node", ("", name), name, Reason.NODE_SUSPECTED, self._suspicion_message(name)
                )
        self._reported_nodes = frozenset(names)

    def _forget_old(self, now: float, nodes: NodeTable) -> None:
        for name, troubles in list(self._troubles.items()):
            last = max(trouble.last for trouble in troubles.values())
            # A deleted node comes back as another machine.
            if name not in nodes.row or now - last >= _REMEMBERED_SECONDS:
                del self._troubles[name]
                continue
            self._troubles[name] = {
                namespace: trouble
                for namespace, trouble in troubles.items()
                if last - trouble.last < _REMEMBERED_SECONDS
            }
        self._exempt = {uid: until for uid, until in self._exempt.items() if now < until}

    def _iter_suspects(self, now: float) -> Iterator[tuple[float, str]]:
        """Yield the nodes with trouble of two namespaces, with the time of the second one."""
        for name, troubles in self._troubles.items():
            times = sorted(trouble.last for trouble in troubles.values())
            if len(times) >= _NAMESPACES and now - times[-1] < _AVOIDED_SECONDS:
                yield times[_NAMESPACES - 1], name

    def _of_namespaces(self, now: float) -> dict[str, tuple[str, ...]]:
        nodes_by_namespace: dict[str, set[str]] = {}
        for name, troubles in self._troubles.items():
            for namespace, trouble in troubles.items():
                if now - trouble.refused < _AVOIDED_SECONDS:
                    nodes_by_namespace.setdefault(namespace, {*self._avoided}).add(name)
        return {namespace: tuple(sorted(nodes)) for namespace, nodes in nodes_by_namespace.items()}

    def _pools(self, nodes: NodeTable) -> list[tuple[str, str]]:
        """Return the pool of every node, by row."""
        label = self.state.settings.node_pool_label
        pools = []
        for node in nodes.nodes:
            pool, model = node.labels.get(label), node.labels.get(GPU_MODEL_LABEL, "")
            pools.append(("", model) if pool is None else (pool, ""))
        return pools

    def _suspicion_message(self, node: str) -> str:
        troubles = self._troubles[node].values()
        kinds = (
            ("its kubelet refused pods", any(t.refused > t.failed for t in troubles)),
            ("replicas failed here first", any(t.failed > t.refused for t in troubles)),
        )
        kinds_text = " and ".join(text for text, happened in kinds if happened)
        minutes = round(_AVOIDED_SECONDS / 60)
        then = f"gangs avoid it for {minutes} minutes"
        if node not in self._avoided:
            then = "gangs still use it, because they avoid at most a tenth of its pool"
        return (
            f"gangs of {len(troubles)} namespaces had trouble with this node: {kinds_text}; {then}"
        )

    def avoid_nodes(self, gang: Gang) -> Gang:
        """Return ``gang`` restricted to the nodes that it need not avoid."""
        nodes = self._avoided_by.get(gang.namespace, self._avoided)
        if not nodes or self.clock() < self._exempt.get(gang.uid, 0.0):
            self._avoidances.pop(gang.uid, None)
            return gang
        avoidance = self._avoidances.get(gang.uid)
        # Reuse restricted gangs: few of thousands change between two cycles.
        if avoidance is None or avoidance.gang is not gang or avoidance.nodes != nodes:
            avoidance = self._avoidances[gang.uid] = _Avoidance(gang, nodes, off_nodes(gang, nodes))
        return avoidance.restricted

    def exempt(self, gang: Gang) -> bool:
        """Let a gang use all nodes, as it fits on no others; return whether it avoided any."""
        if self._avoidances.pop(gang.uid, None) is None:
            return False
        self._exempt[gang.uid] = self.clock() + _AVOIDED_SECONDS
        return True

    def explain(self, hold: Hold, snapshot: ClusterSnapshot) -> Hold:
        """Return ``hold`` with a message about avoided nodes that have room for its gang."""
        avoidance = self._avoidances.get(hold.gang.uid)
        if avoidance is None or hold.reason not in (Reason.WAITING_FOR_CAPACITY, Reason.SCALING_UP):
            return hold
        capacity = snapshot.memo.get(_MEMO)
        if not isinstance(capacity, FreeCapacity):
            capacity = FreeCapacity(snapshot.nodes, snapshot.used, snapshot.occupants)
            snapshot.memo[_MEMO] = capacity
        rows = [
            row for name in avoidance.nodes if (row := snapshot.nodes.row.get(name)) is not None
        ]
        room = np.zeros(len(rows), dtype=np.int64)
        for task in avoidance.gang.tasks:
            room += capacity.replicas(task)[rows]
        named = [snapshot.nodes.names[row] for row, fits in zip(rows, room, strict=True) if fits]
        if not named:
            return hold
        more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
        which = f"{', '.join(named[:_MAX_NAMED])}{more}"
        remark = (
            f"it avoids room on {which} for some minutes, because pods were refused or failed there"
        )
        return replace(hold, message=f"{hold.message}; {remark}")

    def forget(self, uids: set[str]) -> None:
        """Drop the records of deleted gangs; ``uids`` are those of the existing ones."""
        self._avoidances = {
            uid: avoidance for uid, avoidance in self._avoidances.items() if uid in uids
        }
        self._failed = {uid: pods for uid, pods in self._failed.items() if uid in uids}


def has_failed(pod: PodFacts) -> bool:
    """Return whether a pod failed by itself or by its kubelet's refusal."""
    return pod.phase == "Failed" and not (pod.is_leaving or pod.is_disrupted)


def _within_pools(
    names: Sequence[str], nodes: NodeTable, pools: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield the first of ``names``, at most a tenth of each pool."""
    remaining = {pool: size // _SHARE_OF_POOL for pool, size in Counter(pools).items()}
    for name in names:
        pool = pools[nodes.row[name]]
        if remaining[pool] > 0:
            remaining[pool] -= 1
            yield name
