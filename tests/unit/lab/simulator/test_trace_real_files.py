"""The publishers' own files, where they are at hand: every row is accounted for."""

import cProfile
import json
import pstats
import tarfile
from pathlib import Path

import pytest

from bireme_lab.simulator.traces.pai import HEADERS
from bireme_lab.simulator.traces.sources import read_trace
from bireme_lab.simulator.traces.tables import (
    NO_GPUS,
    NO_RUN_TIME,
    NOT_RUN,
    NOT_SUBMITTED,
    read_header,
)

DATA = Path(__file__).parents[5] / "shared" / "data"
POLLUX = "pollux/pollux_osdi21_traces.tar.gz"
LEFT_OUT = (NO_GPUS, NO_RUN_TIME, NOT_RUN, NOT_SUBMITTED)

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the publishers' trace files are not in ../shared/data"
)


def file(name: str) -> Path:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"../shared/data/{name} is not there")
    return path


@pytest.mark.parametrize(
    ("format_name", "name", "jobs", "left_out"),
    [
        ("philly", "philly/philly_2017-09-04_2017-11-14.csv.gz", 64_483, 0),
        ("philly", "philly/philly_103959_elasticflow.csv", 876, 0),
        ("philly", "elasticflow/elasticVpollux_e.csv", 195, 0),
        ("tiresias", "tiresias/60_job.csv", 60, 0),
        ("muri", "muri/trace1.csv.gz", 1494, 0),
        ("muri", "muri/trace2.csv.gz", 5755, 0),
        ("muri", "muri/cluster_trace.csv", 400, 0),
        ("openb", "alibaba_v2023/openb_pod_list_default.csv.gz", 7255, 897),
        ("openb", "alibaba_v2023/openb_pod_list_gpuspec10.csv.gz", 7255, 897),
        ("openb", "alibaba_v2023/openb_pod_list_gpushare100.csv.gz", 6943, 1209),
        ("openb", "alibaba_v2023/openb_pod_list_cpu050.csv.gz", 6561, 878),
    ],
)
def test_every_row_is_a_job_or_left_out_and_counted(
    format_name: str, name: str, jobs: int, left_out: int
) -> None:
    trace = read_trace(f"{format_name}:{file(name)}")
    assert len(trace.jobs) == jobs
    assert sum(trace.treatments.get(reason, 0) for reason in LEFT_OUT) == left_out


def test_openb_has_8152_pods_and_1523_nodes() -> None:
    name = "alibaba_v2023/openb_pod_list_default.csv.gz"
    trace = read_trace(f"openb:{file(name)}")
    assert len(trace.jobs) + trace.treatments[NOT_RUN] == 8152
    assert len(trace.nodes) == 1523


def test_an_openb_list_without_times_runs_on_given_ones() -> None:
    name = "alibaba_v2023/openb_pod_list_multigpu20.csv.gz"
    trace = read_trace(f"openb:{file(name)}?interval_seconds=60&run_seconds=3600")
    assert len(trace.jobs) == 8324


def test_philly_has_thirteen_virtual_clusters_in_71_days() -> None:
    trace = read_trace(f"philly:{file('philly/philly_2017-09-04_2017-11-14.csv.gz')}")
    assert len(trace.queues) == 13
    assert 71 * 86_400 < trace.jobs[-1].submitted < 72 * 86_400


def test_reading_the_whole_philly_trace_takes_a_few_calls_per_row() -> None:
    source = f"philly:{file('philly/philly_2017-09-04_2017-11-14.csv.gz')}"
    read_trace(source)  # what only a first reading imports and compiles
    profile = cProfile.Profile()
    profile.runcall(read_trace, source)
    # Calls instead of seconds: how much slower than a bare loop over the rows this is depends on
    # the caches and on the collector's passes, so on what else the machine and the process do.
    assert pstats.Stats(profile).total_calls < 20 * 64_483  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("folder", "jobs"),
    [
        ("workloads", 160),
        ("workloads-0.5", 80),
        ("workloads-1.5", 240),
        ("workloads-2.0", 320),
        ("workloads-realistic", 160),
    ],
)
def test_pollux_workloads_are_read_from_the_archive(folder: str, jobs: int) -> None:
    assert len(read_trace(f"pollux:{file(POLLUX)}/{folder}/workload-1.csv").jobs) == jobs


def test_pollux_run_times_agree_with_the_authors_simulator() -> None:
    """A job that never waited took, in their results, our run time, 30 s of rescaling and at most
    one scheduling round of 60 s; sizes of whole nodes only, whose placement is unambiguous."""
    with tarfile.open(file(POLLUX)) as archive:
        member = archive.extractfile("results-jobload/tiresias-0.5/summary.json")
        assert member is not None
        published = json.load(member)["jcts"]
    extra: dict[tuple[str, int], float] = {}
    for number in (1, 2, 3, 4):
        trace = read_trace(f"pollux:{file(POLLUX)}/workloads-0.5/workload-{number}.csv")
        for job in trace.jobs:
            key = (job.application, job.tasks[0].replicas)
            took = published[f"workload-{number}"][job.name] - job.duration_seconds
            extra[key] = min(took, extra.get(key, took))
    whole = [("ncf", 1), ("yolov3", 4), ("cifar10", 12), ("cifar10", 16), ("bert", 16)]
    assert all(30 <= extra[key] <= 90 for key in whole), extra


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_the_columns_of_pai_are_those_published(name: str) -> None:
    assert read_header(file(f"alibaba_v2020/{name}.header")) == HEADERS[name]
