"""How fast a job trains and what that gains it: what policies may know, if anybody measured it."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


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


class LossCurve(Protocol):
    """Training loss over time, as fitted to what a job has reported."""

    def loss(self, steps: float) -> float:
        """Loss after ``steps`` steps since training began: falling, and ever more slowly."""
        ...
