"""Workloads by name."""

from pathlib import Path

import pytest

from bireme.core.gpus import GPU
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.sources import FORMATS, GENERATORS, read_trace

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,1,1,1000\np2,1,1,1,1000\n"


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,6,16,6,vc\n")
    return path


def replicas(source: str, **arguments: int) -> int:
    return read_trace(source, **arguments).jobs[0].tasks[0].replicas


def test_a_file_is_read_in_the_format_named_before_the_colon(philly: Path) -> None:
    trace = read_trace(f"philly:{philly}")
    assert (trace.name, len(trace.jobs)) == ("philly:jobs.csv", 1)


def test_node_size_reaches_the_reader_and_an_option_in_the_source_wins(philly: Path) -> None:
    assert replicas(f"philly:{philly}") == 2
    assert replicas(f"philly:{philly}", gpus_per_node=4) == 4
    assert replicas(f"philly:{philly}?gpus_per_node=2", gpus_per_node=4) == 8


def test_a_home_folder_is_spelled_out(philly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(philly.parent))
    assert len(read_trace("philly:~/jobs.csv").jobs) == 1


def test_options_have_the_types_of_the_reader(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS)
    trace = read_trace(f"openb:{tmp_path}/pods.csv?interval_seconds=7&run_seconds=2.5")
    assert [(job.submitted, job.duration_seconds) for job in trace.jobs] == [(0, 2.5), (7, 2.5)]


def test_a_generator_takes_its_arguments_from_the_source() -> None:
    trace = read_trace("gen:poisson?jobs=7&rate=30&sizes=4:1", seed=3)
    assert (trace.name, len(trace.jobs)) == ("gen:poisson?jobs=7&rate=30&sizes=4:1", 7)
    assert {dict(job.tasks[0].request)[GPU] for job in trace.jobs} == {4}


def test_the_seed_reaches_the_generator_and_an_option_in_the_source_wins() -> None:
    first, same, other = (
        read_trace(source, seed=seed).jobs
        for source, seed in [("gen:a2c", 1), ("gen:a2c?seed=1", 2), ("gen:a2c", 2)]
    )
    assert first == same
    assert first != other


@pytest.mark.parametrize("name", sorted(GENERATORS.keys() - {"gavel"}))  # which needs a file
def test_every_generator_gives_jobs_in_order_with_unique_names_without_arguments(name: str) -> None:
    jobs = read_trace(f"gen:{name}").jobs
    assert sorted(jobs, key=lambda job: job.submitted) == list(jobs)
    assert len({job.name for job in jobs}) == len(jobs)
    assert min(job.duration_seconds for job in jobs) > 0


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_reader_refuses_a_file_of_another_format(name: str, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    with pytest.raises(TraceError, match=r"no column|no pai_task_table"):
        read_trace(f"{name}:{tmp_path / 'other.csv'}")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("jobs.csv", "'jobs.csv' names no format; write FORMAT:FILE with one of acme, helios"),
        ("phily:jobs.csv", "no trace format is called 'phily'; did you mean 'philly'"),
        ("xyz:jobs.csv", "known: acme, gen, helios"),
        ("philly:", "'philly:' names no file; write philly:FILE"),
        ("gen:gavel", "speeds is ''; name Gavel's throughput file: gen:gavel"),
        ("gen:poison", "no generator is called 'poison'; did you mean 'poisson'"),
        ("gen:", "no generator is called ''; known: a2c, adversarial"),
        ("gen:poisson?job=7", "no option is called 'job'; did you mean 'jobs'"),
        ("gen:poisson?jobs=7.5", "jobs is '7.5'; it must be a whole number"),
        ("gen:poisson?rate=", "rate is ''; it must be a number"),
        ("gen:poisson?rate=inf", "rate is 'inf'; it must be a number"),
    ],
)
def test_a_source_that_names_nothing_is_answered_with_what_it_could_be(
    source: str, problem: str
) -> None:
    with pytest.raises(TraceError, match=problem):
        read_trace(source)
