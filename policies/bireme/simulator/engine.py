"""A workload on a cluster under a policy, from the first event to the last: one call.

How that goes is :mod:`bireme.simulator.simulation`.
"""

from collections.abc import Sequence

from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.kube.names import GPU
from bireme.simulator.arrivals import Estimator
from bireme.simulator.conduct import CONDUCT, Conduct
from bireme.simulator.node_pool import NodePool
from bireme.simulator.outcome import Outcome
from bireme.simulator.physics import Physics
from bireme.simulator.simulation import Progress, Simulation
from bireme.simulator.workload import Trace
from bireme.simulator.world import World

_SETTINGS = SchedulingSettings()
_PHYSICS = Physics()


def simulate(
    trace: Trace,
    nodes: Sequence[Node],
    policy: Policy,
    settings: SchedulingSettings = _SETTINGS,
    *,
    physics: Physics = _PHYSICS,
    seed: int = 0,
    on_progress: Progress | None = None,
    estimator: Estimator | None = None,
    conduct: Conduct = CONDUCT,
    pools: Sequence[NodePool] = (),
) -> Outcome:
    """What becomes of ``trace`` on ``nodes`` under ``policy``.

    Nodes of ``pools`` come and go; all others are always there.

    The outcome names the policy by its classes; whoever knows a better name may replace it.
    Raises TraceError for a job that makes no sense, and SimulationError without nodes or when a
    decision over-commits a node, splits a gang or never comes to an end.
    """
    world = World(trace, nodes, settings, physics, seed, estimator, pools)
    simulation = Simulation(world, policy, conduct, on_progress)
    simulation.run()
    return Outcome(
        policy="/".join(type(part).__name__ for part in (policy.orderer, policy.placer)),
        trace=trace.name,
        seed=seed,
        nodes=len(nodes),
        total_gpus=sum(node.allocatable.get(GPU, 0) for node in nodes),
        jobs=simulation.records(),
        series=simulation.recorder.series(),
        counts=simulation.counts,
        decision_seconds=simulation.decision_seconds,
        pools=world.pools.series(),
    )
