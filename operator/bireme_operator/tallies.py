"""How a policy has done since it was loaded, in a few numbers."""

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from bireme.core.decision import Decision
from bireme.rl.shadow import Difference

GOOD_CYCLES: Final = 20
"""A policy that was overruled counts as degraded until so many of its cycles went well."""
LATELY: Final = 200
"""Comparisons that agreement and regret speak of."""


@dataclass(slots=True)
class Likeness:
    """How near a shadow is to the policy that decides.

    Attributes:
        cycles: Compared, since it was loaded.
    """

    cycles: int = 0
    _lately: deque[Difference] = field(default_factory=lambda: deque(maxlen=LATELY))
    _sizes: deque[float] = field(default_factory=lambda: deque(maxlen=LATELY))

    def add(self, found: Difference) -> None:
        """One more cycle in which either of them started a gang."""
        self.cycles += 1
        self._lately.append(found)

    def add_sizes(self, found: Difference) -> None:
        """One more cycle; it counts where both gave elastic gangs a size."""
        if found.same_sizes is not None:
            self._sizes.append(found.same_sizes)

    @property
    def agreement(self) -> float:
        """The share of starts in common, from 0 to 1; the mean over the latest cycles."""
        return fmean(each.agreement for each in self._lately)

    @property
    def regret_seconds(self) -> float:
        """The mean likewise; positive where the shadow would have done better."""
        return fmean(each.regret_seconds for each in self._lately)

    @property
    def size_agreement(self) -> float | None:
        """The share of elastic gangs with the same size, likewise; None before there were any."""
        return fmean(self._sizes) if self._sizes else None


@dataclass(slots=True)
class Tally:
    """A policy's cycles.

    Attributes:
        decisions: Cycles in which it started, stopped or resized a gang, or would have.
        fallbacks: Cycles in which its rules answered in its place.
        why: What was wrong the last time.
        good_cycles: Since the last time.
    """

    decisions: int = 0
    fallbacks: int = 0
    why: str = ""
    good_cycles: int = 0
    likeness: Likeness = field(default_factory=Likeness)

    def add(self, decision: Decision) -> None:
        """One more cycle."""
        if decision.admitted or decision.preempted or decision.resized:
            self.decisions += 1
        if decision.fallback:
            self.fallbacks += 1
            self.why, self.good_cycles = decision.fallback, 0
        else:
            self.good_cycles += 1

    @property
    def is_degraded(self) -> bool:
        """Whether it was overruled lately."""
        return self.fallbacks > 0 and self.good_cycles < GOOD_CYCLES
