"""The status of a TrainingJob: its whole story, readable with ``kubectl get`` and ``describe``.

Written by the operator alone. Nothing here is needed to decide: it can be recomputed from the
cluster, apart from the counters and times of what has already happened.
"""

from typing import Literal

from pydantic import Field

from bireme.kube.api.fields import MAX_TASKS, Count, Message, Reason, TaskName, Timestamp
from bireme.kube.api.metadata import Conditions, keyed_by
from bireme.kube.api.model import Model
from bireme.kube.api.progress_status import ProgressStatus

Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]


class PriorityFactor(Model):
    """One term of the combined priority."""

    name: str = Field(max_length=32)
    value: float
    weight: float
    contribution: float
    """value times weight."""


class Priority(Model):
    """The priority the job was ordered by, and where it comes from."""

    score: float
    factors: tuple[PriorityFactor, ...] = Field(
        default=(), max_length=8, json_schema_extra=keyed_by("name")
    )


class TaskStatus(Model):
    """How many replicas of a task have come how far."""

    name: TaskName
    replicas: Count = 0
    """Wanted in the current plan."""
    planned: Count = 0
    bound: Count = 0
    ready: Count = 0
    succeeded: Count = 0
    failed: Count = 0


class PlacementSummary(Model):
    """Where the gang sits; the exact nodes are in the plan of its PodGroup."""

    level: str = Field(default="", max_length=317)
    """The smallest topology level that holds the whole gang, such as node or rack."""
    domain: str = Field(default="", max_length=253)
    """The value of that level, such as the name of the rack."""
    nodes: Count = 0
    """How many nodes carry replicas."""
    summary: str = Field(default="", max_length=1024)
    """The placement in one line."""


class EstimatedStart(Model):
    """When a job that places are kept for should start, as things stand.

    With ``coveragePercent`` a range learned from how earlier starts came; without it, what those
    that run there say of themselves.
    """

    earliest: Timestamp
    """Without coveragePercent, when enough of those that run there are expected to have ended."""
    latest: Timestamp | None = None
    """Without coveragePercent, when all of them are; absent when one does not say for how long."""
    coverage_percent: int | None = Field(default=None, ge=1, le=99)
    """Of 100 such ranges so many hold the start; absent while too few jobs have started to tell."""


class TrainingJobStatus(Model):
    """What the operator says about the job."""

    phase: Phase | None = None
    reason: Reason | None = None
    """The one dominant reason for the phase."""
    message: Message | None = None
    """The reason in plain words, with numbers."""
    conditions: Conditions = ()
    """Admitted: it has its places. Running: all replicas run. Finished: it has ended, well or not.
    Succeeded: it has ended well; absent before its end."""
    observed_generation: Count | None = None
    queue_position: Count | None = None
    """1 is the next gang to be admitted, over all queues; absent when it is not waiting."""
    estimated_start: EstimatedStart | None = None
    """When it should start; absent when no places are kept for it, or when nobody can say."""
    priority: Priority | None = None
    tasks: tuple[TaskStatus, ...] = Field(
        default=(), max_length=MAX_TASKS, json_schema_extra=keyed_by("name")
    )
    ready: str | None = Field(default=None, max_length=32)
    """Ready replicas of wanted ones: 3/4."""
    gpus: Count | None = None
    """What the gang asks for in total of nvidia.com/gpu; other devices are not counted here."""
    placement: PlacementSummary | None = None
    progress: ProgressStatus | None = None
    """What the job has told about its training; a claim, never counted on beyond a factor."""
    attempt: Count | None = None
    """How often the gang was started again; 0 is the first start."""
    restarts: Count | None = None
    """Restarts after failures of the job's own; these count against backoffLimit."""
    interruptions: Count | None = None
    """Restarts for reasons outside the job, such as a lost node."""
    preemptions: Count | None = None
    """How often the gang was stopped to make room for another one."""
    queued_time: Timestamp | None = None
    """When it last joined the queue: at creation, resumption, or after an interruption."""
    admitted_time: Timestamp | None = None
    start_time: Timestamp | None = None
    """When the whole gang was first running."""
    completion_time: Timestamp | None = None
    wait_seconds: Count | None = None
    """Time spent waiting for admission, over all its starts, until the last of them."""
    run_seconds: Count | None = None
    """Time for which it held its places before it last joined the queue, over all its starts."""
