"""The decision of a cycle, as values; nothing has happened yet.

The operator's actuator and the simulator execute decisions. Each action has its reason and the
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
        start: When the places should be free, POSIX seconds; never before ``now``.
        placement: The places, in rows of the snapshot's nodes.
        is_closed: Not even a gang that would end before ``start`` may use them.
        sooner: When the gang should fit, there or elsewhere, if that is before ``start`` and the
            decision explains.
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
    """Start ``gang`` now, at the size of its tasks, which may be below the requested size.

    Attributes:
        passed: The blocked gang that it passes without delaying it, for a backfill.
        is_opportunistic: It starts in places reserved for ``passed``, for which it may be stopped.
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

    ``position`` counts from 1; it is None if waiting longer cannot help.
    """

    gang: Gang
    reason: Reason
    message: str
    position: int | None = None
    ranked: Ranked | None = None
    reservation: Reservation | None = None

    @property
    def counts_as_wait(self) -> bool:
        """True unless it waits for decisions of its own namespace, and not for capacity.

        Such time does not bring a gang nearer to its wait bound (:attr:`Gang.uncounted_since`).
        """
        return self.reason not in _UNCOUNTED

    @property
    def is_parked(self) -> bool:
        """True if waiting does not help it, so this is no waiting time (:attr:`Gang.parked`)."""
        return self.position is None


@dataclass(frozen=True, slots=True)
class Resize:
    """Give ``running`` the places of ``placement`` instead of its present ones.

    Per task and node, a growth only adds replicas and a shrink only removes them.
    """

    running: RunningGang
    placement: Placement
    message: str
    reason: Reason

    @property
    def gang(self) -> Gang:
        """The gang whose size changes, at its requested size."""
        return self.running.gang


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop ``running`` so that ``beneficiary`` can have its places; it goes back to waiting.

    With ``overrides_budget`` it stops although a PodDisruptionBudget protects its pods.
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
    """Stop ``running``, but not for another gang; it goes back to waiting.

    Its nodes become free for maintenance, or it starts again on faster GPUs.
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
    """Request ``nodes`` more of ``pool`` for ``gang``, beyond the nodes that are coming.

    0 if the coming nodes are enough for the gang, and the pool must keep them.
    """

    pool: str
    nodes: int
    gang: Gang


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of one cycle, in the order in which they must be executed."""

    actions: tuple[Action, ...] = ()
    fallback: str = ""
    """Why the policy's own answers were not used; empty if they were."""
    canary_fallbacks: tuple[tuple[str, str], ...] = ()
    """The faults of the canaries whose answers were not used, by name."""
    node_requests: tuple[NodeRequest, ...] = ()
    """The nodes to request for gangs that fit nowhere now; these gangs are held as ScalingUp."""
    kept_nodes: frozenset[str] = frozenset()
    """Names of nodes that pools must keep because waiting gangs count on them."""
    unreached: tuple[Gang, ...] = ()
    """Waiting gangs for which the cycle had no time; they keep their last verdict."""
    overdue: frozenset[str] = frozenset()
    """Uids of the waiting gangs that preceded others because they are past their wait bound."""

    @property
    def overruled(self) -> str:
        """The policies whose own answers were not used, and why; empty if none."""
        canaries = (f"canary {name}: {reason}" for name, reason in self.canary_fallbacks)
        return "; ".join(filter(None, (self.fallback, *canaries)))

    @property
    def admitted(self) -> tuple[Admit, ...]:
        """The gangs to start, in order."""
        return tuple(action for action in self.actions if isinstance(action, Admit))

    @property
    def held(self) -> tuple[Hold, ...]:
        """The gangs that keep waiting."""
        return tuple(action for action in self.actions if isinstance(action, Hold))

    def next_stop(self, now: float, among: Container[str] | None = None) -> float:
        """Return when, after ``now``, a waiting gang may stop more gangs than now; else infinity.

        Only gangs with a uid in ``among`` count, if given.
        """
        holds = (hold for hold in self.held if among is None or hold.gang.uid in among)
        ranked = (hold.ranked for hold in holds)
        begins = (entry.stop_priority_until for entry in ranked if entry is not None)
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
        """Running gangs that stop, but not for another gang."""
        return tuple(action for action in self.actions if isinstance(action, Vacate))
