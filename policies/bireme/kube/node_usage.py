"""What pods use on every node, recomputed from the pods themselves, never incremented.

Only nodes whose pods changed are summed again, so a cycle costs what changed, and a missed or
doubled event can never leave phantom usage behind: the next change of the node corrects it.
"""

from collections.abc import Iterable

import numpy as np

from bireme.core.gangs import Key
from bireme.core.nodes import NodeTable
from bireme.core.resources import IntArray, Request, add


class FixedUsage:
    """Requests of pods that never leave their node: DaemonSets and static pods."""

    def __init__(self) -> None:
        self._node_of: dict[Key, str] = {}
        self._pods_on: dict[str, dict[Key, Request]] = {}

    def put(self, key: Key, node: str, request: Request) -> bool:
        """The pod stays on ``node``; empty for nowhere. True if that is news."""
        before = self._node_of.get(key, "")
        if before == node and (not node or self._pods_on[node].get(key) == request):
            return False
        if before:
            del self._pods_on[before][key]
            del self._node_of[key]
        if node:
            self._node_of[key] = node
            self._pods_on.setdefault(node, {})[key] = request
        return True

    def on(self, node: str) -> dict[str, int]:
        """What they ask of ``node`` together."""
        total: dict[str, int] = {}
        for request in self._pods_on.get(node, {}).values():
            total = add(total, request)
        return total


class NodeUsage:
    """Requests of bound, non-terminal pods by node."""

    def __init__(self) -> None:
        self._node_of: dict[Key, str] = {}
        self._pods_on: dict[str, dict[Key, Request]] = {}
        self._changed: set[str] = set()
        self._table: NodeTable | None = None
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)

    def put(self, key: Key, node: str, request: Request) -> bool:
        """The pod uses ``request`` on ``node``; an empty ``node`` means nowhere. True if new."""
        before = self._node_of.get(key, "")
        if before == node and (not node or self._pods_on[node].get(key) == request):
            return False
        self._leave(key, before)
        if node:
            self._node_of[key] = node
            self._pods_on.setdefault(node, {})[key] = request
            self._changed.add(node)
        return True

    def remove(self, key: Key) -> None:
        """The pod uses nothing any more."""
        self._leave(key, self._node_of.get(key, ""))

    def _leave(self, key: Key, node: str) -> None:
        if not node:
            return
        del self._node_of[key]
        pods = self._pods_on[node]
        del pods[key]
        if not pods:
            del self._pods_on[node]
        self._changed.add(node)

    def matrix(self, nodes: NodeTable) -> IntArray:
        """Usage per node and resource, int64 of shape (nodes, resources); a fresh copy."""
        if nodes is not self._table:
            self._table = nodes
            self._used = np.zeros_like(nodes.allocatable)
            self._changed = set(self._pods_on)
        for name in self._changed:
            row = nodes.row.get(name)
            if row is not None:
                self._used[row] = 0
                for request in self._pods_on.get(name, {}).values():
                    self._used[row] += nodes.axis.usage(request)
        self._changed = set()
        return self._used.copy()


def add_members(used: IntArray, nodes: NodeTable, members: Iterable[tuple[str, Request]]) -> None:
    """Add the request of every (node, request) to ``used``, shape (nodes, resources), in place."""
    rows: dict[Request, list[int]] = {}
    for node, request in members:
        row = nodes.row.get(node)
        if row is not None:
            rows.setdefault(request, []).append(row)
    for request, taken in rows.items():  # thousands of members, but few kinds of them
        np.add.at(used, taken, nodes.axis.usage(request))
