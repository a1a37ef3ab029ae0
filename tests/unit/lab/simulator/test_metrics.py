"""Numbers of hand-made outcomes, worked out on paper; and what holds of any outcome."""

import json

import pytest
from hypothesis import given

from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.testing import a_node
from bireme_lab.simulator import metrics
from bireme_lab.simulator.metrics import KEYS, Statistics, measure
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import Trace
from testbed.simulations import a_job, small_traces
from tests.unit.lab.simulator.outcomes import (
    a_record,
    a_run,
    a_series,
    an_outcome,
    one_after_another,
)


def test_waits_completion_times_and_slowdowns_of_three_jobs_in_a_row() -> None:
    """Waits 0, 10, 30; completion times 10, 30, 40; slowdowns 1, 1.5, 4."""
    found = measure(one_after_another(10, 20, 10))
    assert found.wait_seconds.mean == pytest.approx(40 / 3)
    assert found.wait_seconds.p50 == 10
    assert found.jct_seconds.mean == pytest.approx(80 / 3)
    assert found.jct_seconds.max == 40
    assert found.slowdown.mean == pytest.approx(6.5 / 3)
    assert found.makespan_seconds == 40
    assert (found.jobs, found.finished, found.unfinished, found.never_started) == (3, 3, 0, 0)


def test_percentiles_interpolate_linearly() -> None:
    found = measure(one_after_another(*[1.0] * 101)).wait_seconds
    assert (found.p50, found.p90, found.p99, found.max) == (50, 90, 99, 100)


def test_wait_ends_with_the_first_start_however_often_the_job_is_stopped() -> None:
    job = a_job("a", 10)
    stopped = a_run(job, 3, 8, end="preempted")
    found = measure(an_outcome(a_record(job, stopped, a_run(job, 20, 25))))
    assert found.wait_seconds.max == 3
    assert found.jct_seconds.max == 25
    assert found.preemptions == 1


def test_unfinished_job_is_counted_and_in_no_completion_time() -> None:
    done, cut = a_job("done", 10), a_job("cut", 1000)
    found = measure(
        an_outcome(
            a_record(done, a_run(done, 0, 10)),
            a_record(cut, a_run(cut, 5, 50, end="still running")),
        )
    )
    assert (found.finished, found.unfinished) == (1, 1)
    assert found.jct_seconds.max == 10
    assert found.wait_seconds.max == 5
    assert found.makespan_seconds == 50


def test_job_that_still_waits_at_the_end_is_in_the_longest_wait_but_in_no_mean() -> None:
    ran, starved = a_job("ran", 10), a_job("starved", at=2)
    found = measure(
        an_outcome(
            a_record(ran, a_run(ran, 0, 10)),
            a_record(starved, verdict=Reason.WAITING_FOR_CAPACITY, wait_bound_seconds=7),
        )
    )
    assert found.never_started == 1
    assert found.wait_seconds.mean == 0
    assert found.wait_seconds.max == 8
    assert found.wait_bound_violations == 1


def test_job_submitted_after_the_last_run_has_waited_for_nothing() -> None:
    ran, late = a_job("ran", 10), a_job("late", at=50)
    found = measure(
        an_outcome(
            a_record(ran, a_run(ran, 0, 10)), a_record(late, verdict=Reason.WAITING_FOR_CAPACITY)
        )
    )
    assert found.wait_seconds.max == 0
    assert found.finish_time_fairness.max == 1


def test_job_that_never_fits_is_counted_as_never_started_only() -> None:
    ran, huge = a_job("ran", 10), a_job("huge", gpus=1000)
    record = a_record(huge, verdict=Reason.NEVER_FITS, wait_bound_seconds=1)
    found = measure(an_outcome(a_record(ran, a_run(ran, 0, 10)), record))
    assert found.never_started == 1
    assert found.wait_seconds.max == 0
    assert found.wait_bound_violations == 0
    assert found.finish_time_fairness.max == 1


@pytest.mark.parametrize(("start", "late"), [(7.0, 0), (7.000_000_1, 0), (7.1, 1)])
def test_wait_bound_is_violated_by_a_later_start_only(start: float, late: int) -> None:
    job = a_job("a", 10)
    record = a_record(job, a_run(job, start, start + 10), wait_bound_seconds=7)
    assert measure(an_outcome(record)).wait_bound_violations == late


def test_job_of_no_length_counts_as_one_second_in_slowdown() -> None:
    job = a_job("a", 0)
    found = measure(an_outcome(a_record(job, a_run(job, 5, 5))))
    assert found.slowdown.max == 5


def test_utilisation_is_what_the_spans_hold_of_the_makespan() -> None:
    """3 GPUs for 10 s and 1 GPU for 5 s, of 4 GPUs for 20 s."""
    wide, narrow = a_job("wide", 10, gpus=3), a_job("narrow", 5, gpus=1)
    found = measure(
        an_outcome(a_record(wide, a_run(wide, 0, 10)), a_record(narrow, a_run(narrow, 15, 20)))
    )
    assert found.gpu_utilisation == pytest.approx(35 / 80)


def test_fragmentation_is_a_mean_over_time() -> None:
    """2 of 4 GPUs are fragments for 5 s of 20 s."""
    job = a_job("a", 20)
    series = a_series((0, 4, 0, 0), (5, 2, 0, 2), (10, 4, 0, 0), (20, 0, 0, 0))
    found = measure(an_outcome(a_record(job, a_run(job, 0, 20)), series=series))
    assert found.mean_fragmentation == pytest.approx(2 * 5 / (4 * 20))


def test_two_jobs_that_want_all_gpus_are_fair_as_themis_says() -> None:
    """The first shares with one other all its life: alone on half it takes 20 s, it took 10.

    The second has on average 1.5 jobs beside and including itself: 15 s alone, it took 20.
    """
    assert metrics.fairness(one_after_another(10, 10)) == pytest.approx([10 / 20, 20 / 15])


def test_job_that_asks_for_less_than_its_share_is_compared_with_its_own_run_time() -> None:
    small, other = a_job("small", 10, gpus=1), a_job("other", 40, gpus=1)
    outcome = an_outcome(
        a_record(small, a_run(small, 20, 30)), a_record(other, a_run(other, 0, 40))
    )
    assert metrics.fairness(outcome) == pytest.approx([3.0, 1.0])


def test_what_was_counted_is_passed_on() -> None:
    counts = {"reservations": 5, "reservations_honoured": 4, "backfills": 3, "fallbacks": 2}
    found = measure(an_outcome(counts=counts))
    assert (found.reservations, found.reservations_honoured) == (5, 4)
    assert (found.backfills, found.fallbacks, found.decision_seconds) == (3, 2, 0.5)


def test_nothing_simulated_gives_no_numbers_instead_of_wrong_ones() -> None:
    found = measure(an_outcome())
    assert found.jct_seconds == Statistics()
    assert found.gpu_utilisation is None
    assert found.mean_fragmentation is None
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["mean_jct_seconds"] is None


def test_cluster_without_gpus_has_no_utilisation() -> None:
    job = a_job("a", 10, gpus=0)
    found = measure(an_outcome(a_record(job, a_run(job, 0, 10)), gpus=0))
    assert found.gpu_utilisation is None
    assert found.finish_time_fairness.max == 1


def test_every_key_is_documented_and_in_its_place() -> None:
    assert list(measure(one_after_another(10)).to_json()) == list(KEYS)


def test_keys_that_others_rely_on_stay() -> None:
    """Renaming one of these breaks every script that reads the JSON."""
    promised = {
        *("policy", "trace", "seed", "jobs", "finished", "unfinished", "never_started"),
        *(
            f"{statistic}_{name}"
            for statistic in ("mean", "p50", "p90", "p99", "max")
            for name in ("wait_seconds", "jct_seconds", "slowdown", "finish_time_fairness")
        ),
        *("makespan_seconds", "node_hours", "short_hours", "gpu_utilisation"),
        *("mean_fragmentation", "preemptions", "moves", "resizes"),
        *("wait_bound_violations", "reservations", "reservations_honoured", "backfills"),
        *("fallbacks", "decision_seconds"),
    }
    assert set(KEYS) == promised


@given(trace=small_traces())
def test_numbers_of_any_simulation_agree_with_each_other(trace: Trace) -> None:
    nodes = (a_node("n0", 4), a_node("n1", 2))
    found = measure(simulate(trace, nodes, Policy(CombinedPriority(), Packing())))
    assert found.finished + found.unfinished + found.never_started == found.jobs
    assert found.reservations_honoured <= found.reservations <= found.jobs
    assert found.gpu_utilisation is None or 0 <= found.gpu_utilisation <= 1 + 1e-9
    assert found.mean_fragmentation is None or 0 <= found.mean_fragmentation <= 1
    for spread in (found.wait_seconds, found.jct_seconds, found.slowdown):
        if spread.p50 is not None:
            assert spread.p90 is not None
            assert spread.p99 is not None
            assert spread.max is not None
            assert 0 <= spread.p50 <= spread.p90 <= spread.p99 <= spread.max
