"""Usage of nodes: the sums of the requests of pods, and of planned members without a pod."""

from collections.abc import Callable, Iterable

import numpy as np

from bireme.core.gangs import Key
from bireme.core.nodes import NodeTable
from bireme.core.resources import IntArray, Request, add
from bireme.kube.allocations import GangView


class NodeUsage:
    """Requests of pods by node, and their sums."""

    def __init__(self) -> None:
        self._node_of: dict[Key, str] = {}
        self._pods_on: dict[str, dict[Key, Request]] = {}
        self._changed: set[str] = set()
        self._table: NodeTable | None = None
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)

    def put(self, key: Key, node: str, request: Request = ()) -> bool:
        """Set the pod's usage on ``node``, "" for none; return whether anything changed."""
        previous = self._node_of.pop(key, "")
        if node:
            self._node_of[key] = node
        if previous == node and (not node or self._pods_on[node].get(key) == request):
            return False
        if previous:
            del self._pods_on[previous][key]
            if not self._pods_on[previous]:
                del self._pods_on[previous]
            self._changed.add(previous)
        if node:
            self._pods_on.setdefault(node, {})[key] = request
            self._changed.add(node)
        return True

    def node_of(self, key: Key) -> str:
        """Return the node of the pod; empty for none."""
        return self._node_of.get(key, "")

    def pods_on(self, node: str) -> Iterable[Key]:
        """Return the pods on ``node``."""
        return self._pods_on.get(node, ())

    def on(self, node: str) -> dict[str, int]:
        """Return the sum of the requests on ``node``."""
        total: dict[str, int] = {}
        for request in self._pods_on.get(node, {}).values():
            total = add(total, request)
        return total

    def matrix(self, nodes: NodeTable) -> IntArray:
        """Return usage per node and resource: int64, shape (nodes, resources), a fresh copy."""
        if nodes is not self._table:
            self._table = nodes
            self._used = np.zeros_like(nodes.allocatable)
            self._changed = set(self._pods_on)
        # Recomputed, never incremented: a missed or doubled event leaves no wrong usage behind.
        for name in self._changed:
            row = nodes.row.get(name)
            if row is not None:
                self._used[row] = 0
                for request in self._pods_on.get(name, {}).values():
                    self._used[row] += nodes.axis.usage(request)
        self._changed = set()
        return self._used.copy()


class PlannedUsage:
    """Usage of planned members that have no pod on a node; ``changed`` are the gangs to recount."""

    def __init__(self, changed: set[Key]) -> None:
        self.changed = changed
        self.usage = NodeUsage()
        self._counted: dict[Key, int] = {}

    def update(self, view: Callable[[Key], GangView | None]) -> None:
        """Recount the changed gangs."""
        for gang in self.changed:
            gang_view = view(gang)
            usage = list(gang_view.usage()) if gang_view is not None else []
            name = f"{gang[0]}/{gang[1]}"
            for number, (node, request) in enumerate(usage):
                self.usage.put((name, str(number)), node, request)
            for number in range(len(usage), self._counted.pop(gang, 0)):
                self.usage.put((name, str(number)), "")
            if usage:
                self._counted[gang] = len(usage)
        self.changed.clear()


def add_members(used: IntArray, nodes: NodeTable, members: Iterable[tuple[str, Request]]) -> None:
    """Add the request of every (node, request) to ``used``, shape (nodes, resources), in place."""
    rows: dict[Request, list[int]] = {}
    for node, request in members:
        row = nodes.row.get(node)
        if row is not None:
            rows.setdefault(request, []).append(row)
    # Grouped by request: there are thousands of members, but few distinct requests.
    for request, member_rows in rows.items():
        np.add.at(used, member_rows, nodes.axis.usage(request))
