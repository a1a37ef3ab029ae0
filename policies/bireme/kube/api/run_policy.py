"""What happens around the run of a TrainingJob, beside its tasks."""

from typing import Literal

from pydantic import Field

from bireme.kube.api.model import Model


class RunPolicy(Model):
    """What happens around the run: retries, time limits, cleaning up, pausing."""

    backoff_limit: int = Field(default=3, ge=0, le=100)
    """How often the gang is restarted after a failure of its own."""
    active_deadline_seconds: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """The job fails when it has held its places for longer, over all its starts. Time in the queue
    and suspended time do not count."""
    min_runtime_seconds: int | None = Field(default=None, ge=0, le=86_400)
    """For so long after a start the job is not stopped for others; without it, as the operator's
    setting of this name says."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """The finished job is deleted after this time; without it, never."""
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    """Which pods are deleted when the job finishes. What runs on holds its places, and
    counts in the queue, until it ends."""
    suspend: bool = False
    """True stops the job and frees its resources; false lets it wait for admission again."""
