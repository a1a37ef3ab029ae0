"""Jobs at the speeds that Gavel and ElasticFlow measured, from small files of their forms."""

import json
from pathlib import Path

import pytest

from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.traces.sources import read_trace
from bireme_lab.simulator.workload import Trace

GAVEL = {
    "v100": {
        "('LM', 1)": {"null": 20.0},
        "('LM', 2)": {"null": 30.0},
        "('A3C', 1)": {"null": 7.0},
        "('A3C', 2)": {"null": 0.0},
    },
    "v100_unconsolidated": {"('LM', 2)": {"null": 15.0}},
}
SPEEDS = "global_batch_size,1,2,4,8\n64,0,3.0,4.0,5.0\n128,2.0,0,4.0,\n"
HEADER = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"


@pytest.fixture
def gavel(tmp_path: Path) -> str:
    path = tmp_path / "throughputs.json"
    path.write_text(json.dumps(GAVEL))
    return f"gen:gavel?speeds={path}&jobs=200&sizes=1:1,2:1"


def elastic_flow(folder: Path, *rows: str) -> Trace:
    (folder / "speeds").mkdir()
    (folder / "speeds" / "vgg16.csv").write_text(SPEEDS)
    (folder / "jobs.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return read_trace(f"philly:{folder}/jobs.csv?speeds={folder}/speeds")


def test_gavels_jobs_are_of_the_kinds_measured_with_so_many_gpus(gavel: str) -> None:
    jobs = read_trace(gavel, seed=1).jobs
    assert {(job.application, job.tasks[0].replicas) for job in jobs} == {
        *(("LM", 1), ("A3C", 1), ("LM", 2)),
    }
    assert jobs == read_trace(gavel, seed=1).jobs != read_trace(gavel, seed=2).jobs


def test_gavels_job_runs_its_time_together_and_longer_where_it_was_slower_apart(gavel: str) -> None:
    job = next(job for job in read_trace(gavel).jobs if job.tasks[0].replicas == 2)
    rates = [Physics().rate(job, {"worker": 2}, nodes) for nodes in (1, 2)]
    assert rates == pytest.approx([1.0, 0.5])


def test_gavels_jobs_take_from_half_an_hour_to_a_week(gavel: str) -> None:
    minutes = [job.duration_seconds / 60 for job in read_trace(gavel).jobs]
    assert 10**1.5 <= min(minutes) <= max(minutes) <= 10**4
    assert 0.1 < sum(each > 1000 for each in minutes) / len(minutes) < 0.3


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("&sizes=4:1", "no job was measured on 4 GPUs of type v100"),
        ("&gpu=v200", "no GPU type 'v200' was measured; did you mean 'v100'"),
        ("&jobs=0", "jobs is 0"),
    ],
)
def test_what_gavel_did_not_measure_is_refused(gavel: str, option: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_trace(gavel + option)


def test_elasticflows_job_may_have_any_size_around_its_own_that_ran(tmp_path: Path) -> None:
    large, small = elastic_flow(tmp_path, "0,0,1,vgg16,9,64,4,100", "1,0,1,vgg16,9,128,1,100").jobs
    (task,) = large.tasks
    assert large.is_elastic
    assert (task.minimum, task.replicas, task.maximum) == (2, 4, 8)
    assert (small.tasks[0].minimum, small.tasks[0].maximum) == (1, 1)
    assert large.steps == 400
    rates = [Physics().rate(large, {"worker": gpus}, 1) for gpus in (2, 4, 8)]
    assert rates == [0.75, 1.0, 1.25]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0,0,1,vgg,9,64,4,100", "line 2: model_name is 'vgg', which .* has no measurements of"),
        ("0,0,1,vgg16,9,96,4,100", "line 2: no batch size '?96'? was measured"),
        ("0,0,1,vgg16,9,64,1,100", "job-0 asks for 1 GPUs, with which vgg16 was not measured"),
    ],
)
def test_what_elasticflow_did_not_measure_is_refused(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        elastic_flow(tmp_path, row)


def test_speeds_are_refused_for_a_file_without_models(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,6,16,6,vc\n")
    with pytest.raises(TraceError, match="names no models; leave speeds out"):
        read_trace(f"philly:{path}?speeds={tmp_path}")
