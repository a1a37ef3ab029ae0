"""How fast a job trains and what that gains it: what policies may know, if anybody measured it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

from bireme.core.errors import SettingError


@runtime_checkable
class SpeedLaw(Protocol):
    """Training speed as a function of size and spread."""

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Speed with ``sizes[task name]`` replicas on ``nodes`` nodes; 0 when it cannot run."""
        ...


@runtime_checkable
class EfficiencyLaw(Protocol):
    """A speed law that also knows how much a step is worth (Pollux, OSDI'21, section 3.1)."""

    def statistical_efficiency(self, sizes: Mapping[str, int]) -> float:
        """Progress per step at ``sizes``, relative to a step at the size asked for; above 0."""
        ...


@runtime_checkable
class LossCurve(Protocol):
    """Training loss over time, as fitted to what a job has reported."""

    def loss(self, steps: float) -> float:
        """Loss after ``steps`` steps since training began: falling, and ever more slowly."""
        ...


@dataclass(frozen=True, slots=True)
class LinearSpeed:
    """Proportional to the replicas, but for a serial share of every step.

    ``n`` replicas take ``serial_share + (1 - serial_share) / n`` of the time one takes (Amdahl,
    AFIPS 1967).

    Attributes:
        per_second: Steps a second of one replica.
        serial_share: From 0 (linear) to 1 (more replicas gain nothing).
        tasks: The tasks whose replicas count; all when empty.
    """

    per_second: float
    serial_share: float = 0.0
    tasks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive("per_second", self.per_second)
        if not 0 <= self.serial_share <= 1:
            raise SettingError(f"serial_share is {self.serial_share}; it must be from 0 to 1")

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Steps a second; 0 without replicas that count."""
        replicas = sum(sizes.get(task, 0) for task in self.tasks or sizes)
        if not replicas:
            return 0.0
        return self.per_second / (self.serial_share + (1 - self.serial_share) / replicas)


def require_positive(name: str, value: float) -> None:
    """SettingError unless ``value`` is a finite number above 0."""
    if not 0 < value < inf:
        raise SettingError(f"{name} is {value}; it must be a number above 0")
