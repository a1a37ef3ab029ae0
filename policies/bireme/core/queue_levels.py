"""How queues lie above and below each other, and what each branch of them is guaranteed.

A branch is a queue with all queues below it. It is guaranteed what its queue states, or what the
branches below it are guaranteed together where that is more, and never more than its limit. So no
two levels contradict each other, whatever was written: a guarantee given to a team also holds
against strangers to its department. Where the guarantees of siblings add up to more than there
is, they are kept first come, first served.
"""

from collections.abc import Mapping

from bireme.core.queues import Queue
from bireme.core.resources import Amounts, add

MOST_LEVELS = 16
"""The most queues from a queue up to its root, both included."""

_OWN = "\0own"
"""Ends the name of the branch that stands for a queue's own gangs beside the queues below it."""


class QueueLevels:
    """The fixed part of a queue tree.

    Attributes:
        guarantees: What a branch is guaranteed, by queue name, where that is anything.
        weighted: Queues ("" above the roots) with a queue directly below that sets a weight.
        faults: By queue name, why its place in the tree makes no sense, with the remedy.
    """

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self.faults: dict[str, str] = {}
        self._paths = {name: self._climb(name) for name in queues}
        self._inner = {path[1] for path in self._paths.values() if len(path) > 1}
        self.weighted = {self.above(q.name) for q in queues.values() if q.weight is not None}
        self.guarantees = self._guarantees()

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue and those above it, itself first. A name that is no queue stands alone."""
        return self._paths.get(queue) or (queue,)

    def route(self, queue: str) -> tuple[str, ...]:
        """The branches that the gangs of ``queue`` count in, the smallest first.

        Its path, and first, where there are queues below it, a branch for its own gangs.
        """
        path = self.path(queue)
        return (queue + _OWN, *path) if queue in self._inner else path

    def apart(self, queue: str, other: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The routes of two queues without the branches that are on both."""
        ours, theirs = self.route(queue), self.route(other)
        shared = set(ours) & set(theirs)
        return (
            tuple(name for name in ours if name not in shared),
            tuple(name for name in theirs if name not in shared),
        )

    def above(self, branch: str) -> str:
        """The queue directly above a branch; "" above a root."""
        route = self.path(branch.removesuffix(_OWN))
        if branch.endswith(_OWN):
            return route[0]
        return route[1] if len(route) > 1 else ""

    def _climb(self, queue: str) -> tuple[str, ...]:
        """The path of ``queue``. One that has no end leaves it alone, with a fault."""
        path = [queue]
        while parent := self._queues[path[-1]].parent:
            if parent not in self._queues:
                self.faults[queue] = (
                    f"parent of queue {path[-1]!r} is {parent!r}, which does not exist; "
                    "create that queue or change the parent"
                )
                break
            if parent in path:
                circle = " -> ".join([*path, parent])
                self.faults[queue] = (
                    f"parent of queue {queue!r} leads in a circle, {circle}; "
                    "take the parent from one of them"
                )
                return (queue,)
            if len(path) == MOST_LEVELS:
                self.faults[queue] = (
                    f"parent of queue {queue!r} is {path[1]!r}, which makes more than "
                    f"{MOST_LEVELS} levels; nest queues less deeply"
                )
                return (queue,)
            path.append(parent)
        return tuple(path)

    def _guarantees(self) -> dict[str, Amounts]:
        guarantees: dict[str, Amounts] = {}
        if not any(queue.guaranteed for queue in self._queues.values()):
            return guarantees
        below: dict[str, dict[str, int]] = {}
        for name in sorted(self._queues, key=lambda name: -len(self._paths[name])):
            found = _guaranteed(self._queues[name], below.get(name, {}))
            if found:
                guarantees[name] = found
                above = self.above(name)
                below[above] = add(below.get(above, {}), found)
        return guarantees


def _guaranteed(queue: Queue, below: Amounts) -> dict[str, int]:
    """What the branch of ``queue`` is guaranteed; ``below`` is so together below it."""
    stated = queue.guaranteed
    most = {name: max(stated.get(name, 0), below.get(name, 0)) for name in {**stated, **below}}
    capped = {name: min(amount, queue.limit.get(name, amount)) for name, amount in most.items()}
    return {name: amount for name, amount in capped.items() if amount > 0}
