"""The simulator as an environment: same guardrails, same outcomes, a reward that adds up."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.policy import Orderer, Policy
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo, ShortestJob
from bireme.testing import a_node, a_task
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.outcome import JobRecord
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import Trace, TraceJob
from bireme_lab.training.environment import Observation, SchedulingEnv
from testbed.examples import examples
from testbed.simulations import a_job

NODES = (a_node("n0", 8), a_node("n1", 4))
Choice = Callable[[Observation, np.ndarray], int]


def first(seen: Observation, mask: np.ndarray) -> int:
    return int(np.flatnonzero(mask)[0])


def shortest(seen: Observation, mask: np.ndarray) -> int:
    """The first of those with the shortest estimate; void when there is nobody."""
    there = np.flatnonzero(mask[:-1])
    if not len(there):
        return len(mask) - 1
    return int(there[np.argmin(seen["times"][there, 0])])


def played(env: SchedulingEnv, choose: Choice, seed: int = 0) -> tuple[float, list[float]]:
    """The return of an episode, and its rewards."""
    seen, info = env.reset(seed=seed)
    rewards: list[float] = []
    is_over = False
    while not is_over:
        action = np.int64(choose(seen, info["action_mask"]))
        seen, reward, is_over, _, info = env.step(action)
        rewards.append(reward)
    return sum(rewards), rewards


def a_trace(*jobs: TraceJob) -> Trace:
    return Trace("test", jobs)


def times(records: Sequence[JobRecord]) -> list[tuple[object, ...]]:
    return [(r.job.name, r.started, r.finished, r.segments, r.reserved_start) for r in records]


def simulated(trace: Trace, orderer: Orderer) -> Sequence[JobRecord]:
    return simulate(trace, NODES, Policy(orderer, Packing())).jobs


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Up to 20 jobs on twelve GPUs; estimates differ, so that the shortest is one alone."""
    jobs = []
    for index in range(draw(st.integers(1, 20))):
        seconds = draw(st.integers(1, 60)) * 60.0
        replicas, gpus = draw(st.sampled_from([(1, 1), (2, 1), (1, 4), (1, 8), (2, 4), (9, 1)]))
        estimate = seconds * draw(st.sampled_from([0.5, 1.0, 3.0])) + index
        arrives = draw(st.integers(0, 3600)) * 1.0
        name = f"j{index:02}"
        task = a_task(replicas, gpus)
        jobs.append(a_job(name, seconds, task, at=arrives, estimated_seconds=estimate))
    return a_trace(*sorted(jobs, key=lambda job: job.submitted))


def test_gymnasium_finds_no_fault() -> None:
    trace = a_trace(a_job("a", 60, gpus=8), a_job("b", 60, gpus=8), a_job("c", 30, at=20))
    with pytest.warns(UserWarning, match="render modes"):
        check_env(SchedulingEnv(trace, NODES, slots=4))


@given(traces())
@examples(25)
def test_choosing_the_first_always_is_fifo_in_the_simulator(trace: Trace) -> None:
    env = SchedulingEnv(trace, NODES, slots=3)
    played(env, first)
    assert times(env.records) == times(simulated(trace, Fifo()))


@given(traces())
@examples(25)
def test_choosing_the_shortest_always_is_sjf_in_the_simulator(trace: Trace) -> None:
    env = SchedulingEnv(trace, NODES, slots=20)
    played(env, shortest)
    assert times(env.records) == times(simulated(trace, ShortestJob()))


@given(traces(), st.randoms(use_true_random=False))
@examples(25)
def test_the_return_is_minus_the_sum_of_completion_times_whatever_is_chosen(
    trace: Trace, chance: Random
) -> None:
    env = SchedulingEnv(trace, NODES, slots=5)
    total, _ = played(env, lambda _, mask: chance.randrange(len(mask)))
    finished = [record.finished for record in env.records]
    spent = [
        end - record.job.submitted
        for end, record in zip(finished, env.records, strict=True)
        if end is not None
    ]
    assert len(spent) == len(trace.jobs)
    assert total == pytest.approx(-sum(spent) / 3600)


def test_gang_past_its_wait_bound_starts_before_whatever_is_chosen() -> None:
    trace = a_trace(
        a_job("long", 100, gpus=8),
        a_job("patient", 10, gpus=8, at=1),
        *(a_job(f"pet{n}", 10, gpus=8, at=2 + n) for n in range(9)),
    )
    settings = SchedulingSettings(wait_bound_seconds=120)
    env = SchedulingEnv(trace, NODES[:1], slots=16, settings=settings)

    def anybody_but_the_patient(seen: Observation, mask: np.ndarray) -> int:
        return int(np.flatnonzero(mask[:-1])[-1])

    played(env, anybody_but_the_patient)
    started = {record.job.name: record.started for record in env.records}
    assert started["patient"] == 130
    assert sum(when is not None and when > 130 for when in started.values()) > 0


def test_after_a_choice_the_free_nodes_are_those_left_for_the_next_one() -> None:
    trace = a_trace(a_job("a", 60, gpus=8), a_job("b", 60, gpus=4), a_job("c", 60, gpus=1))
    env = SchedulingEnv(trace, NODES, slots=4)
    seen, _ = env.reset(seed=0)
    before = seen["free"].copy()
    seen, reward, *_ = env.step(np.int64(0))
    assert reward == 0, "no time has passed"
    assert (seen["free"][0] == 0).any(), "all GPUs of the first node"
    assert (seen["free"][1] == before[1]).all()
    assert seen["crowd"].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_void_is_masked_while_nothing_runs_and_means_the_first_then() -> None:
    trace = a_trace(a_job("a", 60), a_job("b", 60))
    env = SchedulingEnv(trace, NODES, slots=4)
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 1, 0, 0, 0]
    _, reward, _, _, info = env.step(np.int64(4))
    assert reward == 0
    assert info["action_mask"].tolist() == [1, 0, 0, 0, 1]


def test_empty_slot_means_void() -> None:
    trace = a_trace(a_job("a", 3600), a_job("b", 3600))
    env = SchedulingEnv(trace, NODES, slots=4)
    env.reset(seed=0)
    env.step(np.int64(0))
    _, reward, *_ = env.step(np.int64(2))
    assert reward == pytest.approx(-2.0), "two jobs spent the hour until the first was done"


def test_job_that_never_fits_ends_the_episode_and_not_before_the_others() -> None:
    trace = a_trace(a_job("giant", 60, gpus=64), a_job("small", 60))
    env = SchedulingEnv(trace, NODES, slots=4)
    played(env, first)
    assert [record.finished for record in env.records] == [None, 60]


def test_traces_are_made_from_the_seed_of_the_reset() -> None:
    asked: list[int] = []

    def make(seed: int) -> Trace:
        asked.append(seed)
        return a_trace(a_job("a", 1.0 + seed % 100))

    env = SchedulingEnv(make, NODES)
    for seed in (1, 1, 2):
        env.reset(seed=seed)
    assert asked[0] == asked[1] != asked[2]


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (a_trace(), "has no jobs"),
        (a_trace(a_job("e", is_elastic=True)), "job 'e' is elastic"),
    ],
)
def test_trace_that_cannot_be_played_is_refused_with_the_remedy(trace: Trace, says: str) -> None:
    with pytest.raises(SimulationError, match=says):
        SchedulingEnv(trace, NODES).reset()


def test_step_after_the_end_asks_for_a_reset() -> None:
    env = SchedulingEnv(a_trace(a_job("a")), NODES)
    with pytest.raises(ResetNeeded):
        env.step(np.int64(0))
    played(env, first)
    with pytest.raises(ResetNeeded, match="over"):
        env.step(np.int64(0))
