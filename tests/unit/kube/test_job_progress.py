"""What a job has reported: into its status, thinned and bounded, and from there to the core."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.estimates import LONGEST_SECONDS
from bireme.core.progress_reports import MOST_SHIFT, believed
from bireme.core.speed import SERIAL_SHARE, InverseQuadratic
from bireme.kube.api.training_job import MOST_LOSSES, MOST_SPEEDS, ProgressStatus
from bireme.kube.training_jobs import MOST_STEPS, Report, Run, Told, told_by, with_report
from tests.support.objects.facts import CREATED, a_job
from tests.support.objects.fed import PLAN, Cluster

NOW = "2026-01-01T00:00:00Z"
RUN = Run(replicas=4, started=CREATED, since=CREATED, attained_seconds=0.0)


def after(*reports: tuple[float, Report], run: Run = RUN) -> dict[str, Any]:
    """``status.progress`` after reports that came so many seconds after the start."""
    status: dict[str, Any] = {}
    for seconds, report in reports:
        status["progress"] = with_report(told_by(status), report, CREATED + seconds, run)
        ProgressStatus.model_validate(status["progress"])
    return status


def test_last_report_is_what_is_known() -> None:
    told = told_by(after((10, Report(25, 90.0, 50, 200, 0.7, 0.6))))
    assert told is not None
    said = told.progress
    assert (said.reported, said.fraction, said.remaining_seconds) == (CREATED + 10, 0.25, 90)
    assert (said.steps, said.remaining_steps) == (50, 150)
    assert (said.loss, said.accuracy, said.accuracy_gain) == (0.7, 0.6, None)


def test_what_a_report_leaves_out_stays_but_for_the_time_that_is_left() -> None:
    told = told_by(
        after((10, Report(25, 90.0, loss=0.7, accuracy=0.5)), (40, Report(accuracy=0.6)))
    )
    assert told is not None
    said = told.progress
    assert (said.fraction, said.loss, said.worst_loss) == (0.25, 0.7, 0.7)
    assert said.accuracy_gain == pytest.approx(0.1)
    assert said.remaining_seconds is None


def test_worst_loss_is_never_forgotten() -> None:
    status = after((10, Report(loss=2.0)), (20, Report(loss=3.0)), (30, Report(loss=0.1)))
    assert status["progress"]["worstLoss"] == 3.0


def test_share_is_told_by_the_steps_where_no_percentage_is() -> None:
    told = told_by(after((10, Report(step=50, total_steps=200))))
    assert told is not None
    assert told.progress.fraction == 0.25


def test_speed_is_seen_between_two_reports_at_one_size() -> None:
    told = told_by(after((10, Report(step=0)), (30, Report(step=100))))
    assert told is not None
    assert told.speed is not None
    assert told.speed.steps_per_second({"worker": 4}, 1) == pytest.approx(5.0)
    assert told.speed.serial_share == SERIAL_SHARE


def test_no_speed_is_read_across_a_change_of_size() -> None:
    resized = Run(replicas=8, started=CREATED, since=CREATED + 20, attained_seconds=0.0)
    status = after((10, Report(step=0)))
    status["progress"] = with_report(told_by(status), Report(step=100), CREATED + 30, resized)
    told = told_by(status)
    assert told is not None
    assert told.speed is None


def test_two_sizes_make_a_law() -> None:
    status = after((10, Report(step=0)), (110, Report(step=400)))
    wide = Run(replicas=8, started=CREATED, since=CREATED + 200, attained_seconds=0.0)
    for seconds, step in ((210, 400.0), (310, 1200.0)):
        report = Report(step=step)
        status["progress"] = with_report(told_by(status), report, CREATED + seconds, wide)
    told = told_by(status)
    assert told is not None
    assert told.speed is not None
    assert told.speed.serial_share == pytest.approx(0.0)
    assert told.speed.steps_per_second({"worker": 16}, 1) == pytest.approx(16.0)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 1000)), max_size=40))
def test_history_is_bounded_whatever_is_reported(reports: list[tuple[int, int]]) -> None:
    status: dict[str, Any] = {}
    for turn, (replicas, step) in enumerate(reports):
        run = Run(replicas, CREATED, CREATED, 0.0)
        report = Report(step=float(step), loss=1 / (1 + step))
        status["progress"] = with_report(told_by(status), report, CREATED + 20 * turn, run)
        said = ProgressStatus.model_validate(status["progress"])
        assert len(said.speeds) <= MOST_SPEEDS
        assert len(said.losses) <= MOST_LOSSES
        steps = [seen.step for seen in said.losses]
        assert steps == sorted(set(steps))
        assert steps[-1] == step


def test_loss_curve_is_fitted_to_the_history() -> None:
    truth = InverseQuadratic(0.0, 0.05, 0.4, 0.1)
    reports = [(10.0 * n, Report(step=10.0 * n, loss=truth.loss(10.0 * n))) for n in range(1, 40)]
    told = told_by(after(*reports))
    assert told is not None
    assert told.loss is not None
    assert told.loss.loss(600) == pytest.approx(truth.loss(600), rel=0.02)


@pytest.mark.parametrize("losses", [[1.0], [1.0] * 6, [0.1, 0.2, 0.3, 0.4, 0.5]])
def test_losses_that_do_not_fall_make_no_curve(losses: list[float]) -> None:
    reports = [(10.0 * n, Report(step=float(n), loss=loss)) for n, loss in enumerate(losses)]
    told = told_by(after(*reports))
    assert told is not None
    assert told.loss is None


def test_first_word_on_the_end_is_kept() -> None:
    status = after((10, Report(remaining_seconds=90)), (50, Report(remaining_seconds=5000)))
    assert status["progress"]["firstExpectedSeconds"] == 100


@pytest.mark.parametrize("given", [{}, {"reportedTime": "yesterday"}, {"percentage": 400}, None])
def test_what_cannot_be_read_is_as_if_nothing_had_been_told(given: Any) -> None:
    assert told_by({"progress": given}) is None


def test_progress_reaches_the_gang_that_runs_within_the_bound() -> None:
    cluster = Cluster()
    status = {"phase": "Running", **after((100, Report(50, 100_000.0, 10, 20)))}
    cluster.job(status=status, estimatedDuration="1000s")
    cluster.group(PLAN)
    (running,) = cluster.snapshot().running
    assert running.gang.progress is not None
    assert running.gang.progress.fraction == 0.5
    assert running.gang.estimated_seconds == 1000 * MOST_SHIFT
    assert running.gang.remaining_steps == 10
    assert running.expected_end(CREATED) == CREATED + 1000 * MOST_SHIFT


def test_gang_that_waits_again_is_expected_to_run_for_what_was_left() -> None:
    cluster = Cluster()
    status = {"phase": "Restarting", **after((100, Report(remaining_seconds=700.0)))}
    cluster.job(status=status, estimatedDuration="1000s")
    (gang,) = cluster.snapshot().waiting
    assert gang.estimated_seconds == 700


@pytest.mark.parametrize("percentage", [1e-12, 1e-300, 5e-324])
def test_a_tiny_percentage_leaves_numbers_that_can_be_written(percentage: float) -> None:
    told = told_by(after((0, Report(percentage, step=1e15)), (3600, Report(percentage))))
    assert told is not None
    assert (told.status.first_expected_seconds or 0) <= LONGEST_SECONDS
    assert (told.progress.remaining_steps or 0) <= MOST_STEPS


def test_an_expected_run_time_of_an_earlier_version_is_bounded() -> None:
    told = told_by({"progress": {"reportedTime": NOW, "firstExpectedSeconds": 1e300}})
    assert told is not None
    assert told.progress.anchor_seconds == LONGEST_SECONDS


def test_tiny_steps_tell_no_speed() -> None:
    """Whose square nobody can hold; nor do those that an earlier version wrote."""
    told = told_by(after((0, Report(step=0)), (20, Report(step=1e-315))))
    assert told is not None
    assert told.status.speeds == ()
    speeds = [{"replicas": n, "stepsPerSecond": s} for n, s in ((1, 4.9e-317), (2, 49.0))]
    told = told_by({"progress": {"reportedTime": NOW, "step": 1000.0, "speeds": speeds}})
    assert told is not None
    assert told.speed is not None
    assert told.speed.steps_per_second({"worker": 2}, 1) == pytest.approx(49.0)


EXTREMES = st.sampled_from((0.0, 5e-324, 1e-310, 1e-12, 1.0, 7.0, 1e12, 1e15))


@given(
    st.lists(
        st.tuples(
            st.sampled_from((0, 1, 10, 1e7)),
            st.sampled_from((1, 2, 1024)),
            st.builds(
                Report,
                percentage=st.none() | st.floats(0, 100),
                remaining_seconds=st.none() | st.floats(0, LONGEST_SECONDS),
                step=st.none() | EXTREMES | st.floats(0, MOST_STEPS),
                total_steps=st.none() | EXTREMES | st.floats(0, MOST_STEPS),
                loss=st.none() | EXTREMES | st.floats(-1e12, 1e12),
            ),
        ),
        max_size=12,
    )
)
def test_whatever_is_reported_is_believed_as_finite_numbers(
    reports: list[tuple[float, int, Report]],
) -> None:
    progress: Told | None = None
    now = CREATED
    for passed, replicas, report in reports:
        now += passed
        written = with_report(progress, report, now, Run(replicas, CREATED, CREATED, 1000.0))
        said = msgspec.json.decode(msgspec.json.encode(written))
        progress = told_by({"progress": {k: v for k, v in said.items() if v is not None}})
        assert progress is not None
        gang = believed(a_job(status={"phase": "Running", "progress": said}).gang(0))
        assert gang.speed is None or gang.speed.steps_per_second({"worker": 3}, 2) > 0
        numbers = (gang.estimated_seconds, gang.remaining_steps, gang.done_steps)
        assert all(number is None or math.isfinite(number) for number in numbers)
