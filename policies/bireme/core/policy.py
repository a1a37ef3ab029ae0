"""What a policy is: something that orders gangs, sizes elastic ones, and places each.

Rules and learned policies implement the same protocols; the rails around them are in
:mod:`bireme.core.cycle` and the same for all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.placement import Placement
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
