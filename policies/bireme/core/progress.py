"""What a running job last told about its training: claims of a tenant, clipped at the edge."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The last report of a job, and what it adds to those before.

    Attributes:
        reported: When it arrived, POSIX seconds.
        fraction: Of the training that is done, from 0 to 1; None where the job does not say.
        remaining_seconds: How long it says it still runs; None where it does not say.
        steps: Steps done since training began; None where it does not say.
        remaining_steps: Steps it says are left; None where it does not say.
        loss: Training loss; None where it does not say.
        worst_loss: The largest loss it ever told; None without any.
        accuracy: From 0 to 1; None where it does not say.
        accuracy_gain: What the last report that told the accuracy added to the one before.
        anchor_seconds: How long the start it first spoke of was to run in all, by that report;
            None before one said. It bounds later ones where nobody else knows the run time.
    """

    reported: float
    fraction: float | None = None
    remaining_seconds: float | None = None
    steps: float | None = None
    loss: float | None = None
    worst_loss: float | None = None
    accuracy: float | None = None
    accuracy_gain: float | None = None
    remaining_steps: float | None = None
    anchor_seconds: float | None = None
