"""Formats with a row per job: Philly, Tiresias, Muri, Helios and Acme, on rows written here."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Task
from bireme.core.gpus import GPU
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.job_logs import (
    read_acme,
    read_helios,
    read_muri,
    read_philly,
    read_tiresias,
)
from bireme_lab.simulator.traces.tables import (
    CPU_MILLIS_PER_GPU,
    MEMORY_BYTES_PER_GPU,
    tasks_of_gpus,
)
from bireme_lab.simulator.workload import Trace, TraceJob

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)
SEREN = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
    "duration,queue,gpu_time"
)
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
    "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time"
)


def table(folder: Path, header: str, *rows: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text("\n".join([header, *rows, ""]))
    return path


def philly(folder: Path, *rows: str) -> Trace:
    return read_philly(table(folder, PHILLY, *rows))


def asked(job: TraceJob) -> tuple[int, dict[str, int]]:
    (task,) = job.tasks
    return task.replicas, dict(task.request)


def gpus(tasks: tuple[Task, ...]) -> tuple[int, int]:
    (task,) = tasks
    return task.replicas, dict(task.request).get(GPU, 0)


@pytest.mark.parametrize(
    ("job_gpus", "gpus_per_node", "shape"),
    [
        pytest.param(1, 8, (1, 1), id="one"),
        pytest.param(3, 8, (1, 3), id="fits-a-node"),
        pytest.param(8, 8, (1, 8), id="fills-a-node"),
        pytest.param(16, 8, (2, 8), id="two-nodes"),
        pytest.param(12, 8, (2, 6), id="largest-divisor"),
        pytest.param(11, 8, (11, 1), id="prime"),
        pytest.param(12, 4, (3, 4), id="small-nodes"),
        pytest.param(5, 1, (5, 1), id="nodes-of-one"),
    ],
)
def test_a_job_is_cut_into_equal_replicas_that_fit_a_node(
    job_gpus: int, gpus_per_node: int, shape: tuple[int, int]
) -> None:
    assert gpus(tasks_of_gpus(job_gpus, gpus_per_node)) == shape


@given(job_gpus=st.integers(1, 500), gpus_per_node=st.integers(1, 16))
def test_a_gang_has_all_its_gpus_in_the_fewest_equal_replicas_that_fit(
    job_gpus: int, gpus_per_node: int
) -> None:
    replicas, each = gpus(tasks_of_gpus(job_gpus, gpus_per_node))
    assert replicas * each == job_gpus
    assert each <= gpus_per_node
    assert not any(job_gpus % size == 0 for size in range(each + 1, gpus_per_node + 1))


def test_a_silent_trace_asks_for_cpu_and_memory_in_proportion_to_gpus() -> None:
    (task,) = tasks_of_gpus(16, 8)
    request = dict(task.request)
    assert request["cpu"] == 8 * CPU_MILLIS_PER_GPU
    assert request["memory"] == 8 * MEMORY_BYTES_PER_GPU
    assert request["pods"] == 1


def test_what_a_trace_states_for_the_job_is_split_over_its_replicas_and_rounded_up() -> None:
    (task,) = tasks_of_gpus(24, 8, cpu_millis=10_000, memory_bytes=100)
    assert (dict(task.request)["cpu"], dict(task.request)["memory"]) == (3334, 34)


def test_nodes_without_gpus_are_refused() -> None:
    with pytest.raises(TraceError, match="gpus_per_node is 0; it must be at least 1"):
        tasks_of_gpus(1, 0)


def test_philly_jobs_come_in_order_of_submission_counted_from_the_first(tmp_path: Path) -> None:
    trace = philly(
        tmp_path,
        "2017-10-09 07:01:55,66.0,16,1056.0,vc1",
        "2017-10-09 07:01:05,10.5,1,10.5,vc2",
    )
    assert [(job.name, job.submitted) for job in trace.jobs] == [("job-2", 0.0), ("job-1", 50.0)]
    assert [job.duration_seconds for job in trace.jobs] == [10.5, 66.0]
    assert trace.treatments == {"submitted before the row above, sorted in": 1}


def test_a_philly_virtual_cluster_is_a_user_where_that_is_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path, PHILLY, "2017-10-03 10:00:00,60,1,60,a", "2017-10-03 10:00:01,60,1,60,b")
    for users, found in (("", ["", ""]), ("vc", ["a", "b"])):
        assert [job.user for job in read_philly(path, users=users).jobs] == found
    with pytest.raises(TraceError, match="users is 'people'; vc makes users of virtual clusters"):
        read_philly(path, users="people")


def test_a_philly_virtual_cluster_is_a_queue(tmp_path: Path) -> None:
    trace = philly(tmp_path, "2017-10-09 07:01:55,6,1,6,b", "2017-10-09 07:01:56,6,1,6,a")
    assert [job.queue for job in trace.jobs] == ["b", "a"]
    assert [queue.name for queue in trace.queues] == ["a", "b"]


def test_rows_submitted_at_once_keep_the_order_of_the_file(tmp_path: Path) -> None:
    row = "2017-10-09 07:01:55,6,1,6,vc"
    assert [job.name for job in philly(tmp_path, row, row, row).jobs] == ["job-1", "job-2", "job-3"]


def test_nobody_states_an_estimate(tmp_path: Path) -> None:
    assert philly(tmp_path, "2017-10-09 07:01:55,6,1,6,vc").jobs[0].estimated_seconds is None


@pytest.mark.parametrize(
    ("row", "treatment"),
    [
        pytest.param("2017-10-09 07:00:00,6,0,0,vc", "zero GPUs, left out", id="no-gpus"),
        pytest.param(
            "2017-10-09 07:00:00,-6,1,0,vc", "run time not above zero, left out", id="negative"
        ),
        pytest.param(
            "2017-10-09 07:00:00,0,1,0,vc", "run time not above zero, left out", id="zero"
        ),
        pytest.param("2017-10-09 07:00:00,,1,0,vc", "no start or no end, left out", id="blank"),
        pytest.param(",6,1,0,vc", "no submission time, left out", id="never-submitted"),
    ],
)
def test_a_row_that_cannot_run_is_left_out_and_counted(
    tmp_path: Path, row: str, treatment: str
) -> None:
    trace = philly(tmp_path, row, "2017-10-09 07:01:55,6,1,6,vc")
    assert [job.name for job in trace.jobs] == ["job-2"]
    assert trace.treatments == {treatment: 1}
    assert trace.jobs[0].submitted == 0


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        pytest.param("soon,6,1,6,vc", "timestamp is 'soon'; it must be a time", id="time"),
        pytest.param("2017-10-09 07:01:55,long,1,6,vc", "duration is 'long'", id="duration"),
        pytest.param("2017-10-09 07:01:55,6,-1,6,vc", "num_gpus is '-1'", id="negative-gpus"),
        pytest.param("2017-10-09 07:01:55,6,,6,vc", "num_gpus is ''", id="blank-gpus"),
        pytest.param("2017-10-09 07:01:55,6,0.5,6,vc", "num_gpus is '0.5'", id="half-a-gpu"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, row: str, problem: str
) -> None:
    with pytest.raises(TraceError, match=rf"jobs\.csv, line 3: {problem}"):
        philly(tmp_path, "2017-10-09 07:01:55,6,1,6,vc", row)


def test_a_table_without_a_job_to_run_is_refused_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"left of 1 rows \(1 rows: zero GPUs, left out\); name a"):
        philly(tmp_path, "2017-10-09 07:01:55,6,0,6,vc")


def test_one_philly_cluster_of_elasticflow_is_known_by_its_header(tmp_path: Path) -> None:
    header = (
        "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,"
        "duration,iteration"
    )
    path = table(tmp_path, header, "0,100,9,vgg16,900,256,4,33,33,9", "1,107,9,bert,900,8,1,5,5,9")
    jobs = read_philly(path).jobs
    assert [(job.name, job.submitted, job.duration_seconds) for job in jobs] == [
        ("job-0", 0.0, 33.0),
        ("job-1", 7.0, 5.0),
    ]
    assert [(job.application, asked(job)[1][GPU]) for job in jobs] == [("vgg16", 4), ("bert", 1)]


def test_tiresias_counts_in_seconds(tmp_path: Path) -> None:
    path = table(tmp_path, TIRESIAS, "0,1,0,606,vgg19,164,30", "1,8,30,133,vgg11,147,23")
    job = read_tiresias(path).jobs[1]
    assert (job.submitted, job.duration_seconds, job.application) == (30.0, 147.0, "vgg11")


def muri_table(folder: Path) -> Path:
    header = (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
        "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority"
    )
    rows = (
        "0,8,0,10956,gpt2,4,5095000,91000,437,0.6,419,49,0",
        "1,8,1534500,1463,vgg16,16,281000,28000,214,82,75,66,1",
    )
    return table(folder, header, *rows)


def test_muri_counts_in_milliseconds_and_its_drawn_priorities_are_not_read(tmp_path: Path) -> None:
    job = read_muri(muri_table(tmp_path)).jobs[1]
    assert (job.submitted, job.duration_seconds, job.priority) == (1534.5, 281.0, 0)


def test_a_muri_file_is_not_read_as_tiresias(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"milliseconds; read it as muri:.*jobs\.csv"):
        read_tiresias(muri_table(tmp_path))


def test_a_tiresias_file_is_not_read_as_muri(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no column 'iteration_time' among"):
        read_muri(table(tmp_path, TIRESIAS, "0,1,0,606,vgg19,164,30"))


def test_two_rows_with_one_job_id_are_refused_with_both_lines(tmp_path: Path) -> None:
    row = "7,1,0,606,vgg19,164,30"
    with pytest.raises(TraceError, match=r"line 4: job 'job-7' is on line 2 already"):
        read_tiresias(table(tmp_path, TIRESIAS, row, "8,1,0,606,vgg19,164,30", row))


def test_helios_takes_user_virtual_cluster_and_cores(tmp_path: Path) -> None:
    day = "2020-06-09"
    rows = (
        f"11,uA,vcX,16,40,2,COMPLETED,{day} 18:41:01,{day} 18:41:04,{day} 18:42:44,100,3",
        f"12,uB,vcY,0,8,1,FAILED,{day} 18:41:11,{day} 18:41:11,{day} 18:41:31,20,0",
    )
    trace = read_helios(table(tmp_path, HELIOS, *rows))
    (job,) = trace.jobs
    assert (job.name, job.user, job.queue, job.duration_seconds) == ("11", "uA", "vcX", 100.0)
    assert asked(job)[0] == 2
    assert asked(job)[1]["cpu"] == 20_000
    assert trace.treatments == {"zero GPUs, left out": 1}


def test_seren_memory_is_in_proportion_to_gpus(tmp_path: Path) -> None:
    row = (
        "5,u5,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,"
        "2023-03-01 00:20:51+08:00,117,32,936.0"
    )
    (job,) = read_acme(table(tmp_path, SEREN, row)).jobs
    assert (job.duration_seconds, job.application, job.user) == (117.0, "Other", "u5")
    assert asked(job)[1]["cpu"] == 128_000
    assert asked(job)[1]["memory"] == 8 * MEMORY_BYTES_PER_GPU


def test_kalos_runs_from_start_to_end_because_its_duration_includes_the_wait(
    tmp_path: Path,
) -> None:
    row = (
        "dlc,uf,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,"
        "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18,10.0,1152.0"
    )
    (job,) = read_acme(table(tmp_path, KALOS, row)).jobs
    assert job.duration_seconds == 8.0
    assert (asked(job)[0], asked(job)[1]["memory"]) == (8, 1000 * 10**9)


def test_a_kalos_job_without_a_memory_figure_asks_in_proportion(tmp_path: Path) -> None:
    row = (
        "dlc,uf,1,8,96,,,Other,FAILED,2023-05-17 11:00:58+00:00,"
        "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18,10.0,144.0"
    )
    (job,) = read_acme(table(tmp_path, KALOS, row)).jobs
    assert asked(job)[1]["memory"] == 8 * MEMORY_BYTES_PER_GPU


def test_an_acme_job_that_still_runs_is_left_out_and_counted(tmp_path: Path) -> None:
    done, open_end = (
        f"{name},u5,1,8,128,SFT,{state},2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,"
        f"{end},117,32,936.0"
        for name, state, end in [
            ("1", "COMPLETED", "2023-03-01 00:20:51+08:00"),
            ("2", "RUNNING", ""),
        ]
    )
    trace = read_acme(table(tmp_path, SEREN, done, open_end))
    assert [job.name for job in trace.jobs] == ["1"]
    assert trace.treatments == {"no start or no end, left out": 1}
