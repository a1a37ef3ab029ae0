"""Optimus: gains worked out by hand, and exhaustive search where it can be had."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role
from bireme.core.policy import Ranked
from bireme.core.speed import LinearSpeed, SpeedLaw
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running
from bireme_lab.heuristics.measured_sizers import Optimus
from bireme_lab.simulator.physics.laws import DL2_LAWS, OptimusLaw


def elastic(name: str, law: SpeedLaw | None, steps: float | None, high: int = 8) -> Gang:
    """A gang of one-GPU workers, one at least."""
    gang = a_gang(name, a_task(1, max_replicas=high))
    return replace(gang, is_elastic=True, speed=law, remaining_steps=steps)


def with_servers(name: str, law: SpeedLaw, steps: float, high: int = 8) -> Gang:
    """A gang of servers and workers, one of each at least, all with one GPU."""
    ps = a_task(1, name="ps", role=Role.PS, max_replicas=high)
    gang = a_gang(name, ps, a_task(1, max_replicas=high))
    return replace(gang, is_elastic=True, speed=law, remaining_steps=steps)


def sized(cluster_gpus: int, *gangs: Gang) -> Mapping[str, Mapping[str, int]]:
    order = [Ranked(gang, 0.0) for gang in gangs]
    return Optimus().sizes(order, a_snapshot([a_node("node", cluster_gpus)]))


def test_the_replica_that_saves_most_time_comes_first() -> None:
    """Linear speed: a second worker saves 50 s of a's 100 s, a third 16.7 s; b saves 15, then 5."""
    gangs = elastic("a", LinearSpeed(1.0), 100.0), elastic("b", LinearSpeed(1.0), 30.0)
    found = [tuple(s["worker"] for s in sized(gpus, *gangs).values()) for gpus in range(2, 8)]
    assert found == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (5, 2)]


def test_time_saved_counts_per_resource_taken() -> None:
    """One GPU more saves 15 s of b; two GPUs more save 20 s of a, 10 s for each."""
    wide = a_gang("a", a_task(1, 2, max_replicas=8))
    a = replace(wide, is_elastic=True, speed=LinearSpeed(1.0), remaining_steps=40.0)
    assert sized(5, a, elastic("b", LinearSpeed(1.0), 30.0)) == {
        "a": {"worker": 1},
        "b": {"worker": 3},
    }


def test_growth_ends_where_another_replica_would_slow_the_job_down() -> None:
    """One step takes 16/w + w seconds with one server for free: fastest with four workers."""
    law = OptimusLaw((1.0, 0.0, 0.0, 1.0, 0.0), 16)
    assert sized(30, with_servers("job", law, 100.0)) == {"job": {"ps": 1, "worker": 4}}


def test_a_server_is_added_where_it_helps_more_than_a_worker() -> None:
    """Traffic of four seconds per worker and server outweighs the work to be shared."""
    law = OptimusLaw((0.1, 0.0, 4.0, 0.0, 0.0), 10)
    assert sized(4, with_servers("job", law, 100.0)) == {"job": {"ps": 3, "worker": 1}}


def test_what_a_running_gang_has_done_no_longer_counts() -> None:
    """After 90 of its 100 s on one worker a saves 5 s by a second one, b saves 15 s."""
    snapshot = a_snapshot([a_node("node", 3)], now=90.0)
    a, b = elastic("a", LinearSpeed(1.0), 100.0), elastic("b", LinearSpeed(1.0), 30.0)
    running = with_running(snapshot, a_running_gang(a, snapshot.nodes, started=0.0))
    order = [Ranked(a, 0.0), Ranked(b, 0.0)]
    assert Optimus().sizes(order, running) == {"a": {"worker": 1}, "b": {"worker": 2}}


@pytest.mark.parametrize(
    ("law", "steps"), [(None, 100.0), (LinearSpeed(1.0), None)], ids=["speed", "length"]
)
def test_a_gang_of_unknown_speed_or_length_gets_what_it_asks_for(
    law: SpeedLaw | None, steps: float | None
) -> None:
    asked = a_gang("unknown", a_task(3, min_replicas=1, max_replicas=8))
    unknown = replace(asked, is_elastic=True, speed=law, remaining_steps=steps)
    sizes = sized(6, elastic("a", LinearSpeed(1.0), 100.0), unknown)
    assert sizes == {"a": {"worker": 3}, "unknown": {"worker": 3}}


LAWS = st.sampled_from(sorted(DL2_LAWS))


@given(st.lists(st.tuples(LAWS, st.floats(1, 1e6)), min_size=1, max_size=4), st.integers(2, 40))
def test_no_gang_is_ever_slower_than_with_one_replica_less(
    jobs: list[tuple[str, float]], gpus: int
) -> None:
    gangs = [with_servers(f"g{n}", DL2_LAWS[law], steps, 20) for n, (law, steps) in enumerate(jobs)]
    proposal = sized(gpus, *gangs)
    for gang in gangs:
        sizes = proposal.get(gang.uid)
        if sizes is not None and gang.speed is not None:
            least = gang.speed.steps_per_second({"ps": 1, "worker": 1}, 1)
            assert gang.speed.steps_per_second(sizes, 1) >= least
            assert is_reached_by_gains(gang.speed, sizes)


def is_reached_by_gains(law: SpeedLaw, sizes: Mapping[str, int]) -> bool:
    """Whether single replicas lead from one of each to ``sizes``, each making the job faster."""
    if sizes == {"ps": 1, "worker": 1}:
        return True
    now = law.steps_per_second(sizes, 1)
    before = [{**sizes, name: sizes[name] - 1} for name in sizes if sizes[name] > 1]
    return any(
        law.steps_per_second(less, 1) < now and is_reached_by_gains(law, less) for less in before
    )


@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 1)), min_size=1, max_size=3),
    st.integers(3, 9),
)
def test_the_sum_of_remaining_times_is_least_where_gains_only_diminish(
    jobs: list[tuple[float, float]], gpus: int
) -> None:
    gangs = [
        elastic(f"g{n}", LinearSpeed(1.0, serial), steps, 6)
        for n, (steps, serial) in enumerate(jobs)
    ]

    def total(sizes: tuple[int, ...]) -> float:
        return sum(
            steps / LinearSpeed(1.0, serial).steps_per_second({"worker": size}, 1)
            for (steps, serial), size in zip(jobs, sizes, strict=True)
        )

    every = itertools.product(range(1, 7), repeat=len(jobs))
    best = min(total(sizes) for sizes in every if sum(sizes) <= gpus)
    found = tuple(size["worker"] for size in sized(gpus, *gangs).values())
    assert total(found) == pytest.approx(best)
