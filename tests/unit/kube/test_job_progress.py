"""Reports of a job: into its status, thinned and bounded, and from there to the core."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.estimates import MAX_SHIFT, apply_progress_report
from bireme.core.speed import SERIAL_SHARE, InverseQuadratic
from bireme.core.times import MAX_SECONDS
from bireme.kube.api.training_job import MAX_LOSSES, MAX_SPEEDS, ProgressStatus
from bireme.kube.progress_reports import (
    MAX_STEPS,
    ProgressReport,
    ReportedProgress,
    ReportedRun,
    progress_of,
    with_report,
)
from testbed.objects.cluster_state import PLAN, ClusterStateFeed
from testbed.objects.facts import CREATED, a_job

NOW = "2026-01-01T00:00:00Z"
RUN = ReportedRun(replicas=4, started=CREATED, since=CREATED, attained_seconds=0.0)


def after(*reports: tuple[float, ProgressReport], run: ReportedRun = RUN) -> dict[str, Any]:
    """``status.progress`` after reports that came so many seconds after the start."""
    status: dict[str, Any] = {}
    for seconds, report in reports:
        status["progress"] = with_report(progress_of(status), report, CREATED + seconds, run)
        ProgressStatus.model_validate(status["progress"])
    return status


def test_last_report_is_what_is_known() -> None:
    reported = progress_of(after((10, ProgressReport(25, 90.0, 50, 200, 0.7, 0.6))))
    assert reported is not None
    progress = reported.progress
    assert (progress.reported, progress.fraction, progress.remaining_seconds) == (
        CREATED + 10,
        0.25,
        90,
    )
    assert (progress.steps, progress.remaining_steps) == (50, 150)
    assert (progress.loss, progress.accuracy, progress.accuracy_gain) == (0.7, 0.6, None)


@pytest.mark.parametrize(
    ("again", "is_news"),
    [
        (ProgressReport(25, 90.0, 50, 200, 0.7, 0.6), False),
        (ProgressReport(25, 30.0, 50, 200, 0.7, 0.6), False),
        (ProgressReport(remaining_seconds=30.0), True),
        (ProgressReport(remaining_seconds=90.0), False),
        (ProgressReport(25, 90.0, 51, 200, 0.7, 0.6), True),
        (ProgressReport(loss=0.69), True),
        (ProgressReport(step=40), True),
    ],
)
def test_the_last_report_with_news_is_known_beside_the_last(
    again: ProgressReport, is_news: bool
) -> None:
    found = progress_of(after((10, ProgressReport(25, 90.0, 50, 200, 0.7, 0.6)), (70, again)))
    assert found is not None
    assert found.status.progressed_time is not None
    assert found.progress.reported == CREATED + 70
    assert found.status.progressed_time.timestamp() == CREATED + (70 if is_news else 10)


def test_what_a_report_leaves_out_stays_but_for_the_time_that_is_left() -> None:
    reported = progress_of(
        after(
            (10, ProgressReport(25, 90.0, loss=0.7, accuracy=0.5)),
            (40, ProgressReport(accuracy=0.6)),
        )
    )
    assert reported is not None
    progress = reported.progress
    assert (progress.fraction, progress.loss, progress.worst_loss) == (0.25, 0.7, 0.7)
    assert progress.accuracy_gain == pytest.approx(0.1)
    assert progress.remaining_seconds is None


def test_worst_loss_is_never_forgotten() -> None:
    status = after(
        (10, ProgressReport(loss=2.0)),
        (20, ProgressReport(loss=3.0)),
        (30, ProgressReport(loss=0.1)),
    )
    assert status["progress"]["worstLoss"] == 3.0


def test_share_is_computed_from_the_steps_where_no_percentage_is() -> None:
    reported = progress_of(after((10, ProgressReport(step=50, total_steps=200))))
    assert reported is not None
    assert reported.progress.fraction == 0.25


def test_speed_is_seen_between_two_reports_at_one_size() -> None:
    reported = progress_of(after((10, ProgressReport(step=0)), (30, ProgressReport(step=100))))
    assert reported is not None
    assert reported.speed is not None
    assert reported.speed.steps_per_second({"worker": 4}, 1) == pytest.approx(5.0)
    assert reported.speed.serial_share == SERIAL_SHARE


def test_no_speed_is_read_across_a_change_of_size() -> None:
    resized = ReportedRun(replicas=8, started=CREATED, since=CREATED + 20, attained_seconds=0.0)
    status = after((10, ProgressReport(step=0)))
    status["progress"] = with_report(
        progress_of(status), ProgressReport(step=100), CREATED + 30, resized
    )
    reported = progress_of(status)
    assert reported is not None
    assert reported.speed is None


def test_two_sizes_make_a_law() -> None:
    status = after((10, ProgressReport(step=0)), (110, ProgressReport(step=400)))
    wide = ReportedRun(replicas=8, started=CREATED, since=CREATED + 200, attained_seconds=0.0)
    for seconds, step in ((210, 400.0), (310, 1200.0)):
        report = ProgressReport(step=step)
        status["progress"] = with_report(progress_of(status), report, CREATED + seconds, wide)
    reported = progress_of(status)
    assert reported is not None
    assert reported.speed is not None
    assert reported.speed.serial_share == pytest.approx(0.0)
    assert reported.speed.steps_per_second({"worker": 16}, 1) == pytest.approx(16.0)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 1000)), max_size=40))
def test_history_is_bounded_whatever_is_reported(reports: list[tuple[int, int]]) -> None:
    status: dict[str, Any] = {}
    for turn, (replicas, step) in enumerate(reports):
        run = ReportedRun(replicas, CREATED, CREATED, 0.0)
        report = ProgressReport(step=float(step), loss=1 / (1 + step))
        status["progress"] = with_report(progress_of(status), report, CREATED + 20 * turn, run)
        progress = ProgressStatus.model_validate(status["progress"])
        assert len(progress.speeds) <= MAX_SPEEDS
        assert len(progress.losses) <= MAX_LOSSES
        steps = [seen.step for seen in progress.losses]
        assert steps == sorted(set(steps))
        assert steps[-1] == step


def test_loss_curve_is_fitted_to_the_history() -> None:
    truth = InverseQuadratic(0.0, 0.05, 0.4, 0.1)
    reports = [
        (10.0 * n, ProgressReport(step=10.0 * n, loss=truth.loss(10.0 * n))) for n in range(1, 40)
    ]
    reported = progress_of(after(*reports))
    assert reported is not None
    assert reported.loss is not None
    assert reported.loss.loss(600) == pytest.approx(truth.loss(600), rel=0.02)


@pytest.mark.parametrize("losses", [[1.0], [1.0] * 6, [0.1, 0.2, 0.3, 0.4, 0.5]])
def test_losses_that_do_not_fall_make_no_curve(losses: list[float]) -> None:
    reports = [
        (10.0 * n, ProgressReport(step=float(n), loss=loss)) for n, loss in enumerate(losses)
    ]
    reported = progress_of(after(*reports))
    assert reported is not None
    assert reported.loss is None


def test_first_word_on_the_end_is_kept() -> None:
    status = after(
        (10, ProgressReport(remaining_seconds=90)), (50, ProgressReport(remaining_seconds=5000))
    )
    assert status["progress"]["firstExpectedSeconds"] == 100


@pytest.mark.parametrize("given", [{}, {"reportedTime": "yesterday"}, {"percentage": 400}, None])
def test_what_cannot_be_read_is_as_if_nothing_had_been_reported(given: Any) -> None:
    assert progress_of({"progress": given}) is None


def test_what_a_newer_operator_wrote_beside_it_is_passed_over() -> None:
    found = progress_of({"progress": {"reportedTime": NOW, "step": 5, "madeLater": 1}})
    assert found is not None
    assert found.progress.steps == 5


def test_progress_reaches_the_gang_that_runs_within_the_bound() -> None:
    cluster = ClusterStateFeed()
    status = {"phase": "Running", **after((100, ProgressReport(50, 100_000.0, 10, 20)))}
    cluster.job(plan=PLAN, status=status, estimatedDuration="1000s")
    (running,) = cluster.snapshot().running
    assert running.gang.progress is not None
    assert running.gang.progress.fraction == 0.5
    assert running.gang.estimated_seconds == 1000 * MAX_SHIFT
    assert running.gang.remaining_steps == 10
    assert running.expected_end(CREATED) == CREATED + 1000 * MAX_SHIFT


def test_gang_that_waits_again_is_expected_to_run_for_what_was_left() -> None:
    cluster = ClusterStateFeed()
    status = {"phase": "Restarting", **after((100, ProgressReport(remaining_seconds=700.0)))}
    cluster.job(status=status, estimatedDuration="1000s")
    (gang,) = cluster.snapshot().waiting
    assert gang.estimated_seconds == 700


@pytest.mark.parametrize("percentage", [1e-12, 1e-300, 5e-324])
def test_a_tiny_percentage_leaves_numbers_that_can_be_written(percentage: float) -> None:
    reported = progress_of(
        after((0, ProgressReport(percentage, step=1e15)), (3600, ProgressReport(percentage)))
    )
    assert reported is not None
    assert (reported.status.first_expected_seconds or 0) <= MAX_SECONDS
    assert (reported.progress.remaining_steps or 0) <= MAX_STEPS


def test_an_expected_run_time_of_an_earlier_version_is_bounded() -> None:
    reported = progress_of({"progress": {"reportedTime": NOW, "firstExpectedSeconds": 1e300}})
    assert reported is not None
    assert reported.progress.anchor_seconds == MAX_SECONDS


def test_tiny_steps_tell_no_speed() -> None:
    """Steps whose square no float can hold; nor do those that an earlier version wrote."""
    reported = progress_of(after((0, ProgressReport(step=0)), (20, ProgressReport(step=1e-315))))
    assert reported is not None
    assert reported.status.speeds == ()
    speeds = [{"replicas": n, "stepsPerSecond": s} for n, s in ((1, 4.9e-317), (2, 49.0))]
    reported = progress_of({"progress": {"reportedTime": NOW, "step": 1000.0, "speeds": speeds}})
    assert reported is not None
    assert reported.speed is not None
    assert reported.speed.steps_per_second({"worker": 2}, 1) == pytest.approx(49.0)


EXTREMES = st.sampled_from((0.0, 5e-324, 1e-310, 1e-12, 1.0, 7.0, 1e12, 1e15))


@given(
    st.lists(
        st.tuples(
            st.sampled_from((0, 1, 10, 1e7)),
            st.sampled_from((1, 2, 1024)),
            st.builds(
                ProgressReport,
                percentage=st.none() | st.floats(0, 100),
                remaining_seconds=st.none() | st.floats(0, MAX_SECONDS),
                step=st.none() | EXTREMES | st.floats(0, MAX_STEPS),
                total_steps=st.none() | EXTREMES | st.floats(0, MAX_STEPS),
                loss=st.none() | EXTREMES | st.floats(-1e12, 1e12),
            ),
        ),
        max_size=12,
    )
)
def test_whatever_is_reported_is_believed_as_finite_numbers(
    reports: list[tuple[float, int, ProgressReport]],
) -> None:
    progress: ReportedProgress | None = None
    now = CREATED
    for passed, replicas, report in reports:
        now += passed
        written = with_report(
            progress, report, now, ReportedRun(replicas, CREATED, CREATED, 1000.0)
        )
        stored = msgspec.json.decode(msgspec.json.encode(written))
        progress = progress_of({"progress": {k: v for k, v in stored.items() if v is not None}})
        assert progress is not None
        gang = apply_progress_report(a_job(status={"phase": "Running", "progress": stored}).gang(0))
        assert gang.speed is None or gang.speed.steps_per_second({"worker": 3}, 2) > 0
        numbers = (gang.estimated_seconds, gang.remaining_steps, gang.done_steps)
        assert all(number is None or math.isfinite(number) for number in numbers)
