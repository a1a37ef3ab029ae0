"""Protocols of a policy: an orderer, a placer, an optional sizer; and of a node scorer.

Rules and learned policies implement the same protocols. :mod:`bireme.core.guardrails` checks their
answers, :mod:`bireme.core.cycle` calls them. :class:`TotalOrder` is the one order of a cycle.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np

from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.speed import SpeedLaw

PartName = Literal["orderer", "placer", "sizer"]
PARTS: Final[tuple[PartName, ...]] = ("orderer", "placer", "sizer")
"""The parts of a policy, in the order in which they are named everywhere."""


GangSizes: TypeAlias = Mapping[str, Mapping[str, int]]
"""Replicas by gang uid and task name."""


@dataclass(frozen=True, slots=True)
class ScoreFactor:
    """One part of a score: ``weight * value``, with the measured quantity behind it.

    Attributes:
        claim: Why a gang may stop another one with a lower value (or a higher one, if the weight is
            negative), as a clause: "which has ..."; empty if the factor stops no gang.
    """

    name: str
    measured: str
    value: float
    weight: float
    claim: str = ""

    @property
    def contribution(self) -> float:
        """The part of the score due to this factor."""
        return self.weight * self.value


@dataclass(frozen=True, slots=True)
class CanaryClaim:
    """The claim that a canary gives one of its own gangs.

    Attributes:
        canary: Its name.
        priority: The preemption priority in its own order; None if it never stops gangs.
        stop_priority: The same against gangs that would stop; as in :class:`Ranked`.
    """

    canary: str
    priority: float | None
    stop_priority: float | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A gang in its place in the order.

    Attributes:
        explain: Returns the factors behind the score.
        preemption_priority: Running gangs make room only for gangs that precede them in the order
            and have a strictly higher preemption priority. It must not grow by waiting alone, or
            two gangs would stop each other in turn. None if the orderer never stops gangs.
        stop_priority: The same against gangs that would stop and not only shrink, if it is lower
            than ``preemption_priority``; else None. It may grow by waiting.
        stop_priority_until: Until when waiting does not raise ``stop_priority``, POSIX seconds, if
            that is known. Then the cycle must decide again.
        canary_claim: A gang makes room for another gang of its canary only if this is higher as
            well. None for gangs for which no canary decides.
    """

    gang: Gang
    score: float
    # Called on demand: most gangs need no explanation.
    explain: Callable[[], tuple[ScoreFactor, ...]] = field(default=tuple, compare=False)
    preemption_priority: float | None = None
    stop_priority: float | None = None
    stop_priority_until: float | None = None
    canary_claim: CanaryClaim | None = field(default=None, compare=False)

    @property
    def factors(self) -> tuple[ScoreFactor, ...]:
        """The parts of the score."""
        return self.explain()


class Orderer(Protocol):
    """Decides which gang goes first.

    An orderer may set ``keeps_equal_gangs_in_order = True``. It then guarantees two things. Among
    gangs that are equal except for name and arrival, the earliest ranks first, with at least as
    high a preemption priority. And the ranks of two gangs do not depend on other waiting gangs. The
    simulator shows such an orderer only the first of many equal gangs.

    It may have a method ``lowest_preemption_priority(gangs, snapshot)``: the lowest that ``order``
    gives any of ``gangs``, at less cost. It saves most cycles the order of all running gangs.
    """

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Return all ``gangs``, each once, first to start first; ties by arrival, then uid.

        The same order decides which gangs start and which make room: ``gangs`` may contain running
        gangs (those in ``snapshot.running_by_uid``). The queue of a running gang may be gone.
        """
        ...


class Sizer(Protocol):
    """Decides how many replicas elastic gangs should have.

    A sizer may set ``sizes_measured_only = True``: it leaves out gangs whose speed is unknown, and
    it is not called if no gang's speed is known.
    """

    def sizes(self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot) -> GangSizes:
        """Return target replicas for any of ``ranked``.

        ``ranked`` holds waiting and running gangs, first in order first. The answer is clipped to
        the gang's minimum and maximum; the general rule sizes the gangs that are left out.
        """
        ...


class Placer(Protocol):
    """Decides where a gang goes.

    A placer that depends on more than the gang and the free capacity may have a method
    ``on(snapshot)``: it returns the placer for the cycle that decides on that snapshot.

    A placer that knows the speeds of nodes may have a method ``faster(running, capacity, now)``. It
    returns the places in ``capacity`` where a running gang would be so much faster that a stop and
    a new start pay off; else None. The gang uses nothing of ``capacity``. See
    :mod:`bireme.core.moves`.
    """

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return nodes for every replica of ``gang``, or None when they do not all fit."""
        ...


def placer_on(placer: Placer, snapshot: ClusterSnapshot) -> Placer:
    """Return the placer for a cycle that decides on ``snapshot``."""
    on = getattr(placer, "on", None)
    result: Placer = placer if on is None else on(snapshot)
    return result


def is_asked(sizer: Sizer | None, speeds: Sequence[SpeedLaw | None]) -> bool:
    """Return whether ``sizer`` may have an answer for gangs of ``speeds``."""
    if sizer is None or not getattr(sizer, "sizes_measured_only", False):
        return sizer is not None
    return speeds.count(None) < len(speeds)


@dataclass(frozen=True, slots=True)
class Policy:
    """An orderer, a placer and a sizer; without a sizer the general rule sizes all gangs."""

    orderer: Orderer
    placer: Placer
    sizer: Sizer | None = None
    rules: "Policy | None" = None
    """Decides in the same cycle if an answer of this policy is invalid."""
    canaries: "tuple[Canary, ...]" = ()
    """They decide for the gangs of some queues; if two name one queue, the first does."""
    may_move: bool = True
    """Running gangs may move to faster GPUs; False if the speeds of nodes are unknown."""


def can_move(policy: Policy) -> bool:
    """Return whether ``policy`` may move running gangs to faster GPUs."""
    policies = (policy, *(canary.policy for canary in policy.canaries))
    return policy.may_move and any(hasattr(candidate.placer, "faster") for candidate in policies)


@dataclass(frozen=True, slots=True)
class Canary:
    """A policy that decides for the gangs of some queues; see :mod:`bireme.core.canary`.

    Attributes:
        queues: Names; each also stands for the queues below it.
    """

    name: str
    queues: frozenset[str]
    policy: Policy


# --- score mode: one pod at a time, over nodes that passed the hard rules ---


@dataclass(frozen=True, slots=True, eq=False)
class ScoreQuestion:
    """One replica, the nodes that it may use, and the nodes of the rest of its gang.

    Attributes:
        task: The replica as a task of one.
        capacity: The free capacity of all nodes, without this replica.
        rows: Node rows to score, int64, shape (candidates,); each takes the replica.
        peers: Node rows of the bound members of the same gang by role, int64, shape (members,).
    """

    task: Task
    capacity: FreeCapacity
    rows: IntArray
    peers: Mapping[Role, IntArray]


class Scorer(Protocol):
    """Rates nodes for one more replica."""

    def score(self, question: ScoreQuestion) -> FloatArray:
        """Return float64, shape (candidates,), each from 0 (worst) to 1 (best)."""
        ...


def fault_of(scores: object, candidates: int) -> str | None:
    """Return why ``scores`` are no valid answer for that many candidates, or None."""
    if not isinstance(scores, np.ndarray) or scores.dtype != np.float64:
        return f"scores are no float64 array but {type(scores).__name__}"
    if scores.shape != (candidates,):
        return f"scores have shape {scores.shape}, the question ({candidates},)"
    if not np.isfinite(scores).all():
        return "scores are not all finite"
    if candidates and (scores.min() < 0 or scores.max() > 1):
        return f"scores reach from {scores.min():g} to {scores.max():g}, allowed is 0 to 1"
    return None


class TotalOrder:
    """The one order of a cycle: ``waiting`` and the running gangs of ``snapshot``, by ``orderer``.

    The orderer is called once, for the first question about running gangs.
    """

    def __init__(
        self, orderer: Orderer, snapshot: ClusterSnapshot, waiting: Sequence[Gang]
    ) -> None:
        self._orderer, self._snapshot, self._waiting = orderer, snapshot, waiting

    @cached_property
    def lowest_running_priority(self) -> float:
        """A lower bound on the preemption priority of running gangs; -infinity if unknown."""
        lowest = getattr(self._orderer, "lowest_preemption_priority", None)
        running = [holder.gang for holder in self._snapshot.running_table.gangs]
        # Without a bound every waiting gang may find a victim, so the full order is needed.
        return -math.inf if lowest is None else lowest(running, self._snapshot)

    @cached_property
    def ranked(self) -> list[Ranked]:
        """All gangs, first in order first."""
        running = (holder.gang for holder in self._snapshot.running_table.gangs)
        return self._orderer.order([*self._waiting, *running], self._snapshot)

    @cached_property
    def places(self) -> dict[str, tuple[int, Ranked]]:
        """Place in the order, from 0, and the ranked gang, by uid."""
        return {entry.gang.uid: (place, entry) for place, entry in enumerate(self.ranked)}
