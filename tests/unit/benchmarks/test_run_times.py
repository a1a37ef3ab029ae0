"""Run times foretold by the benchmark: what is known when, and how it is judged."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from benchmarks.run_times import judging, playing
from benchmarks.run_times.playing import Played, Source, shrunk
from bireme.core.estimates import MIN_RUNS, _round_up
from bireme.testing import a_task
from bireme_lab.simulator.workload import Trace, TraceJob


def played(*runs: tuple[float, float, str]) -> Played:
    """Play jobs of one GPU, each submitted at such a second, of such seconds and user."""
    jobs = (
        TraceJob(f"job-{number}", submitted, (a_task(1, 1),), seconds, user)
        for number, (submitted, seconds, user) in enumerate(runs)
    )
    trace = Trace("made", tuple(jobs))
    with mock.patch.object(playing, "read_trace", return_value=trace):
        return playing.play(Source("made", "made", "philly:made"), Path())


def test_a_job_is_foretold_by_runs_that_had_ended_before_it_was_submitted() -> None:
    first = [(float(number), 10.0, "ann") for number in range(MIN_RUNS)]
    ends = MIN_RUNS - 1 + 10.0
    found = played(*first, (ends - 1, 1e6, "ann"), (ends, 20.0, "ann"), (ends + 20, 1.0, "bob"))
    # the run of a million seconds never ends, and before the fifth end there is no estimate
    assert np.exp(found.log_seconds) == pytest.approx([20.0, 1.0])
    assert found.runs.tolist() == [[5.0, 5.0, 5.0], [6.0, 0.0, 0.0]]
    assert np.exp(found.uppers[:, 0]) == pytest.approx([10.0, 20.0])
    assert np.exp(found.medians[:, 0]) == pytest.approx([10.0, 10.0])
    assert np.exp(found.latest[1, 0]) == pytest.approx((10.0**5 * 20.0) ** (1 / 6))


def test_the_upper_quantile_of_the_groups_gives_the_bound_of_the_history() -> None:
    rng = np.random.default_rng(3)
    users = rng.choice(["ann", "bob", "cy"], 300, p=[0.8, 0.18, 0.02])
    found = played(
        *(
            (float(at), float(seconds), str(user))
            for at, (seconds, user) in enumerate(zip(rng.lognormal(3, 1, 300), users, strict=True))
        )
    )
    bounds = np.exp(shrunk(found.uppers, found.runs))
    assert np.exp(found.log_bound) == pytest.approx([_round_up(bound) for bound in bounds])
    assert {0.0, 64.0} <= set(found.runs[:, -1])


def test_too_low_a_bound_costs_nine_times_as_much_as_too_high_a_one() -> None:
    losses = judging.pinball(np.array([1.0, 1.0, 1.0]), np.array([0.0, 1.0, 2.0]), 0.9)
    assert losses == pytest.approx([0.9, 0.0, 0.1])


def test_coverage_counts_the_later_part_alone() -> None:
    whole = played(*((100.0 * at, 10.0, "ann") for at in range(25)))
    later = whole.is_later
    raised = replace(whole, log_seconds=np.where(later, whole.log_seconds, 99.0))
    found = judging.coverage(raised, raised.log_bound[later], np.ones(later.sum(), dtype=bool))
    assert found.mean == 1.0
    assert 0.3 < later.mean() < 0.5
