"""DAS beside its baselines: the same samples for all, the same numbers as in training."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.core.settings import SchedulingSettings
from bireme.rl.checkpoint import load
from bireme_lab.simulator.simulation import Simulation
from bireme_lab.simulator.state import SimulationState
from bireme_lab.training.das.environment import DasEnv, draw, nodes_of, physics_of, trace_of
from bireme_lab.training.das.evaluation import (
    CYCLES,
    EVALUATION_SEEDS,
    START_NOW,
    baselines,
    evaluate,
    evaluate_policy,
    start_now,
)
from testbed.networks import checkpoints, encoders

JOBS = 25
FEW = {"jobs": str(JOBS), "only": "sjf/first-fit,fifo/first-fit"}


@pytest.fixture(autouse=True)
def _small_encoders() -> Iterator[None]:
    with encoders.known():
        yield


@pytest.mark.parametrize("setting", ["small", "large"])
def test_first_in_first_out_scores_what_it_scores_in_the_world(setting: str) -> None:
    env = DasEnv(1, (setting,), jobs=JOBS, slots=JOBS)
    env.reset([3])
    for _ in range(JOBS):
        first_fit = np.zeros(env.clusters.free.shape)
        env.step({"ordering": -np.arange(float(JOBS))[None], "placement": first_fit})
    found = evaluate_policy(draw(setting, JOBS, 3), baselines()["fifo/first-fit"], start_now)
    for metric, values in env.summary().items():
        assert found[metric] == pytest.approx(values[0], rel=1e-9)


def test_a_checkpoint_that_orders_by_estimate_scores_what_shortest_job_first_does(
    tmp_path: Path,
) -> None:
    checkpoint = load(checkpoints.write(tmp_path, orderer=[0, -1, 0], name="short"))
    found = evaluate(checkpoint, "small", 0, {"jobs": str(JOBS)})
    for metric in ("mean_jct_minutes", "mean_fee_dollars", "mean_wait_minutes"):
        assert found["short/first-fit"][metric] == found["sjf/first-fit"][metric]
    assert found["short"] != found["short/first-fit"], "its own name stands for load balance"
    assert set(baselines()) < set(found)


def test_more_checkpoints_stand_beside_the_first(tmp_path: Path) -> None:
    folders = [
        checkpoints.write(tmp_path / name, orderer=[0, -1, 0], placer=[1, 0, 0], name=name)
        for name in ("first", "second")
    ]
    options = {**FEW, "beside": str(folders[1]), "only": "second"}
    found = evaluate(load(folders[0]), "medium", 1, options)
    assert found["first"]["mean_jct_minutes"] == found["second"]["mean_jct_minutes"]


def test_seeds_give_other_samples_and_the_same_ones_again(tmp_path: Path) -> None:
    checkpoint = load(checkpoints.write(tmp_path, orderer=[0, -1, 0], placer=[1, 0, 0]))

    def times(seed: int) -> list[float]:
        found = evaluate(checkpoint, "small", seed, FEW)
        return [row["mean_jct_minutes"] for row in found.values()]

    assert times(1) == times(1) != times(2)


def test_the_rails_keep_places_where_the_papers_way_starts_all_that_fit() -> None:
    sample = draw("small", 60, EVALUATION_SEEDS)
    fifo = baselines()["fifo/first-fit"]
    waits = {name: evaluate_policy(sample, fifo, cycle) for name, cycle in CYCLES.items()}
    assert waits["guardrails"]["mean_wait_minutes"] != waits["start-now"]["mean_wait_minutes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cycle": "eager"}, "start-now, guardrails"),
        ({"reports": "some"}, "reports, which is yes or no"),
        ({"job": "5"}, "known are jobs"),
        ({"jobs": "5", "only": "lottery"}, "no policy is called 'lottery'"),
        ({"jobs": "0"}, "1 or more"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_what_can(
    tmp_path: Path, options: dict[str, str], words: str
) -> None:
    checkpoint = load(checkpoints.write(tmp_path, orderer=[0, -1, 0], placer=[1, 0, 0]))
    with pytest.raises(SettingError, match=words):
        evaluate(checkpoint, "small", 0, options)


def test_environments_and_baselines_need_no_torch() -> None:
    script = "import sys, bireme_lab.training.das.baselines, bireme_lab.training.das.environment\n"
    command = [sys.executable, "-c", script + "sys.exit('torch' in sys.modules)"]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0


def test_finished_runs_tell_what_the_world_remembers() -> None:
    sample = draw("small", JOBS, 5)
    env = DasEnv(1, ("small",), jobs=JOBS, slots=JOBS, history=JOBS)
    env.reset([5])
    for _ in range(JOBS):
        first_fit = np.zeros(env.clusters.free.shape)
        env.step({"ordering": -np.arange(float(JOBS))[None], "placement": first_fit})
    physics, settings = physics_of(sample), SchedulingSettings()
    state = SimulationState(trace_of(sample), nodes_of(sample), settings, physics, 0, None)
    Simulation(state, baselines()["fifo/first-fit"](), START_NOW).run()
    runs = state.cluster.finished_runs.on(state.cluster.table)
    np.testing.assert_allclose(runs.shares, env.memory.shares[0])
    np.testing.assert_allclose(runs.speeds, env.memory.speeds[0], rtol=1e-5)
