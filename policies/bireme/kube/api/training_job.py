"""TrainingJob: one distributed training run, its tasks, and its scheduling.

A task is a group of equal replicas with a role. The replicas of all tasks form one gang: at
least ``minAvailable`` of them run, or none does. A waiting job has no pods; once it is admitted
(phases Starting, Running, Restarting) the shape of the gang is fixed until it is suspended.

The status is written by the operator alone. No decision depends on it, apart from counters and
times of the past and the progress that the job has reported; the rest can be recomputed.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from bireme.core.nodes import HOSTNAME_LABEL
from bireme.kube.api.base import (
    ATOMIC,
    MAX_REPLICAS,
    MAX_TASKS,
    ApiModel,
    Conditions,
    Count,
    DnsLabel,
    DnsSubdomain,
    Duration,
    LabelKey,
    LabelValue,
    Message,
    QueueName,
    Reason,
    RecordedRequest,
    Replicas,
    Resource,
    ResourceMap,
    Rule,
    TaskName,
    Timestamp,
    change_refusal,
    equal_or_absent,
    map_list,
    validations,
)
from bireme.kube.api.plan import Plan

# --- status -------------------------------------------------------------------------------------

MAX_SPEEDS: Final = 8
MAX_LOSSES: Final = 16

Number = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SpeedSeen(ApiModel):
    """Training speed at one size of the gang."""

    replicas: Count
    steps_per_second: NotNegative


class LossSeen(ApiModel):
    """The training loss at one step."""

    step: NotNegative
    loss: Number


class ProgressStatus(ApiModel):
    """The progress that the job itself has reported, clipped to what is plausible."""

    reported_time: Timestamp
    """The arrival of the last report."""
    progressed_time: Timestamp | None = None
    """The arrival of the last report that differed from the one before."""
    percentage: float | None = Field(default=None, ge=0, le=100)
    """The part of the training that is done, in percent."""
    remaining_seconds: NotNegative | None = None
    """The remaining run time by the last report."""
    step: NotNegative | None = None
    total_steps: NotNegative | None = None
    checkpoint_step: NotNegative | None = None
    """The step of the last checkpoint that the job has reported."""
    loss: Number | None = None
    worst_loss: Number | None = None
    """The largest loss ever reported."""
    accuracy: float | None = Field(default=None, ge=0, le=1)
    accuracy_gain: float | None = Field(default=None, ge=-1, le=1)
    """The difference of the last accuracy to the one before."""
    first_expected_seconds: NotNegative | None = None
    """The total run time by the first report that had one."""
    speeds: tuple[SpeedSeen, ...] = Field(
        default=(), max_length=MAX_SPEEDS, json_schema_extra=map_list("replicas")
    )
    """Training speed at the latest sizes."""
    losses: tuple[LossSeen, ...] = Field(default=(), max_length=MAX_LOSSES)
    """The loss over the steps, thinned."""


Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]


class PriorityFactor(ApiModel):
    """One term of the combined priority."""

    name: str = Field(max_length=32)
    value: float
    weight: float
    contribution: float
    """value times weight."""


class Priority(ApiModel):
    """The priority the job was ordered by, and its factors."""

    score: float
    factors: tuple[PriorityFactor, ...] = Field(
        default=(), max_length=8, json_schema_extra=map_list("name")
    )


class TaskStatus(ApiModel):
    """Number of replicas of a task by state."""

    name: TaskName
    replicas: Count = 0
    """Replicas in the current plan."""
    planned: Count = 0
    bound: Count = 0
    ready: Count = 0
    succeeded: Count = 0
    failed: Count = 0


class PlacementSummary(ApiModel):
    """Summary of the placement; the exact nodes are in the plan."""

    level: str = Field(default="", max_length=317)
    """The smallest topology level that holds the whole gang, such as node or rack."""
    domain: str = Field(default="", max_length=253)
    """The value of that level, such as the name of the rack."""
    nodes: Count = 0
    """Number of nodes that hold replicas."""
    summary: str = Field(default="", max_length=1024)
    """The placement in one line."""


class EstimatedStart(ApiModel):
    """The expected start of a job that has a reservation, or that the operator's outlook foresees.

    With ``coveragePercent`` it is a range learned from the errors of earlier estimates; without, it
    follows from the estimated ends of the gangs that run there.
    """

    earliest: Timestamp
    """Without coveragePercent, the time by which enough of the gangs there should have ended."""
    latest: Timestamp | None = None
    """Without coveragePercent, the time by which all of them should have ended; absent when one of
    them has no estimate."""
    coverage_percent: int | None = Field(default=None, ge=1, le=99)
    """This many of 100 such ranges contain the start; absent until enough jobs have started."""


class TrainingJobStatus(ApiModel):
    """The state of the job, written by the operator."""

    model_config = ConfigDict(json_schema_extra=dict(ATOMIC))

    phase: Phase | None = None
    reason: Reason | None = None
    """The one dominant reason for the phase."""
    message: Message | None = None
    """The reason in plain words, with numbers."""
    conditions: Conditions = ()
    """Admitted: it has its places. Running: all replicas run. Finished: it has ended, well or not.
    Succeeded: it has ended well; absent before its end."""
    observed_generation: Count | None = None
    queue: QueueName | None = None
    """The queue it waits in, or was admitted in."""
    queue_position: Count | None = None
    """1 is the next gang to be admitted, over all queues; absent when it is not waiting."""
    estimated_start: EstimatedStart | None = None
    """The expected start; absent without a reservation or without an estimate."""
    priority: Priority | None = None
    tasks: tuple[TaskStatus, ...] = Field(
        default=(), max_length=MAX_TASKS, json_schema_extra=map_list("name")
    )
    ready: str | None = Field(default=None, max_length=32)
    """Ready replicas of wanted ones: 3/4."""
    gpus: NotNegative | None = None
    """Accelerators that the gang requests in total, of any maker. A share counts as the part of one
    that the operator's setting gpuUnits says, else as one."""
    placement: PlacementSummary | None = None
    plan: Plan | None = None
    """The node of every replica, from admission until the last pod of the start is gone."""
    progress: ProgressStatus | None = None
    """The reports of the job about its training; scheduling trusts them within bounds only."""
    attempt: Count | None = None
    """Number of restarts of the gang; 0 is the first start."""
    restarts: Count | None = None
    """Restarts after failures of the job's own; these count against backoffLimit."""
    interruptions: Count | None = None
    """Restarts for reasons outside the job, such as a lost node."""
    preemptions: Count | None = None
    """Number of times the gang was stopped to make room for another one."""
    yields: Count | None = None
    """The preemptions by which it returned places that were reserved for another gang."""
    start_failures: Count | None = None
    """Starts in a row that kube-scheduler refused or that took too long; absent once it runs or its
    spec changes."""
    resumable: bool | None = None
    """True if it may be stopped for gangs of equal priority, because it can resume."""
    resumable_because: Message | None = None
    """The source of that value."""
    retry_time: Timestamp | None = None
    """After a failed start, the time until which it is not tried again."""
    rejected_by: tuple[DnsSubdomain, ...] | None = Field(default=None, max_length=5)
    """The last five nodes whose kubelets refused its pods since it last ran. From the fifth on it
    pauses after each refusal."""
    queued_time: Timestamp | None = None
    """The last time it began to wait: at creation, resumption, after an interruption or
    parkedTime."""
    parked_time: Timestamp | None = None
    """The time since which waiting cannot help it, so that this time does not count as waiting."""
    uncounted_seconds: Count | None = None
    """Part of its wait that does not count for its wait bound. In that time its namespace's quota,
    its claims or too many jobs of its namespace held it back, and not a lack of capacity."""
    uncounted_time: Timestamp | None = None
    """The time since which its wait does not count for its wait bound."""
    waits_for: str | None = Field(default=None, max_length=64)
    """Digest of the node and pod constraints that its wait counts for. After an edit of these, or
    of the queue, its wait begins anew."""
    request: RecordedRequest | None = None
    """The total request that its wait counts for. After an edit that requests more, its wait begins
    anew."""
    admitted_time: Timestamp | None = None
    estimated_seconds: NotNegative | None = None
    """The estimatedDuration at the last admission, 0 for none. Decisions about the running job use
    it: an edit of estimatedDuration counts from the next start on."""
    start_time: Timestamp | None = None
    """The time at which the whole gang was first running."""
    completion_time: Timestamp | None = None
    wait_seconds: Count | None = None
    """Time spent waiting until queuedTime, or until its last start."""
    run_seconds: Count | None = None
    """Time for which it held its places before it last joined the queue, over all its starts."""


# --- spec ---------------------------------------------------------------------------------------

# Only the counted fields of a pod template are declared. All others pass through, so a pod field
# newer than Bireme works at once. A dry run checks whether the pod is valid.
_OPEN = ConfigDict(extra="allow")


class ContainerResources(ApiModel):
    """Requests and limits of a container."""

    model_config = _OPEN

    requests: ResourceMap | None = None
    limits: ResourceMap | None = None


class Container(ApiModel):
    """A container; its fields are those of a pod's container."""

    model_config = _OPEN

    name: DnsLabel
    resources: ContainerResources | None = None


class PodSpec(ApiModel):
    """A pod's spec. Bireme sets the node pin, schedulerName and rendezvous environment itself."""

    model_config = _OPEN

    containers: tuple[Container, ...] = Field(
        min_length=1, max_length=64, json_schema_extra=map_list("name")
    )
    init_containers: tuple[Container, ...] | None = Field(
        default=None, max_length=64, json_schema_extra=map_list("name")
    )


class TemplateMetadata(ApiModel):
    """Labels and annotations for the pods; Bireme adds its own labels."""

    labels: dict[str, LabelValue] = Field(default={}, max_length=64)
    annotations: dict[str, Annotated[str, Field(max_length=65536)]] = Field(
        default={}, max_length=64
    )


class PodTemplate(ApiModel):
    """The pod every replica of a task is made from."""

    model_config = ConfigDict(json_schema_extra=dict(ATOMIC))

    metadata: TemplateMetadata | None = None
    spec: PodSpec


class RunPolicy(ApiModel):
    """Retries, time limits, cleaning up and pausing."""

    backoff_limit: int = Field(default=3, ge=0, le=100)
    """Number of restarts after failures of the job's own."""
    active_deadline_seconds: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """The job fails when it has held its places for longer, over all its starts. Time in the queue
    and suspended time do not count."""
    start_timeout_seconds: int | None = Field(default=None, ge=1, le=86_400)
    """The time in which all replicas must run after the job gets its places. After it the job gives
    the places back and is tried again later. The smaller value of job and queue applies; without
    it, the queue's. Image pulls do not count, for up to an hour."""
    min_runtime_seconds: int | None = Field(default=None, ge=0, le=86_400)
    """The time after a start in which the job is not stopped for others. Without it, the operator's
    setting of this name. The setting maxMinRuntimeSeconds of the operator and its queues limits it,
    and the condition Admitted then says so."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """The finished job is deleted after this time; without it, never."""
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    """The pods that are deleted when the job finishes. With None, running pods continue for ten
    minutes. Until then they hold their places and count in the queue."""
    success_policy: Literal["Leader", "AllReplicas"] | None = None
    """The replicas that must end well for the job to succeed. Leader: the replica of role master or
    chief; without one, the first worker. AllReplicas: all but those of role ps. Without it: Leader
    if a task has role master or chief or the job is elastic, else AllReplicas. Then cleanPodPolicy
    decides which other pods are stopped."""
    resumable: bool | None = None
    """True: after a stop the job continues from a checkpoint. Bireme may then stop it for jobs of
    equal priority, move it to faster GPUs, and start it in places reserved for another job. False:
    Bireme does none of these. Without it: true if the job is elastic or has reported a checkpoint,
    in this run or another of its template; else as its queue or the operator assumes
    (assumeResumable). Jobs of higher priority, and queues that reclaim their guarantee, may stop it
    either way."""
    suspend: bool = False
    """True stops the job and frees its resources. False lets it wait for admission again."""


Role = Literal["master", "chief", "worker", "ps", "evaluator"]

_TASK_RULES: Final = validations(
    Rule(
        "!has(self.minReplicas) || self.minReplicas <= self.replicas",
        "minReplicas {self.minReplicas} is above replicas {self.replicas}:"
        " lower minReplicas or raise replicas",
    ),
    Rule(
        "!has(self.maxReplicas) || self.replicas <= self.maxReplicas",
        "maxReplicas {self.maxReplicas} is below replicas {self.replicas}:"
        " raise maxReplicas or lower replicas",
    ),
    Rule(
        "!(self.role in ['master', 'chief'])"
        " || (self.replicas == 1 && (!has(self.maxReplicas) || self.maxReplicas == 1))",
        "role {self.role} takes replicas 1 and maxReplicas 1, not {self.replicas} and"
        " {has(self.maxReplicas) ? self.maxReplicas : self.replicas}:"
        " put further replicas into a task of role worker",
    ),
)


class TaskSpec(ApiModel):
    """A group of equal replicas."""

    model_config = ConfigDict(json_schema_extra=_TASK_RULES)

    name: TaskName
    """Part of the pod names: <job>-<task>-<index>."""
    role: Role
    """The part of the replicas in the training framework."""
    replicas: Replicas
    """Number of replicas to run."""
    min_replicas: Replicas | None = None
    """The fewest replicas the task makes progress with; without it, all of them."""
    max_replicas: Replicas | None = None
    """The most replicas the task can use; without it, as many as replicas."""
    priority: int | None = Field(default=None, ge=0, le=1000)
    """Order of placement inside the job, high first. By role: master, chief 100; ps 90;
    worker 50; evaluator 10."""
    template: PodTemplate


class RoleAffinitySpec(ApiModel):
    """Placement of the workers of a job close to its parameter servers."""

    mode: Literal["Required", "Preferred", "None"] = "Preferred"
    topology_key: LabelKey = HOSTNAME_LABEL
    """The node label whose value they share, such as kubernetes.io/hostname."""


_LEADS: Final = "t.role in ['master', 'chief']"
_TRAINS: Final = "t.role in ['master', 'chief', 'worker']"
_IN_TORCH: Final = "t.role in ['master', 'worker']"
_SERVES: Final = "t.role == 'ps'"
_HAS_PS: Final = f"self.tasks.exists(t, {_SERVES})"
_HAS_WORKER: Final = "self.tasks.exists(t, t.role == 'worker')"
_MAX_TOTAL: Final = "self.tasks.map(t, has(t.maxReplicas) ? t.maxReplicas : t.replicas).sum()"
_MIN_TOTAL: Final = "self.tasks.map(t, has(t.minReplicas) ? t.minReplicas : t.replicas).sum()"


def _tasks_where(condition: str) -> str:
    return f"{{self.tasks.map(t, {condition}, t.name + ' (' + t.role + ')')}}"


_SPEC_RULES: Final = validations(
    Rule(
        f"{_MAX_TOTAL} <= {MAX_REPLICAS}",
        f"tasks may grow to {{{_MAX_TOTAL}}} replicas, above the {MAX_REPLICAS} of one gang:"
        " lower replicas or maxReplicas, or make several jobs",
        field=".tasks",
    ),
    Rule(
        "!has(self.minAvailable) || self.minAvailable <= self.tasks.map(t, t.replicas).sum()",
        "minAvailable {self.minAvailable} is above the {self.tasks.map(t, t.replicas).sum()}"
        " replicas of all tasks: lower it or raise replicas",
        field=".minAvailable",
    ),
    Rule(
        f"!has(self.minAvailable) || self.minAvailable >= {_MIN_TOTAL}",
        f"minAvailable {{self.minAvailable}} is below the {{{_MIN_TOTAL}}} replicas the tasks need"
        " at least: raise it, or give the tasks a lower minReplicas",
        field=".minAvailable",
    ),
    Rule(
        f"self.tasks.filter(t, {_LEADS}).size() <= 1",
        f"tasks {_tasks_where(_LEADS)} all lead the job: keep one task of role master or chief",
        field=".tasks",
    ),
    Rule(
        f"self.tasks.exists(t, {_TRAINS})",
        f"tasks {_tasks_where('true')} do no training:"
        " add a task of role worker, or of role master or chief",
        field=".tasks",
    ),
    Rule(
        f"!{_HAS_PS} || {_HAS_WORKER}",
        f"tasks {_tasks_where(_SERVES)} serve parameters to nobody: add a task of role worker",
        field=".tasks",
    ),
    Rule(
        f"self.rendezvous != 'torch' || self.tasks.all(t, {_IN_TORCH})",
        f"rendezvous torch has no part for tasks {_tasks_where(f'!({_IN_TORCH})')}:"
        " use the roles master and worker, or another rendezvous",
        field=".rendezvous",
    ),
    Rule(
        f"self.roleAffinity.mode != 'Required' || ({_HAS_PS} && {_HAS_WORKER})",
        "roleAffinity.mode Required places workers beside parameter servers, but the tasks are"
        f" {_tasks_where('true')}: add tasks of roles ps and worker, or choose Preferred or None",
        field=".roleAffinity.mode",
    ),
)


class TrainingJobSpec(ApiModel):
    """The run and its scheduling."""

    model_config = ConfigDict(json_schema_extra=_SPEC_RULES)

    queue: DnsLabel | None = None
    """The Queue the job waits in. Without it, the queue in the label bireme.dev/default-queue of
    its namespace, or else the queue default. status.queue has the result."""
    priority_class_name: DnsSubdomain | None = None
    """A PriorityClass of Kubernetes; its value is the job's part of the combined priority."""
    min_available: int | None = Field(default=None, ge=1, le=MAX_REPLICAS)
    """The fewest replicas, over all tasks, that start together; without it, the sum of the
    tasks' minReplicas."""
    tasks: tuple[TaskSpec, ...] = Field(
        min_length=1, max_length=MAX_TASKS, json_schema_extra=map_list("name")
    )
    role_affinity: RoleAffinitySpec = RoleAffinitySpec()
    rendezvous: Literal["torch", "tensorflow", "none"] = "none"
    """The environment by which the replicas find each other: MASTER_ADDR and its companions
    (torch), TF_CONFIG (tensorflow), or nothing (none)."""
    estimated_duration: Duration | None = None
    """The expected time of a run, such as 2h30m. With it the job may start ahead of a larger
    waiting job, if it ends in time to delay no one."""
    run_policy: RunPolicy = RunPolicy()

    @property
    def is_elastic(self) -> bool:
        """True if the job can change its size while it runs.

        Only torchrun lets workers come and go (its rendezvous starts them anew from the last
        checkpoint), and only among equals: exactly one task may have room between minReplicas and
        maxReplicas, and its role is worker.
        """
        elastic = [
            task.role
            for task in self.tasks
            if (task.min_replicas or task.replicas) < (task.max_replicas or task.replicas)
        ]
        return self.rendezvous == "torch" and elastic == ["worker"]


_POD_NAME_FITS: Final = (
    "self.metadata.name.size() + t.name.size() + 2"
    " + string((has(t.maxReplicas) ? t.maxReplicas : t.replicas) - 1).size() <= 63"
)


_SAME_TASK_SHAPE: Final = (
    "oldSelf.spec.tasks.exists(o, o.name == t.name && o.role == t.role"
    f" && o.replicas == t.replicas && {equal_or_absent('minReplicas', 'o', 't')}"
    f" && {equal_or_absent('maxReplicas', 'o', 't')})"
)
_PHASE_IN: Final = (
    "(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in {})"
)
_ADMITTED: Final = _PHASE_IN.format("['Starting', 'Running', 'Restarting']")
_HAS_PLACES: Final = _PHASE_IN.format("['Starting', 'Running']")
_WHILE_ADMITTED: Final = (
    " while the job is {oldSelf.status.phase}:"
    " suspend it first (spec.runPolicy.suspend: true) or create a new job"
)


# These rules also run at every status write, where the spec is unchanged: test that first. The cost
# of reading a field grows with the number of its siblings, and a status has many.
def _immutable_once_admitted(field: str, when: str = _ADMITTED) -> Rule:
    return Rule(
        f"({equal_or_absent(field, 'oldSelf.spec', 'self.spec')}) || !{when}",
        f"{change_refusal(field)}{_WHILE_ADMITTED}",
        field=f".spec.{field}",
    )


_JOB_RULES: Final = validations(
    Rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name {self.metadata.name} must start with a letter and hold only lower case"
        " letters, digits and '-', because a Service carries it: choose such a name",
    ),
    Rule(
        f"self.spec.tasks.all(t, {_POD_NAME_FITS})",
        "metadata.name {self.metadata.name} ({self.metadata.name.size()} characters) leaves no"
        f" room in 63 characters for the pod names <job>-<task>-<index> of tasks"
        f" {{self.spec.tasks.map(t, !({_POD_NAME_FITS}), t.name)}}:"
        " shorten the job's or the task's name",
    ),
    # A Restarting job counts in no queue, so its queue may be changed.
    _immutable_once_admitted("queue", _HAS_PLACES),
    *map(_immutable_once_admitted, ("priorityClassName", "minAvailable", "rendezvous")),
    Rule(
        f"self.spec.tasks.map(t, t.name) == oldSelf.spec.tasks.map(t, t.name) || !{_ADMITTED}",
        "spec.tasks cannot change from {oldSelf.spec.tasks.map(t, t.name)} to"
        f" {{self.spec.tasks.map(t, t.name)}}{_WHILE_ADMITTED}",
        field=".spec.tasks",
    ),
    Rule(
        f"self.spec.tasks.all(t, {_SAME_TASK_SHAPE}"
        f" || !oldSelf.spec.tasks.exists(o, o.name == t.name)) || !{_ADMITTED}",
        "role, replicas, minReplicas and maxReplicas of spec.tasks"
        f" {{self.spec.tasks.map(t, !{_SAME_TASK_SHAPE}, t.name)}}"
        f" cannot change{_WHILE_ADMITTED}",
        field=".spec.tasks",
    ),
)


class TrainingJob(Resource):
    """A distributed training job, scheduled as one gang."""

    model_config = ConfigDict(json_schema_extra=_JOB_RULES)

    kind: Literal["TrainingJob"] = "TrainingJob"
    spec: TrainingJobSpec
    status: TrainingJobStatus | None = None
