"""The unit of scheduling: a gang of replicas that start together or not at all.

A TrainingJob and a PodGroup both become a :class:`Gang`. Its tasks are groups of equal replicas.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from bireme.core.reasons import Reason
from bireme.core.resources import ATTACHABLE, Request, add
from bireme.core.speed import LossCurve, SpeedLaw

# --- hard demands of a pod template on its node ---
#
# Hashable, so that equal templates share one evaluation (bireme.core.nodes.feasible).


class SelectorOperator(StrEnum):
    """Operators of a node selector requirement, as the Kubernetes API spells them."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a label (or, for a field requirement, on the node's name)."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Requirements that must all hold. A term without any matches no node."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()
    """``matchFields`` on ``metadata.name``, the only field Kubernetes supports."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps pods away, or that they would rather avoid (``PreferNoSchedule``)."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """Taints a pod accepts. Empty ``key`` with Exists: all; empty ``effect``: any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Apply the API's own rule (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.operator == "Equal" and self.value == taint.value


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """What something that a pod needs demands of the node: one of ``terms`` must match.

    ``source`` names that something in messages, as ``volume pv-1 of claim data``.
    """

    source: str
    terms: tuple[SelectorTerm, ...]


@dataclass(frozen=True, slots=True)
class NodePreference:
    """Nodes that a pod would rather be on; for ``weight`` see :class:`Preferences`."""

    weight: int
    term: SelectorTerm


@dataclass(frozen=True, slots=True)
class LeastScore:
    """Nodes of at least ``score`` by ``preferences`` (:func:`bireme.core.nodes.score`)."""

    preferences: tuple[NodePreference, ...]
    score: int


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """The hard demands of one pod template."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity_terms: tuple[SelectorTerm, ...] | None = None
    """Required node affinity: at least one term must match; None when the pod has none."""
    tolerations: tuple[Toleration, ...] = ()
    demands: tuple[NodeDemand, ...] = ()
    """Further demands, of volumes for instance; all of them must hold."""
    least: LeastScore | None = None
    """What is tried for preferences' sake; no template has it."""


ANYWHERE = NodeConstraints()
"""No demand at all."""


Key: TypeAlias = tuple[str, str]
"""Namespace and name of an object; the namespace is empty for cluster-scoped ones."""


# --- hard demands of a pod on other pods ---
#
# What they mean for places is in bireme.core.pod_rules.

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # of a port, as kube-scheduler compares them


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod takes on its node."""

    number: int
    protocol: str = "TCP"
    address: str = _ANY_ADDRESS

    def clashes(self, other: "HostPort") -> bool:
        """Return whether one node cannot have both."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        return self.address == other.address or _ANY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods of some namespaces whose labels meet all requirements.

    ``namespaces`` None means all of them; ``spaces`` are requirements on the labels of further
    ones. No requirements match every pod; a requirement ``In`` without values matches none.
    """

    namespaces: tuple[str, ...] | None = None
    spaces: tuple[Requirement, ...] = ()
    requirements: tuple[Requirement, ...] = ()

    @property
    def pair(self) -> tuple[str, str] | None:
        """A label that every pod it matches has; None where there need be none."""
        for each in self.requirements:
            if each.operator is SelectorOperator.IN and len(each.values) == 1:
                return each.key, each.values[0]
        return None


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods in the same domain of the node label ``key``."""

    key: str
    pods: PodSelector


@dataclass(frozen=True, slots=True)
class SpreadLimit:
    """A hard topology spread: at most ``most_skew`` more of ``pods`` than in any other domain.

    The domains are those of the node label ``key``, with ``honors_affinity`` only on nodes that the
    pod's node selector and node affinity allow, with ``honors_taints`` only on nodes whose taints
    it tolerates. While there are fewer than ``least_domains``, an empty one counts beside them. If
    it ``is_soft``, what is placed for it goes round the domains that have room.
    """

    key: str
    most_skew: int
    pods: PodSelector
    honors_taints: bool = False
    honors_affinity: bool = True
    least_domains: int = 1
    is_soft: bool = False


@dataclass(frozen=True)
class PodKind:
    """What rules over pods see of the pods of one template.

    Attributes:
        namespace, labels: Of the pod; of the labels those alone that some selector asks for. No
            selector is about what has no namespace.
        space: Labels of its namespace, in the same way.
        apart: Required anti-affinity: no such pod may be in the domain, nor it beside this one.
        near: Required affinity: such pods, each matching all terms, must be in every domain.
        spread: Hard topology spread.
        alone: Claims of volumes that one pod of the cluster can use at a time.
        volumes: What is attached to its node once, however many pods use it there: the amount of
            the node by which such volumes are counted, and which volume it is.
    """

    ports: tuple[HostPort, ...] = ()
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    space: tuple[tuple[str, str], ...] = ()
    apart: tuple[PodTerm, ...] = ()
    near: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadLimit, ...] = ()
    alone: tuple[Key, ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()

    @cached_property
    def _hash(self) -> int:
        identity = (self.namespace, self.labels, self.space)
        claims = (self.alone, self.volumes)
        return hash((self.ports, *identity, self.apart, self.near, self.spread, *claims))

    def __hash__(self) -> int:
        return self._hash

    @property
    def has_demands(self) -> bool:
        """True if it demands anything of other pods; else only others' demands are about it."""
        of_pods = self.ports or self.apart or self.near or self.spread
        return bool(of_pods or self.alone or self.volumes)

    @cached_property
    def selectors(self) -> tuple[PodSelector, ...]:
        """The other pods that its demands are about, each selector once."""
        terms = (term.pods for term in (*self.near, *self.apart))
        return tuple(dict.fromkeys((*terms, *(limit.pods for limit in self.spread))))

    @property
    def words(self) -> tuple[str, ...]:
        """Its demands on other pods."""
        numbers = sorted({port.number for port in self.ports})
        return (
            *((f"host port {', '.join(map(str, numbers))}",) if numbers else ()),
            *(f"required pod affinity on {term.key}" for term in self.near),
            *(f"required pod anti-affinity on {term.key}" for term in self.apart),
            *(f"topology spread over {limit.key}" for limit in self.spread),
            *(f"claim {name}, which one pod at a time can use" for _, name in self.alone),
            *(
                f"attached volumes of driver {name}"
                for name in dict.fromkeys(n.removeprefix(ATTACHABLE) for n, _ in self.volumes)
            ),
        )


# --- preferences: what a pod would rather have ---
#
# They choose among the places of a gang that starts (bireme.core.preferences), and nothing else.

PLUGIN_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "ImageLocality": 1,
}
"""Weights of kube-scheduler's score plugins in its default profile."""
MAX_WEIGHT = 100
"""The most that a preference weighs by itself, and the weight of those that state none."""


@dataclass(frozen=True, slots=True)
class PodPreference:
    """Other pods that a pod would rather be near, apart from, or evenly spread with: one of them.

    For ``weight`` see :class:`Preferences`.
    """

    weight: int
    near: PodTerm | None = None
    apart: PodTerm | None = None
    spread: SpreadLimit | None = None


@dataclass(frozen=True, slots=True)
class Preferences:
    """What pods of one template would rather have, beside untainted nodes.

    Weights are products: of that of kube-scheduler's score plugin, and the preference's own.
    """

    nodes: tuple[NodePreference, ...] = ()
    pods: tuple[PodPreference, ...] = ()

    def with_node(self, more: NodePreference) -> "Preferences":
        """Return them and one more."""
        return Preferences((*self.nodes, more), self.pods)


NO_PREFERENCES = Preferences()

# --- gangs ---


class Role(StrEnum):
    """Role of a replica in distributed training."""

    MASTER = "master"
    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"

    @property
    def default_priority(self) -> int:
        """Intra-job order where the task states none: the highest must be up before the others."""
        return _DEFAULT_PRIORITY[self]

    @property
    def is_leading(self) -> bool:
        """True for the role of which a job has one replica, which leads the others."""
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
    for gangs whose pods another controller made; empty for pods the operator will create. ``pod``
    is None where no rule looks at other pods for its sake, or at its own for theirs.
    """

    name: str
    replicas: int
    request: Request
    role: Role = Role.WORKER
    min_replicas: int = 0
    """The fewest replicas the gang may start with; 0 means all of them."""
    priority: int = 50
    constraints: NodeConstraints = ANYWHERE
    members: tuple[str, ...] = ()
    max_replicas: int = 0
    """The most it may grow to while it runs; 0 means ``replicas``."""
    charges: tuple[tuple[str, Request], ...] = ()
    """What one replica uses of each quota of its namespace (:mod:`bireme.core.quotas`)."""
    pod: PodKind | None = None
    preferences: Preferences = NO_PREFERENCES

    @property
    def minimum(self) -> int:
        """The fewest replicas of this task a start may have."""
        return self.min_replicas or self.replicas

    @property
    def maximum(self) -> int:
        """The most replicas of this task the gang may grow to."""
        return self.max_replicas or self.replicas


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The last progress report of a job, with what must be kept of earlier ones.

    A tenant writes it, so every number may be wrong; :mod:`bireme.core.estimates` limits its
    effect. None stands for a number that the job does not report.

    Attributes:
        reported: When the report arrived, POSIX seconds.
        fraction: Share of the training that is done, from 0 to 1.
        remaining_seconds: How much longer the job expects to run.
        steps: Steps done since training began.
        worst_loss: The largest loss of all reports.
        accuracy: From 0 to 1.
        accuracy_gain: Accuracy of the last report that has one, less that of the one before.
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
        arrived: POSIX seconds; each stop moves it on by the time the gang has run, so that only
            its waiting counts as waiting.
        parked: Since when it stands in no line, because it could not start however long it waited,
            POSIX seconds: that is no waiting. None in line.
        uncounted_seconds: Part of its wait that its bound does not count: the quota, the claims or
            the other jobs of its namespace kept it, and not a lack of capacity.
        uncounted_since: Since when that is so now, POSIX seconds; None where it lacks capacity.
        min_available: The fewest replicas, over all tasks, that make a start; 0 means the sum of
            the tasks' minima.
        interrupted: It has run before and lost its places through no fault of its own.
        displaced: That was the loss of a node, or of pods that others made, or it was stopped for
            nobody else (maintenance, faster GPUs): the hole, and where it goes, are its own.
        fault: A fault found before the cycle (a missing PriorityClass, a template the API server
            rejected): such a gang is held.
        foretold: Request of all its pods together, where ``fault`` is that not all exist yet.
        queue_source: What names ``queue`` where not its own spec does, in words.
        left_to_scheduler: What of its pods' demands is not planned, in words; mostly empty. Room is
            then kept at the planned nodes, and kube-scheduler chooses the nodes.
        user: Its submitter, for service and for the history of run times: its namespace.
        estimated_seconds: Expected run time of a start.
        is_learned_estimate: The estimate is from the history of run times, not the owner.
        attained_seconds: Run time of earlier starts.
        evictions: Number of times it has made room for others.
        yields: Those of them by which it gave back places that were lent to it.
        min_runtime_seconds: How long a start may not be preempted, as far as settings and queues
            let it; None takes the setting.
        may_preempt: Others may be stopped for it (PriorityClass ``preemptionPolicy``).
        is_preemptible: It may be stopped for others.
        is_resumable: After a stop it goes on from a checkpoint, as far as anybody has said: it may
            be stopped for its equals, moved, and lent the places that are reserved for others.
        resume_source: What says so, or that nothing does, in words; empty where nobody asked.
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
        """Return how long it has waited ``until`` then; never negative, whatever clocks say."""
        end = until if self.parked is None else min(until, self.parked)
        return max(0.0, end - self.arrived)

    def in_line(self, now: float) -> "Gang":
        """Return the gang as it stands in line from ``now`` on, with the wait that it has."""
        if self.parked is None:
            return self
        made = copy(self)  # with what is cached on it, but for the gang that has this one's wait
        vars(made).pop("_smallest", None)
        vars(made).update(arrived=now - self.wait_seconds(now), parked=None)
        return made

    @cached_property
    def flaw(self) -> str:
        """Fault of the gang itself, with the remedy; empty when it is sound."""
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
        """What all replicas together use of each quota of the namespace, by its name."""
        total: dict[str, dict[str, int]] = {}
        for task in self.tasks:
            for quota, amounts in task.charges:
                total[quota] = add(total.get(quota, {}), amounts, task.replicas)
        return total

    @cached_property
    def shape(self) -> Shape:
        """The equivalence class of the gang: gangs of equal shape fit alike."""
        # Task names are part of it, because messages remembered under a shape contain them.
        tasks = tuple((t.name, t.role, t.replicas, t.request, t.constraints) for t in self.tasks)
        if not self.has_rules:
            return Shape((tasks, self.role_affinity))
        return Shape((tasks, self.role_affinity, tuple(task.pod for task in self.tasks)))

    @cached_property
    def has_rules(self) -> bool:
        """True if its places depend on which other pods are where."""
        return any(task.pod is not None for task in self.tasks)

    @cached_property
    def has_spread(self) -> bool:
        """True if its pods are to be spread over domains."""
        return any(task.pod is not None and task.pod.spread for task in self.tasks)

    @cached_property
    def has_demands(self) -> bool:
        """True if its pods demand anything of other pods."""
        return any(task.pod is not None and task.pod.has_demands for task in self.tasks)

    @cached_property
    def has_preferences(self) -> bool:
        """True if its pods would rather have some places than others."""
        return any(task.preferences != NO_PREFERENCES for task in self.tasks)

    @property
    def at_minimum(self) -> "Gang":
        """The gang cut to the smallest size it may start with; ``self`` when it cannot shrink."""
        return self._smallest or self

    @cached_property
    def _smallest(self) -> "Gang | None":
        # None where that is the gang itself: one that held itself would be freed by the garbage
        # collector alone.
        sizes = {task.name: task.minimum for task in self.tasks}
        short = self.min_available - sum(sizes.values())
        # Replicas above the minima, until there are min_available: the most important tasks first.
        for task in sorted(self.tasks, key=lambda t: (-t.priority, t.name)):
            extra = min(max(short, 0), task.replicas - sizes[task.name])
            sizes[task.name] += extra
            short -= extra
        if all(sizes[task.name] == task.replicas for task in self.tasks):
            return None
        return self.resized(sizes)

    def resized(self, sizes: Mapping[str, int]) -> "Gang":
        """Return the gang with ``sizes[task name]`` replicas; tasks at zero are dropped."""
        tasks = tuple(
            replace(task, replicas=sizes[task.name], members=task.members[: sizes[task.name]])
            for task in self.tasks
            if sizes[task.name] > 0
        )
        return replace(self, tasks=tasks)

    def tasks_in_order(self) -> tuple[Task, ...]:
        """Return the tasks by intra-job priority, highest first; ties in their written order."""
        return tuple(sorted(self.tasks, key=lambda task: -task.priority))
