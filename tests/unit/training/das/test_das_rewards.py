"""The paper's reward by hand, and what is remembered of runs."""

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.rl.encoders.das_inputs import TRAINED_MODELS
from bireme.training.das.environment import Clouds, Memory, Reward, Sample, of_start

V100 = 2
PRICE = TRAINED_MODELS[V100].dollars_per_hour


def a_sample(*, run_hours: tuple[float, ...], gpus: tuple[int, ...], machines: int = 1) -> Sample:
    """Jobs that arrive at 0 on healthy V100 machines of one rack."""
    jobs = len(gpus)
    seconds = np.array(run_hours) * 3600
    return Sample(
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


def started(clouds: Clouds, job: int, counts: list[int]) -> None:
    clouds.start(np.array([0]), np.array([job]), np.array([counts]))


def of_first(reward: Reward, clouds: Clouds) -> float:
    """The reward for starting job 0 on machine 0 while all wait."""
    in_line = clouds.waiting.copy()
    started(clouds, 0, [int(clouds.gpus[0, 0])])
    return float(of_start(reward, clouds, np.array([0]), in_line, np.array([True]))[0])


def test_the_papers_reward_is_one_over_fee_and_time_less_what_the_others_wait() -> None:
    clouds = Clouds([a_sample(run_hours=(2.0, 1.0), gpus=(4, 2))])
    clouds.advance(np.array([0]))
    clouds.now[0] = 3600.0  # both have waited an hour
    fee, jct = 4 * 2 * PRICE / 51, 3.0
    expected = (1 / (fee * jct) - 0.1 * (1.0 * 2)) / 2
    assert of_first(Reward("paper", alpha=0.1), clouds) == pytest.approx(expected)


def test_a_tiny_job_is_not_worth_more_than_the_ceiling() -> None:
    clouds = Clouds([a_sample(run_hours=(1e-6,), gpus=(1,))])
    clouds.advance(np.array([0]))
    assert of_first(Reward("paper", ceiling=7.0), clouds) == 7.0


def test_the_direct_reward_gives_nothing_for_the_start_itself() -> None:
    clouds = Clouds([a_sample(run_hours=(1.0,), gpus=(1,))])
    clouds.advance(np.array([0]))
    assert of_first(Reward("direct"), clouds) == 0.0


def test_an_unknown_kind_of_reward_is_refused() -> None:
    with pytest.raises(SettingError, match="write direct or paper"):
        Reward("dense")


def test_a_gang_on_two_machines_runs_slower_and_pays_for_both() -> None:
    clouds = Clouds([a_sample(run_hours=(1.0,), gpus=(4,), machines=2)])
    clouds.advance(np.array([0]))
    started(clouds, 0, [2, 2])
    clouds.advance(np.array([0]))
    hours = 1 / 0.74
    assert clouds.finished[0, 0] == pytest.approx(3600 * hours)
    assert clouds.fees[0, 0] == pytest.approx(4 * PRICE * hours)


def test_memory_keeps_where_a_run_was_and_how_fast_for_what_was_stated() -> None:
    clouds = Clouds([a_sample(run_hours=(1.0, 2.0), gpus=(4, 1), machines=2)])
    memory = Memory(clouds, 4)
    clouds.advance(np.array([0]))
    started(clouds, 0, [3, 1])
    clouds.advance(np.array([0]))
    memory.add(*clouds.ended)
    seen = memory.observation()
    assert seen["past_mask"].tolist() == [[True, False, False, False]]
    assert seen["past_shares"][0, 0].tolist() == [0.75, 0.25]
    assert seen["past_speeds"][0, 0] == pytest.approx(np.log(0.74), abs=1e-6)


def test_memory_forgets_the_oldest_run() -> None:
    clouds = Clouds([a_sample(run_hours=(1.0, 2.0, 3.0), gpus=(1, 1, 1), machines=3)])
    memory = Memory(clouds, 2)
    clouds.advance(np.array([0]))
    for job in range(3):
        counts = [0, 0, 0]
        counts[job] = 1
        started(clouds, job, counts)
    for _ in range(3):
        clouds.advance(np.array([0]))
        memory.add(*clouds.ended)
    shares = memory.observation()["past_shares"][0]
    assert sorted(shares.argmax(axis=1).tolist()) == [1, 2]
