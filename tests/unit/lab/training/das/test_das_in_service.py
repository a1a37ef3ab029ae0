"""DAS in service: finished runs, which every snapshot shows, keep it off a slow machine."""

from dataclasses import replace

import numpy as np
import pytest

from bireme.core.decision import Decision
from bireme.core.finished_runs import NO_RUNS
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.simple_orderers import Fifo
from bireme_lab.builtin import DasPlacement
from bireme_lab.simulator.machines import parse_nodes
from bireme_lab.simulator.physics.model import MachineLaw, Physics
from bireme_lab.simulator.simulation import CYCLE, SimulationConfig, simulate
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob

JOBS, MACHINES, SLOW = 160, 6, 0.4
GAP_SECONDS = 300.0
"""Half of the cluster is busy, so that there is a choice."""


def a_trace(seed: int, *, is_stated: bool) -> Trace:
    """Jobs of a fifth of an hour on average, of two sizes; owners state twice what is true."""
    draw = np.random.default_rng(seed)
    seconds = 1200.0 * draw.lognormal(0.0, 0.3, JOBS)
    estimates = 2.0 * seconds * draw.lognormal(0.0, 0.3, JOBS)
    jobs = [
        TraceJob(
            name=f"job-{number:03d}",
            submitted=GAP_SECONDS * number,
            tasks=tasks_of_gpus(int(draw.choice([2, 4])), 1),
            duration_seconds=float(seconds[number]),
            user=f"user-{number % 3}",
            estimated_seconds=float(estimates[number]) if is_stated else None,
        )
        for number in range(JOBS)
    ]
    return Trace("slow", tuple(jobs))


def unaware(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
    """Bireme's own cycle on a snapshot that shows no run."""
    return CYCLE(replace(snapshot, finished_runs=NO_RUNS), policy)


def share_of_slow(seed: int, model: str, config: SimulationConfig, *, is_stated: bool) -> float:
    """The part of the later jobs' replicas that came to the slow machine."""
    nodes = [
        replace(node, labels={**node.labels, GPU_MODEL_LABEL: model})
        for node in parse_nodes(f"{MACHINES}x4", 1)
    ]
    slow = nodes[0].name  # which the placer fills first, where all are alike
    physics = Physics(machines=MachineLaw({node.name: 1.0 for node in nodes} | {slow: SLOW}))
    trace = a_trace(seed, is_stated=is_stated)
    policy = Policy(Fifo(), DasPlacement())
    outcome = simulate(trace, nodes, policy, physics=physics, config=config)
    assert not outcome.counts["fallbacks"]
    places = [place for job in outcome.jobs[JOBS // 2 :] for place in job.segments[0].places]
    return sum(n for _, node, n in places if node == slow) / sum(n for *_, n in places)


@pytest.mark.parametrize(
    ("model", "is_stated"), [("V100", True), ("H100", False)], ids=["stated", "like-runs"]
)
def test_a_slow_machine_is_avoided_for_what_its_runs_took(model: str, is_stated: bool) -> None:
    found = {
        seed: [
            share_of_slow(seed, model, SimulationConfig(decide=decide), is_stated=is_stated)
            for decide in (CYCLE, unaware)
        ]
        for seed in range(3)
    }
    assert all(told < untold for told, untold in found.values()), found
    told, untold = np.sum(list(found.values()), axis=0)
    assert told < 0.5 * untold
