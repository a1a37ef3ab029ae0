"""Machines that differ: by GPU model, by health, and by who else is on them.

A synchronous gang waits for its slowest replica, so it goes as fast as the slowest of its machines.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bireme.core.errors import SettingError
from bireme.core.speed import require_positive
from bireme.simulator.physics.disturbances import PER_NEIGHBOUR, interference


@dataclass(frozen=True, slots=True, eq=False)
class MachineLaw:
    """Speed by machine.

    Attributes:
        speeds: What each node makes of a replica on its own, by node name, 1 being the machine that
            run times are stated for: the GPU model times the health of the machine.
        per_neighbour: Factor per other gang on the same machine.
    """

    speeds: Mapping[str, float]
    per_neighbour: float = PER_NEIGHBOUR

    def __post_init__(self) -> None:
        for name, speed in self.speeds.items():
            require_positive(f"speed of node {name}", speed)
        if not 0 < self.per_neighbour <= 1:
            raise SettingError(
                f"per_neighbour is {self.per_neighbour}; it must be above 0, up to 1"
            )

    def rate(self, others: Mapping[str, int]) -> float:
        """Speed of a gang; ``others`` are the other gangs on each of its nodes, by node name.

        SettingError for a node without a speed.
        """
        return min(
            self._speed(name) * interference(count, self.per_neighbour)
            for name, count in others.items()
        )

    def _speed(self, name: str) -> float:
        if name not in self.speeds:
            raise SettingError(f"node {name} has no speed; give speeds for every node")
        return self.speeds[name]
