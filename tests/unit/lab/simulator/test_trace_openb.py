"""Pods of Alibaba's openb cluster, on lists written here."""

from pathlib import Path

import pytest

from bireme.core.gpus import GPU
from bireme.core.nodes import NodeTable, feasible
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.openb import read_openb
from bireme_lab.simulator.workload import Trace

SHORT = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
FULL = f"{SHORT},gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,262144,0,\nn2,96000,786432,8,V100M32\n"


def pods(folder: Path, header: str, *rows: str) -> Path:
    path = folder / "openb_pod_list_test.csv"
    path.write_text("\n".join([header, *rows, ""]))
    return path


def read(folder: Path, *rows: str) -> Trace:
    return read_openb(pods(folder, FULL, *rows))


def test_a_pod_is_a_job_of_one_replica_that_runs_from_its_scheduling_on(tmp_path: Path) -> None:
    (job,) = read(tmp_path, "p1,6000,12288,2,1000,,LS,Succeeded,100,190,130").jobs
    (task,) = job.tasks
    assert (job.submitted, job.duration_seconds, task.replicas) == (0.0, 60.0, 1)
    assert dict(task.request) == {"cpu": 6000, "memory": 12 * 2**30, GPU: 2, "pods": 1}


def test_a_pod_without_gpus_is_a_job_too(tmp_path: Path) -> None:
    (job,) = read(tmp_path, "p1,6000,12288,0,0,,BE,Running,0,10,0").jobs
    assert GPU not in dict(job.tasks[0].request)


def test_a_share_of_a_gpu_asks_for_a_whole_one_and_is_counted(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "p1,6000,12288,1,460,,LS,Running,0,10,0",
        "p2,6000,12288,1,1000,,LS,Running,0,10,0",
    )
    assert [dict(job.tasks[0].request)[GPU] for job in trace.jobs] == [1, 1]
    assert trace.treatments == {"share of a GPU, rounded up to a whole one": 1}


def test_a_pod_that_was_never_scheduled_is_left_out_and_counted_once(tmp_path: Path) -> None:
    trace = read(
        tmp_path, "p1,6000,12288,1,460,,BE,Pending,0,10,", "p2,6,1,1,1000,,BE,Failed,3,10,4"
    )
    assert [job.name for job in trace.jobs] == ["p2"]
    assert trace.treatments == {"no start or no end, left out": 1}


def test_a_pod_that_names_gpu_models_fits_only_nodes_of_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    trace = read(
        tmp_path,
        "p1,1000,1024,1,1000,V100M16|V100M32,LS,Running,0,10,0",
        "p2,1000,1024,1,1000,T4,LS,Running,1,10,1",
    )
    nodes = NodeTable(trace.nodes, ())
    assert [feasible(job.tasks[0].constraints, nodes).tolist() for job in trace.jobs] == [
        [False, True],
        [False, False],
    ]


def test_the_node_list_beside_the_pods_is_the_machines_of_the_trace(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    trace = read(tmp_path, "p1,6000,12288,1,1000,,LS,Running,0,10,0")
    assert [(node.name, node.allocatable.get(GPU, 0)) for node in trace.nodes] == [
        ("n1", 0),
        ("n2", 8),
    ]
    assert trace.nodes[1].allocatable["memory"] == 768 * 2**30


def test_negative_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 2: memory_mib is '-1'; it must be a number from 0"):
        read(tmp_path, "p1,6000,-1,1,1000,,LS,Running,0,10,0")


def test_another_node_list_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(NODES)
    path = pods(tmp_path, FULL, "p1,6000,12288,1,1000,,LS,Running,0,10,0")
    assert len(read_openb(path, nodes=str(tmp_path / "mine.csv")).nodes) == 2
    assert read_openb(path).nodes == ()
    with pytest.raises(TraceError, match="cannot be read"):
        read_openb(path, nodes=str(tmp_path / "nowhere.csv"))


def test_a_list_without_times_says_what_it_needs(tmp_path: Path) -> None:
    path = pods(tmp_path, SHORT, "p1,6000,12288,1,1000")
    with pytest.raises(TraceError, match=r"no times; .*interval_seconds=60&run_seconds=3600"):
        read_openb(path)


def test_a_list_without_times_takes_those_given(tmp_path: Path) -> None:
    path = pods(tmp_path, SHORT, "p1,6000,12288,1,1000", "p2,6000,12288,8,1000")
    jobs = read_openb(path, interval_seconds=60, run_seconds=600).jobs
    assert [(job.name, job.submitted, job.duration_seconds) for job in jobs] == [
        ("p1", 0.0, 600.0),
        ("p2", 60.0, 600.0),
    ]
