"""The simulator's node pools and the operator's are of one size: from one state, one decision.

At every look the simulator takes at a pool, the operator's own part is shown the same nodes, the
same decision of the cycle and the same forecast, and must ask its target for the same.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.decision import Decision
from bireme.core.node_floor import HourForecast, PoolBounds, nodes_to_keep
from bireme.core.nodes import NodeTable
from bireme.core.policy import Policy
from bireme.core.pool_history import PoolHistory
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import HOUR
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.kube import quantities
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.kube.node_pool_scalers import PoolFacts
from bireme_lab.simulator.cluster import SimulatedCluster
from bireme_lab.simulator.machines import POOL_LABEL, parse_nodes
from bireme_lab.simulator.node_pools import NodePool, SimulatedPool, SimulatedPools
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import Trace
from bireme_operator.node_pools import ManagedPool, PoolInventory
from bireme_operator.scale_requests import ScaleOrder, ScaleRequester
from testbed.simulations import small_traces

SECONDS_PER_STEP = 900.0
MOST = 4


@dataclass
class StandIn:
    """A target that does what it is asked for, at once."""

    replicas: int
    is_busy: bool = False
    nodes_in_use: frozenset[str] = frozenset()
    finished_orders: list[ScaleOrder] = field(default_factory=list)

    def submit(self, order: ScaleOrder | None) -> bool:
        if order is None:
            return False
        self.replicas = order.replicas
        self.finished_orders.append(order)
        return True


class Twin:
    """The operator's part for the one pool of a simulation, shown what the simulator sees."""

    def __init__(self, bounds: PoolBounds) -> None:
        spec, fault = NodePoolScalerSpec.read(
            {
                "nodeSelector": {"matchLabels": {POOL_LABEL: "pool-0"}},
                "scaleTargetRef": {"apiVersion": "v1", "kind": "Pool", "name": "pool-0"},
                "mode": "Apply",
                "min": bounds.minimum,
                "max": bounds.maximum,
                "maxStep": bounds.max_step,
                "leadSeconds": bounds.lead_seconds,
                "headroom": bounds.headroom,
                "scaleIn": {
                    "policy": "WhenEmpty",
                    "coolDownSeconds": bounds.cool_down_seconds,
                },
            }
        )
        assert spec is not None, fault
        self._spec = spec
        self._facts = PoolFacts("pool-0", "u", 1, "1", "", spec, "", {})
        self._target = StandIn(bounds.minimum)
        self._pool: ManagedPool | None = None
        self.seen: tuple[ClusterSnapshot, Decision] | None = None
        self.looks = 0

    def replicas(self, pool: SimulatedPool, away: set[str], now: float) -> int:
        """The replicas that the operator's target asks for after a look at what was seen last."""
        assert self.seen is not None
        snapshot, decision = self.seen
        there = [node for node in snapshot.nodes.nodes if node.name not in away]
        table = NodeTable(there, snapshot.nodes.topology_levels)
        nodes = PoolInventory.of("pool-0", self._spec, table, lambda _: None)
        if self._pool is None:  # nobody had a look yet, and what is there was empty from the start
            since = dict.fromkeys(table.names, 0.0)
            self._pool = ManagedPool(self._facts, self._spec, nodes, _empty_since=since)
        own = self._pool
        own.nodes, own.facts = nodes, replace(self._facts, status=_status(pool))
        own.demand = pool.state().demand
        own.requester = cast("ScaleRequester", self._target)
        own.is_shrinking(now)
        growable = own.growable(now)
        assert growable is None or growable.patience_seconds == pool.growable().patience_seconds
        rows = [snapshot.nodes.row[name] for name in table.names]
        needed = nodes_to_keep(snapshot, decision.kept_nodes)[rows]
        own.decide(needed, decision, True, now)
        own._count_written(now)  # as the next turn, soon after, would
        self.looks += 1
        return self._target.replicas


def _status(pool: SimulatedPool) -> dict[str, Any]:
    state = pool.state()
    if state.forecast_made is None:
        return {}
    return {
        "forecastTime": quantities.format_timestamp(state.forecast_made),
        "forecast": [
            {"hour": quantities.format_timestamp(hour.start), "p50": hour.p50, "upper": hour.upper}
            for hour in state.forecast
        ],
    }


def watched(monkeypatch: pytest.MonkeyPatch, twin: Twin) -> None:
    """Have ``twin`` look whenever the simulator does, and compare."""
    scale_all, scale = SimulatedPools.scale_all, SimulatedPool.scale

    def scaling_all(pools: SimulatedPools, snapshot: ClusterSnapshot, decision: Decision) -> None:
        twin.seen = snapshot, decision
        scale_all(pools, snapshot, decision)

    def scaling(pool: SimulatedPool, now: float) -> tuple[list[str], list[str]]:
        cluster: SimulatedCluster = pool._cluster
        twin.seen = twin.seen or (cluster.snapshot(now, ()), Decision())
        expected = twin.replicas(pool, set(cluster.away), now)
        changes = scale(pool, now)
        assert pool.replicas == expected
        return changes

    monkeypatch.setattr(SimulatedPools, "scale_all", scaling_all)
    monkeypatch.setattr(SimulatedPool, "scale", scaling)


def slowly(trace: Trace) -> Trace:
    """The same jobs over hours instead of seconds."""
    jobs = (
        replace(
            job,
            submitted=job.submitted * SECONDS_PER_STEP,
            duration_seconds=job.duration_seconds * SECONDS_PER_STEP,
        )
        for job in trace.jobs
    )
    return replace(trace, jobs=tuple(jobs))


@given(
    trace=small_traces(most=10),
    expected=st.lists(st.floats(0, 6), max_size=8),
    minimum=st.integers(0, 2),
    max_step=st.integers(1, 2),
    cool_down=st.sampled_from((300, 2000)),
    lead=st.sampled_from((60, 600, 4000)),
    headroom=st.sampled_from((0.0, 0.5, 1.25)),
)
def test_operator_and_simulator_ask_for_the_same_nodes(
    trace: Trace,
    expected: list[float],
    minimum: int,
    max_step: int,
    cool_down: int,
    lead: int,
    headroom: float,
) -> None:
    def forecast(now: float, _: PoolHistory) -> list[HourForecast]:
        return [HourForecast(float(HOUR * h), upper, upper) for h, upper in enumerate(expected)]

    bounds = PoolBounds(minimum, MOST, max_step, lead, True, cool_down, headroom)
    pool = NodePool(name="pool-0", bounds=bounds, delay_seconds=150.0, forecast=forecast)
    twin = Twin(bounds)
    with pytest.MonkeyPatch.context() as monkeypatch:
        watched(monkeypatch, twin)
        policy = Policy(CombinedPriority(), Packing())
        simulate(
            slowly(trace), parse_nodes(f"{MOST}x4"), policy, SchedulingSettings(), pools=[pool]
        )
    assert twin.looks > 0
