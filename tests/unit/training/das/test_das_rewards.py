"""The paper's reward by hand, and what is remembered of runs."""

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.rl.encoders.das_inputs import TRAINED_MODELS
from bireme.training.das.environment import DasClusters, DasReward, DasSample, Memory, of_start

V100 = 2
PRICE = TRAINED_MODELS[V100].dollars_per_hour


def a_sample(
    *, run_hours: tuple[float, ...], gpus: tuple[int, ...], machines: int = 1
) -> DasSample:
    """Jobs that arrive at 0 on healthy V100 machines of one rack."""
    jobs = len(gpus)
    seconds = np.array(run_hours) * 3600
    return DasSample(
        setting="small",
        seed=0,
        submitted=np.zeros(jobs),
        gpus=np.array(gpus),
        run_seconds=seconds,
        estimated_seconds=seconds,
        user=np.zeros(jobs, dtype=np.int64),
        capacity=np.full(machines, 4),
        model=np.full(machines, V100),
        rack=np.zeros(machines, dtype=np.int64),
        health=np.ones(machines),
    )


def started(clusters: DasClusters, job: int, counts: list[int]) -> None:
    clusters.start(np.array([0]), np.array([job]), np.array([counts]))


def of_first(reward: DasReward, clusters: DasClusters) -> float:
    """The reward for starting job 0 on machine 0 while all wait."""
    in_line = clusters.waiting.copy()
    started(clusters, 0, [int(clusters.gpus[0, 0])])
    return float(of_start(reward, clusters, np.array([0]), in_line, np.array([True]))[0])


def test_the_papers_reward_is_one_over_fee_and_time_less_what_the_others_wait() -> None:
    clusters = DasClusters([a_sample(run_hours=(2.0, 1.0), gpus=(4, 2))])
    clusters.advance(np.array([0]))
    clusters.now[0] = 3600.0  # both have waited an hour
    fee, jct = 4 * 2 * PRICE / 51, 3.0
    expected = (1 / (fee * jct) - 0.1 * (1.0 * 2)) / 2
    assert of_first(DasReward("paper", alpha=0.1), clusters) == pytest.approx(expected)


def test_a_tiny_job_is_not_worth_more_than_the_ceiling() -> None:
    clusters = DasClusters([a_sample(run_hours=(1e-6,), gpus=(1,))])
    clusters.advance(np.array([0]))
    assert of_first(DasReward("paper", ceiling=7.0), clusters) == 7.0


def test_the_direct_reward_gives_nothing_for_the_start_itself() -> None:
    clusters = DasClusters([a_sample(run_hours=(1.0,), gpus=(1,))])
    clusters.advance(np.array([0]))
    assert of_first(DasReward("direct"), clusters) == 0.0


def test_an_unknown_kind_of_reward_is_refused() -> None:
    with pytest.raises(SettingError, match="write direct or paper"):
        DasReward("dense")


def test_a_gang_on_two_machines_runs_slower_and_pays_for_both() -> None:
    clusters = DasClusters([a_sample(run_hours=(1.0,), gpus=(4,), machines=2)])
    clusters.advance(np.array([0]))
    started(clusters, 0, [2, 2])
    clusters.advance(np.array([0]))
    hours = 1 / 0.74
    assert clusters.finished[0, 0] == pytest.approx(3600 * hours)
    assert clusters.fees[0, 0] == pytest.approx(4 * PRICE * hours)


def test_memory_keeps_where_a_run_was_and_how_fast_for_what_was_stated() -> None:
    clusters = DasClusters([a_sample(run_hours=(1.0, 2.0), gpus=(4, 1), machines=2)])
    memory = Memory(clusters, 4)
    clusters.advance(np.array([0]))
    started(clusters, 0, [3, 1])
    clusters.advance(np.array([0]))
    memory.add(*clusters.ended)
    seen = memory.observation()
    assert seen["past_mask"].tolist() == [[True, False, False, False]]
    assert seen["past_shares"][0, 0].tolist() == [0.75, 0.25]
    assert seen["past_speeds"][0, 0] == pytest.approx(np.log(0.74), abs=1e-6)


def test_memory_forgets_the_oldest_run() -> None:
    clusters = DasClusters([a_sample(run_hours=(1.0, 2.0, 3.0), gpus=(1, 1, 1), machines=3)])
    memory = Memory(clusters, 2)
    clusters.advance(np.array([0]))
    for job in range(3):
        counts = [0, 0, 0]
        counts[job] = 1
        started(clusters, job, counts)
    for _ in range(3):
        clusters.advance(np.array([0]))
        memory.add(*clusters.ended)
    shares = memory.observation()["past_shares"][0]
    assert sorted(shares.argmax(axis=1).tolist()) == [1, 2]
