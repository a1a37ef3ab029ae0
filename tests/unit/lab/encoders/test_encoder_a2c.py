"""Inputs of A2cScheduler's scorer in a real cluster, and what they must not depend on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Task
from bireme.core.resources import request_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl import encoders
from bireme.rl.smoke_test import smoke_cases
from bireme.testing import GIB, a_gang, a_node, a_running, a_snapshot, a_task, with_running
from bireme_lab.encoders import a2c

ENCODER = a2c.A2cJobs()
NOW = 10_000.0


def gangs_of(*sizes: tuple[int, float | None], arrived: float = 0.0) -> list[Gang]:
    """Gangs of so many one-GPU workers, with their estimates."""
    return [
        a_gang(f"g{at:02}", a_task(gpus), arrived=arrived, estimated_seconds=seconds)
        for at, (gpus, seconds) in enumerate(sizes)
    ]


def cluster(*gangs: Gang, nodes: int = 4) -> ClusterSnapshot:
    return a_snapshot([a_node(f"n{at}") for at in range(nodes)], *gangs, now=NOW)


both = pytest.mark.parametrize("name", ["a2c-jobs/1", "a2c-image/1"])


@both
def test_every_rehearsal_is_encoded_in_the_stated_shapes_and_finite(name: str) -> None:
    encoder = encoders.make("orderer", name)
    for gangs, snapshot in smoke_cases():
        seen = encoder.encode(gangs, snapshot)
        sizes = {"gangs": len(gangs)}
        for name, shape in encoder.inputs.items():
            assert seen[name].shape == tuple(sizes.get(str(axis), axis) for axis in shape)
            assert seen[name].dtype == np.float32
            assert np.isfinite(seen[name]).all()


@given(
    st.lists(st.tuples(st.integers(1, 12), st.none() | st.floats(1, 1e6)), min_size=2, max_size=20),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_gangs_does_not_matter(
    sizes: list[tuple[int, float | None]], random: object
) -> None:
    gangs = gangs_of(*sizes)
    snapshot = cluster(*gangs)
    places = np.random.default_rng(len(gangs)).permutation(len(gangs))
    one, other = (
        ENCODER.encode(gangs, snapshot),
        ENCODER.encode([gangs[p] for p in places], snapshot),
    )
    assert one["jobs"][places] == pytest.approx(other["jobs"])
    assert one["context"] == pytest.approx(other["context"])


def scaled(gang: Gang, times: int) -> Gang:
    return replace(gang, tasks=tuple(replace(t, replicas=t.replicas * times) for t in gang.tasks))


def with_one_running(times: int) -> tuple[list[Gang], ClusterSnapshot]:
    """Three gangs that wait and one that runs, on a cluster ``times`` as large, all as large."""
    waiting = [scaled(g, times) for g in gangs_of((3, 60.0), (8, 600.0), (1, None))]
    snapshot = cluster(*waiting, nodes=2 * times)
    held = scaled(a_gang("held", a_task(4), estimated_seconds=100.0), times)
    places = {"worker": {f"n{node}": 4 for node in range(times)}}
    running = a_running(held, snapshot.nodes, places, started=NOW - 70.0)
    return waiting, with_running(snapshot, running)


def test_the_size_of_the_cluster_does_not_matter() -> None:
    small, large = (ENCODER.encode(*with_one_running(times)) for times in (1, 5))
    assert small["jobs"] == pytest.approx(large["jobs"])
    assert small["context"] == pytest.approx(large["context"])


def test_the_scale_of_time_does_not_matter() -> None:
    def slower(times: float) -> tuple[list[Gang], ClusterSnapshot]:
        gangs = gangs_of((3, 60.0 * times), (8, 600.0 * times), arrived=-50.0 * times)
        return gangs, replace(cluster(*gangs), now=100.0 * times)

    one, other = (ENCODER.encode(*slower(times)) for times in (1.0, 3600.0))
    assert one["jobs"] == pytest.approx(other["jobs"], rel=1e-5)


def test_the_middle_gang_runs_two_steps_and_gangs_nobody_knows_are_like_it() -> None:
    seen = ENCODER.encode(*_with(gangs_of((1, 100.0), (1, 300.0), (1, 7000.0), (1, None))))
    middle = np.log1p(2.0) / np.log1p(15.0)
    assert seen["jobs"][[1, 3], 4] == pytest.approx([middle, middle], rel=1e-5)
    assert (np.diff(seen["jobs"][:3, 4]) > 0).all(), "a longer gang looks longer"


def _with(gangs: list[Gang]) -> tuple[list[Gang], ClusterSnapshot]:
    return gangs, cluster(*gangs)


def test_it_looks_at_the_two_resources_that_are_asked_most_of() -> None:
    """GPUs and memory, not cores: shares of 8 of 32 GPUs and 2 of 4 TiB of memory."""
    task = a_task(1, gpus=8, memory_bytes=2048 * GIB, cpu_millis=10)
    gang = a_gang("big", task, estimated_seconds=60.0)
    seen = ENCODER.encode([gang], cluster(gang))
    assert sorted(seen["jobs"][0, :2].tolist()) == pytest.approx([0.25, 0.5])


def test_what_running_gangs_will_free_is_seen_when_they_are_expected_to_end() -> None:
    """Half of the GPUs, for 30 seconds more; a step is 30 seconds, so after one they are free."""
    waiting = gangs_of((4, 60.0))
    snapshot = cluster(*waiting, nodes=2)
    held = a_gang("held", a_task(8), estimated_seconds=100.0)
    running = a_running(held, snapshot.nodes, {"n0": 8}, started=NOW - 70.0)
    context = ENCODER.encode(waiting, with_running(snapshot, running))["context"]
    column = int(np.argmin(context[:2]))
    assert context[column] == pytest.approx(0.5)
    assert context[2 + column] == pytest.approx(1.0)


def test_a_gang_that_does_not_fit_now_is_seen_as_such() -> None:
    waiting = gangs_of((4, 60.0), (12, 60.0))
    snapshot = cluster(*waiting, nodes=2)
    held = a_gang("held", a_task(8), estimated_seconds=100.0)
    running = a_running(held, snapshot.nodes, {"n0": 8}, started=NOW - 70.0)
    seen = ENCODER.encode(waiting, with_running(snapshot, running))
    assert seen["jobs"][:, 8].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "strange",
    [
        lambda: a_gang("none", Task("worker", 1, request_of({"pods": 1}))),
        lambda: a_gang("absent", Task("worker", 1, request_of({"example.com/fpga": 1, "pods": 1}))),
        lambda: a_gang("endless", estimated_seconds=1e12),
        lambda: a_gang("instant", estimated_seconds=0.0),
        lambda: a_gang("huge", a_task(10**6, gpus=1)),
        lambda: a_gang("future", arrived=NOW + 1e6),
    ],
)
@both
def test_whatever_is_strange_about_a_gang_the_numbers_are_finite(
    name: str, strange: Callable[[], Gang]
) -> None:
    gang = strange()
    for others in ([], gangs_of((2, 60.0))):
        gangs = [gang, *others]
        seen = encoders.make("orderer", name).encode(gangs, cluster(*gangs))
        assert all(np.isfinite(part).all() for part in seen.values())


def test_a_cluster_without_a_node_is_encoded_too() -> None:
    gang = a_gang("job")
    seen = ENCODER.encode([gang], a_snapshot([], gang))
    assert all(np.isfinite(part).all() for part in seen.values())
