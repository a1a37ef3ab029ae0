"""Trace of a cycle: how long each step took, and each gang's visit where that is wanted.

The caller gives the clock, as the core has none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bireme.core.decision import Action
from bireme.core.gangs import Gang


class TraceStep(NamedTuple):
    """One step of a cycle: its name, the number of gangs that it handled, and its duration."""

    name: str
    gangs: int
    seconds: float


class TraceVisit(NamedTuple):
    """The visit of one waiting gang: its name, the reasons of its actions, and its duration."""

    gang: str
    reasons: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class CycleTrace:
    """The steps of one cycle so far; ``clock`` is monotonic seconds.

    Attributes:
        cycle: Number of the cycle.
        has_visits: True to trace each gang as well, which costs a clock call for each.
    """

    cycle: int
    clock: Callable[[], float]
    has_visits: bool = False
    steps: list[TraceStep] = field(default_factory=list)
    visits: list[TraceVisit] = field(default_factory=list)
    _step_began: float = field(init=False)
    _visit_began: float = field(init=False)

    def __post_init__(self) -> None:
        self._step_began = self._visit_began = self.clock()

    def end_step(self, name: str, gangs: int) -> None:
        """Record the step that ends now."""
        now = self.clock()
        self.steps.append(TraceStep(name, gangs, now - self._step_began))
        self._step_began = self._visit_began = now

    def end_visit(self, gang: Gang, actions: Sequence[Action]) -> None:
        """Record the visit of ``gang`` that ends now."""
        if not self.has_visits:
            return
        now = self.clock()
        reasons = tuple(action.reason.value for action in actions)
        name = f"{gang.namespace}/{gang.name}"
        self.visits.append(TraceVisit(name, reasons, now - self._visit_began))
        self._visit_began = now
