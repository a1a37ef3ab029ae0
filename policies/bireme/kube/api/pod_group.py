"""PodGroup: pods of another controller that start together or not at all.

The spec has the shape of Volcano's. Users create one for pods that a Job, a StatefulSet or Kubeflow
makes; the pods join by label and scheduling gate. A TrainingJob needs none: it is a gang itself.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from bireme.kube.api.base import (
    ATOMIC,
    MAX_REPLICAS,
    MAX_TASKS,
    ApiModel,
    Conditions,
    Count,
    DnsLabel,
    DnsSubdomain,
    Message,
    QueueName,
    Reason,
    RecordedRequest,
    Replicas,
    Resource,
    ResourceMap,
    Rule,
    Timestamp,
    change_refusal,
    equal_or_absent,
    validations,
)
from bireme.kube.api.plan import Plan

PodGroupPhase = Literal["Pending", "Inqueue", "Running", "Interrupted", "Completed", "Unknown"]

MAX_UID: Final = 64
_TASK_SUM: Final = "self.minTaskMember.map(name, self.minTaskMember[name]).sum()"

_TASK_NAMED: Final = (
    "(name.size() <= 63 && name.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))"
)


class PodGroupSpec(ApiModel):
    """The size of the gang, and how it is ordered."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                f"!has(self.minTaskMember) || {_TASK_SUM} <= self.minMember",
                f"minTaskMember adds up to {{{_TASK_SUM}}}, above minMember {{self.minMember}}:"
                " raise minMember or lower the tasks' numbers",
                field=".minTaskMember",
            ),
            Rule(
                f"!has(self.minTaskMember) || self.minTaskMember.all(name, {_TASK_NAMED})",
                f"minTaskMember {{self.minTaskMember.map(name, !{_TASK_NAMED}, name)}} cannot be"
                " task labels: name tasks in letters, digits and '-', '_', '.', at most 63",
                field=".minTaskMember",
            ),
        )
    )

    min_member: Replicas
    """The fewest pods that start together. It may be edited at any time. Pods that have places keep
    them, and further pods wait until minMember pods have places together."""
    min_task_member: dict[str, Replicas] = Field(default={}, max_length=MAX_TASKS)
    """Name of a task to the fewest of its pods that start together."""
    queue: DnsLabel | None = None
    """The Queue the gang waits in. Without it, the queue in the label bireme.dev/default-queue of
    its namespace, or else the queue default. status.queue has the result."""
    priority_class_name: DnsSubdomain | None = None
    """A PriorityClass of Kubernetes; its value is the gang's part of the combined priority."""
    min_resources: ResourceMap = Field(default={})
    """The total request of the gang. With it, Bireme can check the limits of queue and cluster
    before the pods exist."""


class EndedPods(ApiModel):
    """Pods of one controller that have ended well, so that it never creates them again."""

    owner: str = Field(max_length=MAX_UID)
    """UID of the controller."""
    pods: tuple[Annotated[str, Field(max_length=MAX_UID)], ...] = Field(max_length=MAX_REPLICAS)
    """UIDs of the pods, whether they still exist or not."""


class PodGroupStop(ApiModel):
    """The reason for which all pods of a gang are being stopped."""

    reason: Reason
    message: Message


class PodGroupStatus(ApiModel):
    """The state of the gang, written by the operator."""

    model_config = ConfigDict(json_schema_extra=dict(ATOMIC))

    phase: PodGroupPhase | None = None
    reason: Reason | None = None
    message: Message | None = None
    conditions: Conditions = ()
    """Admitted: it has its places. Running: all containers of minMember of its pods have started;
    it stays True when some end, see phase."""
    queue: QueueName | None = None
    """The queue it waits in, or was admitted in."""
    queue_position: Count | None = None
    """1 is the next gang to be admitted, over all queues; absent when it is not waiting."""
    preemptions: Count | None = None
    """Number of times the gang was stopped to make room for another one."""
    yields: Count | None = None
    """The preemptions by which it returned places that were reserved for another gang."""
    stop: PodGroupStop | None = None
    """The current stop, until all its pods are gone."""
    resumable: bool | None = None
    """True if it may be stopped for gangs of equal priority, because annotation
    bireme.dev/resumable says that it can resume."""
    resumable_because: Message | None = None
    """The source of that value."""
    start_failures: Count | None = None
    """Starts in a row that kube-scheduler refused or that took too long; absent once it runs."""
    retry_time: Timestamp | None = None
    """After a failed start, the time until which it is not tried again. From then on it waits."""
    wait_seconds: Count | None = None
    """Time spent waiting before queuedTime, or over all failed starts in a row; absent once it
    runs."""
    queued_time: Timestamp | None = None
    """The last time it began to wait after parkedTime; absent once it runs."""
    parked_time: Timestamp | None = None
    """The time since which waiting cannot help it, so that this time does not count as waiting."""
    uncounted_seconds: Count | None = None
    """Part of its wait that does not count for its wait bound. In that time its namespace's quota,
    its claims or too many jobs of its namespace held it back, and not a lack of capacity."""
    uncounted_time: Timestamp | None = None
    """The time since which its wait does not count for its wait bound."""
    request: RecordedRequest | None = None
    """The total request of its pods that its wait counts for. When they request more, its wait
    begins anew. Absent once it runs."""
    observed_generation: Count | None = None
    """The generation of the spec whose start failed. Another generation is tried at once."""
    plan: Plan | None = None
    ended_pods: tuple[EndedPods, ...] | None = Field(default=None, max_length=MAX_TASKS)
    """The members that have ended well. They still count for minMember after their pods are
    deleted. At most minMember of each controller are listed; none once all members have ended
    well."""


def _immutable_while_planned(field: str) -> Rule:
    return Rule(
        "!(has(oldSelf.status) && has(oldSelf.status.plan))"
        f" || ({equal_or_absent(field, 'oldSelf.spec', 'self.spec')})",
        f"{change_refusal(field)} while the gang has its places: edit it once"
        " its pods have ended, or create a PodGroup of another name",
        field=f".spec.{field}",
    )


_POD_GROUP_RULES: Final = validations(
    Rule(
        "self.metadata.name.size() <= 63",
        "metadata.name has {self.metadata.name.size()} characters, but pods carry it as a label"
        " of at most 63: choose a shorter name",
    ),
    *map(_immutable_while_planned, ("queue", "priorityClassName")),
)


class PodGroup(Resource):
    """Pods that start together or not at all."""

    model_config = ConfigDict(json_schema_extra=_POD_GROUP_RULES)

    kind: Literal["PodGroup"] = "PodGroup"
    spec: PodGroupSpec
    status: PodGroupStatus | None = None
