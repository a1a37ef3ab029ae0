"""What a cycle decided, as values. Nothing has happened yet.

The operator's actuator and the simulator carry decisions out; each action names its reason and
the numbers behind it, so that whoever carries it out can also explain it.
"""

from dataclasses import dataclass
from typing import TypeAlias

from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Admit:
    """Start ``gang`` now. It may be smaller than asked: its tasks say with how many replicas."""

    gang: Gang
    placement: Placement
    ranked: Ranked
    message: str
    reason: Reason = Reason.ADMITTED


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave ``gang`` waiting. ``position`` counts from 1; None for configuration faults."""

    gang: Gang
    reason: Reason
    message: str
    position: int | None = None
    ranked: Ranked | None = None


Action: TypeAlias = Admit | Hold


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of one cycle, in the order in which they must be carried out."""

    actions: tuple[Action, ...] = ()
    fallback: str = ""
    """Why the policy's own order was not used; empty when it was."""

    @property
    def admitted(self) -> tuple[Admit, ...]:
        """The gangs to start, first to start first."""
        return tuple(action for action in self.actions if isinstance(action, Admit))

    @property
    def held(self) -> tuple[Hold, ...]:
        """The gangs left waiting."""
        return tuple(action for action in self.actions if isinstance(action, Hold))
