"""RLPTO as a sizer of elastic gangs: ``rlpto-tasks/1``.

A gang that reports progress is a task of the paper. A replica of its first resizable task (workers
first) is a node. A report of the accuracy ends an iteration. The size of gangs changes only by the
paper's two steps in every cycle (section VI.A):

1. A gang with a last gain in accuracy below beta gives one node back, once per report. If it
   reports no accuracy, the gain is the fall of its loss curve over the last hundredth of the steps,
   as a share of the largest loss.
2. The network hands out free nodes, one by one, until it chooses none or nothing fits.

Gangs without reports get their request before others grow. A gang with a converged training keeps
its minimum; its owner ends it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import numpy as np

from bireme.core.bounds import Within
from bireme.core.gangs import Gang, Role, Task
from bireme.core.parameters import check_parameters
from bireme.core.policy import Ranked
from bireme.core.resources import BoolArray, FloatArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import (
    Allotment,
    CapacityPool,
    Sizes,
    demand_of,
    seconds_for,
    settling,
    steps_done,
    steps_left,
    with_change,
)
from bireme.onnx.sessions import Array, Ask, Shape
from bireme.rl.protocols import GANGS

# --- features ---------------------------------------------------------------------------------
#
# The paper's vectors (section VI.D) are, per task: id m, iterations e, loss l, largest loss n,
# accuracy a, node time c and share of the nodes w. These features are free of scale: iterations and
# node times are relative to the geometric mean, the loss is a share of the largest. The id is left
# out, because the network is shared over tasks. Gain and beta are added: a gain below beta frees
# the nodes, and the paper's agent would have to remember the last state to know it.

TASK_FEATURES: Final = 11
CONTEXT_FEATURES: Final = 4
MIDDLE_BETA: Final = 3e-4
"""The paper's recommendation if accuracy and time both count (section VII)."""
Beta: TypeAlias = Annotated[
    float,
    Within(1e-6, 0.1),
    "least gain in accuracy per report that is worth a worker; trained for 0.0001 to 0.001",
]


@dataclass(frozen=True, slots=True, eq=False)
class TaskStates:
    """Training tasks at one moment; arrays have shape (..., tasks) unless stated otherwise.

    Attributes:
        done: Iterations, or another measure of progress; only ratios count. nan if unknown, as in
            the next four.
        loss: Loss over the largest loss so far.
        accuracy: From 0 to 1.
        gain: Gain in accuracy by the last iteration.
        seconds: Time of an iteration at the present size; only ratios count.
        nodes: Its whole nodes.
        share: Its share of the cluster.
        may_grow, may_shrink: Whether the network may give it a node, or take one.
        is_there: False for padding.
        free: Free share of the cluster, shape (...).
        waiting: Number of waiting tasks, shape (...).
        beta: Minimum gain that is worth a node, shape (...).
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


def task_features(states: TaskStates) -> Array:
    """Return features in [-1, 2], 0 for padding; shape (..., tasks, TASK_FEATURES)."""
    tasks = np.maximum(states.is_there.sum(axis=-1), 1)[..., None]
    columns = (
        _over_mean(states.done, states.is_there),
        np.nan_to_num(states.loss, nan=0.5),
        np.nan_to_num(states.accuracy, nan=0.5),
        _gain_over(states.beta[..., None], states.gain),
        np.isnan(states.gain),
        _over_mean(states.seconds, states.is_there),
        states.share,
        np.minimum(states.share * tasks, 4.0) / 2,
        1.0 / np.maximum(states.nodes, 1.0),
        states.may_grow,
        states.may_shrink,
    )
    features = np.stack([np.asarray(column, np.float64) for column in columns], axis=-1)
    return np.where(states.is_there[..., None], features, 0.0).astype(np.float32)


def context_features(states: TaskStates) -> Array:
    """Return the common features of all tasks, shape (..., CONTEXT_FEATURES)."""
    tasks = states.is_there.sum(axis=-1)
    columns = (
        states.free,
        np.log10(states.beta / MIDDLE_BETA),
        states.waiting / np.maximum(states.waiting + tasks, 1.0),
        1.0 / np.maximum(tasks, 1.0),
    )
    return np.stack(columns, axis=-1).astype(np.float32)


def _gain_over(beta: FloatArray, gain: FloatArray) -> FloatArray:
    """Return half the decimal logarithm of gain over beta, within [-1, 1]; 0 if unknown."""
    ratio = np.maximum(np.nan_to_num(gain, nan=0.0), 0.0) / beta
    powers = np.clip(np.log10(np.maximum(ratio, 1e-2)) / 2, -1.0, 1.0)
    return np.where(np.isnan(gain), 0.0, powers)


def _over_mean(values: FloatArray, is_there: BoolArray) -> FloatArray:
    """Return the logarithm (base 4) over the geometric mean, within [-1, 1]; 0 if unknown."""
    is_known = is_there & (values > 0)
    logs = np.log2(np.where(is_known, values, 1.0)) / 2
    middle = logs.sum(axis=-1, keepdims=True) / np.maximum(is_known.sum(-1, keepdims=True), 1)
    return np.where(is_known, np.clip(logs - middle, -1.0, 1.0), 0.0)


# --- the sizer --------------------------------------------------------------------------------

MAX_MOVES: Final = 64
"""Moves in one cycle; the next cycle hands out the remaining free nodes."""
_LAST: Final = 0.01
"""Share of the steps over which the fall of a loss counts as a gain."""


class RlptoTasks:
    """``rlpto-tasks/1``: sizes gangs by giving and taking single nodes."""

    inputs: Mapping[str, Shape] = {"tasks": (GANGS, TASK_FEATURES), "context": (CONTEXT_FEATURES,)}

    def __init__(self, beta: Beta = MIDDLE_BETA) -> None:
        check_parameters(type(self), beta=beta)
        self.beta = beta

    def sizes(
        self, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Size within all bounds, without gangs of a recent resize."""
        pool = CapacityPool(ranked, snapshot, settling(snapshot))
        reporting = pool.split_measured(lambda gang: gang.progress is not None)
        # 1. Gangs with a low gain give a node back.
        for allotment in reporting:
            pool.fill(allotment, self._size_after_report(allotment, snapshot))
        # 2. The network hands out free nodes.
        moving = [
            _Member(allotment, task) for allotment in reporting if (task := _node_task(allotment))
        ]
        if moving:
            self._hand_out(ask, _Members(pool, moving, snapshot, self.beta))
        return pool.proposal()

    def _size_after_report(self, allotment: Allotment, snapshot: ClusterSnapshot) -> Sizes:
        """Return the present size, minus a node after a low gain."""
        sizes, task, running = allotment.present, _node_task(allotment), allotment.running
        if task is None or running is None or not sizes:
            return sizes or allotment.low
        progress = allotment.gang.progress
        # a report from before the last start or resize was of another size
        is_news = progress is not None and progress.reported > max(running.started, running.resized)
        if is_news and gain_of(allotment.gang, snapshot) < self.beta:
            return with_change(
                sizes, task, -1 if sizes[task.name] > allotment.low[task.name] else 0
            )
        return sizes

    def _hand_out(self, ask: Ask, members: "_Members") -> None:
        for _ in range(MAX_MOVES):
            allowed = members.legal_moves()
            if not allowed[1 : len(members) + 1].any():
                return
            logits = ask(members.inputs(allowed), len(allowed))
            move = int(np.where(allowed, logits, -np.inf).argmax())
            if move == 0:
                return
            members.move((move - 1) % len(members), -1 if move > len(members) else 1)


def gain_of(gang: Gang, snapshot: ClusterSnapshot) -> float:
    """Return the gain in accuracy of the last report, or the fall of the loss; nan if unknown."""
    progress = gang.progress
    if progress is not None and progress.accuracy_gain is not None:
        return progress.accuracy_gain
    remaining = steps_left(gang, snapshot)
    if gang.loss is None or not math.isfinite(remaining):
        return math.nan
    done = steps_done(gang, snapshot)
    earlier = max(0.0, done - _LAST * (done + remaining))
    largest = gang.loss.loss(0.0)
    if not 0 < largest < math.inf:
        return math.nan
    return (gang.loss.loss(earlier) - gang.loss.loss(done)) / largest


def _node_task(allotment: Allotment) -> Task | None:
    """Return the task with the replicas that count as nodes; None if no size can change."""
    able = [t for t in allotment.gang.tasks if allotment.low[t.name] < allotment.high[t.name]]
    return min(able, key=lambda task: task.role is not Role.WORKER, default=None)


def _progress_of(gang: Gang, snapshot: ClusterSnapshot) -> tuple[float, float, float, float]:
    """Return share done, loss over the largest, accuracy and gain; nan if unknown."""
    progress = gang.progress
    done, remaining = steps_done(gang, snapshot), steps_left(gang, snapshot)
    share = done / max(done + remaining, 1.0) if math.isfinite(remaining) else math.nan
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
    """A gang that the network sizes; ``change`` is its change of size in this cycle."""

    allotment: Allotment
    task: Task
    change: int = 0

    @property
    def size(self) -> int:
        return self.allotment.sizes[self.task.name]

    @property
    def may_grow(self) -> bool:
        """Whether its bounds allow it; a node taken in this cycle does not return in it."""
        return self.change >= 0 and self.size < self.allotment.high[self.task.name]

    @property
    def may_shrink(self) -> bool:
        return self.change <= 0 and self.size > self.allotment.low[self.task.name]


class _Members:
    """The gangs that the network sizes, before each move; arrays have shape (members,)."""

    def __init__(
        self, pool: CapacityPool, members: Sequence[_Member], snapshot: ClusterSnapshot, beta: float
    ) -> None:
        self._pool, self._members, self._beta = pool, members, beta
        self._waiting = float(len(snapshot.waiting))
        # constant over the moves of a cycle
        self._progress = np.array([_progress_of(m.allotment.gang, snapshot) for m in members]).T
        self._seconds = np.array([_seconds(pool, member, snapshot) for member in members])
        self._nodes = np.array([float(member.size) for member in members])
        self._share = np.array([self._share_of(member) for member in members])
        self._resources = {name for member in members for name, _ in member.task.request}

    def __len__(self) -> int:
        return len(self._members)

    def legal_moves(self) -> BoolArray:
        """Return the legal moves: none, more by member, less; shape (2 * members + 1,)."""
        tasks = {member.task.request for member in self._members}
        fits = {request: self._pool.fits(request) for request in tasks}
        more = [member.may_grow and fits[member.task.request] for member in self._members]
        return np.array([True, *more, *(member.may_shrink for member in self._members)])

    def move(self, row: int, change: int) -> None:
        """Give a node to a member, or take one."""
        member = self._members[row]
        self._pool.resize(
            member.allotment, with_change(member.allotment.sizes, member.task, change)
        )
        member.change += change
        self._nodes[row], self._share[row] = member.size, self._share_of(member)

    def inputs(self, allowed: BoolArray) -> dict[str, Array]:
        done, loss, accuracy, gain = self._progress
        states = TaskStates(
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
        return {"tasks": task_features(states), "context": context_features(states)}

    def _share_of(self, member: _Member) -> float:
        allotment = member.allotment
        return self._pool.dominant_share(demand_of(allotment.gang, allotment.sizes).items())

    def _free(self) -> float:
        """Return the free share of the scarcest resource that members request."""
        total, free = self._pool.total, self._pool.free
        shares = (max(0, free[n]) / total[n] for n in self._resources if total.get(n))
        return min(shares, default=0.0)


def _seconds(pool: CapacityPool, member: _Member, snapshot: ClusterSnapshot) -> float:
    """Return the time of the whole training at the member's size; nan if unknown."""
    gang = member.allotment.gang
    steps = steps_done(gang, snapshot) + steps_left(gang, snapshot)
    seconds = seconds_for(steps, pool.steps_per_second(gang, member.allotment.sizes))
    return seconds if math.isfinite(seconds) else math.nan
