"""Rules over pods: what a pod demands of the other pods on its node.

The semantics are those of kube-scheduler's NodePorts. Only pods that such a rule is about are known
here (:class:`Occupants`); a cluster without rules has none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from bireme.core.gangs import PodKind
from bireme.core.nodes import NodeTable
from bireme.core.resources import BoolArray, IntArray

NODE = ""
"""The topology key whose domains are the nodes themselves, whatever their labels."""
NO_LIMIT = 2**31
"""More pods than a node takes."""


@lru_cache(maxsize=4096)
def conflicts(kind: PodKind, other: PodKind) -> tuple[str, ...]:
    """Return the topology keys in one domain of which pods of the two kinds cannot both be."""
    clash = any(mine.clashes(theirs) for mine in kind.ports for theirs in other.ports)
    return (NODE,) if clash else ()


def domains_of(key: str, nodes: NodeTable) -> IntArray:
    """Return the domain of ``key`` of every node, shape (nodes,); -1 where it has none."""
    if key == NODE:
        return np.arange(len(nodes))
    return nodes.label(key).codes.astype(np.int64)


def same_domain(key: str, rows: IntArray, nodes: NodeTable) -> BoolArray:
    """Return which nodes are in a domain of ``key`` with one of ``rows``, shape (nodes,)."""
    codes = domains_of(key, nodes)
    # One entry more, for code -1: nodes without the label are in no domain.
    is_in = np.zeros(len(nodes) + 1, dtype=np.bool_)
    is_in[codes[rows]] = True
    is_in[-1] = False
    return is_in[codes]


def most_per_node(kind: PodKind, nodes: NodeTable) -> IntArray:
    """Return how many pods of ``kind`` each node may have for their own rules, shape (nodes,)."""
    most = np.full(len(nodes), NO_LIMIT, dtype=np.int64)
    for key in conflicts(kind, kind):
        most[domains_of(key, nodes) >= 0] = 1
    return most


@dataclass(frozen=True, slots=True)
class PodsOf:
    """Pods of one kind and one gang on nodes.

    Attributes:
        rows: A row of the node table for each pod.
        owner: Uid of the gang, which makes room as a whole; empty for pods of no gang.
        are_fixed: They never leave their node.
    """

    kind: PodKind
    rows: IntArray
    owner: str = ""
    are_fixed: bool = False


class Occupants:
    """Pods on the nodes of one table, as far as rules are about them; immutable."""

    def __init__(
        self, groups: Iterable[PodsOf] = (), refused: Mapping[PodKind, BoolArray] | None = None
    ) -> None:
        self.groups = tuple(groups)
        self._refused = dict(refused or {})

    @cached_property
    def _by_kind(self) -> dict[PodKind, IntArray]:
        rows: dict[PodKind, list[IntArray]] = {}
        for group in self.groups:
            rows.setdefault(group.kind, []).append(group.rows)
        return {kind: np.concatenate(parts) for kind, parts in rows.items()}

    def refused(self, kind: PodKind, nodes: NodeTable) -> BoolArray:
        """Return which nodes these pods close to a pod of ``kind``, shape (nodes,); read-only."""
        known = self._refused.get(kind)
        if known is None:
            known = _closed(kind, self._by_kind.items(), nodes)
            if self.groups:  # one object without pods serves all tables
                self._refused[kind] = known
        return known

    def without(self, owners: Collection[str]) -> "Occupants":
        """Return all but the pods of ``owners``."""
        return Occupants(group for group in self.groups if group.owner not in owners)

    @property
    def fixed(self) -> "Occupants":
        """The pods that never leave their node."""
        return Occupants(group for group in self.groups if group.are_fixed)

    def plus(self, added: Sequence[PodsOf], nodes: NodeTable) -> "Occupants":
        """Return them and ``added``."""
        pods = [(group.kind, group.rows) for group in added]
        refused = {
            kind: known | _closed(kind, pods, nodes) for kind, known in self._refused.items()
        }
        return Occupants((*self.groups, *added), refused)

    def moved(self, rows: IntArray) -> "Occupants":
        """Return them on another table, in which row ``at`` of theirs is ``rows[at]``."""
        moved = (PodsOf(g.kind, rows[g.rows], g.owner, g.are_fixed) for g in self.groups)
        return Occupants(moved) if self.groups else self

    def owners_against(self, pods: Iterable[PodsOf], nodes: NodeTable) -> set[str]:
        """Return the uids of gangs whose pods keep ``pods`` from their places."""
        found: set[str] = set()
        for new in pods:
            for group in self.groups:
                if group.owner and group.owner not in found:
                    closed = _closed(new.kind, [(group.kind, group.rows)], nodes)
                    if closed[new.rows].any():
                        found.add(group.owner)
        return found


def _closed(kind: PodKind, pods: Iterable[tuple[PodKind, IntArray]], nodes: NodeTable) -> BoolArray:
    """Return which nodes ``pods`` on their rows close to a pod of ``kind``, shape (nodes,)."""
    closed = np.zeros(len(nodes), dtype=np.bool_)
    for other, rows in pods:
        for key in conflicts(kind, other):
            closed |= same_domain(key, rows, nodes)
    closed.setflags(write=False)
    return closed


NOBODY = Occupants()
"""No pods that any rule is about."""
