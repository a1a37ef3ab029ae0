"""TrainingJob: one distributed training run, its tasks, and how it is to be scheduled.

A task is a group of equal replicas with a role. The replicas of all tasks form one gang: at
least ``minAvailable`` of them run, or none does. A waiting job has no pods; once it is admitted
(phases Starting, Running, Restarting) the shape of the gang is fixed until it is suspended.
"""

from typing import Final, Literal

from pydantic import ConfigDict, Field

from bireme.kube import names
from bireme.kube.api.fields import (
    MAX_REPLICAS,
    MAX_TASKS,
    DnsLabel,
    DnsSubdomain,
    Duration,
    LabelKey,
    Replicas,
    TaskName,
)
from bireme.kube.api.metadata import Resource, keyed_by
from bireme.kube.api.model import Model, Rule, changed, checked_by, kept
from bireme.kube.api.pod_template import PodTemplate
from bireme.kube.api.run_policy import RunPolicy
from bireme.kube.api.training_job_status import TrainingJobStatus

Role = Literal["master", "chief", "worker", "ps", "evaluator"]

PRIORITY_BY_ROLE: Final[dict[Role, int]] = {
    "master": 100,
    "chief": 100,
    "ps": 90,
    "worker": 50,
    "evaluator": 10,
}

_TASK_RULES: Final = checked_by(
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


class TaskSpec(Model):
    """A group of equal replicas."""

    model_config = ConfigDict(json_schema_extra=_TASK_RULES)

    name: TaskName
    """Part of the pod names: <job>-<task>-<index>."""
    role: Role
    """What the replicas are to the training framework."""
    replicas: Replicas
    """How many replicas to run."""
    min_replicas: Replicas | None = None
    """The fewest replicas the task makes progress with; without it, all of them."""
    max_replicas: Replicas | None = None
    """The most replicas the task can use; without it, as many as replicas."""
    priority: int | None = Field(default=None, ge=0, le=1000)
    """Order of placement inside the job, high first. By role: master, chief 100; ps 90;
    worker 50; evaluator 10."""
    template: PodTemplate

    @property
    def effective_priority(self) -> int:
        """``priority``, or the default of the role."""
        return PRIORITY_BY_ROLE[self.role] if self.priority is None else self.priority

    @property
    def fewest_replicas(self) -> int:
        """``minReplicas``, or all replicas of a task that is not elastic."""
        return self.replicas if self.min_replicas is None else self.min_replicas

    @property
    def most_replicas(self) -> int:
        """``maxReplicas``, or ``replicas`` of a task that is not elastic."""
        return self.replicas if self.max_replicas is None else self.max_replicas


class RoleAffinity(Model):
    """How close the workers of a job are placed to its parameter servers."""

    mode: Literal["Required", "Preferred", "None"] = "Preferred"
    topology_key: LabelKey = names.HOSTNAME
    """The node label whose value they share, such as kubernetes.io/hostname."""


_LEADS: Final = "t.role in ['master', 'chief']"
_TRAINS: Final = "t.role in ['master', 'chief', 'worker']"
_IN_TORCH: Final = "t.role in ['master', 'worker']"
_SERVES: Final = "t.role == 'ps'"
_HAS_PS: Final = f"self.tasks.exists(t, {_SERVES})"
_HAS_WORKER: Final = "self.tasks.exists(t, t.role == 'worker')"
_MOST: Final = "self.tasks.map(t, has(t.maxReplicas) ? t.maxReplicas : t.replicas).sum()"
_FEWEST: Final = "self.tasks.map(t, has(t.minReplicas) ? t.minReplicas : t.replicas).sum()"


def _tasks_where(condition: str) -> str:
    return f"{{self.tasks.map(t, {condition}, t.name + ' (' + t.role + ')')}}"


_SPEC_RULES: Final = checked_by(
    Rule(
        f"{_MOST} <= {MAX_REPLICAS}",
        f"tasks may grow to {{{_MOST}}} replicas, above the {MAX_REPLICAS} of one gang:"
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
        f"!has(self.minAvailable) || self.minAvailable >= {_FEWEST}",
        f"minAvailable {{self.minAvailable}} is below the {{{_FEWEST}}} replicas the tasks need"
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


class TrainingJobSpec(Model):
    """What to run and how to schedule it."""

    model_config = ConfigDict(json_schema_extra=_SPEC_RULES)

    queue: DnsLabel = names.DEFAULT_QUEUE
    """The Queue the job waits in."""
    priority_class_name: DnsSubdomain | None = None
    """A stock PriorityClass; its value is the job's part of the combined priority."""
    min_available: int | None = Field(default=None, ge=1, le=MAX_REPLICAS)
    """The fewest replicas, over all tasks, that start together; without it, the sum of the
    tasks' minReplicas."""
    tasks: tuple[TaskSpec, ...] = Field(
        min_length=1, max_length=MAX_TASKS, json_schema_extra=keyed_by("name")
    )
    role_affinity: RoleAffinity = RoleAffinity()
    rendezvous: Literal["torch", "tensorflow", "none"] = "none"
    """Which environment the replicas find each other by: MASTER_ADDR and the like (torch),
    TF_CONFIG (tensorflow), or nothing."""
    estimated_duration: Duration | None = None
    """How long a run is expected to take, such as 2h30m. A job that says so may start ahead of a
    larger one that waits, where it ends in time to delay nobody."""
    run_policy: RunPolicy = RunPolicy()

    @property
    def is_elastic(self) -> bool:
        """Whether the job can change its size while it runs.

        Only torchrun lets workers come and go (its rendezvous starts them anew from the last
        checkpoint), and only among equals: exactly one task may have room between minReplicas and
        maxReplicas, and its role is worker.
        """
        elastic = [task for task in self.tasks if task.fewest_replicas < task.most_replicas]
        return self.rendezvous == "torch" and [task.role for task in elastic] == ["worker"]


_POD_NAME_FITS: Final = (
    "self.metadata.name.size() + t.name.size() + 2"
    " + string((has(t.maxReplicas) ? t.maxReplicas : t.replicas) - 1).size() <= 63"
)


_TASK_SHAPE_KEPT: Final = (
    "oldSelf.spec.tasks.exists(o, o.name == t.name && o.role == t.role"
    f" && o.replicas == t.replicas && {kept('minReplicas', 'o', 't')}"
    f" && {kept('maxReplicas', 'o', 't')})"
)
_ADMITTED: Final = (
    "(has(oldSelf.status) && has(oldSelf.status.phase)"
    " && oldSelf.status.phase in ['Starting', 'Running', 'Restarting'])"
)
_WHILE_ADMITTED: Final = (
    " while the job is {oldSelf.status.phase}:"
    " suspend it first (spec.runPolicy.suspend: true) or create a new job"
)


def _kept_once_admitted(field: str) -> Rule:
    return Rule(
        f"!{_ADMITTED} || ({kept(field, 'oldSelf.spec', 'self.spec')})",
        f"{changed(field)}{_WHILE_ADMITTED}",
        field=f".spec.{field}",
    )


_JOB_RULES: Final = checked_by(
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
    *map(_kept_once_admitted, ("queue", "priorityClassName", "minAvailable", "rendezvous")),
    Rule(
        f"!{_ADMITTED} || self.spec.tasks.map(t, t.name) == oldSelf.spec.tasks.map(t, t.name)",
        "spec.tasks cannot change from {oldSelf.spec.tasks.map(t, t.name)} to"
        f" {{self.spec.tasks.map(t, t.name)}}{_WHILE_ADMITTED}",
        field=".spec.tasks",
    ),
    Rule(
        f"!{_ADMITTED} || self.spec.tasks.all(t, {_TASK_SHAPE_KEPT}"
        " || !oldSelf.spec.tasks.exists(o, o.name == t.name))",
        "role, replicas, minReplicas and maxReplicas of spec.tasks"
        f" {{self.spec.tasks.map(t, !{_TASK_SHAPE_KEPT}, t.name)}}"
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
