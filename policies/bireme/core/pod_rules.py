"""Rules over pods: a pod's demands on the other pods of its node.

The semantics are those of kube-scheduler's NodePorts, InterPodAffinity and PodTopologySpread, and
of VolumeRestrictions for claims of one pod. :class:`Occupants` holds only pods that such a rule
concerns; in a cluster without rules it is empty.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np

from bireme.core.gangs import Gang, Key, Shape
from bireme.core.nodes import NodeTable, accepts, selector_nodes, tolerates
from bireme.core.pod_constraints import (
    ANYWHERE,
    NodeConstraints,
    PodKind,
    PodSelector,
    Requirement,
    SpreadLimit,
)
from bireme.core.resources import BoolArray, IntArray

NODE = ""
"""The topology key whose domains are the nodes themselves, whatever their labels."""
CLUSTER = "*"
"""The topology key that has all nodes in one domain."""
NO_LIMIT = 2**31
"""More pods than a node can hold."""


@lru_cache(maxsize=65_536)
def conflicts(kind: PodKind, other: PodKind) -> tuple[str, ...]:
    """Return the topology keys whose domains cannot hold pods of both kinds."""
    keys: dict[str, None] = {}
    if any(mine.clashes(theirs) for mine in kind.ports for theirs in other.ports):
        keys[NODE] = None
    if kind.alone and not set(kind.alone).isdisjoint(other.alone):
        keys[CLUSTER] = None
    for terms, pod in ((kind.apart, other), (other.apart, kind)):
        keys.update((term.key, None) for term in terms if matches(term.pods, pod))
    return tuple(keys)


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
    return all(accepts(requirement, values.get(requirement.key)) for requirement in requirements)


def attracts(other: PodKind, kind: PodKind) -> bool:
    """Return whether required affinity of ``kind`` selects pods of ``other``.

    As in kube-scheduler, a pod counts for one term only if it matches all of them.
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
    # One more entry, for code -1: nodes without the label are in no domain.
    is_in = np.zeros(len(nodes) + 1, dtype=np.bool_)
    is_in[codes[rows]] = True
    is_in[-1] = False
    return is_in[codes]


def max_pods_per_node(kind: PodKind, nodes: NodeTable) -> IntArray:
    """Return the maximum number of pods of ``kind`` on each node by their own rules.

    Shape (nodes,). Affinity and spread are left out: they depend on the earlier pods.
    """
    limits = np.full(len(nodes), NO_LIMIT, dtype=np.int64)
    for key in conflicts(kind, kind):
        limits[domains_of(key, nodes) >= 0] = 1
    limits[~has_domains(kind, nodes)] = 0
    return limits


def has_domains(kind: PodKind, nodes: NodeTable) -> BoolArray:
    """Return which nodes have all labels that affinity and spread of ``kind`` need, (nodes,)."""
    mask = np.ones(len(nodes), dtype=np.bool_)
    for key in (*(term.key for term in kind.near), *(limit.key for limit in kind.spread)):
        mask &= domains_of(key, nodes) >= 0
    return mask


def spread_nodes(
    kind: PodKind, limit: SpreadLimit, constraints: NodeConstraints, nodes: NodeTable
) -> BoolArray:
    """Return on which nodes pods count for ``limit`` of a pod of ``kind``, shape (nodes,)."""
    mask = selector_nodes(constraints if limit.honors_affinity else ANYWHERE, nodes)
    for other_limit in kind.spread:
        mask &= domains_of(other_limit.key, nodes) >= 0
    if limit.honors_taints:
        # A cordon alone does not count until the node controller has turned it into a taint.
        mask &= [tolerates(constraints.tolerations, node.taints) for node in nodes.nodes]
    return mask


def shape_alone(gang: Gang) -> Shape:
    """Return the shape of ``gang`` where no rule connects its pods with others.

    Gangs of equal shape then fit alike, whatever labels their pods use among each other.
    """
    if not gang.has_rules:
        return gang.shape
    return Shape((*gang.shape[:2], _structure(tuple(task.pod for task in gang.tasks))))


@lru_cache(maxsize=65_536)
def _structure(kinds: tuple[PodKind | None, ...]) -> tuple[object, ...]:
    """Return the rules among the pods of one gang, in the order of its tasks."""
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
    """Kinds of pods, indexed by another kind: the rules of one concern the other."""

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
        """Add a kind."""
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
        """Return the kinds that rules of ``kind`` concern, or whose rules concern it."""
        if not self._kinds:
            return ()
        kinds: dict[PodKind, None] = {}
        for port in kind.ports:
            kinds.update(self._with_port.get(port.number, {}))
        for claim in kind.alone:
            kinds.update(self._with_claim.get(claim, {}))
        for pods in kind.selectors:
            kinds.update((other, None) for other in self._candidates(pods) if matches(pods, other))
        for pair in (None, *kind.labels) if self._asking else ():
            for other in self._asking.get(pair, ()):
                if any(matches(pods, kind) for pods in other.selectors):
                    kinds[other] = None
        return kinds

    def _candidates(self, pods: PodSelector) -> Iterable[PodKind]:
        """Return kinds that include all that ``pods`` match."""
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
        are_coming: Capacity is kept for them until others have ended; their volumes are not there.
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
    """Pods on the nodes of one table, as far as rules concern them; immutable.

    They are kept in layers. Each layer has at least twice as many groups as the next, so that
    adding some pods costs little more than their number.
    """

    def __init__(self, groups: Iterable[PodsOf] = ()) -> None:
        initial = tuple(groups)
        self._layers: tuple[_Layer, ...] = (_Layer(initial),) if initial else ()
        self._removed: frozenset[str] = frozenset()
        self._refused: dict[PodKind, BoolArray] = {}

    @classmethod
    def _of(cls, layers: tuple["_Layer", ...], removed: frozenset[str]) -> "Occupants":
        occupants = cls()
        occupants._layers, occupants._removed = layers, removed
        return occupants

    @cached_property
    def groups(self) -> tuple[PodsOf, ...]:
        """All groups of pods."""
        every = chain.from_iterable(layer.groups for layer in self._layers)
        return tuple(group for group in every if group.owner not in self._removed)

    def about(self, kind: PodKind) -> Iterator[PodsOf]:
        """Yield the pods that rules of ``kind`` concern, or whose rules concern it."""
        every = chain.from_iterable(layer.about(kind) for layer in self._layers)
        return (group for group in every if group.owner not in self._removed)

    def users_of_claims(self, kind: PodKind) -> Iterator[tuple[Key, str]]:
        """Yield each single-pod claim of ``kind`` that other pods use, and their owner.

        The owner is the uid of their gang, or empty.
        """
        for group in self.about(kind) if kind.alone else ():
            yield from ((claim, group.owner) for claim in kind.alone if claim in group.kind.alone)

    def conflict_nodes(self, kind: PodKind, nodes: NodeTable) -> BoolArray:
        """Return the nodes that these pods close to a pod of ``kind``, shape (nodes,);
        read-only.
        """
        if not self._layers:  # one empty object serves all tables
            return np.zeros(len(nodes), dtype=np.bool_)
        cached = self._refused.get(kind)
        if cached is None:
            if self._removed:
                cached = _conflict_nodes(kind, self.about(kind), nodes)
            else:
                cached = np.zeros(len(nodes), dtype=np.bool_)
                for layer in self._layers:
                    cached |= layer.conflict_nodes(kind, nodes)
            cached.setflags(write=False)
            self._refused[kind] = cached
        return cached

    def less(self, pods: Sequence[PodsOf]) -> "Occupants":
        """Return all groups except one that equals each of ``pods``."""
        remaining = list(self.groups)
        for target in pods:
            index = next(index for index, group in enumerate(remaining) if group.equals(target))
            del remaining[index]
        return Occupants(remaining)

    def without(self, owners: Iterable[str]) -> "Occupants":
        """Return all but the pods of ``owners``."""
        removed = self._removed.union(owners)
        return self if removed == self._removed else Occupants._of(self._layers, removed)

    @cached_property
    def permanent(self) -> "Occupants":
        """The pods that never leave their node."""
        return Occupants(group for group in self.groups if group.are_fixed)

    @cached_property
    def _with_volume(self) -> dict[tuple[str, str], list[IntArray]]:
        rows_by_volume: dict[tuple[str, str], list[IntArray]] = {}
        for group in self.groups:
            for volume in () if group.are_coming else group.kind.volumes:
                rows_by_volume.setdefault(volume, []).append(group.rows)
        return rows_by_volume

    def have_volume(self, volume: tuple[str, str], nodes: NodeTable) -> BoolArray:
        """Return the nodes with a pod that uses ``volume``, shape (nodes,)."""
        mask = np.zeros(len(nodes), dtype=np.bool_)
        for rows in self._with_volume.get(volume, ()):
            mask[rows] = True
        return mask

    def plus(self, added: Sequence[PodsOf]) -> "Occupants":
        """Return these pods and ``added``."""
        if any(group.owner in self._removed for group in added):
            return Occupants((*self.groups, *added))
        layers = [*self._layers, _Layer(tuple(added))]
        while len(layers) > 1 and len(layers[-2].groups) < 2 * len(layers[-1].groups):
            last = layers.pop()
            layers[-1] = _Layer((*layers[-1].groups, *last.groups))
        return Occupants._of(tuple(layers), self._removed)

    def remap(self, rows: IntArray) -> "Occupants":
        """Return these pods on another table, in which their row ``i`` is ``rows[i]``."""
        groups = (replace(group, rows=rows[group.rows]) for group in self.groups)
        return Occupants(groups) if self._layers else self

    def owners_against(self, pods: Iterable[PodsOf], nodes: NodeTable) -> set[str]:
        """Return the uids of gangs whose pods keep ``pods`` from their places."""
        owners: set[str] = set()
        for new in pods:
            for group in self.about(new.kind):
                if group.owner and group.owner not in owners:
                    closed = _conflict_nodes(new.kind, [group], nodes)
                    if closed[new.rows].any():
                        owners.add(group.owner)
        return owners


class _Layer:
    """Groups of pods, indexed by the kinds that their rules concern or that concern them."""

    def __init__(self, groups: tuple[PodsOf, ...]) -> None:
        self.groups = groups
        self._cache: dict[PodKind, BoolArray] = {}

    @cached_property
    def _by_kind(self) -> dict[PodKind, list[PodsOf]]:
        by_kind: dict[PodKind, list[PodsOf]] = {}
        for group in self.groups:
            by_kind.setdefault(group.kind, []).append(group)
        return by_kind

    @cached_property
    def _index(self) -> KindIndex:
        return KindIndex(self._by_kind)

    def about(self, kind: PodKind) -> Iterator[PodsOf]:
        """Yield the groups that rules of ``kind`` concern, or whose rules concern it."""
        for other in self._index.about(kind):
            yield from self._by_kind[other]

    def conflict_nodes(self, kind: PodKind, nodes: NodeTable) -> BoolArray:
        """Return the nodes that these groups close to a pod of ``kind``, shape (nodes,)."""
        cached = self._cache.get(kind)
        if cached is None:
            cached = self._cache[kind] = _conflict_nodes(kind, self.about(kind), nodes)
        return cached


def _conflict_nodes(kind: PodKind, pods: Iterable[PodsOf], nodes: NodeTable) -> BoolArray:
    """Return the nodes that ``pods`` close to a pod of ``kind``, shape (nodes,)."""
    rows: dict[str, list[IntArray]] = {}
    for group in pods:
        for key in conflicts(kind, group.kind):
            rows.setdefault(key, []).append(group.rows)
    closed = np.zeros(len(nodes), dtype=np.bool_)
    for key, row_arrays in rows.items():
        closed |= same_domain(key, np.concatenate(row_arrays), nodes)
    return closed


NOBODY = Occupants()
"""No pods at all."""
