"""Windows: the load they offer, and clusters that it loads to a given degree."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.simulations import windows
from bireme.testing import a_node
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.loads import make_window, offered_gpus, stretch
from bireme_lab.simulator.workload import with_true_estimates
from testbed.simulations import a_job, a_trace

DATA = Path(__file__).parents[4] / "shared/data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public traces, not shipped")

TRACE = a_trace(
    a_job("a", 50, at=100, gpus=8), a_job("b", 1000, at=100, gpus=2), a_job("c", 9, at=200, gpus=4)
)


def test_a_window_begins_with_its_first_job() -> None:
    assert [job.submitted for job in make_window(0, TRACE).trace.jobs] == [0.0, 0.0, 100.0]


def test_runs_load_the_window_only_up_to_its_last_submission() -> None:
    """8 GPUs for 50 s and 2 for 100 s of a hundred; c comes with the end."""
    assert make_window(0, TRACE).offered_gpus == pytest.approx(8 * 0.5 + 2)


def test_a_window_of_one_moment_offers_no_load_and_is_refused() -> None:
    with pytest.raises(TraceError, match="2 jobs are submitted at one moment"):
        make_window(0, replace(TRACE, jobs=TRACE.jobs[:2]))
    with pytest.raises(TraceError, match="1 jobs are kept of days 0 to 1"):
        stretch(TRACE, 0, 0.0, 1.0, slice(0, 1))


def test_the_cluster_is_as_small_as_the_load_asks() -> None:
    window = replace(make_window(0, TRACE), offered_gpus=100.0)
    assert [len(window.nodes(load)) for load in (0.5, 1.0, 2.0)] == [25, 12, 6]


def test_the_pace_of_submissions_makes_the_load_exact() -> None:
    """6 GPUs offered load one node of 8 to 0.75; at 0.6, submissions are stretched."""
    window = make_window(0, TRACE)
    assert len(window.nodes(0.6)) == 1
    assert offered_gpus(window.at(0.6)) == pytest.approx(0.6 * 8)
    assert window.at(0.6).jobs[-1].submitted > window.trace.jobs[-1].submitted


def test_a_trace_that_brings_nodes_is_run_on_the_first_of_them() -> None:
    trace = replace(TRACE, nodes=tuple(a_node(f"n{at}", gpus) for at, gpus in enumerate((2, 4, 8))))
    window = make_window(0, trace)
    assert [node.name for node in window.nodes(1.0)] == ["n0", "n1"]


def test_known_run_times_are_the_truth() -> None:
    jobs = with_true_estimates(TRACE).jobs
    assert [job.estimated_seconds for job in jobs] == [50, 1000, 9]


@needs_data
def test_the_windows_of_public_traces_have_enough_jobs_for_a_table() -> None:
    for source in (windows.philly, windows.muri, windows.openb):
        for window in source(DATA):
            assert len(window.trace.jobs) >= 100
            widest = max(job.gpus for job in window.trace.jobs)
            smallest = sum(n.allocatable["nvidia.com/gpu"] for n in window.nodes(1.1))
            assert widest <= smallest
