"""Rules over pods: what a pod demands of the other pods on its node.

The semantics are those of kube-scheduler's NodePorts, InterPodAffinity and PodTopologySpread, and
of VolumeRestrictions for claims of one pod. Only pods that such a rule is about are known here
(:class:`Occupants`); a cluster without rules has none.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np

from bireme.core.gangs import (
    ANYWHERE,
    Gang,
    Key,
    NodeConstraints,
    PodKind,
    PodSelector,
    Requirement,
    Shape,
    SpreadLimit,
)
from bireme.core.nodes import NodeTable, accepts, selected, tolerates
from bireme.core.resources import BoolArray, IntArray

NODE = ""
"""The topology key whose domains are the nodes themselves, whatever their labels."""
CLUSTER = "*"
"""The topology key of which all nodes are one domain."""
NO_LIMIT = 2**31
"""More pods than a node takes."""


@lru_cache(maxsize=65_536)
def conflicts(kind: PodKind, other: PodKind) -> tuple[str, ...]:
    """Return the topology keys in one domain of which pods of the two kinds cannot both be."""
    found: dict[str, None] = {}
    if any(mine.clashes(theirs) for mine in kind.ports for theirs in other.ports):
        found[NODE] = None
    if kind.alone and not set(kind.alone).isdisjoint(other.alone):
        found[CLUSTER] = None
    for terms, pod in ((kind.apart, other), (other.apart, kind)):
        found.update((term.key, None) for term in terms if matches(term.pods, pod))
    return tuple(found)


@lru_cache(maxsize=65_536)
def matches(pods: PodSelector, kind: PodKind) -> bool:
    """Return whether pods of ``kind`` are among ``pods``."""
    if not kind.namespace:
        return False
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
    if key == CLUSTER:
        return np.zeros(len(nodes), dtype=np.int64)
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
        mask &= [tolerates(constraints.tolerations, node.taints) for node in nodes.nodes]
    return mask


def shape_alone(gang: Gang) -> Shape:
    """Return the shape of ``gang`` where no rules are between its pods and others.

    Whatever the labels are by which its pods know each other, gangs of equal shape then fit alike.
    """
    if not gang.has_rules:
        return gang.shape
    return Shape((*gang.shape[:2], _structure(tuple(task.pod for task in gang.tasks))))


@lru_cache(maxsize=65_536)
def _structure(kinds: tuple[PodKind | None, ...]) -> tuple[object, ...]:
    """Return what the rules of the pods of one gang are among each other; of tasks in order."""
    pods = [kind for kind in kinds if kind is not None]
    return tuple(
        kind
        and (
            kind.words,
            kind.volumes,
            tuple(conflicts(kind, other) for other in pods),
            tuple(attracts(other, kind) for other in pods),
            tuple(replace(limit, pods=PodSelector()) for limit in kind.spread),
            tuple(matches(limit.pods, other) for limit in kind.spread for other in pods),
        )
        for kind in kinds
    )


class KindIndex:
    """Kinds of pods, found by another kind: the rules of one are about the other."""

    def __init__(self, kinds: Iterable[PodKind] = ()) -> None:
        self._kinds: dict[PodKind, None] = {}
        self._labelled: dict[tuple[str, tuple[str, str]], dict[PodKind, None]] = {}
        self._asking: dict[tuple[str, str] | None, dict[PodKind, None]] = {}
        self._with_port: dict[int, dict[PodKind, None]] = {}
        self._with_claim: dict[Key, dict[PodKind, None]] = {}
        for kind in kinds:
            self.add(kind)

    def __len__(self) -> int:
        return len(self._kinds)

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
        for claim in kind.alone:
            self._with_claim.setdefault(claim, {})[kind] = None

    def about(self, kind: PodKind) -> Collection[PodKind]:
        """Return the known kinds that rules of ``kind`` are about, or whose rules are about it."""
        if not self._kinds:
            return ()
        found: dict[PodKind, None] = {}
        for port in kind.ports:
            found.update(self._with_port.get(port.number, {}))
        for claim in kind.alone:
            found.update(self._with_claim.get(claim, {}))
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
        are_coming: Room is kept for them until others have left, and their volumes are not there.
    """

    kind: PodKind
    rows: IntArray
    owner: str = ""
    are_fixed: bool = False
    are_leaving: bool = False
    are_coming: bool = False

    def equals(self, other: "PodsOf") -> bool:
        """Return whether they are pods of the same kind and gang on the same nodes."""
        is_akin = (self.owner, self.kind) == (other.owner, other.kind)
        return is_akin and np.array_equal(self.rows, other.rows)


class Occupants:
    """Pods on the nodes of one table, as far as rules are about them; immutable.

    They are kept in layers, each of which has at least twice as many groups as the next, so that
    to add some pods costs little more than these.
    """

    def __init__(self, groups: Iterable[PodsOf] = ()) -> None:
        given = tuple(groups)
        self._layers: tuple[_Layer, ...] = (_Layer(given),) if given else ()
        self._gone: frozenset[str] = frozenset()
        self._refused: dict[PodKind, BoolArray] = {}

    @classmethod
    def _of(cls, layers: tuple["_Layer", ...], gone: frozenset[str]) -> "Occupants":
        made = cls()
        made._layers, made._gone = layers, gone
        return made

    @cached_property
    def groups(self) -> tuple[PodsOf, ...]:
        """All of them."""
        every = chain.from_iterable(layer.groups for layer in self._layers)
        return tuple(group for group in every if group.owner not in self._gone)

    def about(self, kind: PodKind) -> Iterator[PodsOf]:
        """Yield the pods that rules of ``kind`` are about, or whose rules are about it."""
        every = chain.from_iterable(layer.about(kind) for layer in self._layers)
        return (group for group in every if group.owner not in self._gone)

    def users_of_claims(self, kind: PodKind) -> Iterator[tuple[Key, str]]:
        """Yield each claim that a pod of ``kind`` needs alone and others use, and whose they are.

        That is the uid of their gang, or empty.
        """
        for group in self.about(kind) if kind.alone else ():
            yield from ((claim, group.owner) for claim in kind.alone if claim in group.kind.alone)

    def refused(self, kind: PodKind, nodes: NodeTable) -> BoolArray:
        """Return which nodes these pods close to a pod of ``kind``, shape (nodes,); read-only."""
        if not self._layers:  # one object without pods serves all tables
            return np.zeros(len(nodes), dtype=np.bool_)
        known = self._refused.get(kind)
        if known is None:
            if self._gone:
                known = _closed(kind, self.about(kind), nodes)
            else:
                known = np.zeros(len(nodes), dtype=np.bool_)
                for layer in self._layers:
                    known |= layer.closed(kind, nodes)
            known.setflags(write=False)
            self._refused[kind] = known
        return known

    def less(self, pods: Sequence[PodsOf]) -> "Occupants":
        """Return all but one group equal to each of ``pods``."""
        left = list(self.groups)
        for gone in pods:
            at = next(at for at, group in enumerate(left) if group.equals(gone))
            del left[at]
        return Occupants(left)

    def without(self, owners: Iterable[str]) -> "Occupants":
        """Return all but the pods of ``owners``."""
        gone = self._gone.union(owners)
        return self if gone == self._gone else Occupants._of(self._layers, gone)

    @cached_property
    def fixed(self) -> "Occupants":
        """The pods that never leave their node."""
        return Occupants(group for group in self.groups if group.are_fixed)

    @cached_property
    def _with_volume(self) -> dict[tuple[str, str], list[IntArray]]:
        found: dict[tuple[str, str], list[IntArray]] = {}
        for group in self.groups:
            for volume in () if group.are_coming else group.kind.volumes:
                found.setdefault(volume, []).append(group.rows)
        return found

    def have_volume(self, volume: tuple[str, str], nodes: NodeTable) -> BoolArray:
        """Return on which nodes a pod uses ``volume``, shape (nodes,)."""
        mask = np.zeros(len(nodes), dtype=np.bool_)
        for rows in self._with_volume.get(volume, ()):
            mask[rows] = True
        return mask

    def plus(self, added: Sequence[PodsOf]) -> "Occupants":
        """Return them and ``added``."""
        if any(group.owner in self._gone for group in added):
            return Occupants((*self.groups, *added))
        layers = [*self._layers, _Layer(tuple(added))]
        while len(layers) > 1 and len(layers[-2].groups) < 2 * len(layers[-1].groups):
            last = layers.pop()
            layers[-1] = _Layer((*layers[-1].groups, *last.groups))
        return Occupants._of(tuple(layers), self._gone)

    def moved(self, rows: IntArray) -> "Occupants":
        """Return them on another table, in which row ``at`` of theirs is ``rows[at]``."""
        moved = (replace(group, rows=rows[group.rows]) for group in self.groups)
        return Occupants(moved) if self._layers else self

    def owners_against(self, pods: Iterable[PodsOf], nodes: NodeTable) -> set[str]:
        """Return the uids of gangs whose pods keep ``pods`` from their places."""
        found: set[str] = set()
        for new in pods:
            for group in self.about(new.kind):
                if group.owner and group.owner not in found:
                    closed = _closed(new.kind, [group], nodes)
                    if closed[new.rows].any():
                        found.add(group.owner)
        return found


class _Layer:
    """Groups of pods, found by kinds that their rules are about, or that are about them."""

    def __init__(self, groups: tuple[PodsOf, ...]) -> None:
        self.groups = groups
        self._closed: dict[PodKind, BoolArray] = {}

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
        """Yield those that rules of ``kind`` are about, or whose rules are about it."""
        for other in self._index.about(kind):
            yield from self._by_kind[other]

    def closed(self, kind: PodKind, nodes: NodeTable) -> BoolArray:
        """Return which nodes they close to a pod of ``kind``, shape (nodes,)."""
        known = self._closed.get(kind)
        if known is None:
            known = self._closed[kind] = _closed(kind, self.about(kind), nodes)
        return known


def _closed(kind: PodKind, pods: Iterable[PodsOf], nodes: NodeTable) -> BoolArray:
    """Return which nodes ``pods`` close to a pod of ``kind``, shape (nodes,)."""
    rows: dict[str, list[IntArray]] = {}
    for group in pods:
        for key in conflicts(kind, group.kind):
            rows.setdefault(key, []).append(group.rows)
    closed = np.zeros(len(nodes), dtype=np.bool_)
    for key, taken in rows.items():
        closed |= same_domain(key, np.concatenate(taken), nodes)
    return closed


NOBODY = Occupants()
"""No pods that any rule is about."""
