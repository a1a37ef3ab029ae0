"""Fees of jobs: price times GPUs times hours held."""

import pytest

from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.heuristics.simple_orderers import Fifo
from bireme.heuristics.simple_placers import FirstFit
from bireme.testing import a_node, a_task
from bireme_lab.simulator.metrics import fee_dollars
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import TraceJob
from testbed.simulations import a_job, a_trace

T4, V100 = 0.35, 2.48


def machine(name: str, product: str) -> Node:
    return a_node(name, 4, labels={GPU_MODEL_LABEL: product})


def fees(*jobs: TraceJob, physics: Physics | None = None) -> list[float]:
    nodes = [machine("n0", "Tesla-T4"), machine("n1", "Tesla-V100-SXM2-16GB")]
    outcome = simulate(
        a_trace(*jobs), nodes, Policy(Fifo(), FirstFit()), physics=physics or Physics()
    )
    return [float(fee) for fee in fee_dollars(outcome, nodes)]


def test_a_job_pays_for_its_gpus_by_the_hour() -> None:
    jobs = (a_job("cheap", 3600, gpus=4), a_job("dear", 1800, gpus=4))
    assert fees(*jobs) == pytest.approx([4 * T4, 2 * V100])


def test_a_gang_pays_every_machine_it_is_on() -> None:
    assert fees(a_job("wide", 3600, a_task(2, 4))) == pytest.approx([4 * (T4 + V100)])


def test_a_job_pays_while_it_waits_for_its_images_too() -> None:
    assert fees(a_job("late", 3600, gpus=4), physics=Physics(start_seconds=1800)) == pytest.approx(
        [1.5 * 4 * T4]
    )


def test_a_job_that_never_starts_costs_nothing() -> None:
    assert fees(a_job("huge", 3600, gpus=64)) == [0.0]
