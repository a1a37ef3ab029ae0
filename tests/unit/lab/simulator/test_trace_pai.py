"""Jobs of Alibaba's PAI platform, on tables written here, without header line as published."""

import tarfile
from pathlib import Path

import pytest

from bireme.core.gangs import Role
from bireme.core.gpus import GPU
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.pai import HEADERS, read_pai
from bireme_lab.simulator.workload import TraceJob

JOB = "j1,i1,uA,Terminated,100.0,190.0"
TASK = "j1,tensorflow,2.0,Terminated,110.0,180.0,600.0,29.296875,100.0,V100"


def folder(where: Path, **tables: str | list[str]) -> Path:
    """A folder with ``pai_<name>.csv`` tables; one row each unless given as lists."""
    for name, rows in tables.items():
        text = rows if isinstance(rows, str) else "\n".join(rows)
        (where / f"pai_{name}.csv").write_text(text + "\n")
    return where


def only_job(where: Path) -> TraceJob:
    (job,) = read_pai(where).jobs
    return job


def test_a_job_runs_from_its_first_task_start_to_its_last_task_end(tmp_path: Path) -> None:
    tasks = [TASK, "j1,ps,1.0,Terminated,105.0,170.0,400.0,8.0,,CPU"]
    job = only_job(folder(tmp_path, job_table=JOB, task_table=tasks))
    assert (job.name, job.user, job.submitted, job.duration_seconds) == ("j1", "uA", 0.0, 75.0)


def test_an_instance_is_a_replica_with_what_its_task_planned(tmp_path: Path) -> None:
    (task,) = only_job(folder(tmp_path, job_table=JOB, task_table=TASK)).tasks
    assert (task.name, task.replicas) == ("tensorflow", 2)
    assert dict(task.request) == {"cpu": 6000, "memory": 30_000 * 2**20, GPU: 1, "pods": 1}


@pytest.mark.parametrize(
    ("name", "role"),
    [("ps", Role.PS), ("evaluator", Role.EVALUATOR), ("PyTorchWorker", Role.WORKER)],
)
def test_a_task_has_the_role_its_name_says(tmp_path: Path, name: str, role: Role) -> None:
    row = TASK.replace("tensorflow", name)
    (task,) = only_job(folder(tmp_path, job_table=JOB, task_table=row)).tasks
    assert (task.role, task.priority) == (role, role.default_priority)


@pytest.mark.parametrize(
    ("percent", "whole", "counted"), [("50.0", 1, 1), ("150.0", 2, 1), ("200.0", 2, 0)]
)
def test_a_share_of_a_gpu_asks_for_a_whole_one(
    tmp_path: Path, percent: str, whole: int, counted: int
) -> None:
    row = TASK.replace("100.0,V100", f"{percent},V100")
    trace = read_pai(folder(tmp_path, job_table=JOB, task_table=row))
    assert dict(trace.jobs[0].tasks[0].request)[GPU] == whole
    assert trace.treatments.get("share of a GPU, rounded up to a whole one", 0) == counted


def test_a_blank_plan_asks_for_nothing(tmp_path: Path) -> None:
    row = "j1,ps,1.0,Terminated,110.0,180.0,,,,MISC"
    (task,) = only_job(folder(tmp_path, job_table=JOB, task_table=row)).tasks
    assert dict(task.request) == {"pods": 1}


def test_the_instance_table_knows_better_when_a_job_ran(tmp_path: Path) -> None:
    instances = [
        "j1,tensorflow,a,w1,i1,Terminated,120.0,150.0,m1",
        "j1,tensorflow,b,w2,i1,Terminated,125.0,160.0,m2",
        "j1,tensorflow,c,w3,i1,Waiting,0.0,,m2",
    ]
    job = only_job(folder(tmp_path, job_table=JOB, task_table=TASK, instance_table=instances))
    assert job.duration_seconds == 40.0


def test_the_machine_table_is_the_machines_of_the_trace(tmp_path: Path) -> None:
    machine = "m1,V100M32,96.0,512.0,8.0"
    trace = read_pai(folder(tmp_path, job_table=JOB, task_table=TASK, machine_spec=machine))
    (node,) = trace.nodes
    assert node.allocatable == {"cpu": 96_000, "memory": 512 * 2**30, GPU: 8, "pods": 110}
    assert node.labels["nvidia.com/gpu.product"] == "V100M32"


@pytest.mark.parametrize(
    ("job", "task", "treatment"),
    [
        pytest.param("j2,i,u,Running,100,", "j2,w,1,Running,1,9,1,1,1,", "no start or no end"),
        pytest.param("j2,i,u,Failed,100,", "j2,w,1,Failed,0.0,,1,1,1,", "no start or no end"),
        pytest.param("j2,i,u,Failed,100,200", "j3,w,1,Failed,1,9,1,1,1,", "no start or no end"),
        pytest.param("j2,i,u,Failed,100,200", "j2,w,1,Failed,9,9,1,1,1,", "run time not above"),
        pytest.param("j2,i,u,Failed,,200", "j2,w,1,Failed,1,9,1,1,1,", "no submission time"),
        pytest.param("j2,i,u,Failed,1,200", "j2,w,,Failed,1,9,1,1,1,", "task without instances"),
        pytest.param("j2,i,u,Failed,1,200", "j2,w,0,Failed,1,9,1,1,1,", "task without instances"),
    ],
)
def test_a_job_that_cannot_run_is_left_out_and_counted(
    tmp_path: Path, job: str, task: str, treatment: str
) -> None:
    task = task.replace("1,1,1,", "1,1,0,V100")
    trace = read_pai(folder(tmp_path, job_table=[job, JOB], task_table=[task, TASK]))
    assert [job.name for job in trace.jobs] == ["j1"]
    assert [count for reason, count in trace.treatments.items() if treatment in reason] == [1]


def test_a_task_named_twice_counts_once(tmp_path: Path) -> None:
    trace = read_pai(folder(tmp_path, job_table=JOB, task_table=[TASK, TASK]))
    assert len(trace.jobs[0].tasks) == 1
    assert trace.treatments == {"task named twice in its job, left out": 1}


def test_a_header_file_beside_a_table_names_its_columns(tmp_path: Path) -> None:
    where = folder(tmp_path, job_table="uA,j1,100.0,Terminated", task_table=TASK)
    (where / "pai_job_table.header").write_text("user,job_name,start_time,status\n")
    assert only_job(where).user == "uA"


def test_tables_are_read_from_the_archives_they_are_published_in(tmp_path: Path) -> None:
    where = folder(tmp_path, job_table=JOB, task_table=TASK)
    for name in ("pai_job_table", "pai_task_table"):
        with tarfile.open(where / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(where / f"{name}.csv", f"./{name}.csv")
        (where / f"{name}.csv").unlink()
    assert only_job(where).name == "j1"


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no pai_task_table\.csv, \.csv\.gz or \.tar\.gz in it"):
        read_pai(folder(tmp_path, job_table=JOB))


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        pytest.param(TASK.replace("2.0", "many", 1), "inst_num is 'many'", id="instances"),
        pytest.param(TASK.replace("2.0", "1.5", 1), "inst_num is '1.5'", id="half-an-instance"),
        pytest.param(TASK.replace("600.0", "all"), "plan_cpu is 'all'", id="cpu"),
        pytest.param(TASK.replace("600.0", "-1"), "plan_cpu is '-1'; .* from 0 on", id="negative"),
        pytest.param(TASK.replace("110.0", "early"), "start_time is 'early'", id="start"),
        pytest.param(TASK + ",extra", "11 fields where the header has 10", id="ragged"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused(tmp_path: Path, task: str, problem: str) -> None:
    with pytest.raises(TraceError, match=rf"pai_task_table\.csv, line 2: {problem}"):
        read_pai(folder(tmp_path, job_table=JOB, task_table=[TASK, task.replace("j1", "j2")]))


def test_every_task_column_that_is_read_is_in_the_published_order() -> None:
    assert set(HEADERS) >= {"pai_job_table", "pai_task_table", "pai_instance_table"}
    assert all(len(set(names)) == len(names) for names in HEADERS.values())
