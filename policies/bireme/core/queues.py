"""Queues: who may submit where, how much a queue may hold, how urgent its users are.

Queues form a tree by ``parent``; what that means for limits, guarantees and shares is in
:mod:`bireme.core.queue_tree`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bireme.core.errors import require
from bireme.core.gangs import Gang
from bireme.core.resources import Amounts
from bireme.core.settings import SchedulingSettings

_PATIENCE_AFTER_A_START: Final = 32
"""A gang that has run waits so many times as long. An order that stops it for others gave it turns;
to go before those that never ran makes the longest first wait longer, which is what the bound is
against. Chosen on the training days of Philly and on Muri's traces, in one piece: with 4, 8 or 16
the longest first wait or the mean completion is worse in some case."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as an administrator set it up.

    Raises:
        SettingError: ``weight`` is below 1, or an amount of ``guaranteed`` below 0.
    """

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
    parent: str = ""
    """The queue above, whose limit and guarantee this one's use counts against; "" for none."""
    weight: int | None = None
    """Its part, beside its siblings', of what none of them is guaranteed; None counts as 1."""
    max_min_runtime_seconds: int | None = None
    """The most that counts of the minimum run time of its gangs; None takes the general setting."""
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    """Amounts its gangs can take back from queues that hold more than is guaranteed to them."""

    def __post_init__(self) -> None:
        if self.weight is not None:
            require(f"weight of queue {self.name!r}", self.weight, 1)
        for name, amount in self.guaranteed.items():
            require(f"guaranteed[{name!r}] of queue {self.name!r}", amount, 0)

    def excess(self, used: Amounts, asked: Amounts) -> dict[str, tuple[int, int, int]]:
        """Resources whose limit ``used + asked`` would pass: name -> (asked, used, limit)."""
        return {
            name: (asked[name], used.get(name, 0), self.limit[name])
            for name in sorted(self.limit)
            if asked.get(name, 0) > 0 and used.get(name, 0) + asked[name] > self.limit[name]
        }


def wait_bound_seconds(
    queue: str, queues: Mapping[str, Queue], settings: SchedulingSettings
) -> int:
    """Return the wait bound of ``queue``: its own, or the general one."""
    known = queues.get(queue)
    return (known.wait_bound_seconds if known else None) or settings.wait_bound_seconds


def overdue_after_seconds(
    gang: Gang, queues: Mapping[str, Queue], settings: SchedulingSettings
) -> float:
    """Return after how long a wait ``gang`` goes before all others.

    That is the wait bound of its queue, but at least as many times its run time as the settings
    say: what it has run so far or is estimated to run, whichever is longer; and 32 times all that
    for one that has run. Long gangs that come
    after short ones, or are stopped for them, would else go before all short ones after a day in
    all, and make these wait for a day too. Time in which it did not lack capacity comes on top.
    """
    bound_seconds = wait_bound_seconds(gang.queue, queues, settings)
    run_seconds = max(gang.attained_seconds, gang.estimated_seconds or 0.0)
    seconds = max(bound_seconds, settings.wait_bound_run_factor * run_seconds)
    if gang.attained_seconds:
        seconds *= _PATIENCE_AFTER_A_START
    return seconds + gang.uncounted_seconds


def max_min_runtime_seconds(
    queue: str, queues: Mapping[str, Queue], settings: SchedulingSettings
) -> int:
    """Return the most that counts of a minimum run time in ``queue``.

    The least of what the setting, the queue and those above it say.
    """
    most = settings.max_min_runtime_seconds
    for name in with_those_above(queue, queues):
        own = queues[name].max_min_runtime_seconds if name in queues else None
        most = most if own is None else min(most, own)
    return most


def with_those_above(queue: str, queues: Mapping[str, Queue]) -> list[str]:
    """Return ``queue`` and the names above it, itself first; a circle ends where it closes."""
    path: list[str] = []
    while queue and queue not in path:
        path.append(queue)
        queue = queues[queue].parent if queue in queues else ""
    return path
