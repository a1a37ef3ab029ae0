"""Queues: who may submit where, how much a queue may hold, and how urgent its users are.

Queues form a tree by ``parent``; :mod:`bireme.core.queue_tree` defines its effect on limits,
guarantees and shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bireme.core.errors import require
from bireme.core.gangs import Gang
from bireme.core.resources import Amounts
from bireme.core.settings import SchedulingSettings

_PATIENCE_AFTER_A_START: Final = 32
"""The factor by which a gang that has run waits longer. An order that stops it for others gave it
turns. If it then preceded gangs that never ran, the longest first wait would grow, against which
the bound exists. Chosen on the training days of Philly and on Muri's traces, in one piece: with 4,
8 or 16 the longest first wait or the mean completion is worse in some case."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as an administrator configured it.

    Raises:
        SettingError: ``weight`` is below 1, or an amount of ``guaranteed`` below 0.
    """

    name: str
    limit: Mapping[str, int] = field(default_factory=dict)
    """The limit on the demand of its admitted gangs together; an unnamed resource has no limit."""
    user_priority: int = 50
    """0 to 100, the inter-job factor U of the combined priority."""
    wait_bound_seconds: int | None = None
    """The wait after which a gang precedes all others; None takes the general setting."""
    is_open: bool = True
    namespaces: frozenset[str] | None = None
    """Namespaces that may use the queue; None means all."""
    parent: str = ""
    """The queue above, whose limit and guarantee include this queue's usage; "" for none."""
    weight: int | None = None
    """Share of unguaranteed capacity among siblings; None counts as 1."""
    max_min_runtime_seconds: int | None = None
    """Upper bound on the minimum run time of its gangs; None takes the general setting."""
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    """Amounts that its gangs can reclaim from queues that hold more than their guarantee."""

    def __post_init__(self) -> None:
        if self.weight is not None:
            require(f"weight of queue {self.name!r}", self.weight, 1)
        for name, amount in self.guaranteed.items():
            require(f"guaranteed[{name!r}] of queue {self.name!r}", amount, 0)

    def excess(self, used: Amounts, demand: Amounts) -> dict[str, tuple[int, int, int]]:
        """Resources in which ``used + demand`` exceeds the limit: name -> (asked, used, limit)."""
        return {
            name: (demand[name], used.get(name, 0), self.limit[name])
            for name in sorted(self.limit)
            if demand.get(name, 0) > 0 and used.get(name, 0) + demand[name] > self.limit[name]
        }


def wait_bound_seconds(
    queue: str, queues: Mapping[str, Queue], settings: SchedulingSettings
) -> int:
    """Return the wait bound of ``queue``: its own, or the general one."""
    spec = queues.get(queue)
    return (spec.wait_bound_seconds if spec else None) or settings.wait_bound_seconds


def overdue_after_seconds(
    gang: Gang, queues: Mapping[str, Queue], settings: SchedulingSettings
) -> float:
    """Return the wait after which ``gang`` precedes all others.

    That is the wait bound of its queue, but at least a multiple of its run time, by the settings.
    The run time is the longer of its run so far and its estimate. For a gang that has run, the
    result is 32 times as long. Otherwise long gangs that come after short ones, or are stopped for
    them, would precede all short ones after a day in all, and make these wait for a day too. Time
    in which the gang did not lack capacity is added.
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
    """Return the upper bound on a minimum run time in ``queue``.

    It is the smallest of the values of the setting, the queue and its ancestors.
    """
    cap = settings.max_min_runtime_seconds
    for name in with_those_above(queue, queues):
        queue_cap = queues[name].max_min_runtime_seconds if name in queues else None
        cap = cap if queue_cap is None else min(cap, queue_cap)
    return cap


def with_those_above(queue: str, queues: Mapping[str, Queue]) -> list[str]:
    """Return ``queue`` and its ancestors, itself first; a circle ends where it closes."""
    path: list[str] = []
    while queue and queue not in path:
        path.append(queue)
        queue = queues[queue].parent if queue in queues else ""
    return path
