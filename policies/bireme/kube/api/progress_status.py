"""What a TrainingJob has told about its training, in its status."""

from typing import Annotated, Final

from pydantic import Field

from bireme.kube.api.fields import Count, Timestamp
from bireme.kube.api.metadata import keyed_by
from bireme.kube.api.model import Model

MOST_SPEEDS: Final = 8
MOST_LOSSES: Final = 16

Number = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SpeedSeen(Model):
    """How fast the job trained at one size."""

    replicas: Count
    steps_per_second: NotNegative


class LossSeen(Model):
    """The training loss after so many steps."""

    step: NotNegative
    loss: Number


class ProgressStatus(Model):
    """What the job itself has told, as far as it can be believed."""

    reported_time: Timestamp
    """When the last report came."""
    percentage: float | None = Field(default=None, ge=0, le=100)
    """How much of the training is done."""
    remaining_seconds: NotNegative | None = None
    """How long the job said it still runs, at that time."""
    step: NotNegative | None = None
    total_steps: NotNegative | None = None
    loss: Number | None = None
    worst_loss: Number | None = None
    """The largest loss it ever told."""
    accuracy: float | None = Field(default=None, ge=0, le=1)
    accuracy_gain: float | None = Field(default=None, ge=-1, le=1)
    """What the last accuracy written here added to the one before."""
    first_expected_seconds: NotNegative | None = None
    """How long the job was to run in all, by its first report that told."""
    speeds: tuple[SpeedSeen, ...] = Field(
        default=(), max_length=MOST_SPEEDS, json_schema_extra=keyed_by("replicas")
    )
    """Training speed at the latest sizes."""
    losses: tuple[LossSeen, ...] = Field(default=(), max_length=MOST_LOSSES)
    """The loss over the steps, thinned."""
