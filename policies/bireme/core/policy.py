"""What a policy is: something that orders gangs, and something that places one.

Rules and learned policies implement the same two protocols; the rails around them are in
:mod:`bireme.core.cycle` and the same for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang
from bireme.core.placement import Placement
from bireme.core.snapshot import ClusterSnapshot


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
    """A gang in its place in the order, with the numbers that put it there."""

    gang: Gang
    score: float
    factors: tuple[Factor, ...] = ()


class Orderer(Protocol):
    """Who goes first."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """All ``gangs``, each once, first to start first. A total order: ties by arrival, uid."""
        ...


class Placer(Protocol):
    """Where a gang goes."""

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for every replica of ``gang``, or None when they do not all fit."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """An orderer and a placer under the names they were asked for."""

    orderer: Orderer
    placer: Placer
