"""What-if: where and when a gang would start, behind which gangs, and what would make it sooner.

The gang waits in a copy of the snapshot, changed or added. That copy is played forward
(:mod:`bireme.core.outlook`) until the gang starts. Then alternatives are tried, each in its own
copy and only while it could still be sooner: the reader's own, fewer replicas, and an estimate that
lets the gang go first where it delays no other gang.

Questions and answers are plain data that can be sent. **Names of others do not leak**: an answer
names a gang only if the reader may read its namespace, and counts any other. Messages name none
either (:mod:`bireme.core.messages`).

**It is bounded**: in alternatives by :data:`MAX_TRIES`, in each of them by the bounds of an
outlook, and in time by ``is_time_left``, which is called after every cycle.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Hold, Preempt, Resize
from bireme.core.errors import BiremeError, nearest
from bireme.core.gangs import Gang, Key, Role, Task
from bireme.core.play import Bounds, Cut, Play
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import MAX_SECONDS

MAX_TRIES: Final = 12
"""The limit on alternatives; those that the reader names come first."""
MAX_NAMED: Final = 5
"""The limit on gangs that an answer names, of gangs ahead and of gangs that stop."""
_MAX_ESTIMATES: Final = 3
_MIN_SECONDS: Final = 60.0
"""The shortest proposed estimate: a start takes a part of it."""


class WhatIfError(BiremeError):
    """A question that cannot be asked; the text names the field, its value and the remedy."""


# --- the question ---


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass of Kubernetes; gangs of it stop others only if it ``may_preempt``."""

    name: str
    value: int
    may_preempt: bool = True


@dataclass(frozen=True, slots=True)
class GangChange:
    """Changes to a gang.

    Attributes:
        replicas: By task name; the name "" stands for the only task, or the only one of workers.
        queue: Its queue; "" keeps the present one.
        priority_class: None keeps the present one.
        estimated_seconds: The run time that its owner states; None keeps the present one.
    """

    replicas: Mapping[str, int] = field(default_factory=dict)
    queue: str = ""
    priority_class: PriorityClass | None = None
    estimated_seconds: float | None = None


NO_CHANGE: Final = GangChange()


def find_waiting(
    snapshot: ClusterSnapshot, key: Key, kind: str, readable: Collection[str] | None = None
) -> Gang:
    """Return the waiting gang of ``key``; raises WhatIfError if there is none that may be read.

    ``readable`` are the namespaces that the reader may read; None stands for all.
    """
    label = f"{kind} {key[0]}/{key[1]}"
    if readable is None or key[0] in readable:
        for gang in snapshot.waiting:
            if (gang.key, gang.kind) == (key, kind):
                return gang
        if any(
            (running.gang.key, running.gang.kind) == (key, kind) for running in snapshot.running
        ):
            raise WhatIfError(f"{label} has its places already; ask about a job that waits")
    raise WhatIfError(f"no {label} waits; name one that does")


def with_gang(snapshot: ClusterSnapshot, gang: Gang) -> ClusterSnapshot:
    """Return the snapshot in which ``gang`` waits, instead of the waiting gang with its uid, if
    any.

    Raises WhatIfError if another gang has its name.
    """
    other_waiting = [other for other in snapshot.waiting if other.uid != gang.uid]
    gangs = [
        *other_waiting,
        *(running.gang for running in snapshot.running if running.gang.uid != gang.uid),
    ]
    if any((other.key, other.kind) == (gang.key, gang.kind) for other in gangs):
        label = f"{gang.namespace}/{gang.name}"
        raise WhatIfError(
            f"metadata.name: a {gang.kind} {label} exists already; give it another name"
        )
    return replace(snapshot, waiting=(*other_waiting, gang))


def apply_change(gang: Gang, change: GangChange, snapshot: ClusterSnapshot) -> Gang:
    """Return ``gang`` after ``change``; raises WhatIfError where the API server would refuse it.

    A gang that requests more than before starts to wait anew, as after an edit of its spec.
    """
    result = gang
    if change.replicas:
        result = _at_size(result, change.replicas)
    if change.queue:
        if change.queue not in snapshot.queues:
            raise WhatIfError(f"queue: there is no queue {change.queue!r}; name one that exists")
        result = replace(result, queue=change.queue, queue_source="")
    if (priority_class := change.priority_class) is not None:
        result = replace(
            result, priority=priority_class.value, may_preempt=priority_class.may_preempt
        )
        if result.fault is not None and result.fault[0] is Reason.PRIORITY_CLASS_NOT_FOUND:
            result = replace(result, fault=None)
    if (seconds := change.estimated_seconds) is not None:
        if not 0 < seconds <= MAX_SECONDS:
            raise WhatIfError(
                f"estimate: {seconds} s is no run time; write one above 0 and of ten years at most"
            )
        result = replace(result, estimated_seconds=seconds, is_learned_estimate=False)
    if any(amount > gang.demand.get(name, 0) for name, amount in result.demand.items()):
        return replace(result, arrived=snapshot.now, parked=None)
    return result


def _at_size(gang: Gang, sizes: Mapping[str, int]) -> Gang:
    if gang.kind != "TrainingJob":
        raise WhatIfError(
            f"replicas: the pods of {gang.kind} {gang.name} are made by another controller; "
            "ask about another queue or estimate"
        )
    by_name = {_task(gang, name).name: size for name, size in sizes.items()}
    tasks = tuple(
        _with_replicas(task, by_name[task.name]) if task.name in by_name else task
        for task in gang.tasks
    )
    result = replace(gang, tasks=tasks)
    if gang.min_available > result.replicas:
        raise WhatIfError(
            f"replicas: the tasks would have {result.replicas} together, below minAvailable "
            f"{gang.min_available}; name at least as many"
        )
    return result


def _task(gang: Gang, name: str) -> Task:
    if not name:
        candidates = gang.tasks if len(gang.tasks) == 1 else _workers(gang)
        if len(candidates) == 1:
            return candidates[0]
        names = ", ".join(task.name for task in gang.tasks)
        raise WhatIfError(f"replicas: {gang.name} has tasks {names}; name one, as NAME=COUNT")
    for task in gang.tasks:
        if task.name == name:
            return task
    hint = nearest(name, (task.name for task in gang.tasks))
    raise WhatIfError(f"replicas: {gang.name} has no task {name!r}; {hint}")


def _workers(gang: Gang) -> tuple[Task, ...]:
    return tuple(task for task in gang.tasks if task.role is Role.WORKER)


def _with_replicas(task: Task, replicas: int) -> Task:
    min_replicas, max_replicas = max(task.min_replicas, 1), task.max_replicas or math.inf
    if task.role.is_leading:
        max_replicas = 1
    if not min_replicas <= replicas <= max_replicas:
        allowed = (
            f"from {min_replicas} to {max_replicas}"
            if max_replicas < math.inf
            else f"at least {min_replicas}"
        )
        raise WhatIfError(
            f"replicas: task {task.name!r} cannot have {replicas}; name {allowed}, as its "
            "minReplicas, maxReplicas and role allow"
        )
    return replace(task, replicas=replicas)


# --- the answer ---


class Begins(StrEnum):
    """The condition for the start of a gang."""

    AT_ONCE = "AtOnce"
    AFTER_STOPS = "AfterStops"
    """It starts once the gangs that stop or shrink for it have done so."""
    AFTER_ENDS = "AfterEnds"
    """It starts once running gangs end, whose end is unknown."""
    LATER = "Later"
    NOT_FORESEEN = "NotForeseen"


@dataclass(frozen=True, slots=True)
class Others:
    """Other gangs: their number, and the first that the reader may read, as NAMESPACE/NAME."""

    count: int = 0
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """The expected start of a gang.

    Attributes:
        start: POSIX seconds; the moment of the snapshot for every :attr:`begins` without a time.
            None if no start is foreseen.
        nodes: Replicas by task and node name, at the size at which it starts.
        position: Its number in the queue, from 1; None if it starts at once or does not queue.
        ahead: The gangs before it in the queue.
        reason: The present reason for its wait; None if it starts at once.
        message: The same in words.
        stops, shrinks: Gangs that make room for it, until it starts.
        cut: Why no start is foreseen; None if one is.
    """

    begins: Begins
    start: float | None
    nodes: Mapping[str, Mapping[str, int]]
    position: int | None
    ahead: Others
    reason: Reason | None
    message: str
    stops: Others
    shrinks: Others
    cut: Cut | None


@dataclass(frozen=True, slots=True)
class Alternative:
    """A change, and the start that it would lead to."""

    change: GangChange
    foreseen: ExpectedStart


@dataclass(frozen=True, slots=True)
class Answer:
    """The expected start of a gang, and changes that would make it sooner.

    Attributes:
        now: The moment of the snapshot, POSIX seconds.
        kind, namespace, name: They identify the gang.
        queue, replicas, priority, estimated_seconds: The gang's in the question; the replicas by
            task.
        sooner: Changes that would make it start sooner, the soonest first.
        no_sooner: Changes that would not.
        is_cut_short: There was no time to try everything.
    """

    now: float
    kind: str
    namespace: str
    name: str
    queue: str
    replicas: Mapping[str, int]
    priority: int
    estimated_seconds: float | None
    foreseen: ExpectedStart
    sooner: tuple[Alternative, ...] = ()
    no_sooner: tuple[GangChange, ...] = ()
    is_cut_short: bool = False


_USUAL_BOUNDS: Final = Bounds()


def _always() -> bool:
    return True


def ask(
    snapshot: ClusterSnapshot,
    policy: Policy,
    gang: Gang,
    change: GangChange = NO_CHANGE,
    tries: Sequence[GangChange] = (),
    *,
    readable: Collection[str] | None = None,
    bounds: Bounds = _USUAL_BOUNDS,
    is_time_left: Callable[[], bool] = _always,
) -> Answer:
    """Return when ``gang`` would start after ``change``, and which further changes are sooner.

    Args:
        snapshot: The cluster; ``gang`` waits in it or is added to it.
        policy: It decides as in a cycle, so it must not learn from these calls.
        gang: The gang as it is, or as it would be submitted.
        change: The change of the question.
        tries: Alternatives to try first, each on top of ``change``.
        readable: The namespaces whose gangs the answer may name; None stands for all.
        bounds: How far, and how finely, the snapshot is played forward.
        is_time_left: Called after every cycle; False ends the search with the results so far.

    Raises:
        WhatIfError: A change is impossible, another gang has the name, or the namespace may not be
            read: messages name gangs of that namespace.
    """
    if readable is not None and gang.namespace not in readable:
        raise WhatIfError(
            f"namespace: you may not read {gang.namespace!r}; ask for the right, or name another "
            "namespace"
        )
    subject = apply_change(gang, change, snapshot)
    named = [_with_names(subject, attempt) for attempt in tries]
    attempts = [(attempt, apply_change(subject, attempt, snapshot), False) for attempt in named]
    question = _Question(with_gang(snapshot, subject), policy, readable, bounds, is_time_left)
    decision, foreseen = question.foresee(subject, bounds.horizon_seconds)
    sooner: list[Alternative] = []
    no_sooner: list[GangChange] = []
    if foreseen.begins is not Begins.AT_ONCE:
        estimates = _shorter_estimates(subject, decision, snapshot)
        attempts += [
            (attempt, apply_change(subject, attempt, snapshot), False) for attempt in estimates
        ]
        fewer = [attempt for attempt in _fewer_replicas(subject) if attempt not in named]
        attempts += [(attempt, apply_change(subject, attempt, snapshot), True) for attempt in fewer]
        best = foreseen
        for attempt, as_tried, is_rung in attempts[:MAX_TRIES]:
            if question.is_cut_short:
                break
            # Fewer replicas must do better than more of them, or the larger size is the advice.
            against = best if is_rung else foreseen
            _, result = question.foresee(as_tried, question.seconds_to_beat(against))
            if question.is_cut_short:
                break
            if not question.is_sooner(result, against):
                no_sooner.append(attempt)
                continue
            sooner.append(Alternative(attempt, result))
            if is_rung:
                best = result
    sooner.sort(key=lambda alternative: question.rank(alternative.foreseen))
    return Answer(
        now=snapshot.now,
        kind=subject.kind,
        namespace=subject.namespace,
        name=subject.name,
        queue=subject.queue,
        replicas={task.name: task.replicas for task in subject.tasks},
        priority=subject.priority,
        estimated_seconds=subject.estimated_seconds,
        foreseen=foreseen,
        sooner=tuple(sooner),
        no_sooner=tuple(no_sooner),
        is_cut_short=question.is_cut_short,
    )


class _Question:
    """One question: the snapshot in which the gang waits as the question describes it."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        policy: Policy,
        readable: Collection[str] | None,
        bounds: Bounds,
        is_time_left: Callable[[], bool],
    ) -> None:
        self._snapshot, self._policy, self._bounds = snapshot, policy, bounds
        self._readable, self._is_time_left = readable, is_time_left
        self.is_cut_short = False

    # --- playing ---

    def foresee(self, gang: Gang, horizon_seconds: float) -> tuple[Decision, ExpectedStart]:
        """Return the decision on ``gang`` in this snapshot, and its start within the horizon."""
        snapshot = with_gang(self._snapshot, gang)
        decision = run_cycle(snapshot, self._policy)
        bounds = replace(self._bounds, horizon_seconds=horizon_seconds)
        play = Play(snapshot, decision, self._policy, bounds)
        stopped: dict[str, Gang] = {}
        shrunk: dict[str, Gang] = {}
        admit: tuple[float, Admit] | None = None
        for moment, step_decision in play:
            for action in _victim_actions(step_decision, gang.uid, self._maintenance_rows(moment)):
                (stopped if isinstance(action, Preempt) else shrunk)[action.gang.uid] = action.gang
            starts = (action for action in step_decision.admitted if action.gang.uid == gang.uid)
            if (own_admit := next(starts, None)) is not None:
                admit = moment, own_admit
                break
            if not self._is_time_left():
                self.is_cut_short = True
                break
        hold = next((action for action in decision.held if action.gang.uid == gang.uid), None)
        position = hold.position if hold is not None else None
        return decision, ExpectedStart(
            begins=self._begins(admit, hold),
            start=admit[0] if admit is not None else None,
            nodes=self._places(admit[1]) if admit is not None else {},
            position=position,
            ahead=self._others(_ahead(decision, position)),
            reason=hold.reason if hold is not None else None,
            message=hold.message if hold is not None else "",
            stops=self._others(stopped.values()),
            shrinks=self._others(shrunk.values()),
            cut=play.cut if admit is None else None,
        )

    def _begins(self, admit: tuple[float, Admit] | None, hold: Hold | None) -> Begins:
        if admit is None:
            return Begins.NOT_FORESEEN
        if hold is None:
            return Begins.AT_ONCE
        if admit[0] > self._snapshot.now:
            return Begins.LATER
        is_made = hold.reason is Reason.WAITING_FOR_PREEMPTION
        return Begins.AFTER_STOPS if is_made else Begins.AFTER_ENDS

    def _maintenance_rows(self, moment: float) -> list[int]:
        """Return the rows of nodes under maintenance at ``moment``."""
        nodes = self._snapshot.nodes
        windows = nodes.windows.items()
        return [nodes.row[name] for name, w in windows if w.begins <= moment < w.ends]

    def _places(self, admit: Admit) -> dict[str, dict[str, int]]:
        by_task = admit.placement.by_task(self._snapshot.nodes)
        return {task: dict(Counter(nodes)) for task, nodes in by_task.items()}

    def _others(self, gangs: Iterable[Gang]) -> Others:
        every = list(gangs)
        readable = [
            f"{gang.namespace}/{gang.name}"
            for gang in every
            if self._readable is None or gang.namespace in self._readable
        ]
        return Others(len(every), tuple(readable[:MAX_NAMED]))

    # --- comparing ---

    def rank(self, foreseen: ExpectedStart) -> tuple[float, int]:
        """Return the sort key that puts sooner starts first."""
        if foreseen.start is None:
            return math.inf, 0
        return foreseen.start, _ORDER.index(foreseen.begins)

    def seconds_to_beat(self, foreseen: ExpectedStart) -> float:
        """Return the seconds within which another start must come to be sooner."""
        if foreseen.start is None:
            return self._bounds.horizon_seconds
        seconds = foreseen.start - self._snapshot.now
        return max(0.0, seconds - self._step_seconds(seconds))

    def is_sooner(self, candidate: ExpectedStart, than: ExpectedStart) -> bool:
        """Return whether ``candidate`` is sooner by more than the precision of the forecast."""
        if candidate.start is None or than.start is None:
            return candidate.start is not None
        if candidate.begins is Begins.AFTER_ENDS:
            return False  # its start is unknown
        if candidate.start <= self._snapshot.now:
            return self.rank(candidate) < self.rank(than)
        seconds = than.start - self._snapshot.now
        return than.start - candidate.start > self._step_seconds(seconds)

    def _step_seconds(self, seconds: float) -> float:
        """Return by how much a start ``seconds`` ahead may be foreseen too late."""
        if not self._bounds.coarseness:
            return 0.0
        return max(self._bounds.coarseness * seconds, self._bounds.least_step_seconds)


_ORDER: Final = tuple(Begins)


def _victim_actions(
    decision: Decision, uid: str, maintenance_rows: Sequence[int]
) -> Iterator[Preempt | Resize]:
    """Yield the actions that stop or shrink for the gang ``uid``: they come right before its hold.

    Gangs with places on ``maintenance_rows`` shrink for the maintenance there, before all others.
    """
    run: list[Preempt | Resize] = []
    for action in decision.actions:
        if isinstance(action, Preempt):
            run.append(action)
            continue
        if isinstance(action, Resize):
            if not np.isin(action.running.placement.node_rows(), maintenance_rows).any():
                run.append(action)
            continue
        is_for_it = isinstance(action, Hold) and action.reason is Reason.WAITING_FOR_PREEMPTION
        if is_for_it and action.gang.uid == uid:
            yield from run
        run = []


def _ahead(decision: Decision, position: int | None) -> list[Gang]:
    """Return the gangs in front of ``position``, in order."""
    if position is None:
        return []
    places = [(hold.position, hold.gang) for hold in decision.held if hold.position is not None]
    places.sort(key=lambda pair: pair[0])
    return [gang for place, gang in places if place < position]


# --- alternatives of the program's own ---


def _fewer_replicas(gang: Gang) -> Iterator[GangChange]:
    """Yield smaller sizes of the largest task, the largest first.

    A gang that states a minimum already starts at that size.
    """
    if gang.kind != "TrainingJob" or gang.min_available or not gang.tasks:
        return
    largest = max(gang.tasks, key=lambda task: task.replicas)
    if largest.min_replicas:
        return
    n = largest.replicas
    for size in sorted({3 * n // 4, n // 2, n // 4, 1} - {0, n}, reverse=True):
        yield GangChange(replicas={largest.name: size})


def _shorter_estimates(
    gang: Gang, decision: Decision, snapshot: ClusterSnapshot
) -> Iterator[GangChange]:
    """Yield estimates with which the gang would end before the reservation or window that blocks
    it.
    """
    reservations = (hold.reservation for hold in decision.held if hold.gang.uid != gang.uid)
    ends = {
        reservation.start
        for reservation in reservations
        if reservation is not None and not reservation.is_closed
    }
    ends |= {window.begins for window in snapshot.nodes.windows.values()}
    stated_seconds = gang.estimated_seconds
    lengths = (math.floor(end - snapshot.now) for end in sorted(ends))
    useful = [
        n for n in lengths if n >= _MIN_SECONDS and (stated_seconds is None or n < stated_seconds)
    ]
    for seconds in useful[:_MAX_ESTIMATES]:
        yield GangChange(estimated_seconds=float(seconds))


def _with_names(gang: Gang, change: GangChange) -> GangChange:
    """Return ``change`` with the full names of its tasks."""
    by_name = {_task(gang, name).name: size for name, size in change.replicas.items()}
    return replace(change, replicas=by_name)
