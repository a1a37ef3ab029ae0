"""The unit of scheduling: a gang of replicas that start together or not at all.

A TrainingJob and a PodGroup both become a :class:`Gang`. Its tasks are groups of equal replicas.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from bireme.core.pod_constraints import (
    ANYWHERE,
    NO_PREFERENCES,
    NodeConstraints,
    PodKind,
    Preferences,
)
from bireme.core.reasons import Reason
from bireme.core.resources import Request, add
from bireme.core.speed import LossCurve, SpeedLaw

Key: TypeAlias = tuple[str, str]
"""Namespace and name of an object; the namespace is empty for cluster-scoped ones."""


class Role(StrEnum):
    """Role of a replica in distributed training."""

    MASTER = "master"
    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"

    @property
    def default_priority(self) -> int:
        """Intra-job order if the task states none: the highest must run before the others."""
        return _DEFAULT_PRIORITY[self]

    @property
    def is_leading(self) -> bool:
        """True for a role with one replica in a job, which leads the others."""
        return self in (Role.MASTER, Role.CHIEF)


_DEFAULT_PRIORITY = {
    Role.MASTER: 100,
    Role.CHIEF: 100,
    Role.PS: 90,
    Role.WORKER: 50,
    Role.EVALUATOR: 10,
}


class AffinityMode(StrEnum):
    """Strength of workers' demand for a parameter server in their topology domain."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class RoleAffinity:
    """Workers beside parameter servers: every worker's domain at ``topology_key`` holds a PS."""

    mode: AffinityMode = AffinityMode.PREFERRED
    topology_key: str = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Task:
    """A group of equal replicas.

    ``request`` is that of one replica (see :mod:`bireme.core.resources` for units) and always
    contains ``pods: 1``. ``members`` are the UIDs of pods that already exist, in replica order,
    for gangs whose pods another controller made; empty for pods that the operator will create.
    ``pod`` is None if no rule connects its pods with other pods.
    """

    name: str
    replicas: int
    request: Request
    role: Role = Role.WORKER
    min_replicas: int = 0
    """The fewest replicas with which the gang may start; 0 means all of them."""
    priority: int = 50
    constraints: NodeConstraints = ANYWHERE
    members: tuple[str, ...] = ()
    max_replicas: int = 0
    """The limit on its growth while it runs; 0 means ``replicas``."""
    charges: tuple[tuple[str, Request], ...] = ()
    """One replica's usage of each quota of its namespace (:mod:`bireme.core.quotas`)."""
    pod: PodKind | None = None
    preferences: Preferences = NO_PREFERENCES

    @property
    def minimum(self) -> int:
        """The fewest replicas of this task with which the gang may start."""
        return self.min_replicas or self.replicas

    @property
    def maximum(self) -> int:
        """The most replicas to which this task may grow."""
        return self.max_replicas or self.replicas


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The last progress report of a job, with the necessary parts of earlier ones.

    A tenant writes it, so every number may be wrong; :mod:`bireme.core.estimates` limits its
    effect. None stands for a number that the job does not report.

    Attributes:
        reported: When the report arrived, POSIX seconds.
        fraction: Share of the training that is done, from 0 to 1.
        remaining_seconds: The run time that the job still expects.
        steps: Steps done since training began.
        worst_loss: The largest loss of all reports.
        accuracy: From 0 to 1.
        accuracy_gain: The increase of accuracy between the last two reports that have one.
        anchor_seconds: Run time of the whole start by the first report that gives one. It bounds
            later reports where no other estimate exists.
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


class Shape(tuple[object, ...]):  # noqa: SLOT001  # the hash is kept in __dict__
    """A tuple that remembers its hash: it is the key of most caches of a cycle."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Gang:
    """A gang as it waits, or would wait if it had to start again. None stands for unknown.

    Attributes:
        arrived: POSIX seconds; shifted by run time, so ``now - arrived`` is waiting time.
        parked: Since when the gang cannot start for a reason that waiting does not change, POSIX
            seconds; this time is no waiting time. None while it waits.
        uncounted_seconds: Part of its wait that its bound does not count: the quota, the claims or
            other jobs of its namespace blocked it, not a lack of capacity.
        uncounted_since: Since when that is so now, POSIX seconds; None if it lacks capacity.
        min_available: The fewest replicas, over all tasks, with which it may start; 0 means the sum
            of the tasks' minima.
        interrupted: It has run before and lost its places through no fault of its own.
        displaced: It lost a node, or pods that others made, or it was stopped but not for another
            gang (maintenance, faster GPUs). It owns its old places and its next ones.
        fault: A fault found before the cycle (a missing PriorityClass, a template the API server
            rejected): such a gang is held.
        foretold: Declared request of all its pods, if ``fault`` is that some do not exist yet.
        queue_source: The source of ``queue`` if that is not its own spec, in words.
        left_to_scheduler: Demands of its pods that are not planned, in words; mostly empty. The
            planned nodes then only reserve room, and kube-scheduler chooses the nodes.
        user: Its submitter, for service and for the history of run times: its namespace.
        estimated_seconds: Expected run time of a start.
        is_learned_estimate: The estimate is from the history of run times, not the owner.
        attained_seconds: Run time of earlier starts.
        evictions: Number of times it has made room for others.
        yields: The number of evictions by which it returned borrowed places.
        min_runtime_seconds: How long a start may not be preempted, within the limits of settings
            and queues; None takes the setting.
        may_preempt: Others may be stopped for it (PriorityClass ``preemptionPolicy``).
        is_preemptible: It may be stopped for others.
        is_resumable: After a stop it resumes from a checkpoint, as far as is known. It may be
            stopped for gangs of equal rank, moved, and started in places reserved for others.
        resume_source: The source of that, or that there is none, in words; empty if not needed.
        is_elastic: It can be resized while it runs.
        speed: Training speed by size.
        remaining_steps: Steps left when its current run started, or when its size last changed.
        done_steps: Steps done by then, over all its runs.
        loss: Training loss by steps done.
        progress: The last report of its training.
    """

    uid: str
    name: str
    namespace: str
    queue: str
    tasks: tuple[Task, ...]
    arrived: float
    priority: int = 0
    kind: str = "TrainingJob"
    min_available: int = 0
    role_affinity: RoleAffinity = RoleAffinity()
    interrupted: bool = False
    displaced: bool = False
    fault: tuple[Reason, str] | None = None
    foretold: Request = ()
    queue_source: str = ""
    left_to_scheduler: str = ""
    user: str = ""
    estimated_seconds: float | None = None
    is_learned_estimate: bool = False
    attained_seconds: float = 0.0
    evictions: int = 0
    yields: int = 0
    min_runtime_seconds: float | None = None
    may_preempt: bool = True
    is_preemptible: bool = True
    is_resumable: bool = True
    resume_source: str = ""
    is_elastic: bool = False
    speed: SpeedLaw | None = None
    remaining_steps: float | None = None
    done_steps: float = 0.0
    loss: LossCurve | None = None
    progress: TrainingProgress | None = None
    parked: float | None = None
    uncounted_seconds: float = 0.0
    uncounted_since: float | None = None

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name

    def wait_seconds(self, until: float) -> float:
        """Return its waiting time at ``until``; never negative, whatever the clocks say."""
        end = until if self.parked is None else min(until, self.parked)
        return max(0.0, end - self.arrived)

    def in_line(self, now: float) -> "Gang":
        """Return the gang as it waits from ``now`` on, with its waiting time so far."""
        if self.parked is None:
            return self
        queued = copy(self)  # with its cached properties, except the one that contains its wait
        vars(queued).pop("_smallest", None)
        vars(queued).update(arrived=now - self.wait_seconds(now), parked=None)
        return queued

    @cached_property
    def flaw(self) -> str:
        """Fault of the gang itself, with the remedy; empty if it is sound."""
        if not self.tasks:
            return "the gang has no tasks; give it at least one"
        if len({task.name for task in self.tasks}) < len(self.tasks):
            return "two tasks have the same name; give each its own"
        for task in self.tasks:
            if task.replicas < 1:
                return f"task {task.name!r} has {task.replicas} replicas; set at least 1"
            if not 0 <= task.min_replicas <= task.replicas:
                return (
                    f"task {task.name!r} has minReplicas {task.min_replicas} and {task.replicas} "
                    "replicas; set minReplicas to at most replicas"
                )
        return ""

    @cached_property
    def replicas(self) -> int:
        """Replicas over all tasks."""
        return sum(task.replicas for task in self.tasks)

    @cached_property
    def demand(self) -> dict[str, int]:
        """Request of all replicas together, in exact integers."""
        total: dict[str, int] = {}
        for task in self.tasks:
            total = add(total, task.request, task.replicas)
        return total

    @cached_property
    def charges(self) -> dict[str, dict[str, int]]:
        """The usage of all replicas together of each quota of the namespace, by quota name."""
        total: dict[str, dict[str, int]] = {}
        for task in self.tasks:
            for quota, amounts in task.charges:
                total[quota] = add(total.get(quota, {}), amounts, task.replicas)
        return total

    @cached_property
    def shape(self) -> Shape:
        """The equivalence class of the gang: gangs of equal shape fit alike."""
        # Task names are part of it, because messages cached by shape contain them.
        tasks = tuple((t.name, t.role, t.replicas, t.request, t.constraints) for t in self.tasks)
        if not self.has_rules:
            return Shape((tasks, self.role_affinity))
        return Shape((tasks, self.role_affinity, tuple(task.pod for task in self.tasks)))

    @cached_property
    def has_rules(self) -> bool:
        """True if its places depend on the places of other pods."""
        return any(task.pod is not None for task in self.tasks)

    @cached_property
    def has_spread(self) -> bool:
        """True if its pods are to be spread over domains."""
        return any(task.pod is not None and task.pod.spread for task in self.tasks)

    @cached_property
    def has_demands(self) -> bool:
        """True if its pods have demands on other pods."""
        return any(task.pod is not None and task.pod.has_demands for task in self.tasks)

    @cached_property
    def has_preferences(self) -> bool:
        """True if its pods prefer some places to others."""
        return any(task.preferences != NO_PREFERENCES for task in self.tasks)

    @property
    def at_minimum(self) -> "Gang":
        """The gang at the smallest size with which it may start; ``self`` if it cannot shrink."""
        return self._smallest or self

    @cached_property
    def _smallest(self) -> "Gang | None":
        # None stands for the gang itself: that avoids a reference cycle, which only the garbage
        # collector could free.
        sizes = {task.name: task.minimum for task in self.tasks}
        short = self.min_available - sum(sizes.values())
        # Add replicas to the minima until there are min_available, the most important tasks first.
        for task in sorted(self.tasks, key=lambda t: (-t.priority, t.name)):
            extra = min(max(short, 0), task.replicas - sizes[task.name])
            sizes[task.name] += extra
            short -= extra
        if all(sizes[task.name] == task.replicas for task in self.tasks):
            return None
        return self.with_sizes(sizes)

    def with_sizes(self, sizes: Mapping[str, int]) -> "Gang":
        """Return the gang with ``sizes[task name]`` replicas; tasks at zero are dropped."""
        tasks = tuple(
            replace(task, replicas=sizes[task.name], members=task.members[: sizes[task.name]])
            for task in self.tasks
            if sizes[task.name] > 0
        )
        return replace(self, tasks=tasks)

    def tasks_in_order(self) -> tuple[Task, ...]:
        """Return the tasks by intra-job priority, highest first; ties in their given order."""
        return tuple(sorted(self.tasks, key=lambda task: -task.priority))
