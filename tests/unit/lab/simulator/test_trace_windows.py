"""Stretches of a trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.queues import Queue
from bireme.testing import a_task
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.sources import window
from bireme_lab.simulator.workload import Trace, TraceJob


def trace_at(*times: float) -> Trace:
    jobs = tuple(TraceJob(f"j{i}", time, (a_task(),), 1.0) for i, time in enumerate(times))
    return Trace("test", jobs, {"left out": 3}, queues=(Queue("a"),))


def times(trace: Trace) -> list[float]:
    return [job.submitted for job in trace.jobs]


def test_a_window_counts_from_its_own_start() -> None:
    assert times(window(trace_at(0, 10, 20, 30), 15)) == [5, 15]


def test_a_job_at_the_very_start_is_in_the_window() -> None:
    assert times(window(trace_at(0, 10, 20), 10)) == [0, 10]


def test_a_limit_takes_the_first_jobs() -> None:
    assert [job.name for job in window(trace_at(0, 10, 20, 30), 5, 2).jobs] == ["j1", "j2"]


def test_no_window_changes_nothing() -> None:
    trace = trace_at(0, 10)
    assert window(trace) == trace


def test_what_else_the_trace_says_stays() -> None:
    cut = window(trace_at(0, 10), 5)
    assert (cut.name, cut.treatments, cut.queues) == ("test", {"left out": 3}, (Queue("a"),))


@pytest.mark.parametrize("start", [-1.0, 10.5, float("nan")])
def test_a_start_outside_the_trace_is_refused(start: float) -> None:
    with pytest.raises(TraceError, match=rf"start is {start:g} s; test has jobs from 0 to 10 s"):
        window(trace_at(0, 10), start)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(TraceError, match="limit is 0; it must be at least 1"):
        window(trace_at(0), limit=0)


@given(
    gaps=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    first=st.integers(0, 100),
    second=st.integers(0, 100),
)
def test_two_windows_after_one_another_are_one_of_their_summed_starts(
    gaps: list[int], first: int, second: int
) -> None:
    trace = trace_at(*(sum(gaps[: i + 1]) for i in range(len(gaps))), 200)
    assert window(window(trace, first), second) == window(trace, first + second)
