"""Pollux' measurements: small tables by hand, and the authors' own files and results."""

import csv
import json
import tarfile
from collections import defaultdict
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.goodput import PolluxSpeed, PolluxTable, TrainingRecord
from bireme_lab.simulator.physics.model import Physics
from testbed.simulations import a_job

ARCHIVE = Path(__file__).parents[5] / "shared/data/pollux/pollux_osdi21_traces.tar.gz"
needs_archive = pytest.mark.skipif(
    not ARCHIVE.exists(), reason="needs the archive of Pollux' authors, which is not shipped"
)
APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,4,1.0,0.0
1,8,2.0,0.0
2,4,1.2,0.2
2,8,2.2,0.2
13,4,2.0,1.0
22,4,3.0,1.0
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
4,4,4,5.0,3.0
4,16,4,9.0,7.0
"""
HEADER = "progress,iteration,metric,grad_sqr,grad_var\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An application measured up to batch 8, of two epochs of 100 steps of batch 4."""
    (tmp_path / "placements.csv").write_text(PLACEMENTS)
    (tmp_path / "scalability.csv").write_text(SCALABILITY)
    (tmp_path / "validation-4.csv").write_text(HEADER + "100,100,0.5,1,1\n200,200,0.8,1,3\n")
    (tmp_path / "validation-8.csv").write_text(
        HEADER + "101,80,0.4,1,1\n201,140,0.7,1,3\n9,9,9,9,9\n"
    )
    return tmp_path


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pollux")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def seconds_at(
    table: PolluxTable, nodes: int, replicas: int, batch: int, places: tuple[int, ...] = ()
) -> tuple[float, float]:
    """Seconds of a step, and of the synchronisation in it, at one local batch size."""
    step, sync = table.seconds(nodes, replicas, np.array([float(batch)]), places)
    return float(step[0]), float(sync[0])


def test_step_times_are_exact_where_measured_and_averaged_over_placements(folder: Path) -> None:
    table = PolluxTable.load(folder)
    assert seconds_at(table, 1, 2, 8) == (2.2, 0.2)
    assert seconds_at(table, 2, 4, 4) == (2.5, 1.0)  # 13 and 22


def test_step_times_are_straight_between_batches_replicas_and_nodes(folder: Path) -> None:
    table = PolluxTable.load(folder)
    assert seconds_at(table, 1, 1, 5) == pytest.approx((1.25, 0.0))
    assert seconds_at(table, 4, 8, 4) == pytest.approx((5.0 + 4 / 3, 3.0 + 4 / 3))
    # 6 replicas on 3 nodes: half-way between 4 on 2 nodes and 8 on 4.
    assert seconds_at(table, 3, 6, 4) == pytest.approx(((2.5 + 5 + 4 / 3) / 2, (1 + 3 + 4 / 3) / 2))


def test_nothing_is_estimated_beyond_what_was_measured(folder: Path) -> None:
    table = PolluxTable.load(folder)
    assert table.batch_range(1, 0) is None
    assert table.batch_range(2, 2) is None
    assert table.batch_range(5, 20) is None


def test_a_gang_denser_than_the_machines_measured_counts_as_spread(folder: Path) -> None:
    table = PolluxTable.load(folder)
    assert table.batch_range(1, 16) == (4, 4)
    assert seconds_at(table, 1, 16, 4) == seconds_at(table, 4, 16, 4) == (9.0, 7.0)


def test_a_larger_batch_is_worth_less_the_less_noise_there_is(folder: Path) -> None:
    training = TrainingRecord.load(folder)
    # (var + sqr) / (var / 2 + sqr): 2 / 1.5 and 4 / 2.5.
    assert training.gain(8).tolist() == pytest.approx([4 / 3, 1.6])
    assert training.gain(4).tolist() == [1.0, 1.0]


def test_the_work_of_an_epoch_is_what_the_first_training_needed(folder: Path) -> None:
    training = TrainingRecord.load(folder)
    assert training.epoch_work.tolist() == [100, 100]
    assert PolluxSpeed.load(folder).steps == 200


def test_a_fixed_batch_trains_epoch_by_epoch(folder: Path) -> None:
    law = PolluxSpeed.load(folder, batch=8)
    # Two replicas at local batch 4: 1.2 s a step, worth 4/3, then 1.6 of the 200.
    seconds = 100 / (4 / 3 / 1.2) + 100 / (1.6 / 1.2)
    assert law.steps_per_second({"worker": 2}, 1) == pytest.approx(200 / seconds)


def test_what_does_not_fit_a_gpu_takes_several_passes(folder: Path) -> None:
    law = replace(PolluxSpeed.load(folder, batch=8), largest_local_batch=4)
    # One replica: two passes at local batch 4, nothing to synchronise.
    seconds = 100 / (4 / 3 / 2.0) + 100 / (1.6 / 2.0)
    assert law.steps_per_second({"worker": 1}, 1) == pytest.approx(200 / seconds)


def test_too_many_replicas_for_the_batch_cannot_run(folder: Path) -> None:
    assert PolluxSpeed.load(folder, batch=8).steps_per_second({"worker": 4}, 2) == 0.0


def test_a_job_that_adapts_is_never_slower_than_with_a_fixed_batch(folder: Path) -> None:
    free = PolluxSpeed.load(folder)
    for replicas in (1, 2):
        for batch in (4, 8):
            fixed = replace(free, batch=batch)
            sizes = {"worker": replicas}
            assert free.steps_per_second(sizes, 1) >= fixed.steps_per_second(sizes, 1) - 1e-12


def test_a_job_that_adapts_gets_through_some_epochs_sooner_than_through_others(
    folder: Path,
) -> None:
    """Batch 8 is worth 4/3 in the first epoch and 1.6 in the second."""
    course = PolluxSpeed.load(folder).course((2,))
    assert course is not None
    assert course.done.tolist() == [0, 0.5, 1]
    assert course.elapsed.tolist() == pytest.approx([0, 0.75 / (0.75 + 0.625), 1])


def test_a_fixed_batch_needs_no_course_as_all_sizes_share_it(folder: Path) -> None:
    assert PolluxSpeed.load(folder, batch=8).course((2,)) is None


@pytest.mark.parametrize("batch", [2, 9])
def test_a_batch_outside_the_measurements_is_refused(folder: Path, batch: int) -> None:
    with pytest.raises(TraceError, match=f"batch is {batch}; the application was measured from 4"):
        PolluxSpeed.load(folder, batch)


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("placements.csv", "placement,local_bsz\n1,4\n", "step_time"),
        ("scalability.csv", SCALABILITY + "4,4,x,1,1\n", "local_bsz is 'x'"),
        ("validation-8.csv", HEADER, "no rows"),
        ("validation-8.csv", HEADER + "1,1,1,-1,1\n", "grad_sqr is -1.0"),
    ],
)
def test_a_damaged_file_is_named_with_its_fault(
    folder: Path, name: str, text: str, word: str
) -> None:
    (folder / name).write_text(text)
    with pytest.raises(TraceError, match=rf"{name}.*{word}"):
        PolluxSpeed.load(folder)


def test_a_folder_with_fewer_than_two_trainings_is_refused(folder: Path) -> None:
    (folder / "validation-8.csv").rename(folder / "validation-eight.csv")
    with pytest.raises(TraceError, match=r"has 1 files validation-<batch>\.csv"):
        TrainingRecord.load(folder)


@needs_archive
@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_size_measured_is_given_back(traces: Path, application: str) -> None:
    folder = traces / "traces" / application
    measured: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for row in csv.DictReader((folder / "placements.csv").read_text().splitlines()):
        each = [int(digit) for digit in row["placement"]]
        key = len(each), sum(each), int(row["local_bsz"])
        measured[key].append(float(row["step_time"]))
    for row in csv.DictReader((folder / "scalability.csv").read_text().splitlines()):
        key = int(row["num_nodes"]), int(row["num_replicas"]), int(row["local_bsz"])
        measured[key].append(float(row["step_time"]))
    table = PolluxTable.load(folder)
    for (nodes, replicas, batch), seconds in measured.items():
        mean = sum(seconds) / len(seconds)
        assert seconds_at(table, nodes, replicas, batch)[0] == pytest.approx(mean)


@needs_archive
@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_size_up_to_sixteen_nodes_has_a_step_time(traces: Path, application: str) -> None:
    table = PolluxTable.load(traces / "traces" / application)
    for replicas in range(1, 65):
        for nodes in range(ceil(replicas / 4), min(replicas, 16) + 1):
            limits = table.batch_range(nodes, replicas)
            assert limits is not None
            step, sync = seconds_at(table, nodes, replicas, int(limits[1]))
            assert 0 <= sync < step
    assert table.batch_range(16, 65) is None


@needs_archive
@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_larger_batch_needs_fewer_steps_but_more_samples(traces: Path, application: str) -> None:
    folder = traces / "traces" / application
    training = TrainingRecord.load(folder)
    smallest = f"validation-{training.batches[0]:.0f}.csv"
    *_, last = csv.DictReader((folder / smallest).read_text().splitlines())
    needed = [(training.epoch_work / training.gain(batch)).sum() for batch in training.batches]
    assert needed[0] == pytest.approx(float(last["iteration"]), abs=1)
    assert needed == sorted(needed, reverse=True)
    samples = (np.array(needed) * training.batches).tolist()
    assert samples[0] == min(samples)


@needs_archive
def test_run_times_are_those_the_authors_simulator_published(traces: Path) -> None:
    """At half load many jobs of Tiresias never wait: their completion is start-up and run."""
    results = json.loads((traces / "results-jobload/tiresias-0.5/summary.json").read_text())
    published: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for workload, completions in results["jcts"].items():
        path = traces / "workloads-0.5" / f"{workload}.csv"
        for row in csv.DictReader(path.read_text().splitlines()):
            key = row["application"], int(row["num_replicas"]), int(row["batch_size"])
            published[key].append(completions[row["name"]])
    near = 0
    for (application, replicas, batch), completions in published.items():
        law = PolluxSpeed.load(traces / "traces" / application, batch)
        speed = law.steps_per_second({"worker": replicas}, ceil(replicas / 4))
        predicted = 30 + law.steps / speed
        # A placement may be luckier than the mean of its size, or wider than the fewest nodes.
        assert min(completions) > 0.8 * predicted
        near += abs(min(completions) / predicted - 1) < 0.03
    assert near >= 0.6 * len(published)


def test_a_placement_that_was_measured_has_its_own_step_time(folder: Path) -> None:
    table = PolluxTable.load(folder)
    assert seconds_at(table, 2, 4, 4, (1, 3)) == seconds_at(table, 2, 4, 4, (3, 1)) == (2.0, 1.0)
    assert seconds_at(table, 2, 4, 4, (2, 2)) == (3.0, 1.0)
    assert seconds_at(table, 1, 2, 8, (2,)) == seconds_at(table, 1, 2, 8)


def test_a_job_runs_at_the_speed_of_its_very_placement(folder: Path) -> None:
    (folder / "placements.csv").write_text(PLACEMENTS + "13,2,1.0,0.5\n22,2,2.0,0.5\n")
    job = a_job("a", 100, speed=PolluxSpeed.load(folder, batch=8), steps=200.0)
    near, far = (
        Physics().rate(job, {"worker": 4}, 2, places=places) for places in ((1, 3), (2, 2))
    )
    assert near == pytest.approx(2 * far)
    assert Physics().rate(job, {"worker": 4}, 2) == pytest.approx(near / 1.5)
