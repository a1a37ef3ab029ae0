"""What-if: where and when a gang would start, behind whom, and what would make it start sooner.

The gang waits in a copy of the snapshot as it would be: changed, or added. That copy is played
forward (:mod:`bireme.core.outlook`) until the gang starts. Then alternatives are tried, each in a
copy of its own and only for as long as it could still be sooner: those that the reader names, fewer
replicas, and an estimate that lets the gang go first where it delays nobody.

What is asked and answered is plain data, which can be sent. **Names of others do not leak**: a gang
is named only where the reader may read its namespace, any other is counted. Messages name none
either (:mod:`bireme.core.messages`).

**It is bounded**: in alternatives by :data:`MAX_TRIES`, in each of them by the bounds of an
outlook, and in time by ``is_time_left``, which is asked after every cycle.
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
"""Alternatives that are tried at most; what the reader names comes first."""
MAX_NAMED: Final = 5
"""Gangs that an answer names at most, of those ahead and of those that stop."""
_MAX_ESTIMATES: Final = 3
_MIN_SECONDS: Final = 60.0
"""No shorter estimate is proposed: a start takes a part of that."""


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
class Change:
    """What would be different about a gang.

    Attributes:
        replicas: By task name; the name "" stands for the only task, or the only one of workers.
        queue: Its queue; "" leaves it.
        priority_class: None leaves it.
        estimated_seconds: The run time that its owner states; None leaves it.
    """

    replicas: Mapping[str, int] = field(default_factory=dict)
    queue: str = ""
    priority_class: PriorityClass | None = None
    estimated_seconds: float | None = None


NO_CHANGE: Final = Change()


def find_waiting(
    snapshot: ClusterSnapshot, key: Key, kind: str, readable: Collection[str] | None = None
) -> Gang:
    """Return the waiting gang of ``key``; raises WhatIfError where there is none to be read.

    ``readable`` are the namespaces that the reader may read; None stands for all.
    """
    shown = f"{kind} {key[0]}/{key[1]}"
    if readable is None or key[0] in readable:
        for gang in snapshot.waiting:
            if (gang.key, gang.kind) == (key, kind):
                return gang
        if any((held.gang.key, held.gang.kind) == (key, kind) for held in snapshot.running):
            raise WhatIfError(f"{shown} has its places already; ask about a job that waits")
    raise WhatIfError(f"no {shown} waits; name one that does")


def with_gang(snapshot: ClusterSnapshot, gang: Gang) -> ClusterSnapshot:
    """Return the snapshot in which ``gang`` waits, instead of the one with its uid if any does.

    Raises WhatIfError where another gang has its name.
    """
    others = [each for each in snapshot.waiting if each.uid != gang.uid]
    there = [*others, *(held.gang for held in snapshot.running if held.gang.uid != gang.uid)]
    if any((each.key, each.kind) == (gang.key, gang.kind) for each in there):
        shown = f"{gang.namespace}/{gang.name}"
        raise WhatIfError(
            f"metadata.name: a {gang.kind} {shown} exists already; give it another name"
        )
    return replace(snapshot, waiting=(*others, gang))


def changed(gang: Gang, change: Change, snapshot: ClusterSnapshot) -> Gang:
    """Return ``gang`` after ``change``; raises WhatIfError where the API server would refuse it.

    One that asks for more than before waits anew, as after an edit of its spec.
    """
    asked = gang
    if change.replicas:
        asked = _at_size(asked, change.replicas)
    if change.queue:
        if change.queue not in snapshot.queues:
            raise WhatIfError(f"queue: there is no queue {change.queue!r}; name one that exists")
        asked = replace(asked, queue=change.queue, queue_source="")
    if (found := change.priority_class) is not None:
        asked = replace(asked, priority=found.value, may_preempt=found.may_preempt)
        if asked.fault is not None and asked.fault[0] is Reason.PRIORITY_CLASS_NOT_FOUND:
            asked = replace(asked, fault=None)
    if (seconds := change.estimated_seconds) is not None:
        if not 0 < seconds <= MAX_SECONDS:
            raise WhatIfError(
                f"estimate: {seconds} s is no run time; write one above 0 and of ten years at most"
            )
        asked = replace(asked, estimated_seconds=seconds, is_learned_estimate=False)
    if any(amount > gang.demand.get(name, 0) for name, amount in asked.demand.items()):
        return replace(asked, arrived=snapshot.now, parked=None)
    return asked


def _at_size(gang: Gang, sizes: Mapping[str, int]) -> Gang:
    if gang.kind != "TrainingJob":
        raise WhatIfError(
            f"replicas: the pods of {gang.kind} {gang.name} are made by another controller; "
            "ask about another queue or estimate"
        )
    by_name = {_task(gang, name).name: size for name, size in sizes.items()}
    tasks = tuple(
        _resized(task, by_name[task.name]) if task.name in by_name else task for task in gang.tasks
    )
    made = replace(gang, tasks=tasks)
    if gang.min_available > made.replicas:
        raise WhatIfError(
            f"replicas: the tasks would have {made.replicas} together, below minAvailable "
            f"{gang.min_available}; name at least as many"
        )
    return made


def _task(gang: Gang, name: str) -> Task:
    if not name:
        meant = gang.tasks if len(gang.tasks) == 1 else _workers(gang)
        if len(meant) == 1:
            return meant[0]
        known = ", ".join(task.name for task in gang.tasks)
        raise WhatIfError(f"replicas: {gang.name} has tasks {known}; say of which, as NAME=COUNT")
    for task in gang.tasks:
        if task.name == name:
            return task
    hint = nearest(name, (task.name for task in gang.tasks))
    raise WhatIfError(f"replicas: {gang.name} has no task {name!r}; {hint}")


def _workers(gang: Gang) -> tuple[Task, ...]:
    return tuple(task for task in gang.tasks if task.role is Role.WORKER)


def _resized(task: Task, replicas: int) -> Task:
    least, most = max(task.min_replicas, 1), task.max_replicas or math.inf
    if task.role.is_leading:
        most = 1
    if not least <= replicas <= most:
        allowed = f"from {least} to {most}" if most < math.inf else f"at least {least}"
        raise WhatIfError(
            f"replicas: task {task.name!r} cannot have {replicas}; name {allowed}, as its "
            "minReplicas, maxReplicas and role allow"
        )
    return replace(task, replicas=replicas)


# --- the answer ---


class Begins(StrEnum):
    """What the start of a gang depends on."""

    AT_ONCE = "AtOnce"
    AFTER_STOPS = "AfterStops"
    """It starts as soon as those are gone that are stopped or shrunk for it."""
    AFTER_ENDS = "AfterEnds"
    """It starts as soon as what runs there ends, which does not say when."""
    LATER = "Later"
    NOT_FORESEEN = "NotForeseen"


@dataclass(frozen=True, slots=True)
class Others:
    """Other gangs: how many, and of those that the reader may read the first, as NAMESPACE/NAME."""

    count: int = 0
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The start that is foreseen for a gang.

    Attributes:
        start: POSIX seconds; the moment of the snapshot for all that :attr:`begins` without a
            time. None where none is foreseen.
        nodes: Replicas by task and node name, at the size at which it starts.
        position: Its number in line, from 1; None where it starts at once or stands in no line.
        ahead: The gangs before it in line.
        reason: What it waits for at present; None where it starts at once.
        message: The same in words.
        stops, shrinks: Gangs that make room for it, until it starts.
        cut: Why no start is foreseen; None where one is.
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

    change: Change
    foreseen: Foreseen


@dataclass(frozen=True, slots=True)
class Answer:
    """What is foreseen for a gang, and what would make it sooner.

    Attributes:
        now: The moment of the snapshot, POSIX seconds.
        kind, namespace, name: Of the gang.
        queue, replicas, priority, estimated_seconds: Of the gang as it is asked about; the replicas
            by task.
        sooner: What would make it start sooner, the soonest first.
        no_sooner: What was tried in vain.
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
    foreseen: Foreseen
    sooner: tuple[Alternative, ...] = ()
    no_sooner: tuple[Change, ...] = ()
    is_cut_short: bool = False


_USUAL_BOUNDS: Final = Bounds()


def _always() -> bool:
    return True


def ask(
    snapshot: ClusterSnapshot,
    policy: Policy,
    gang: Gang,
    change: Change = NO_CHANGE,
    tries: Sequence[Change] = (),
    *,
    readable: Collection[str] | None = None,
    bounds: Bounds = _USUAL_BOUNDS,
    is_time_left: Callable[[], bool] = _always,
) -> Answer:
    """Return when ``gang`` would start after ``change``, and which further change makes it sooner.

    Args:
        snapshot: The cluster; ``gang`` waits in it or is added to it.
        policy: It is asked as in a cycle, so it must not learn from being asked.
        gang: The gang as it is, or as it would be submitted.
        change: What is different about it.
        tries: Alternatives to try first, each on top of ``change``.
        readable: The namespaces whose gangs the answer may name; None stands for all.
        bounds: How far, and how finely, the snapshot is played forward.
        is_time_left: Asked after every cycle; False ends the answer with what is known by then.

    Raises:
        WhatIfError: A change cannot be made, the gang's name is another's, or its namespace may not
            be read: messages name gangs of that.
    """
    if readable is not None and gang.namespace not in readable:
        raise WhatIfError(
            f"namespace: {gang.namespace!r} may not be read; ask for the right, or about another"
        )
    asked = changed(gang, change, snapshot)
    named = [_with_names(asked, each) for each in tries]
    tried = [(each, changed(asked, each, snapshot), False) for each in named]
    question = _Question(with_gang(snapshot, asked), policy, readable, bounds, is_time_left)
    decision, foreseen = question.foresee(asked, bounds.horizon_seconds)
    sooner: list[Alternative] = []
    no_sooner: list[Change] = []
    if foreseen.begins is not Begins.AT_ONCE:
        estimates = _shorter_estimates(asked, decision, snapshot)
        tried += [(each, changed(asked, each, snapshot), False) for each in estimates]
        fewer = [each for each in _fewer_replicas(asked) if each not in named]
        tried += [(each, changed(asked, each, snapshot), True) for each in fewer]
        best = foreseen
        for each, as_tried, is_rung in tried[:MAX_TRIES]:
            if question.is_cut_short:
                break
            # Fewer replicas must do better than more of them, or the larger size is the advice.
            against = best if is_rung else foreseen
            _, found = question.foresee(as_tried, question.seconds_to_beat(against))
            if question.is_cut_short:
                break
            if not question.is_sooner(found, against):
                no_sooner.append(each)
                continue
            sooner.append(Alternative(each, found))
            if is_rung:
                best = found
    sooner.sort(key=lambda each: question.rank(each.foreseen))
    return Answer(
        now=snapshot.now,
        kind=asked.kind,
        namespace=asked.namespace,
        name=asked.name,
        queue=asked.queue,
        replicas={task.name: task.replicas for task in asked.tasks},
        priority=asked.priority,
        estimated_seconds=asked.estimated_seconds,
        foreseen=foreseen,
        sooner=tuple(sooner),
        no_sooner=tuple(no_sooner),
        is_cut_short=question.is_cut_short,
    )


class _Question:
    """One question: the snapshot in which the gang waits as it is asked about."""

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

    def foresee(self, gang: Gang, horizon_seconds: float) -> tuple[Decision, Foreseen]:
        """Return the decision on ``gang`` as it is here, and its start within the horizon."""
        snapshot = with_gang(self._snapshot, gang)
        decision = run_cycle(snapshot, self._policy)
        bounds = replace(self._bounds, horizon_seconds=horizon_seconds)
        play = Play(snapshot, decision, self._policy, bounds)
        stopped: dict[str, Gang] = {}
        shrunk: dict[str, Gang] = {}
        admit: tuple[float, Admit] | None = None
        for moment, told in play:
            for made in _made_room(told, gang.uid, self._begun(moment)):
                (stopped if isinstance(made, Preempt) else shrunk)[made.gang.uid] = made.gang
            starts = (each for each in told.admitted if each.gang.uid == gang.uid)
            if (found := next(starts, None)) is not None:
                admit = moment, found
                break
            if not self._is_time_left():
                self.is_cut_short = True
                break
        hold = next((each for each in decision.held if each.gang.uid == gang.uid), None)
        position = hold.position if hold is not None else None
        return decision, Foreseen(
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

    def _begun(self, moment: float) -> list[int]:
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
            f"{each.namespace}/{each.name}"
            for each in every
            if self._readable is None or each.namespace in self._readable
        ]
        return Others(len(every), tuple(readable[:MAX_NAMED]))

    # --- comparing ---

    def rank(self, foreseen: Foreseen) -> tuple[float, int]:
        """Return the sort key by which the sooner start comes first."""
        if foreseen.start is None:
            return math.inf, 0
        return foreseen.start, _ORDER.index(foreseen.begins)

    def seconds_to_beat(self, foreseen: Foreseen) -> float:
        """Return within how many seconds another start must come to be sooner."""
        if foreseen.start is None:
            return self._bounds.horizon_seconds
        seconds = foreseen.start - self._snapshot.now
        return max(0.0, seconds - self._step_seconds(seconds))

    def is_sooner(self, found: Foreseen, than: Foreseen) -> bool:
        """Return whether ``found`` is sooner by more than starts are foreseen exactly."""
        if found.start is None or than.start is None:
            return found.start is not None
        if found.begins is Begins.AFTER_ENDS:
            return False  # nobody can say when that is
        if found.start <= self._snapshot.now:
            return self.rank(found) < self.rank(than)
        seconds = than.start - self._snapshot.now
        return than.start - found.start > self._step_seconds(seconds)

    def _step_seconds(self, seconds: float) -> float:
        """Return how much too late a start so far ahead may be foreseen."""
        if not self._bounds.coarseness:
            return 0.0
        return max(self._bounds.coarseness * seconds, self._bounds.least_step_seconds)


_ORDER: Final = tuple(Begins)


def _made_room(decision: Decision, uid: str, begun: Sequence[int]) -> Iterator[Preempt | Resize]:
    """Yield what stops or shrinks for the gang ``uid``: it comes right before that is held.

    What holds places on the rows ``begun`` shrinks for the maintenance there, before all others.
    """
    run: list[Preempt | Resize] = []
    for action in decision.actions:
        if isinstance(action, Preempt):
            run.append(action)
            continue
        if isinstance(action, Resize):
            if not np.isin(action.running.placement.node_rows(), begun).any():
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
    places = [(held.position, held.gang) for held in decision.held if held.position is not None]
    places.sort(key=lambda each: each[0])
    return [gang for at, gang in places if at < position]


# --- what is tried of itself ---


def _fewer_replicas(gang: Gang) -> Iterator[Change]:
    """Yield smaller sizes of the largest task, the largest first.

    One that states a minimum has said what is enough, and starts at that already.
    """
    if gang.kind != "TrainingJob" or gang.min_available or not gang.tasks:
        return
    largest = max(gang.tasks, key=lambda task: task.replicas)
    if largest.min_replicas:
        return
    n = largest.replicas
    for size in sorted({3 * n // 4, n // 2, n // 4, 1} - {0, n}, reverse=True):
        yield Change(replicas={largest.name: size})


def _shorter_estimates(
    gang: Gang, decision: Decision, snapshot: ClusterSnapshot
) -> Iterator[Change]:
    """Yield estimates with which it would end before what keeps it from starting."""
    kept = (each.reservation for each in decision.held if each.gang.uid != gang.uid)
    ends = {each.start for each in kept if each is not None and not each.is_closed}
    ends |= {window.begins for window in snapshot.nodes.windows.values()}
    known = gang.estimated_seconds
    lengths = (math.floor(end - snapshot.now) for end in sorted(ends))
    useful = [n for n in lengths if n >= _MIN_SECONDS and (known is None or n < known)]
    for seconds in useful[:_MAX_ESTIMATES]:
        yield Change(estimated_seconds=float(seconds))


def _with_names(gang: Gang, change: Change) -> Change:
    """Return ``change`` with the names of the tasks that it means."""
    by_name = {_task(gang, name).name: size for name, size in change.replicas.items()}
    return replace(change, replicas=by_name)
