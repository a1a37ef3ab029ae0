"""Pollux' workloads, on a toy application whose run times can be worked out by hand.

Two epochs of 100 steps of batch 10; the gradient is all variance, so that a step of batch 20 is
worth two. A step takes 1 s on one replica and 1.25 s on two, whatever the batch.
"""

import tarfile
from pathlib import Path

import pytest

from bireme.core.gpus import GPU
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.traces.pollux import read_pollux

WORKLOAD = """name,time,application,num_replicas,batch_size
toy-0,107,toy,1,10
toy-1,110,toy,2,20
"""
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,5,1.0,0.0
1,20,1.0,0.0
2,5,1.25,0.25
2,20,1.25,0.25
"""
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,5,2.0,1.0\n"
VALIDATION = """progress,iteration,metric,grad_sqr,grad_var
100,100,0.5,0.0,1.0
200,200,0.6,0.0,1.0
"""


def artifact(folder: Path, workload: str = WORKLOAD) -> Path:
    """The path of a workload with the measurements of ``toy`` where the artifact has them."""
    application = folder / "traces" / "toy"
    application.mkdir(parents=True)
    (application / "placements.csv").write_text(PLACEMENTS)
    (application / "scalability.csv").write_text(SCALABILITY)
    for batch in (10, 20):
        (application / f"validation-{batch}.csv").write_text(VALIDATION)
    (folder / "workloads").mkdir()
    path = folder / "workloads" / "workload-1.csv"
    path.write_text(workload)
    return path


def test_the_run_time_follows_from_the_measurements(tmp_path: Path) -> None:
    trace = read_pollux(artifact(tmp_path))
    assert trace.name == "workloads/workload-1.csv"
    assert [(job.name, job.submitted, job.application) for job in trace.jobs] == [
        ("toy-0", 0.0, "toy"),
        ("toy-1", 3.0, "toy"),
    ]
    assert [job.duration_seconds for job in trace.jobs] == pytest.approx([200.0, 125.0])


def test_a_replica_is_a_process_with_one_gpu(tmp_path: Path) -> None:
    (task,) = read_pollux(artifact(tmp_path)).jobs[1].tasks
    assert (task.replicas, dict(task.request)[GPU]) == (2, 1)


def test_at_its_own_size_a_job_runs_exactly_its_duration(tmp_path: Path) -> None:
    for job in read_pollux(artifact(tmp_path)).jobs:
        rate = Physics().rate(job, {"worker": job.tasks[0].replicas}, nodes=1)
        assert rate == pytest.approx(1.0)


def test_rigid_jobs_keep_their_size(tmp_path: Path) -> None:
    job = read_pollux(artifact(tmp_path)).jobs[1]
    assert not job.is_elastic
    assert (job.tasks[0].minimum, job.tasks[0].maximum) == (2, 2)


@pytest.mark.parametrize("mode", ["elastic", "adaptive"])
def test_elastic_jobs_may_run_at_every_size_measured_without_a_gap(
    tmp_path: Path, mode: str
) -> None:
    for job in read_pollux(artifact(tmp_path), mode=mode).jobs:
        assert job.is_elastic
        assert (job.tasks[0].minimum, job.tasks[0].maximum) == (1, 2)


def test_an_elastic_job_keeps_its_batch_and_an_adaptive_one_takes_the_best(tmp_path: Path) -> None:
    path = artifact(tmp_path, f"{WORKLOAD}toy-2,200,toy,2,10\n")
    elastic, adaptive = (read_pollux(path, mode=mode).jobs[2] for mode in ("elastic", "adaptive"))
    assert elastic.duration_seconds == pytest.approx(250.0)
    assert adaptive.duration_seconds == pytest.approx(125.0)


def test_ncf_is_never_spread(tmp_path: Path) -> None:
    path = artifact(tmp_path, WORKLOAD.replace("toy-0,107,toy", "ncf-0,107,ncf"))
    (tmp_path / "traces" / "ncf").symlink_to(tmp_path / "traces" / "toy")
    job = read_pollux(path, mode="adaptive").jobs[0]
    assert (job.application, job.tasks[0].maximum) == ("ncf", 1)
    assert job.duration_seconds == pytest.approx(200.0)


def test_workload_and_measurements_may_lie_in_one_archive(tmp_path: Path) -> None:
    artifact(tmp_path)
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        for name in ("traces", "workloads"):
            archive.add(tmp_path / name, name)
    trace = read_pollux(tmp_path / "all.tar.gz" / "workloads" / "workload-1.csv")
    assert trace.jobs[1].duration_seconds == pytest.approx(125.0)


def test_measurements_elsewhere_can_be_named(tmp_path: Path) -> None:
    path = artifact(tmp_path)
    lonely = tmp_path / "workload.csv"
    lonely.write_text(WORKLOAD)
    with pytest.raises(TraceError, match=r"line 2: application is 'toy', .*\?traces=FOLDER"):
        read_pollux(lonely)
    found = read_pollux(lonely, traces=str(path.parent.parent / "traces"))
    assert found.jobs[1].duration_seconds == pytest.approx(125.0)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        pytest.param("x,1,toy,9,20", "batch size 20 was not measured at num_replicas 9", id="size"),
        pytest.param("x,1,toy,1,40", "batch is 40; the application was measured", id="batch"),
        pytest.param("x,1,gpt9,1,10", "application is 'gpt9'", id="application"),
        pytest.param("x,now,toy,1,10", "time is 'now'", id="time"),
    ],
)
def test_a_row_that_was_not_measured_is_refused(tmp_path: Path, row: str, problem: str) -> None:
    path = artifact(tmp_path, f"{WORKLOAD}{row}\n")
    with pytest.raises(TraceError, match=rf"workload-1\.csv, line 4: {problem}"):
        read_pollux(path)


def test_a_job_without_replicas_is_left_out_and_counted(tmp_path: Path) -> None:
    trace = read_pollux(artifact(tmp_path, f"{WORKLOAD}x,1,toy,0,10\n"))
    assert len(trace.jobs) == 2
    assert trace.treatments["zero GPUs, left out"] == 1


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="mode is 'fast'; write one of rigid, elastic, adaptive"):
        read_pollux(artifact(tmp_path), mode="fast")
