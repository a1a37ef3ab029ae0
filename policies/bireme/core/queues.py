"""Queues: who may submit where, how much a queue may hold, how urgent its users are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bireme.core.resources import Amounts


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as an administrator set it up."""

    name: str
    limit: Mapping[str, int] = field(default_factory=dict)
    """The most its admitted gangs may ask together; a resource not named is not limited."""
    user_priority: int = 50
    """0 to 100, the inter-job factor U of the combined priority."""
    wait_bound_seconds: int | None = None
    """After this wait a gang goes before all others; None takes the general setting."""
    is_open: bool = True
    namespaces: frozenset[str] | None = None
    """Namespaces that may use the queue; None means all."""

    def excess(self, used: Amounts, asked: Amounts) -> dict[str, tuple[int, int, int]]:
        """Resources whose limit ``used + asked`` would pass: name -> (asked, used, limit)."""
        return {
            name: (asked[name], used.get(name, 0), self.limit[name])
            for name in sorted(self.limit)
            if asked.get(name, 0) > 0 and used.get(name, 0) + asked[name] > self.limit[name]
        }
