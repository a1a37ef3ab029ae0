"""The decision of a cycle, as values; nothing has happened yet.

The operator's actuator and the simulator carry decisions out. Each action has its reason and the
numbers behind it, so that it can be explained.
"""

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Final, TypeAlias

from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places kept for a blocked gang.

    Attributes:
        start: When they are expected to be free, POSIX seconds; never before ``now``.
        placement: The places, in rows of the snapshot's nodes.
        is_closed: Not even a gang that would end before ``start`` may use them.
        sooner: When the gang should fit, there or elsewhere, where that is before ``start``, and
            the decision explains.
    """

    start: float
    placement: Placement
    is_closed: bool = False
    sooner: float | None = None

    @property
    def expected(self) -> float:
        """Expected start of the gang, POSIX seconds, if all run as long as stated."""
        return self.start if self.sooner is None else self.sooner


@dataclass(frozen=True, slots=True)
class Admit:
    """Start ``gang`` now, at the size of its tasks, which may be smaller than asked.

    Attributes:
        passed: The blocked gang it goes ahead of without delaying it, for a backfill.
        is_opportunistic: It starts in places reserved for ``passed``, which stops it if need be.
    """

    gang: Gang
    placement: Placement
    ranked: Ranked
    message: str
    reason: Reason = Reason.ADMITTED
    passed: Gang | None = None
    is_opportunistic: bool = False


_UNCOUNTED: Final = (Reason.OVER_QUOTA, Reason.CLAIM_NOT_READY, Reason.OVER_NAMESPACE_LIMIT)


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave ``gang`` waiting.

    ``position`` counts from 1; it is None where waiting longer cannot help.
    """

    gang: Gang
    reason: Reason
    message: str
    position: int | None = None
    ranked: Ranked | None = None
    reservation: Reservation | None = None

    @property
    def counts_as_wait(self) -> bool:
        """True unless it waits for what its own namespace decides, and not for capacity.

        Such time does not bring a gang nearer to its wait bound (:attr:`Gang.uncounted_since`).
        """
        return self.reason not in _UNCOUNTED

    @property
    def is_parked(self) -> bool:
        """True if it stands in no line, so that it does not wait (:attr:`Gang.parked`)."""
        return self.position is None


@dataclass(frozen=True, slots=True)
class Resize:
    """Give ``running`` the places of ``placement`` instead of those it has.

    Per task and node, a growth only adds replicas and a shrink only removes them.
    """

    running: RunningGang
    placement: Placement
    message: str
    reason: Reason

    @property
    def gang(self) -> Gang:
        """The gang whose size changes, at the size that was asked for."""
        return self.running.gang


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop ``running`` so that ``beneficiary`` can have its places; it goes back to waiting.

    With ``overrides_budget`` it stops although a PodDisruptionBudget keeps its pods.
    """

    running: RunningGang
    beneficiary: Gang
    message: str
    reason: Reason = Reason.PREEMPTED
    overrides_budget: bool = False

    @property
    def gang(self) -> Gang:
        """The gang that stops."""
        return self.running.gang


VACATED: Final = (Reason.NODE_MAINTENANCE, Reason.FASTER_GPUS)
"""Reasons of a :class:`Vacate`."""


@dataclass(frozen=True, slots=True)
class Vacate:
    """Stop ``running`` for nobody else; it goes back to waiting.

    So that its nodes are free for their maintenance, or so that it starts again on faster GPUs.
    """

    running: RunningGang
    message: str
    reason: Reason = Reason.NODE_MAINTENANCE

    @property
    def gang(self) -> Gang:
        """The gang that stops."""
        return self.running.gang


# Exactly one Admit or Hold for each waiting gang that the cycle reached.
Action: TypeAlias = Admit | Hold | Resize | Preempt | Vacate


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """Ask ``pool`` for ``nodes`` more, for ``gang``, on top of those that are coming.

    0 where the nodes that are coming are enough for the gang, and must not be given up.
    """

    pool: str
    nodes: int
    gang: Gang


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of one cycle, in the order in which they must be carried out."""

    actions: tuple[Action, ...] = ()
    fallback: str = ""
    """Why the policy's own answers were not used; empty when they were."""
    canary_fallbacks: tuple[tuple[str, str], ...] = ()
    """The same of its canaries whose answers were not used, by name."""
    node_requests: tuple[NodeRequest, ...] = ()
    """The nodes to ask for, for gangs that fit nowhere now; they are held as ScalingUp."""
    kept_nodes: frozenset[str] = frozenset()
    """Names of nodes that waiting gangs count on and that should stay, where pools may change."""
    unreached: tuple[Gang, ...] = ()
    """Waiting gangs on which the cycle had no time to decide; they keep their last verdict."""
    overdue: frozenset[str] = frozenset()
    """Uids of the waiting gangs that went before others because they are past their wait bound."""

    @property
    def overruled(self) -> str:
        """Whose own answers were not used, and why; empty when all were."""
        canaries = (f"canary {name}: {why}" for name, why in self.canary_fallbacks)
        return "; ".join(filter(None, (self.fallback, *canaries)))

    @property
    def admitted(self) -> tuple[Admit, ...]:
        """The gangs to start, first to start first."""
        return tuple(action for action in self.actions if isinstance(action, Admit))

    @property
    def held(self) -> tuple[Hold, ...]:
        """The gangs left waiting."""
        return tuple(action for action in self.actions if isinstance(action, Hold))

    def next_stop(self, now: float, among: Container[str] | None = None) -> float:
        """Return when, after ``now``, a gang that waits may stop more than now; else infinity.

        Of the gangs with a uid in ``among``, if given.
        """
        held = (hold for hold in self.held if among is None or hold.gang.uid in among)
        ranked = (hold.ranked for hold in held)
        begins = (each.stop_priority_until for each in ranked if each is not None)
        later = (moment for moment in begins if moment is not None and moment > now)
        return min(later, default=math.inf)

    @property
    def resized(self) -> tuple[Resize, ...]:
        """Running gangs that grow or shrink."""
        return tuple(action for action in self.actions if isinstance(action, Resize))

    @property
    def preempted(self) -> tuple[Preempt, ...]:
        """Running gangs that make room."""
        return tuple(action for action in self.actions if isinstance(action, Preempt))

    @property
    def vacated(self) -> tuple[Vacate, ...]:
        """Running gangs that stop for nobody else."""
        return tuple(action for action in self.actions if isinstance(action, Vacate))
