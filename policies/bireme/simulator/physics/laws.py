"""Speed laws with few numbers: constant, and measured at some sizes.

Every law answers :class:`~bireme.core.speed.SpeedLaw`. Its unit of work, the step, is its own: a
job that has a law states its work in the same unit. ``knows_spread`` says that the law itself
slows down on more nodes, so that no general penalty is added to it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Protocol, runtime_checkable

from bireme.core.errors import SettingError
from bireme.core.speed import require_positive


@runtime_checkable
class PlacedSpeedLaw(Protocol):
    """A speed law that was measured by placement: 3 + 1 replicas are not 2 + 2."""

    def steps_per_second_on(self, places: tuple[int, ...]) -> float:
        """Speed with ``places[i]`` replicas on the i-th of its nodes; 0 when it cannot run."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantSpeed:
    """``per_second`` steps a second at any size."""

    per_second: float

    def __post_init__(self) -> None:
        require_positive("per_second", self.per_second)

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Steps a second; 0 without replicas."""
        return self.per_second if any(sizes.values()) else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Measured at some numbers of GPUs; straight lines between them, 0 outside.

    A measured 0 means that the job did not run at that size, so that nothing between it and its
    neighbours runs either.

    Attributes:
        gpus: Ascending.
        together: Steps a second on the fewest nodes, one per entry of ``gpus``.
        apart: The same on more nodes than that; empty where it was not measured.
        gpus_per_node: Of the machines measured; tells the fewest nodes. A replica has one GPU.
    """

    gpus: tuple[int, ...]
    together: tuple[float, ...]
    apart: tuple[float, ...] = ()
    gpus_per_node: int = 8

    def __post_init__(self) -> None:
        if not self.gpus or list(self.gpus) != sorted(set(self.gpus)):
            raise SettingError(f"gpus is {self.gpus}; give at least one number, in ascending order")
        for name in ("together", "apart"):
            speeds = getattr(self, name)
            if (speeds or name == "together") and len(speeds) != len(self.gpus):
                raise SettingError(f"{name} has {len(speeds)} speeds; give {len(self.gpus)}")
        require_positive("gpus_per_node", self.gpus_per_node)

    @property
    def knows_spread(self) -> bool:
        """Whether the law slows down by itself on more nodes."""
        return bool(self.apart)

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Steps a second; 0 at sizes beyond those measured."""
        gpus = sum(sizes.values())
        is_apart = nodes > ceil(gpus / self.gpus_per_node)
        return self._between(gpus, self.apart if self.apart and is_apart else self.together)

    def _between(self, gpus: int, speeds: tuple[float, ...]) -> float:
        if not self.gpus[0] <= gpus <= self.gpus[-1]:
            return 0.0
        above = bisect_left(self.gpus, gpus)
        if self.gpus[above] == gpus:
            return speeds[above]
        low, high = speeds[above - 1], speeds[above]
        if low == 0 or high == 0:
            return 0.0
        share = (gpus - self.gpus[above - 1]) / (self.gpus[above] - self.gpus[above - 1])
        return low + share * (high - low)
