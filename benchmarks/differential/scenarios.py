"""Input of both sides: nodes, queues, and jobs with their moments, as manifests.

Moments and run times are whole seconds, because a fake kubelet ends pods at whole seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bireme.settings_source import variable_of
from testbed.scenario.manifests import Manifest

CLASSES: Final[Mapping[str, int]] = {"calm": 10, "pressing": 100, "urgent": 1000}
"""PriorityClasses and their values."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    variable_of("min_runtime_seconds"): "0",
    variable_of("resize_settle_seconds"): "3",
    # Fake pods report no speed, which the simulator has to know: goodput would size there alone.
    variable_of("sizer"): "general",
}
"""The settings of decisions, on both sides."""
DEBOUNCE_SECONDS: Final = 0.25
"""Pods of a gang end one by one; one cycle of the operator should see them all gone."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that comes ``seconds`` after the beginning; without ``run_seconds`` it never ends."""

    seconds: float
    run_seconds: float | None
    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs in order of arrival; nothing more happens ``until_seconds`` after the beginning."""

    seed: int
    nodes: tuple[Manifest, ...]
    queues: tuple[Manifest, ...]
    submissions: tuple[Submission, ...]
    until_seconds: float = 0.0

    @property
    def rest_seconds(self) -> float:
        """Time after the last end in which elastic gangs may settle and grow."""
        return 5.0 if any(s.run_seconds is None for s in self.submissions) else 1.0
