"""RLPTO as a sizer of elastic gangs: ``rlpto-tasks/1``.

A gang that tells how its training goes is a task of the paper, one replica of its first task that
can change (workers before others) is a node, and a report of the accuracy ends an iteration: it
should come once per epoch or evaluation. Gangs keep the size they have, and in every cycle there
are the paper's two steps (section VI.A):

1. Whose last gain in accuracy was below beta gives one node back, once per report. Where no
   accuracy is told, the gain is what the loss fell over the last hundredth of the steps, as a share
   of the largest, if there is a curve of it.
2. The network hands out what is free, node by node, until it says none or nothing fits.

Gangs that tell nothing get what they ask for before others grow. A gang whose training has
converged keeps its minimum: to end it is for its owner.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.gangs import Gang, Role, Task
from bireme.core.policy import Ranked
from bireme.core.resources import BoolArray, FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import (
    Allotment,
    CapacityPool,
    Sizes,
    demand_of,
    resized,
    seconds_for,
    settling,
    steps_done,
    steps_left,
)
from bireme.onnx.sessions import Array, Ask, Shape
from bireme.rl.protocols import GANGS

# What RLPTO's network sees of tasks that train: the paper's seven vectors, made free of scale.
#
# The vectors of section VI.D are, per task: its id m, iterations e, loss l, largest loss n,
# accuracy
# a, node time c and share of the nodes w. An id says nothing to a network that is shared over
# tasks:
# the rows are the ids. Iterations and node times count by their ratio to the middle task's, the
# loss
# as a share of the largest. The agent is called because a gain in accuracy fell
# below beta, so gain and beta are shown too; the paper's agent would have to remember the last
# state
# to know the gain.

TASK_FEATURES: Final = 11
CONTEXT_FEATURES: Final = 4
MIDDLE_BETA: Final = 3e-4
"""The paper's recommendation where accuracy and time both count (section VII)."""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Tasks that train at one moment; arrays have shape (..., tasks) unless said otherwise.

    Attributes:
        done: Iterations, or another measure of how far a task is; nan where nobody knows. Only
            ratios count.
        loss: Now, over the largest it ever had; nan where nobody told.
        accuracy: From 0 to 1; nan where nobody told.
        gain: What the last iteration added to the accuracy; nan where there was none.
        seconds: Of an iteration as it is now; nan where nobody knows. Only ratios count.
        nodes: It has now, in whole nodes.
        share: Of the cluster that it has.
        may_grow, may_shrink: Whether a node can be given to it, or taken from it.
        is_there: False for padding.
        free: Share of the cluster that nobody has, shape (...).
        waiting: Tasks that wait, shape (...).
        beta: The least gain that is worth a node, shape (...).
    """

    done: FloatArray
    loss: FloatArray
    accuracy: FloatArray
    gain: FloatArray
    seconds: FloatArray
    nodes: FloatArray
    share: FloatArray
    may_grow: BoolArray
    may_shrink: BoolArray
    is_there: BoolArray
    free: FloatArray
    waiting: FloatArray
    beta: FloatArray


def task_features(facts: Facts) -> NDArray[np.float32]:
    """One row per task, 0 for padding; shape (..., tasks, TASK_FEATURES), all within [-1, 2]."""
    tasks = np.maximum(facts.is_there.sum(axis=-1), 1)[..., None]
    columns = (
        _beside_the_middle(facts.done, facts.is_there),
        np.nan_to_num(facts.loss, nan=0.5),
        np.nan_to_num(facts.accuracy, nan=0.5),
        _gain_over(facts.beta[..., None], facts.gain),
        np.isnan(facts.gain),
        _beside_the_middle(facts.seconds, facts.is_there),
        facts.share,
        np.minimum(facts.share * tasks, 4.0) / 2,
        1.0 / np.maximum(facts.nodes, 1.0),
        facts.may_grow,
        facts.may_shrink,
    )
    features = np.stack([np.asarray(column, np.float64) for column in columns], axis=-1)
    return np.where(facts.is_there[..., None], features, 0.0).astype(np.float32)


def context_features(facts: Facts) -> NDArray[np.float32]:
    """What is the same for all tasks, shape (..., CONTEXT_FEATURES)."""
    tasks = facts.is_there.sum(axis=-1)
    columns = (
        facts.free,
        np.log10(facts.beta / MIDDLE_BETA),
        facts.waiting / np.maximum(facts.waiting + tasks, 1.0),
        1.0 / np.maximum(tasks, 1.0),
    )
    return np.stack(columns, axis=-1).astype(np.float32)


def _gain_over(beta: FloatArray, gain: FloatArray) -> FloatArray:
    """How many powers of ten the gain is above beta, halved, within [-1, 1]; 0 where unknown."""
    ratio = np.maximum(np.nan_to_num(gain, nan=0.0), 0.0) / beta
    powers = np.clip(np.log10(np.maximum(ratio, 1e-2)) / 2, -1.0, 1.0)
    return np.where(np.isnan(gain), 0.0, powers)


def _beside_the_middle(values: FloatArray, is_there: BoolArray) -> FloatArray:
    """How many powers of four each is above the geometric mean, within [-1, 1]; 0: unknown."""
    is_known = is_there & (values > 0)
    logs = np.log2(np.where(is_known, values, 1.0)) / 2
    middle = logs.sum(axis=-1, keepdims=True) / np.maximum(is_known.sum(-1, keepdims=True), 1)
    return np.where(is_known, np.clip(logs - middle, -1.0, 1.0), 0.0)


MOST_MOVES: Final = 64
"""In one cycle; what is then still free is handed out in the next one."""
_LAST: Final = 0.01
"""Share of the steps over which the fall of a loss is taken for a gain."""


class RlptoTasks:
    """Sizes gangs by single nodes, given and taken."""

    inputs: Mapping[str, Shape] = {
        "tasks": (GANGS, TASK_FEATURES),
        "context": (CONTEXT_FEATURES,),
    }
    beta: float = MIDDLE_BETA

    def sizes(
        self, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Within all bounds; gangs whose size changed lately are left out, they keep theirs."""
        pool = CapacityPool(ranked, snapshot, settling(snapshot))
        telling = pool.measured(lambda gang: gang.progress is not None)
        for allotment in telling:
            pool.fill(allotment, self._before(allotment, snapshot))
        moving = [_Member(each, task) for each in telling if (task := _node_task(each))]
        if moving:
            self._hand_out(ask, _Table(pool, moving, snapshot, self.beta))
        return pool.proposal()

    def _before(self, allotment: Allotment, snapshot: ClusterSnapshot) -> Sizes:
        """The size before the network is asked: the present one, a node less after a low gain."""
        sizes, task, running = allotment.present, _node_task(allotment), allotment.running
        if task is None or running is None or not sizes:
            return sizes or allotment.low
        progress = allotment.gang.progress
        is_news = progress is not None and progress.reported > max(running.started, running.resized)
        if is_news and gain_of(allotment.gang, snapshot) < self.beta:
            return resized(sizes, task, -1 if sizes[task.name] > allotment.low[task.name] else 0)
        return sizes

    def _hand_out(self, ask: Ask, table: "_Table") -> None:
        for _ in range(MOST_MOVES):
            allowed = table.allowed()
            if not allowed[1 : len(table) + 1].any():
                return
            logits = ask(table.shown(allowed), len(allowed))
            move = int(np.where(allowed, logits, -np.inf).argmax())
            if move == 0:
                return
            table.move((move - 1) % len(table), -1 if move > len(table) else 1)


def gain_of(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """What the last report added to the accuracy, or what the loss fell; nan where unknown."""
    progress = gang.progress
    if progress is not None and progress.accuracy_gain is not None:
        return progress.accuracy_gain
    left = steps_left(gang, snapshot)
    if gang.loss is None or not math.isfinite(left):
        return math.nan
    done = steps_done(gang, snapshot)
    before = max(0.0, done - _LAST * (done + left))
    largest = gang.loss.loss(0.0)
    if not 0 < largest < math.inf:
        return math.nan
    return (gang.loss.loss(before) - gang.loss.loss(done)) / largest


def _node_task(allotment: Allotment) -> Task | None:
    """The task whose replicas are the nodes; None where no size can change."""
    able = [t for t in allotment.gang.tasks if allotment.low[t.name] < allotment.high[t.name]]
    return min(able, key=lambda task: task.role is not Role.WORKER, default=None)


def told(gang: Gang, snapshot: ClusterSnapshot) -> tuple[float, float, float, float]:
    """Share done, loss over the largest, accuracy, gain; nan where unknown."""
    progress = gang.progress
    done, left = steps_done(gang, snapshot), steps_left(gang, snapshot)
    share = done / max(done + left, 1.0) if math.isfinite(left) else math.nan
    if progress is None:
        return share, math.nan, math.nan, math.nan
    worst = progress.worst_loss
    return (
        share if progress.fraction is None else progress.fraction,
        progress.loss / worst if progress.loss is not None and worst else math.nan,
        math.nan if progress.accuracy is None else progress.accuracy,
        gain_of(gang, snapshot),
    )


@dataclass(eq=False, slots=True)
class _Member:
    """A gang that the network moves; ``change`` is what it was given in this cycle."""

    allotment: Allotment
    task: Task
    change: int = 0

    @property
    def size(self) -> int:
        return self.allotment.sizes[self.task.name]

    @property
    def may_grow(self) -> bool:
        """As far as its own bounds go; what was taken in this cycle is not given back in it."""
        return self.change >= 0 and self.size < self.allotment.high[self.task.name]

    @property
    def may_shrink(self) -> bool:
        return self.change <= 0 and self.size > self.allotment.low[self.task.name]


class _Table:
    """The members and what is free, before each move; arrays have shape (members,)."""

    def __init__(
        self, pool: CapacityPool, members: Sequence[_Member], snapshot: ClusterSnapshot, beta: float
    ) -> None:
        self._pool, self._members, self._beta = pool, members, beta
        self._waiting = float(len(snapshot.waiting))
        self._told = np.array([told(member.allotment.gang, snapshot) for member in members]).T
        self._seconds = np.array([_seconds(pool, member, snapshot) for member in members])
        self._nodes = np.array([float(member.size) for member in members])
        self._share = np.array([self._share_of(member) for member in members])
        self._asked = {name for member in members for name, _ in member.task.request}

    def __len__(self) -> int:
        return len(self._members)

    def allowed(self) -> BoolArray:
        """Which moves may be made: none, a node more by member, a node less; (2 * members + 1,)."""
        tasks = {member.task.request for member in self._members}
        fits = {request: self._pool.fits(request) for request in tasks}
        more = [member.may_grow and fits[member.task.request] for member in self._members]
        return np.array([True, *more, *(member.may_shrink for member in self._members)])

    def move(self, row: int, change: int) -> None:
        """Give a member a node, or take one."""
        member = self._members[row]
        self._pool.resize(member.allotment, resized(member.allotment.sizes, member.task, change))
        member.change += change
        self._nodes[row], self._share[row] = member.size, self._share_of(member)

    def shown(self, allowed: BoolArray) -> dict[str, Array]:
        """What the network sees."""
        done, loss, accuracy, gain = self._told
        facts = Facts(
            done=done,
            loss=loss,
            accuracy=accuracy,
            gain=gain,
            seconds=self._seconds,
            nodes=self._nodes,
            share=self._share,
            may_grow=allowed[1 : len(self) + 1],
            may_shrink=allowed[len(self) + 1 :],
            is_there=np.ones(len(self), dtype=np.bool_),
            free=np.array(self._free()),
            waiting=np.array(self._waiting),
            beta=np.array(self._beta),
        )
        return {"tasks": task_features(facts), "context": context_features(facts)}

    def _share_of(self, member: _Member) -> float:
        allotment = member.allotment
        return self._pool.dominant_share(demand_of(allotment.gang, allotment.sizes).items())

    def _free(self) -> float:
        """The share of what members ask for that is free, where least is."""
        total, free = self._pool.total, self._pool.free
        shares = (max(0, free[n]) / total[n] for n in self._asked if total.get(n))
        return min(shares, default=0.0)


def _seconds(pool: CapacityPool, member: _Member, snapshot: ClusterSnapshot) -> float:
    """How long the whole training takes at the member's size; nan where nobody knows."""
    gang = member.allotment.gang
    steps = steps_done(gang, snapshot) + steps_left(gang, snapshot)
    seconds = seconds_for(steps, pool.steps_per_second(gang, member.allotment.sizes))
    return seconds if math.isfinite(seconds) else math.nan
