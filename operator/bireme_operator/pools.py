"""All node pools: which may grow in a decision, and what becomes of their floors after it.

A decision sees what its gangs may ask for (``ClusterSnapshot.growable``) and no room on nodes that
are about to go. After it, each pool's floor is worked out and its target told; see
:mod:`bireme_operator.pool`. Nothing here waits for anybody.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from bireme.core.decision import Decision
from bireme.core.gangs import Key
from bireme.core.nodes import NodeTable
from bireme.core.pool_demand import needed_nodes, pool_demand
from bireme.core.reasons import Reason
from bireme.core.resources import BoolArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import wire
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.kube.node_pool_scalers import NodePoolScalers, PoolFacts
from bireme.kube.scale_targets import ScaleFault, ScaleTargets
from bireme_operator.actuator import Actuator
from bireme_operator.metrics import Metrics
from bireme_operator.pool import Pool
from bireme_operator.pool_finishes import Finishes
from bireme_operator.pool_nodes import PoolNodes
from bireme_operator.pool_targets import Target

_MEASURE_SECONDS: Final = 1.0
"""Demand is measured no more often."""


class Pools:
    """Every NodePoolScaler that can be read; ``watched`` are the nodes as they came off the wire.

    ``clock`` gives monotonic seconds.
    """

    def __init__(
        self,
        scalers: NodePoolScalers,
        watched: Mapping[Key, wire.Node],
        actuator: Actuator,
        targets: ScaleTargets,
        metrics: Metrics,
        clock: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self.scalers = scalers
        self.known: dict[str, Pool] = {}
        self._watched = watched
        self._actuator = actuator
        self._state = actuator.state
        self._targets = targets
        self._metrics = metrics
        self._clock = clock
        self._on_change = on_change
        self._finishes = Finishes(actuator.state)
        self._measured_at = float("-inf")

    def as_known(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """``snapshot`` with the pools that gangs may grow, and nodes about to go counted full."""
        self._refresh(snapshot)
        pools, now = self.known.values(), snapshot.now
        growable = tuple(each for pool in pools if (each := pool.growable(now)) is not None)
        going = [pool.nodes.mask for pool in pools if pool.is_shrinking(now)]
        if not (growable or going):
            return snapshot
        used = snapshot.used
        if going:
            used = used.copy()
            empty = ~needed_nodes(snapshot, ()) & np.logical_or.reduce(going)
            used[empty] = snapshot.nodes.allocatable[empty]
        return replace(snapshot, growable=growable, used=used)

    def look(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Work out every floor, for the cluster as it is in ``snapshot`` after ``decision``."""
        if not self.known:
            return
        self._measure(snapshot)
        needed = needed_nodes(snapshot, decision.kept)
        planned = self._planned(snapshot.nodes, decision)
        ended = {pod.node for pod in self._state.members.values() if pod.is_terminal}
        for pool in self.known.values():
            is_settled = not (planned & pool.nodes.mask).any()
            pool.decide(needed, decision, is_settled, snapshot.now, ended)

    async def close(self) -> None:
        """Stop all requests under way."""
        for pool in self.known.values():
            if pool.target is not None:
                await pool.target.close()

    def _refresh(self, snapshot: ClusterSnapshot) -> None:
        """One pool for every scaler that can be read, with what is remembered of it."""
        before, self.known = self.known, {}
        for name, facts in sorted(self.scalers.known.items()):
            if facts.spec is not None:
                pool = self._pool(before.get(name), facts, facts.spec, snapshot.nodes)
                self.known[name] = pool
        for name, pool in before.items():
            if self.known.get(name) is not pool and pool.target is not None:
                pool.target.stop()

    def _pool(
        self, known: Pool | None, facts: PoolFacts, spec: NodePoolScalerSpec, table: NodeTable
    ) -> Pool:
        if known is not None and known.facts.uid != facts.uid:
            known = None  # another object of the same name
        is_edited = known is None or known.facts.generation != facts.generation
        if known is None or is_edited or known.nodes.table is not table:
            nodes = PoolNodes.of(facts.name, spec, table, self._born)
            known = known or Pool(facts, spec, nodes)
            known.nodes = nodes
        known.facts, known.spec = facts, spec
        self._aim(known, is_edited)
        return known

    def _aim(self, pool: Pool, is_edited: bool) -> None:
        """Give ``pool`` its target, unless an older scaler has it; an edit begins anew."""
        facts, target = pool.facts, pool.spec.scale_target_ref
        first = self.scalers.first_of_target(facts) if facts.applies_to is not None else None
        pool.fault = None
        if first is not None and first.uid != facts.uid:
            words = f"NodePoolScaler {first.name} is older and scales it; delete one of them"
            pool.fault = ScaleFault(Reason.TARGET_SHARED, words)
        may_scale = first is not None and first.uid == facts.uid and target is not None
        if pool.target is not None and (is_edited or not may_scale):
            pool.target.stop()
            pool.target = None
        if pool.target is None and may_scale and target is not None:
            pool.target = Target(
                facts.name, target, self._targets, self._metrics, self._clock, self._on_change
            )

    def _born(self, node: str) -> str | None:
        known = self._watched.get(("", node))
        return known.metadata.creation_timestamp if known is not None else None

    def _measure(self, snapshot: ClusterSnapshot) -> None:
        """Demand and finished jobs, into the hours and the metrics."""
        if self._clock() - self._measured_at < _MEASURE_SECONDS:
            return
        self._measured_at = self._clock()
        demand = pool_demand(snapshot, [pool.scaled for pool in self.known.values()])
        masks = {name: pool.nodes.mask for name, pool in self.known.items()}
        finished = self._finishes.look(snapshot, masks)
        for name, pool in self.known.items():
            pool.demand = demand[name]
            pool.meter.look(snapshot.now, pool.demand, finished[name])

    def _planned(self, table: NodeTable, decision: Decision) -> BoolArray:
        """Nodes for which a plan is made or waits for its pods to be bound; shape (nodes,)."""
        planned = np.zeros(len(table), dtype=np.bool_)
        if all(pool.spec.scale_in.policy == "Never" for pool in self.known.values()):
            return planned  # nobody asks
        views = [view for key in self._state.groups if (view := self._state.view(key)) is not None]
        unbound = [(view, {node for node, _ in view.usage()}) for view in views]
        promised = self._actuator.promises().values()
        is_anywhere = any(nodes and view.plan.mode == "Score" for view, nodes in unbound)
        if is_anywhere or promised or decision.admitted or decision.resized:
            return ~planned
        rows = [table.row[name] for _, nodes in unbound for name in nodes if name in table.row]
        planned[rows] = True
        return planned
