"""Of one history, the simulator and a cluster read from Kubernetes JSON remember the same runs."""

from dataclasses import replace

import numpy as np
import pytest

from bireme.core.finished_runs import FinishedRuns
from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.nodes import NodeTable
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.kube import quantities, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member
from bireme.kube.training_jobs import JobFacts
from bireme.testing import a_node
from bireme_lab.simulator.outcome import JobRecord
from bireme_lab.simulator.physics.model import MachineLaw, Physics
from bireme_lab.simulator.simulation import Simulation
from bireme_lab.simulator.state import SimulationState
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob
from testbed.objects.facts import (
    CREATED,
    a_job,
    a_plan,
    node_manifest,
    pod_manifest,
    through_the_wire,
)
from testbed.scenario.manifests import Manifest, task

NODES = [
    a_node(f"n{n}", 4, labels={GPU_MODEL_LABEL: model})
    for n, model in enumerate(("V100", "T4", "A100"))
]
# Powers of two, so that all times are whole seconds, as Kubernetes stores them.
SPEEDS = {"n0": 1.0, "n1": 0.5, "n2": 2.0}


def a_trace(seed: int) -> Trace:
    draw = np.random.default_rng(seed)
    return Trace(
        "history",
        tuple(
            TraceJob(
                name=f"job-{number:02d}",
                submitted=100.0 * number,
                tasks=tasks_of_gpus(int(draw.choice([1, 2, 6])), 1),
                duration_seconds=8.0 * int(draw.integers(2, 200)),
                user=str(draw.choice(["red", "blue"])),
                estimated_seconds=float(draw.choice([300, 900])) if draw.random() < 0.5 else None,
                # its size may change on the way, so it does not count
                is_elastic=bool(draw.random() < 0.2),
            )
            for number in range(40)
        ),
    )


def simulated(trace: Trace) -> tuple[tuple[JobRecord, ...], FinishedRuns]:
    physics = Physics(machines=MachineLaw(SPEEDS, per_neighbour=1.0))
    state = SimulationState(trace, NODES, SchedulingSettings(), physics, 0, None)
    simulation = Simulation(state, Policy(Fifo(), Packing()))
    simulation.run()
    return simulation.records(), state.cluster.finished_runs


def as_objects(record: JobRecord) -> tuple[JobFacts, list[Manifest]]:
    """The TrainingJob as it is once it has succeeded, and its pods."""
    job, stated = record.job, record.job.estimated_seconds
    count = sum(each.replicas for each in job.tasks)
    fields: Manifest = {"maxReplicas": count + 2} if job.is_elastic else {}
    stopped = [segment.ended for segment in record.segments if segment.ended_by == "moved"]
    started = CREATED + (record.started or 0.0)
    facts = a_job(
        task("worker", count, **fields),
        name=job.name,
        status={
            "phase": "Succeeded",
            "startTime": quantities.format_timestamp(started),
            # Who has moved was admitted again at once.
            "admittedTime": quantities.format_timestamp(
                max([started, *(CREATED + at for at in stopped)])
            ),
            "completionTime": quantities.format_timestamp(CREATED + (record.finished or 0.0)),
        },
        metadata={"namespace": job.user},
        rendezvous="torch" if job.is_elastic else "none",
        **({} if stated is None else {"estimatedDuration": f"{stated:.0f}s"}),
    )
    where = [node for _, node, n in record.segments[-1].places for _ in range(n)]
    members = tuple(Member("worker", node, index) for index, node in enumerate(where))
    plan = replace(a_plan(facts), members=members)
    pods = [
        pod_manifest(facts, plan, member, "Succeeded", namespace=job.user) for member in members
    ]
    return facts, pods


def read(records: tuple[JobRecord, ...], *, at_once: bool) -> FinishedRuns:
    """The runs of a cluster that saw one job end after the other, or all of them ended."""
    state, ended = ClusterState(SchedulingSettings()), []
    for node in NODES:
        state.nodes.put(("", node.name), through_the_wire(node_manifest(node), wire.V1Node))
    for record in sorted(records, key=lambda one: one.finished or 0.0):
        job, pods = as_objects(record)
        for pod in pods:
            key = (job.key[0], pod["metadata"]["name"])
            state.objects.put_member(key, through_the_wire(pod, wire.V1Pod))
        ended.append(job)
        if not at_once:
            state.objects.learn(ended)
    state.objects.learn(reversed(ended))
    return state.snapshot(CREATED).finished_runs


def assert_same(found: FinishedRuns, expected: FinishedRuns, nodes: NodeTable) -> None:
    one, other = found.on(nodes), expected.on(nodes)
    np.testing.assert_allclose(one.shares, other.shares, rtol=1e-12)
    np.testing.assert_allclose(one.speeds, other.speeds, rtol=1e-12)
    np.testing.assert_array_equal(one.group, other.group)


@pytest.mark.parametrize("seed", range(5))
def test_both_remember_the_same_runs_and_a_new_leader_does_too(seed: int) -> None:
    records, expected = simulated(a_trace(seed))
    assert 10 < len(expected.runs) < len(records)
    assert any(len(run.shares) > 1 for run in expected.runs)
    table = NodeTable(NODES, SchedulingSettings().topology_levels)
    assert_same(read(records, at_once=False), expected, table)
    assert_same(read(records, at_once=True), expected, table)


@pytest.mark.parametrize("gone", ["pod", "node"])
def test_a_new_leader_counts_no_run_of_which_a_part_is_gone(gone: str) -> None:
    state = ClusterState(SchedulingSettings())
    records, _ = simulated(a_trace(0))
    record = next(r for r in records if len(r.segments[-1].places) > 1 and not r.job.is_elastic)
    job, pods = as_objects(record)
    for node in NODES if gone == "pod" else NODES[:1]:
        state.nodes.put(("", node.name), through_the_wire(node_manifest(node), wire.V1Node))
    for pod in pods[1:] if gone == "pod" else pods:
        state.objects.put_member(
            (job.key[0], pod["metadata"]["name"]), through_the_wire(pod, wire.V1Pod)
        )
    state.objects.learn([job])
    assert state.snapshot(CREATED).finished_runs.runs == ()
