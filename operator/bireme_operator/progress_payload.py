"""The body of a progress report, in the form of Kubeflow Trainer (KEP-2779), read and clipped.

    {"trainerStatus": {"progressPercentage": 40, "estimatedRemainingSeconds": 90,
                       "metrics": [{"name": "loss", "value": "0.21"}], "lastUpdatedTime": "..."}}

Of the metrics those count that a policy may know: step, total_steps, loss, accuracy. Numbers out of
range are clipped, because a report that is a little off is still worth more than none; what is no
finite number is refused, by name. The time of a report is when it came, whatever it says.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from bireme.core.estimates import LONGEST_SECONDS
from bireme.kube.progress import MOST_STEPS, Report

MOST_BYTES: Final = 16_384
_MOST_METRICS: Final = 64
_LARGEST_LOSS: Final = 1e12

_NAMES: Final[Mapping[str, str]] = {
    "step": "step",
    "global_step": "step",
    "total_steps": "total_steps",
    "max_steps": "total_steps",
    "loss": "loss",
    "train_loss": "loss",
    "accuracy": "accuracy",
    "eval_accuracy": "accuracy",
}
"""Names of metrics, those of the Transformers trainer among them, to fields of a report."""

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "step": (0.0, MOST_STEPS),
    "total_steps": (0.0, MOST_STEPS),
    "loss": (-_LARGEST_LOSS, _LARGEST_LOSS),
    "accuracy": (0.0, 1.0),
}


class PayloadError(ValueError):
    """The body is no report; the text names the field, its value and the remedy."""


class _Metric(msgspec.Struct):
    name: str
    value: str | float


class _TrainerStatus(msgspec.Struct, rename="camel"):
    progress_percentage: float | None = None
    estimated_remaining_seconds: float | None = None
    metrics: list[_Metric] | None = None


class _Body(msgspec.Struct, rename="camel"):
    trainer_status: _TrainerStatus


_DECODER: Final = msgspec.json.Decoder(_Body)


def decode(body: bytes) -> Report:
    """The report in ``body``.

    Raises:
        PayloadError: it is not JSON of that form, or a number in it is none.
    """
    try:
        said = _DECODER.decode(body).trainer_status
    except (msgspec.DecodeError, RecursionError) as error:
        raise PayloadError(
            f"the body is no report: {error}; send {{'trainerStatus': {{...}}}} as of KEP-2779"
        ) from error
    metrics = said.metrics or []
    if len(metrics) > _MOST_METRICS:
        raise PayloadError(f"metrics has {len(metrics)} entries; send at most {_MOST_METRICS}")
    percentage, remaining = said.progress_percentage, said.estimated_remaining_seconds
    report = Report(
        percentage=None if percentage is None else min(max(percentage, 0.0), 100.0),
        remaining_seconds=None if remaining is None else min(max(remaining, 0.0), LONGEST_SECONDS),
    )
    values = {
        field: min(max(_number(metric), _RANGES[field][0]), _RANGES[field][1])
        for metric in metrics
        if (field := _NAMES.get(metric.name))
    }
    return replace(report, **values)


def _number(metric: _Metric) -> float:
    try:
        value = float(metric.value)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise PayloadError(
            f"metric {metric.name!r} is {ascii(metric.value)[:40]}; send a finite number, or leave "
            "it out"
        )
    return value
