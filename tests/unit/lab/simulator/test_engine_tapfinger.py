"""TapFinger on a simulated cluster: elastic jobs of which some gain by replicas and some do not."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.registry import make_policy
from bireme.testing import a_node, a_task
from bireme_lab.simulator import metrics
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import Trace, TraceJob

SETTINGS = SchedulingSettings()
NODES = [
    a_node(f"n{row}", 8, labels={SETTINGS.node_pool_label: f"pool-{row // 2}"}) for row in range(4)
]


@dataclass(frozen=True, slots=True)
class Speed:
    """Steps a second: 1, or a power of the replicas."""

    power: float

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        return math.pow(sum(sizes.values()), self.power) if sizes else 0.0


def a_trace(jobs: int = 60, seed: int = 0) -> Trace:
    """Half of the jobs gain much by more replicas, half nothing; two GPUs are asked for."""
    draws = np.random.default_rng(seed)
    times = draws.exponential(60.0, jobs).cumsum()
    made = []
    for place, time in enumerate(times.tolist()):
        speed, steps = Speed(0.9 * (place % 2)), float(draws.uniform(600, 3600))
        task = a_task(2, min_replicas=1, max_replicas=12)
        seconds = steps / speed.steps_per_second({"worker": 2}, 1)
        made.append(
            TraceJob(
                f"job-{place}",
                time,
                (task,),
                seconds,
                estimated_seconds=seconds,
                is_elastic=True,
                speed=speed,
                steps=steps,
            )
        )
    return Trace("elastic", tuple(made))


def mean_seconds(outcome: Outcome) -> float:
    found = metrics.completion_seconds(outcome)
    assert len(found) == len(outcome.jobs)
    return float(found.mean())


def policy(name: str, sizer: str) -> Policy:
    placer = name if name == "tapfinger" else SETTINGS.placer
    return make_policy(SchedulingSettings(orderer=name, placer=placer, sizer=sizer))


@pytest.fixture(scope="module")
def chosen() -> list[Outcome]:
    return [
        simulate(a_trace(seed=seed), NODES, policy("tapfinger", "tapfinger")) for seed in range(3)
    ]


@pytest.mark.parametrize("sizer", ["min", "max"])
def test_it_finishes_elastic_jobs_sooner_than_sizers_that_look_at_no_speed(
    chosen: list[Outcome], sizer: str
) -> None:
    rivals = [simulate(a_trace(seed=seed), NODES, policy("fifo", sizer)) for seed in range(3)]
    assert np.mean([*map(mean_seconds, chosen)]) < np.mean([*map(mean_seconds, rivals)])


def test_no_cycle_falls_back_on_the_rules(chosen: list[Outcome]) -> None:
    assert [outcome.counts["fallbacks"] for outcome in chosen] == [0, 0, 0]
