"""Rules over pods: what a pod demands of the other pods on its node.

The semantics are those of kube-scheduler's NodePorts, InterPodAffinity and PodTopologySpread. Only
pods that such a rule is about are known here (:class:`Occupants`); a cluster without rules has
none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from bireme.core.gangs import (
    ANYWHERE,
    NodeConstraints,
    PodKind,
    PodSelector,
    Requirement,
    SpreadLimit,
)
from bireme.core.nodes import NodeTable, accepts, selected
from bireme.core.resources import BoolArray, IntArray

NODE = ""
"""The topology key whose domains are the nodes themselves, whatever their labels."""
NO_LIMIT = 2**31
"""More pods than a node takes."""


@lru_cache(maxsize=65_536)
def conflicts(kind: PodKind, other: PodKind) -> tuple[str, ...]:
    """Return the topology keys in one domain of which pods of the two kinds cannot both be."""
    found: dict[str, None] = {}
    if any(mine.clashes(theirs) for mine in kind.ports for theirs in other.ports):
        found[NODE] = None
    for terms, pod in ((kind.apart, other), (other.apart, kind)):
        found.update((term.key, None) for term in terms if matches(term.pods, pod))
    return tuple(found)


@lru_cache(maxsize=65_536)
def matches(pods: PodSelector, kind: PodKind) -> bool:
    """Return whether pods of ``kind`` are among ``pods``."""
    is_named = pods.namespaces is None or kind.namespace in pods.namespaces
    if not is_named and not (pods.spaces and _meets(pods.spaces, kind.space)):
        return False
    return _meets(pods.requirements, kind.labels)


def _meets(requirements: Iterable[Requirement], labels: Iterable[tuple[str, str]]) -> bool:
    values = dict(labels)
    return all(accepts(each, values.get(each.key)) for each in requirements)


def attracts(other: PodKind, kind: PodKind) -> bool:
    """Return whether pods of ``other`` are such as required affinity wants pods of ``kind`` near.

    As in kube-scheduler a pod counts for one term only if it matches all of them.
    """
    return all(matches(term.pods, other) for term in kind.near)


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
    """Return how many pods of ``kind`` each node may have at most for their own rules.

    Shape (nodes,). What affinity and spread allow depends on the pods that come first.
    """
    most = np.full(len(nodes), NO_LIMIT, dtype=np.int64)
    for key in conflicts(kind, kind):
        most[domains_of(key, nodes) >= 0] = 1
    most[~has_domains(kind, nodes)] = 0
    return most


def has_domains(kind: PodKind, nodes: NodeTable) -> BoolArray:
    """Return which nodes have all labels that affinity and spread of ``kind`` ask, (nodes,)."""
    mask = np.ones(len(nodes), dtype=np.bool_)
    for key in (*(term.key for term in kind.near), *(limit.key for limit in kind.spread)):
        mask &= domains_of(key, nodes) >= 0
    return mask


def counted(
    kind: PodKind, limit: SpreadLimit, constraints: NodeConstraints, nodes: NodeTable
) -> BoolArray:
    """Return on which nodes pods count for ``limit`` of a pod of ``kind``, shape (nodes,)."""
    mask = selected(constraints if limit.honors_affinity else ANYWHERE, nodes)
    for each in kind.spread:
        mask &= domains_of(each.key, nodes) >= 0
    if limit.honors_taints:
        # A cordon alone does not count, until the node controller has made a taint of it.
        mask &= [
            all(any(t.tolerates(taint) for t in constraints.tolerations) for taint in node.taints)
            for node in nodes.nodes
        ]
    return mask


class KindIndex:
    """Kinds of pods, found by another kind: the rules of one are about the other."""

    def __init__(self, kinds: Iterable[PodKind] = ()) -> None:
        self._kinds: dict[PodKind, None] = {}
        self._labelled: dict[tuple[str, tuple[str, str]], dict[PodKind, None]] = {}
        self._asking: dict[tuple[str, str] | None, dict[PodKind, None]] = {}
        self._with_port: dict[int, dict[PodKind, None]] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: PodKind) -> None:
        """Take in a kind."""
        if kind in self._kinds:
            return
        self._kinds[kind] = None
        for pair in kind.labels:
            for namespace in (kind.namespace, _ANY):
                self._labelled.setdefault((namespace, pair), {})[kind] = None
        for pods in kind.selectors:
            self._asking.setdefault(pods.pair, {})[kind] = None
        for port in kind.ports:
            self._with_port.setdefault(port.number, {})[kind] = None

    def about(self, kind: PodKind) -> Collection[PodKind]:
        """Return the known kinds that rules of ``kind`` are about, or whose rules are about it."""
        if not self._kinds:
            return ()
        found: dict[PodKind, None] = {}
        for port in kind.ports:
            found.update(self._with_port.get(port.number, {}))
        for pods in kind.selectors:
            found.update((other, None) for other in self._candidates(pods) if matches(pods, other))
        for pair in (None, *kind.labels) if self._asking else ():
            for other in self._asking.get(pair, ()):
                if any(matches(pods, kind) for pods in other.selectors):
                    found[other] = None
        return found

    def _candidates(self, pods: PodSelector) -> Iterable[PodKind]:
        """Return kinds among which are all that ``pods`` match."""
        if pods.pair is None:
            return self._kinds
        spaces = (_ANY,) if pods.namespaces is None or pods.spaces else pods.namespaces
        return [kind for space in spaces for kind in self._labelled.get((space, pods.pair), ())]


_ANY = "*"
"""Stands for every namespace; no namespace has this name."""


@dataclass(frozen=True, slots=True)
class PodsOf:
    """Pods of one kind and one gang on nodes.

    Attributes:
        rows: A row of the node table for each pod.
        owner: Uid of the gang, which makes room as a whole; empty for pods of no gang.
        are_fixed: They never leave their node.
        are_leaving: They are being deleted, and count for no spread.
    """

    kind: PodKind
    rows: IntArray
    owner: str = ""
    are_fixed: bool = False
    are_leaving: bool = False


class Occupants:
    """Pods on the nodes of one table, as far as rules are about them; immutable."""

    def __init__(
        self, groups: Iterable[PodsOf] = (), refused: Mapping[PodKind, BoolArray] | None = None
    ) -> None:
        self.groups = tuple(groups)
        self._refused = dict(refused or {})
        self._asked = KindIndex(self._refused)

    @cached_property
    def _by_kind(self) -> dict[PodKind, list[PodsOf]]:
        found: dict[PodKind, list[PodsOf]] = {}
        for group in self.groups:
            found.setdefault(group.kind, []).append(group)
        return found

    @cached_property
    def _index(self) -> KindIndex:
        return KindIndex(self._by_kind)

    def about(self, kind: PodKind) -> Iterator[PodsOf]:
        """Yield the pods that rules of ``kind`` are about, or whose rules are about it."""
        for other in self._index.about(kind):
            yield from self._by_kind[other]

    def refused(self, kind: PodKind, nodes: NodeTable) -> BoolArray:
        """Return which nodes these pods close to a pod of ``kind``, shape (nodes,); read-only."""
        known = self._refused.get(kind)
        if known is None:
            known = _closed(kind, self.about(kind), nodes)
            if self.groups:  # one object without pods serves all tables
                self._refused[kind] = known
                self._asked.add(kind)
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
        refused = self._refused.copy()
        for group in added:
            for kind in self._asked.about(group.kind):
                refused[kind] = refused[kind] | _closed(kind, [group], nodes)
        return Occupants((*self.groups, *added), refused)

    def moved(self, rows: IntArray) -> "Occupants":
        """Return them on another table, in which row ``at`` of theirs is ``rows[at]``."""
        moved = (replace(group, rows=rows[group.rows]) for group in self.groups)
        return Occupants(moved) if self.groups else self

    def owners_against(self, pods: Iterable[PodsOf], nodes: NodeTable) -> set[str]:
        """Return the uids of gangs whose pods keep ``pods`` from their places."""
        found: set[str] = set()
        for new in pods:
            for group in self.groups:
                if group.owner and group.owner not in found:
                    closed = _closed(new.kind, [group], nodes)
                    if closed[new.rows].any():
                        found.add(group.owner)
        return found


def _closed(kind: PodKind, pods: Iterable[PodsOf], nodes: NodeTable) -> BoolArray:
    """Return which nodes ``pods`` close to a pod of ``kind``, shape (nodes,)."""
    closed = np.zeros(len(nodes), dtype=np.bool_)
    for group in pods:
        for key in conflicts(kind, group.kind):
            closed |= same_domain(key, group.rows, nodes)
    closed.setflags(write=False)
    return closed


NOBODY = Occupants()
"""No pods that any rule is about."""
