"""The body of a report: what counts of it, what is clipped, what is refused by name."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.times import MAX_SECONDS
from bireme.kube.progress_reports import ProgressReport
from bireme_operator.progress import PayloadError, decode


def sent(**status: Any) -> bytes:
    return json.dumps({"trainerStatus": status}).encode()


def metric(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "value": value}


def test_report_of_kubeflow_trainer_is_read() -> None:
    body = sent(
        progressPercentage=42,
        estimatedRemainingSeconds=120,
        metrics=[metric("loss", "0.123"), metric("accuracy", "0.95"), metric("lr", "x")],
        lastUpdatedTime="2026-01-01T00:00:00Z",
    )
    assert decode(body) == ProgressReport(42, 120, loss=0.123, accuracy=0.95)


def test_names_of_the_transformers_trainer_are_known() -> None:
    metrics = [metric("global_step", 7), metric("max_steps", 10), metric("eval_accuracy", 0.5)]
    assert decode(sent(metrics=metrics)) == ProgressReport(step=7, total_steps=10, accuracy=0.5)


@given(
    percentage=st.floats(allow_nan=False, allow_infinity=False),
    remaining=st.floats(allow_nan=False, allow_infinity=False),
    value=st.floats(allow_nan=False, allow_infinity=False),
)
def test_numbers_out_of_range_are_clipped(
    percentage: float, remaining: float, value: float
) -> None:
    names = ("step", "total_steps", "loss", "accuracy")
    report = decode(
        sent(
            progressPercentage=percentage,
            estimatedRemainingSeconds=remaining,
            metrics=[metric(name, str(value)) for name in names],
        )
    )
    assert report.percentage is not None
    assert 0 <= report.percentage <= 100
    assert report.remaining_seconds is not None
    assert 0 <= report.remaining_seconds <= MAX_SECONDS
    assert report.accuracy is not None
    assert 0 <= report.accuracy <= 1
    assert report.step is not None
    assert 0 <= report.step <= 1e15


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "much", ""])
def test_what_is_no_finite_number_is_refused_by_name(value: str) -> None:
    with pytest.raises(PayloadError, match="metric 'accuracy' is"):
        decode(sent(metrics=[metric("accuracy", value)]))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not a report"),
        (b"[]", "not a report"),
        (b"{}", "trainerStatus"),
        (b'{"trainerStatus": {"progressPercentage": NaN}}', "not a report"),
        (b'{"trainerStatus": {"progressPercentage": 1e999}}', "not a report"),
        (sent(progressPercentage="half"), "progressPercentage"),
        (sent(metrics=[{"name": "loss"}]), "value"),
        (sent(metrics=[metric("x", 1)] * 65), "metrics has 65 entries"),
        (b"[" * 8000, "not a report"),
    ],
)
def test_bodies_that_are_no_report_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        decode(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_refused(body: bytes) -> None:
    with suppress(PayloadError):
        assert isinstance(decode(body), ProgressReport)
