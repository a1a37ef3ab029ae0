"""The speed, loss and accuracy of RLPTO's tasks, and the measurements they stand on."""

import csv
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from bireme.core.speed import InverseQuadratic
from bireme_lab.training.rlpto.baselines import BASELINES, Gangs, run_baseline
from bireme_lab.training.rlpto.environment import (
    CONFIGS,
    LAW,
    PER_WORKER,
    SPAN,
    RlptoClusters,
    accuracy_gain,
    step_seconds,
    to_come,
)

POLLUX = Path(__file__).parents[6] / "shared/data/pollux/pollux_osdi21_traces.tar.gz"


def test_a_step_takes_what_the_law_says_of_that_many_workers() -> None:
    speed = LAW.steps_per_second({"worker": 4, "ps": 1}, 1)
    assert step_seconds(np.array([0, 1, 4]))[2] == pytest.approx(1 / speed)


def test_more_workers_help_ever_less_and_beyond_seven_not_much() -> None:
    seconds = step_seconds(np.arange(1, 13))
    saved = -np.diff(seconds)
    assert (saved > 0).all()
    assert (np.diff(saved) < 0).all()
    assert seconds[6] - seconds[11] < 0.1 * seconds[0]


def test_what_iterations_bring_adds_up_and_shrinks_with_the_workers() -> None:
    pace, nodes = np.array([4.0]), np.array([10])
    zero, middle, end = (np.array([each]) for each in (0.0, 7.0, 30.0))
    parts = accuracy_gain(pace, zero, middle, nodes) + accuracy_gain(pace, middle, end, nodes)
    assert parts == pytest.approx(accuracy_gain(pace, zero, end, nodes))
    few = accuracy_gain(pace, zero, end, np.array([1]))
    assert few / parts == pytest.approx((1 - PER_WORKER) / (1 - 10 * PER_WORKER))


def test_rules_see_the_loss_that_the_world_has() -> None:
    setting = CONFIGS["table-2"]
    cluster = RlptoClusters([setting], [0], 50.0)
    cluster.nodes = np.where(cluster.running, 3, 0)
    cluster.advance(np.array([True]))
    for task in np.flatnonzero(cluster.running[0]).tolist():
        gang = Gangs(setting, 50.0).of(cluster, task)
        assert isinstance(gang.loss, InverseQuadratic)
        assert gang.loss.loss(gang.done_steps) == pytest.approx(cluster.loss[0, task])
        assert gang.loss.loss(0.0) == pytest.approx(cluster.worst_loss[0, task])


def test_the_form_of_the_accuracy_fits_what_pollux_measured() -> None:
    """RlptoValidation of CIFAR-10, one reading an epoch; the best pace is searched on a grid."""
    if not POLLUX.exists():
        pytest.skip("measurements of Pollux are not here")
    with tarfile.open(POLLUX) as archive:
        file = archive.extractfile("traces/cifar10/validation-512.csv")
        assert file is not None
        rows = list(csv.DictReader(io.StringIO(file.read().decode())))
    epochs = np.array([float(row["progress"]) for row in rows]) / 391
    measured = np.array([float(row["metric"]) for row in rows])

    def error(pace: float) -> tuple[float, float]:
        shape = to_come(np.full(len(epochs), pace), epochs) / SPAN
        columns = np.stack([np.ones_like(shape), -shape], axis=1)
        found, *_ = np.linalg.lstsq(columns, measured)
        return float(np.sqrt(np.mean((columns @ found - measured) ** 2))), float(found[1])

    best, span = min(error(pace) for pace in np.geomspace(2, 50, 60))
    assert best < 0.018
    assert span == pytest.approx(SPAN, abs=0.08)


@pytest.mark.parametrize(
    ("name", "percent", "seconds"), [("fs", 87.59, 8498.0), ("fcfs", 86.51, 14333.0)]
)
def test_rivals_of_fixed_shares_come_out_near_their_published_rows(
    name: str, percent: float, seconds: float
) -> None:
    """Table II of Lu et al., IEEE TPDS 2023."""
    ends = [run_baseline(BASELINES[name], CONFIGS["table-2"], seed) for seed in range(4)]
    assert np.mean([end.accuracy.mean() for end in ends]) == pytest.approx(percent / 100, abs=0.003)
    assert np.mean([end.clock[0] for end in ends]) == pytest.approx(seconds, rel=0.1)
