"""The rules that any set of placements keeps, each written once: sizes, room, limits, evictions."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from bireme.core.settings import SchedulingSettings

Amounts = Mapping[str, int]
"""Amounts by resource."""


def most_evictions(settings: SchedulingSettings, run_seconds: float) -> int:
    """Return the budget, and one more from the backoff on and at every doubling of it."""
    most, mark = settings.eviction_budget, settings.eviction_backoff_seconds
    while 0 < mark <= run_seconds:
        most, mark = most + 1, 2 * mark
    return most


def wrong_sizes(
    bounds: Mapping[str, tuple[int, int]], sizes: Mapping[str, int], at_least: int = 0
) -> Iterator[str]:
    """Yield tasks with replicas outside ``bounds``, and gangs that are too small."""
    for task in {*bounds, *sizes}:
        least, most = bounds.get(task, (0, 0))
        if not least <= sizes.get(task, 0) <= most:
            yield f"has {sizes.get(task, 0)} of {least} to {most} {task}"
    if sum(sizes.values()) < at_least:
        yield f"has {dict(sizes)} and needs {at_least} replicas in all"


def overcommitted(
    offers: Mapping[str, Amounts],
    used: Mapping[tuple[str, str], int],
    only: Collection[tuple[str, str]] | None = None,
) -> Iterator[str]:
    """Yield nodes of which more is ``used`` than they offer, by (node, resource)."""
    for node, resource in sorted(used if only is None else only):
        offered = offers.get(node, {}).get(resource, 0)
        if used[node, resource] > offered:
            yield f"{node} holds {used[node, resource]} of {offered} {resource}"


def over_limits(
    limits: Mapping[str, Amounts], parents: Mapping[str, str], usage: Mapping[str, Amounts]
) -> Iterator[str]:
    """Yield queues that hold, with all queues below them, more than their limit."""
    for queue, limit in limits.items():
        held: Counter[str] = Counter()
        for name, amounts in usage.items():
            at = name
            while at and at != queue:
                at = parents.get(at, "")
            if at:
                held.update(amounts)
        for resource, most in limit.items():
            if held[resource] > most:
                yield f"queue {queue} holds {held[resource]} of {most} {resource}"
