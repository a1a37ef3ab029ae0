"""How the network and the API server behave at this moment, drawn from one seeded source.

A request takes at most ``LONGEST_WAY_SECONDS`` to arrive: the margin that the lease leaves between
a leader's last write and the next leader's first. An answer may take any time, or never come.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.support.fakeapi.faults import WRITES, Fault

LONGEST_WAY_SECONDS: Final = 4.0
_ERRORS: Final = (
    Fault(status=500, reason="InternalError"),
    Fault(status=503, reason="ServiceUnavailable"),
    Fault(status=504, reason="Timeout"),
    Fault(status=429, reason="TooManyRequests", retry_after_seconds=1),
    Fault(drop=True),
)


@dataclass(slots=True)
class Weather:
    """Shares are chances per request, from 0 to 1. All 0 and ``is_down`` False is fair weather."""

    chance: Random
    is_down: bool = False
    errors: float = 0.0
    conflicts: float = 0.0
    late_errors: float = 0.0
    """The write is done, and then its answer is an error or never comes."""
    slow: float = 0.0
    lag_seconds: dict[str, float] = field(default_factory=dict)
    """How far the watches of a process may be behind, beyond milliseconds."""

    def clear(self) -> None:
        """Fair weather."""
        self.is_down = False
        self.errors = self.conflicts = self.late_errors = self.slow = 0.0
        self.lag_seconds.clear()

    def way_seconds(self, *, back: bool = False) -> float:
        """How long a request, or its answer, is under way."""
        if self.slow and self.chance.random() < self.slow:
            return self.chance.uniform(0.0, 25.0 if back else LONGEST_WAY_SECONDS)
        return self.chance.uniform(0.001, 0.02)

    def watch_lag_seconds(self, process: str) -> float:
        """How long a line of a watch is under way."""
        usual = self.chance.uniform(0.001, 0.05)
        return usual + self.chance.uniform(0.0, self.lag_seconds.get(process, 0.0))

    def fault(self, method: str) -> Fault | None:
        """What goes wrong with this request."""
        if self.errors and self.chance.random() < self.errors:
            return self.chance.choice(_ERRORS)
        if method not in WRITES:
            return None
        if self.late_errors and self.chance.random() < self.late_errors:
            return Fault(drop_answer=True, silent=self.chance.random() < 0.5)
        changes = method in ("PUT", "PATCH")
        if changes and self.conflicts and self.chance.random() < self.conflicts:
            return Fault(status=409, reason="Conflict")
        return None
