"""What a policy is: something that orders gangs, sizes elastic ones, and places each.

Rules and learned policies implement the same protocols; the rails around them are in
:mod:`bireme.core.cycle` and the same for all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, Protocol

import numpy as np

from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot

PartName = Literal["orderer", "placer", "sizer"]
PARTS: Final[tuple[PartName, ...]] = ("orderer", "placer", "sizer")
"""The parts of a policy, in the order in which they are named everywhere."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One part of a score: ``weight * value``, with the measured quantity it came from."""

    name: str
    measured: str
    value: float
    weight: float

    @property
    def contribution(self) -> float:
        """What this factor adds to the score."""
        return self.weight * self.value


@dataclass(frozen=True, slots=True)
class Ranked:
    """A gang in its place in the order; ``why`` tells the numbers that put it there.

    ``claim`` is what stopping others is judged by: only running gangs with a strictly lower claim
    that also come later in the order make room. It must not grow by waiting alone, or two gangs
    would stop each other in turn; None where the orderer never stops anybody.
    """

    gang: Gang
    score: float
    why: Callable[[], tuple[Factor, ...]] = field(default=tuple, compare=False)
    claim: float | None = None

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The parts of the score, found when somebody asks: most gangs nobody asks about."""
        return self.why()


class Orderer(Protocol):
    """Who goes first.

    An orderer may set ``keeps_kin_in_line = True``: of gangs equal but for name and arrival, the
    first to come then ranks first, with at least as high a claim, and how two gangs rank does not
    depend on who else waits. The simulator shows such an orderer only the first of many equal
    gangs, which saves most of its time.

    It may have a method ``lowest_claim(gangs, snapshot)``: the lowest claim that ``order`` gives
    any of ``gangs``, at less cost. Running gangs are then ordered only where somebody waits with
    a higher claim than the lowest of theirs.
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """All ``gangs``, each once, first to start first. A total order: ties by arrival, uid.

        The same order decides who starts and who makes room, so ``gangs`` may contain running
        ones (those in ``snapshot.running_by_uid``), and their rank must mean the same. The queue
        of a running gang may be gone.
        """
        ...


class Sizer(Protocol):
    """How many replicas elastic gangs should have."""

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Wanted replicas per task name, by gang uid, for any of ``ranked``.

        ``ranked`` holds waiting and running gangs, first in order first. What is wanted is clipped
        to the gang's minimum and maximum; a gang left out is sized by the general rule.
        """
        ...


class Placer(Protocol):
    """Where a gang goes.

    A placer may have a method ``on(snapshot)``: the placer to be asked in its place while a cycle
    decides on that snapshot, for one that depends on more than a gang and what is free.
    """

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for every replica of ``gang``, or None when they do not all fit."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """Who goes first, where to, and how large; without a sizer the general rule sizes all."""

    orderer: Orderer
    placer: Placer
    sizer: Sizer | None = None
    rules: "Policy | None" = None
    """What decides in the same cycle when this policy's answer is not valid."""


# What a scorer is: something that says how much better one node is for one more replica.
#
# Score mode places pods one at a time, after the hard rules have been applied: the question holds
# only nodes that may take the replica. Rules and learned scorers answer the same question, and
# whoever asks checks the answer, because a learned one may say anything.


@dataclass(frozen=True, slots=True, eq=False)
class ScoreQuestion:
    """One replica, the nodes it may use, and where the rest of its gang is.

    Attributes:
        task: The replica as a task of one.
        capacity: What is free on all nodes, without this replica.
        rows: Node rows to score, int64, shape (candidates,); each takes the replica.
        peers: Node rows of the bound members of the same gang by role, int64, shape (members,).
    """

    task: Task
    capacity: FreeCapacity
    rows: IntArray
    peers: Mapping[Role, IntArray]


class Scorer(Protocol):
    """How good each candidate is."""

    def score(self, question: ScoreQuestion) -> FloatArray:
        """float64, shape (candidates,), each from 0 (worst) to 1 (best), comparable by size."""
        ...


def fault_of(scores: object, candidates: int) -> str | None:
    """What makes ``scores`` no answer to a question with so many candidates; None if it is one."""
    if not isinstance(scores, np.ndarray) or scores.dtype != np.float64:
        return f"scores are no float64 array but {type(scores).__name__}"
    if scores.shape != (candidates,):
        return f"scores have shape {scores.shape}, the question ({candidates},)"
    if not np.isfinite(scores).all():
        return "scores are not all finite"
    if candidates and (scores.min() < 0 or scores.max() > 1):
        return f"scores reach from {scores.min():g} to {scores.max():g}, allowed is 0 to 1"
    return None


# The one order of a cycle: gangs that wait and gangs that run, from the first to the last.
#
# Who starts before whom and who makes room for whom are answered by one call of the orderer, made
# when the first of these questions is asked.


class TotalOrder:
    """``waiting`` and the running gangs of ``snapshot``, in the order of ``orderer``."""

    def __init__(
        self, orderer: Orderer, snapshot: ClusterSnapshot, waiting: Sequence[Gang]
    ) -> None:
        self._orderer = orderer
        self._snapshot = snapshot
        self._waiting = waiting

    @cached_property
    def lowest_running_claim(self) -> float:
        """No running gang has a lower claim; -infinity where the orderer does not tell."""
        tell = getattr(self._orderer, "lowest_claim", None)
        running = [held.gang for held in self._snapshot.running_table.gangs]
        return -math.inf if tell is None else tell(running, self._snapshot)

    @cached_property
    def ranked(self) -> list[Ranked]:
        """All of them, first in order first."""
        running = (held.gang for held in self._snapshot.running_table.gangs)
        return self._orderer.order([*self._waiting, *running], self._snapshot)

    @cached_property
    def places(self) -> dict[str, tuple[int, Ranked]]:
        """Place in the order, the first is 0, and the numbers behind it, by uid."""
        return {entry.gang.uid: (place, entry) for place, entry in enumerate(self.ranked)}
