"""The papers' workloads have the numbers that the papers state."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from bireme.core.gangs import Role
from bireme.core.gpus import GPU
from bireme.core.nodes import NodeTable, feasible
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.papers import a2c, das, rlpto, tapfinger
from bireme_lab.simulator.workload import Trace

GIB = 2**30


@pytest.mark.parametrize("generate", [a2c, das, tapfinger])
def test_equal_arguments_give_the_same_trace_and_another_seed_another(
    generate: Callable[..., Trace],
) -> None:
    assert generate(seed=3) == generate(seed=3)
    assert generate(seed=3) != generate(seed=4)


def test_a2c_steps_have_one_job_at_most_and_as_often_as_the_rate_says() -> None:
    times = [job.submitted for job in a2c(rate=0.7, steps=20_000).jobs]
    assert len(set(times)) == len(times)
    assert len(times) / 20_000 == pytest.approx(0.7, abs=0.01)


def test_a2c_jobs_are_short_or_long_as_in_deeprm() -> None:
    counts = Counter(job.duration_seconds for job in a2c(rate=1.0, steps=20_000).jobs)
    assert set(counts) == {1, 2, 3, *range(10, 16)}
    assert (counts[1] + counts[2] + counts[3]) / 20_000 == pytest.approx(0.8, abs=0.01)


def test_a2c_jobs_take_much_of_one_resource_and_little_of_the_other() -> None:
    units = Counter(
        (dict(task.request)["cpu"] // 1000, dict(task.request)["memory"] // GIB)
        for job in a2c(rate=1.0, steps=20_000).jobs
        for task in job.tasks
    )
    assert {tuple(sorted(pair)) for pair in units} == {
        (little, much) for little in (1, 2) for much in range(5, 11)
    }
    wants_cpu = sum(count for (cpu, memory), count in units.items() if cpu > memory)
    assert wants_cpu / 20_000 == pytest.approx(0.5, abs=0.02)


def test_a2c_has_one_machine_of_ten_units() -> None:
    (machine,) = a2c().nodes
    assert (machine.allocatable["cpu"], machine.allocatable["memory"]) == (10_000, 10 * GIB)


def test_a2c_times_scale_with_the_step() -> None:
    one, ten = a2c(seed=5), a2c(seed=5, step_seconds=10.0)
    assert [job.submitted * 10 for job in one.jobs] == [job.submitted for job in ten.jobs]


def test_a2c_without_an_arrival_is_refused() -> None:
    with pytest.raises(TraceError, match="gen:a2c: no job arrived"):
        a2c(rate=0.0)


def test_tapfinger_has_64_tasks_an_agent_with_poisson_arrivals_at_steps() -> None:
    trace = tapfinger(agents=20, rate=4.0)
    steps = np.array([job.submitted for job in trace.jobs]) / 10.0
    assert len(trace.jobs) == 64 * 20
    assert (steps == steps.round()).all()
    assert len(steps) / (steps[-1] + 1) == pytest.approx(4.0, rel=0.1)


def test_tapfinger_tasks_ask_for_the_minimum_of_the_paper() -> None:
    for job in tapfinger().jobs:
        (task,) = job.tasks
        request = dict(task.request)
        assert (task.replicas, request["cpu"], request[GPU]) == (1, 2000, 1)


@pytest.mark.parametrize(
    ("world", "seconds"),
    [
        ("synthetic", {"insensitive": 40.0, "sensitive": 170.0}),
        ("testbed", {"mnist": 262.0, "lm": 264.0, "audio": 18.0}),
    ],
)
def test_tapfinger_types_are_equally_likely_with_the_durations_of_the_paper(
    world: str, seconds: dict[str, float]
) -> None:
    jobs = tapfinger(tasks=6000, world=world).jobs
    assert {job.application: job.duration_seconds for job in jobs} == pytest.approx(seconds)
    shares = Counter(job.application for job in jobs)
    assert all(n / 6000 == pytest.approx(1 / len(seconds), abs=0.03) for n in shares.values())


def test_tapfinger_tasks_reach_one_to_all_pools_equally_often() -> None:
    trace = tapfinger(agents=3, tasks=6000)
    nodes = NodeTable(trace.nodes, ())
    reached = Counter(int(feasible(job.tasks[0].constraints, nodes).sum()) for job in trace.jobs)
    assert {k: round(n / 6000, 1) for k, n in reached.items()} == {1: 0.3, 2: 0.3, 3: 0.3}


def test_das_loads_its_cluster_as_configured() -> None:
    trace = das(cluster="small", jobs=20_000)
    asked = [
        job.duration_seconds * job.tasks[0].replicas * dict(job.tasks[0].request)[GPU]
        for job in trace.jobs
    ]
    assert len(trace.nodes) == 8
    assert sum(asked) / trace.jobs[-1].submitted / 32 == pytest.approx(1.3, rel=0.05)
    assert np.mean(asked) / 3600 == pytest.approx(16.7, rel=0.05)


@pytest.mark.parametrize(("cluster", "machines"), [("medium", 32), ("large", 64)])
def test_das_clusters_have_machines_of_four_gpus(cluster: str, machines: int) -> None:
    nodes = das(cluster=cluster, jobs=1).nodes
    assert [node.allocatable[GPU] for node in nodes] == [4] * machines


TABLE_V = {
    1: {1: 6, 2: 3, 3: 3},
    2: {1: 5, 2: 3, 3: 2, 4: 2},
    3: {1: 3, 2: 1, 3: 2, 4: 6},
    4: {1: 3, 2: 1, 3: 2, 4: 4, 5: 2},
}
"""How often each priority occurs in the sequences of the paper's table V, counted by hand."""


@pytest.mark.parametrize(("mix", "priorities"), TABLE_V.items())
def test_rlpto_mixes_have_the_priorities_of_the_paper(mix: int, priorities: dict[int, int]) -> None:
    jobs = rlpto(mix=mix).jobs
    assert Counter(job.priority // 100 for job in jobs) == priorities


def test_rlpto_tasks_are_four_of_each_data_size_and_three_run_at_once() -> None:
    trace = rlpto()
    images = [int(job.application.removeprefix("cnn-")) for job in trace.jobs]
    assert images == [120_000] * 4 + [60_000] * 4 + [40_000] * 4
    assert sum(job.duration_seconds for job in trace.jobs) == pytest.approx(3 * 8498)
    assert [job.duration_seconds * 880 for job in trace.jobs] == pytest.approx(
        [n / 1000 * 3 * 8498 for n in images]
    )
    assert sum(task.replicas for task in trace.jobs[0].tasks) * 3 == len(trace.nodes)


def test_rlpto_tasks_have_a_parameter_server() -> None:
    assert [(task.role, task.replicas) for task in rlpto().jobs[0].tasks] == [
        (Role.PS, 1),
        (Role.WORKER, 3),
    ]


@pytest.mark.parametrize(
    ("generate", "arguments", "problem"),
    [
        (a2c, {"rate": 1.5}, "rate is 1.5; it must be from 0 to 1"),
        (a2c, {"steps": 0}, "steps is 0"),
        (tapfinger, {"world": "real"}, "world is 'real'.*; write synthetic or testbed"),
        (tapfinger, {"rate": 0.0}, "rate is 0.0; it must be above 0"),
        (das, {"cluster": "huge"}, "cluster is 'huge'; write one of small, medium, large"),
        (das, {"load": -1.0}, "load is -1.0; it must be above 0"),
        (rlpto, {"mix": 5}, "mix is 5.*; write a mix from 1 to 4"),
        (rlpto, {"interval_seconds": -1.0}, "interval_seconds -1.0"),
    ],
)
def test_arguments_without_sense_are_refused(
    generate: Callable[..., Trace], arguments: dict[str, object], problem: str
) -> None:
    with pytest.raises(TraceError, match=problem):
        generate(**arguments)
