"""Progress reports of a gang move its estimate, within a factor."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.estimates import MAX_SHIFT, apply_progress_report, seconds_by_report, with_anchor
from bireme.core.gangs import Gang, TrainingProgress
from bireme.core.nodes import NodeTable
from bireme.core.running import RunningGang
from bireme.core.speed import LinearSpeed
from bireme.core.times import MAX_SECONDS
from bireme.testing import a_gang, a_node, a_running_gang, a_task

NODES = NodeTable((a_node("n0"),), ())


def reporting(estimate: float | None, **report: float) -> Gang:
    progress = TrainingProgress(**{"reported": 1000.0, **report})
    return replace(a_gang("job", a_task(2), estimated_seconds=estimate), progress=progress)


def running(gang: Gang, **given: float) -> RunningGang:
    return a_running_gang(gang, NODES, **given)  # type: ignore[arg-type]  # started, resized


def test_silent_gang_is_as_it_was() -> None:
    gang = a_gang("job", estimated_seconds=100.0)
    assert apply_progress_report(gang) is gang


def test_what_is_left_is_added_to_what_has_passed() -> None:
    gang = reporting(1000.0, remaining_seconds=300.0)
    assert apply_progress_report(gang, running(gang, started=400.0)).estimated_seconds == 600 + 300


def test_waiting_gang_is_expected_to_run_for_what_was_left() -> None:
    assert (
        apply_progress_report(reporting(1000.0, remaining_seconds=700.0)).estimated_seconds == 700
    )


def test_a_share_of_the_whole_tells_what_is_left() -> None:
    """A quarter took 600 s, so that three quarters take 1800 s."""
    gang = reporting(2000.0, fraction=0.25)
    assert apply_progress_report(gang, running(gang, started=400.0)).estimated_seconds == 2400


def test_a_gang_that_has_done_nothing_yet_tells_nothing_of_its_end() -> None:
    gang = reporting(1000.0, fraction=0.0)
    assert apply_progress_report(gang, running(gang, started=400.0)).estimated_seconds == 1000


@given(
    known=st.floats(1, 1e7),
    remaining=st.floats(0, 1e12),
    started=st.floats(0, 2000),
    fraction=st.none() | st.floats(0, 1),
)
def test_no_report_moves_an_estimate_by_more_than_the_factor(
    known: float, remaining: float, started: float, fraction: float | None
) -> None:
    gang = reporting(known)
    report = TrainingProgress(1000.0, fraction=fraction, remaining_seconds=remaining)
    gang = replace(gang, progress=report)
    seconds = apply_progress_report(gang, running(gang, started=started)).estimated_seconds
    assert seconds is not None
    assert known / MAX_SHIFT <= seconds <= known * MAX_SHIFT


def test_where_nobody_knows_the_first_report_bounds_the_later_ones() -> None:
    first = TrainingProgress(1000.0, remaining_seconds=400.0)
    held = running(a_gang("job"), started=900.0)
    kept = with_anchor(first, 0.0, held.started).anchor_seconds
    later = TrainingProgress(1100.0, remaining_seconds=90_000.0, anchor_seconds=kept)
    assert with_anchor(later, 0.0, held.started) is later
    gang = replace(a_gang("job"), progress=later)
    assert apply_progress_report(gang, held).estimated_seconds == MAX_SHIFT * 500


def test_estimate_that_was_moved_no_longer_speaks_for_runs_like_it() -> None:
    gang = replace(reporting(1000.0, remaining_seconds=300.0), is_learned_estimate=True)
    assert not apply_progress_report(gang).is_learned_estimate


@pytest.mark.parametrize(("resized", "run"), [(-1.0, 2 * 600.0), (700.0, 2 * 300.0)])
def test_steps_are_those_when_the_present_size_began(resized: float, run: float) -> None:
    """Two replicas do two steps a second; 5000 are done and 3000 left at the report."""
    gang = replace(reporting(None, steps=5000.0, remaining_steps=3000.0), speed=LinearSpeed(1.0))
    seen = apply_progress_report(gang, running(gang, started=400.0, resized=resized))
    assert (seen.done_steps, seen.remaining_steps) == (5000 - run, 3000 + run)


def test_steps_of_a_gang_that_waits_are_as_reported() -> None:
    seen = apply_progress_report(reporting(None, steps=5000.0, remaining_steps=3000.0))
    assert (seen.done_steps, seen.remaining_steps) == (5000, 3000)


@given(
    left=st.floats(0, 1e12),
    done=st.floats(0, 1e4),
    started=st.floats(0, 1000),
    known=st.floats(1, 1e6),
)
def test_no_report_makes_more_or_less_work_of_a_gang_than_the_factor_allows(
    left: float, done: float, started: float, known: float
) -> None:
    """Two replicas do two steps a second, so that it was known to be twice as many as seconds."""
    gang = reporting(known, steps=done, remaining_steps=left)
    gang = replace(gang, speed=LinearSpeed(1.0))
    seen = apply_progress_report(gang, running(gang, started=started))
    assert seen.remaining_steps is not None
    assert seen.remaining_steps <= 2 * known * MAX_SHIFT + seen.done_steps + done
    whole = seen.done_steps + seen.remaining_steps
    assert whole >= 2 * known / MAX_SHIFT * (1 - 1e-9)


def test_gang_that_tells_nothing_new_is_as_it_was() -> None:
    gang = replace(
        a_gang("job", estimated_seconds=100.0), progress=TrainingProgress(1000.0, loss=0.5)
    )
    assert apply_progress_report(gang) == gang


@pytest.mark.parametrize("fraction", [1e-14, 1e-300, 5e-324])
@pytest.mark.parametrize("started", [1000.0, 400.0, None])
def test_a_tiny_share_tells_at_most_the_longest_run_time(
    fraction: float, started: float | None
) -> None:
    seconds = seconds_by_report(TrainingProgress(1000.0, fraction=fraction), 3600.0, started)
    assert seconds is None or seconds == MAX_SECONDS
