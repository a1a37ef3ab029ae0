"""Affinity rules of Kubernetes, and the pods of a cluster that they select.

Host ports, required affinity and anti-affinity, and hard topology spread are planned. Few pods have
such rules, so nothing is computed for pods that no rule selects.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain, count
from typing import Any, Final

from bireme.core.gangs import Key
from bireme.core.pod_constraints import (
    HostPort,
    PodKind,
    PodSelector,
    PodTerm,
    Requirement,
    SelectorOperator,
    SpreadLimit,
)
from bireme.core.pod_rules import matches
from bireme.kube import names, wire
from bireme.kube.pods import requirements

_HARD: Final = "DoNotSchedule"
_NO_POD: Final = (Requirement("", SelectorOperator.IN, ()),)


def demands_of_spec(
    spec: wire.V1PodSpec,
    namespace: str,
    labels: Mapping[str, str],
    template: wire.V1PodSpec | None = None,
) -> PodKind | None:
    """Return the demands of a pod of this spec on other pods; None without any.

    The labels of the pod itself are not part of it. ``template`` is the template of Bireme's own
    pods; None for external pods.

    Raises:
        ValueError: an operator is unknown.
    """
    affinity = spec.affinity
    affinity_terms = _hard_terms(affinity.pod_affinity if affinity else None)
    anti_affinity_terms = _hard_terms(affinity.pod_anti_affinity if affinity else None)
    limits = _hard_constraints(spec)
    ports = _host_ports(spec)
    if not (affinity_terms or anti_affinity_terms or limits or ports):
        return None
    return _intern(
        PodKind(
            ports,
            # Affinity terms hold together: they are planned only if all of them can be.
            near=()
            if any(map(_is_unplanned, affinity_terms))
            else tuple(_term(term, namespace, labels) for term in affinity_terms),
            apart=tuple(
                _term(term, namespace, labels)
                for term in anti_affinity_terms
                if not _is_unplanned(term)
            ),
            spread=tuple(
                _limit(limit, namespace, labels)
                # The nodes that one constraint counts depend on all constraints.
                for limit in (() if _are_unplanned(limits, template) else limits)
            ),
        )
    )


_Weighted = tuple[int, PodTerm]


def soft_terms(
    spec: wire.V1PodSpec, namespace: str, labels: Mapping[str, str]
) -> tuple[list[_Weighted], list[_Weighted]]:
    """Return the preferred affinity and anti-affinity terms of a pod of this spec, with weights.

    Raises:
        ValueError: an operator is unknown.
    """
    affinity = spec.affinity or wire.V1Affinity()
    affinity_terms, anti_affinity_terms = (
        [
            (term.weight, _term(term.pod_affinity_term, namespace, labels))
            for term in _soft_terms(rules)
            if not _is_unplanned(term.pod_affinity_term)
        ]
        for rules in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )
    return affinity_terms, anti_affinity_terms


def soft_limits(
    spec: wire.V1PodSpec, namespace: str, labels: Mapping[str, str]
) -> list[SpreadLimit]:
    """Return the preferred topology spread of a pod of this spec.

    Raises:
        ValueError: an operator is unknown.
    """
    constraints = spec.topology_spread_constraints or ()
    return [
        _limit(constraint, namespace, labels)
        for constraint in constraints
        if constraint.when_unsatisfiable != _HARD
        if not _selects_one_pod(constraint.label_selector, constraint.match_label_keys)
    ]


@lru_cache(maxsize=65_536)
def _intern(kind: PodKind) -> PodKind:
    return kind


def demands_for_scheduler(
    spec: wire.V1PodSpec, template: wire.V1PodSpec | None = None
) -> tuple[str, ...]:
    """Return messages for the demands on other pods that only kube-scheduler checks.

    ``template`` is the template of Bireme's own pods; None for external pods.
    """
    affinity = spec.affinity or wire.V1Affinity()
    reasons = []
    for kind, rules in (
        ("affinity", affinity.pod_affinity),
        ("anti-affinity", affinity.pod_anti_affinity),
    ):
        reasons += [
            f"required pod {kind} on {term.topology_key}"
            for term in _hard_terms(rules)
            if _is_unplanned(term)
        ]
    limits = _hard_constraints(spec)
    if _are_unplanned(limits, template):
        reasons += [f"topology spread over {constraint.topology_key}" for constraint in limits]
    return tuple(reasons)


def spread_under_pin(constraint: dict[str, Any]) -> dict[str, Any]:
    """Return a raw spread constraint of a template in its form for a pinned pod.

    For a pinned pod kube-scheduler counts only the domain of the pinned node, so ``minDomains``
    would fail. With ``nodeAffinityPolicy: Ignore`` it counts all domains in the order of binding.
    The plan keeps both rules instead.
    """
    if constraint.get("whenUnsatisfiable") != _HARD:
        return constraint
    pinned = {key: value for key, value in constraint.items() if key != "minDomains"}
    return pinned | {"nodeAffinityPolicy": "Honor"} if "nodeAffinityPolicy" in pinned else pinned


def names_own_labels(spec: wire.V1PodSpec) -> bool:
    """Return whether a rule of a pod selects by the labels that Bireme sets on its pods."""
    affinity = spec.affinity or wire.V1Affinity()
    keys: list[Iterable[str] | None] = []
    for rules in (affinity.pod_affinity, affinity.pod_anti_affinity):
        soft = (weighted.pod_affinity_term for weighted in _soft_terms(rules))
        for term in (*_hard_terms(rules), *soft):
            keys += term.match_label_keys, term.mismatch_label_keys
    keys += [constraint.match_label_keys for constraint in spec.topology_spread_constraints or ()]
    return any(key in names.POD_LABELS for key in chain(*filter(None, keys)))


def _is_unplanned(term: wire.V1PodAffinityTerm) -> bool:
    keys = term.match_label_keys, term.mismatch_label_keys
    return _selects_one_pod(term.label_selector, *keys)


def _are_unplanned(
    limits: Iterable[wire.V1TopologySpreadConstraint], template: wire.V1PodSpec | None
) -> bool:
    # Only constraints of the template were rewritten for a pin (spread_under_pin).
    template_keys = (
        {_counting_key(constraint) for constraint in _hard_constraints(template)}
        if template is not None
        else set()
    )
    return any(
        _selects_one_pod(constraint.label_selector, constraint.match_label_keys)
        or not (_is_plain(constraint) or _counting_key(constraint) in template_keys)
        for constraint in limits
    )


def _is_plain(constraint: wire.V1TopologySpreadConstraint) -> bool:
    return (constraint.min_domains or 1) == 1 and constraint.node_affinity_policy != "Ignore"


def _counting_key(
    constraint: wire.V1TopologySpreadConstraint,
) -> tuple[str, int | None, str | None]:
    # A template has at most one hard constraint per topology key.
    return constraint.topology_key, constraint.min_domains, constraint.node_affinity_policy


def _hard_terms(affinity: wire.V1PodAffinity | None) -> tuple[wire.V1PodAffinityTerm, ...]:
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return terms or ()


def _soft_terms(affinity: wire.V1PodAffinity | None) -> tuple[wire.V1WeightedPodAffinityTerm, ...]:
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else None
    return terms or ()


def _hard_constraints(spec: wire.V1PodSpec) -> list[wire.V1TopologySpreadConstraint]:
    constraints = spec.topology_spread_constraints or ()
    return [constraint for constraint in constraints if constraint.when_unsatisfiable == _HARD]


def _selects_one_pod(
    selector: wire.V1LabelSelector | None, *label_keys: Iterable[str] | None
) -> bool:
    label_selector = selector or wire.V1LabelSelector()
    keys = (
        *(label_selector.match_labels or ()),
        *(expression.key for expression in label_selector.match_expressions or ()),
    )
    return any(key in names.OF_ONE_START for key in chain(keys, *filter(None, label_keys)))


def _term(term: wire.V1PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    keys = term.match_label_keys, term.mismatch_label_keys
    pod_requirements = _selector_requirements(term.label_selector, labels, *keys)
    named, selector = tuple(sorted(term.namespaces or ())), term.namespace_selector
    if selector is None:
        return PodTerm(term.topology_key, PodSelector(named or (namespace,), (), pod_requirements))
    namespace_requirements = _requirements(selector)
    # An empty namespace selector selects all namespaces.
    pods = (
        PodSelector(named, namespace_requirements, pod_requirements)
        if namespace_requirements
        else PodSelector(None, (), pod_requirements)
    )
    return PodTerm(term.topology_key, pods)


def _limit(
    constraint: wire.V1TopologySpreadConstraint, namespace: str, labels: Mapping[str, str]
) -> SpreadLimit:
    pod_requirements = _selector_requirements(
        constraint.label_selector, labels, constraint.match_label_keys, ()
    )
    pods = PodSelector((namespace,), (), pod_requirements)
    return SpreadLimit(
        constraint.topology_key,
        constraint.max_skew,
        pods,
        honors_taints=constraint.node_taints_policy == "Honor",
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        least_domains=constraint.min_domains or 1,
    )


def _requirements(selector: wire.V1LabelSelector) -> tuple[Requirement, ...]:
    pairs = sorted((selector.match_labels or {}).items())
    plain = (Requirement(key, SelectorOperator.IN, (value,)) for key, value in pairs)
    return (*plain, *requirements(selector.match_expressions))


def _selector_requirements(
    selector: wire.V1LabelSelector | None,
    labels: Mapping[str, str],
    same: Iterable[str] | None,
    other: Iterable[str] | None,
) -> tuple[Requirement, ...]:
    """Return the requirements of a selector; without a selector no pod meets them.

    ``labels`` are the labels of the pod with the rule. The selected pods have its values under the
    keys ``same``, and other values under the keys ``other``. The API server writes both into the
    selector when it creates the pod.
    """
    if selector is None:
        return _NO_POD
    pod_requirements = [*_requirements(selector)]
    for keys, operator in ((same, SelectorOperator.IN), (other, SelectorOperator.NOT_IN)):
        pod_requirements += [
            Requirement(k, operator, (labels[k],)) for k in keys or () if k in labels
        ]
    return tuple(dict.fromkeys(pod_requirements))


def _host_ports(spec: wire.V1PodSpec) -> tuple[HostPort, ...]:
    sidecars = (c for c in spec.init_containers or () if c.restart_policy == "Always")
    ports: dict[HostPort, None] = {}
    for container in (*sidecars, *(spec.containers or ())):
        for port in container.ports or ():
            # With hostNetwork a container port is a host port (default of the API).
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                address = port.host_ip or HostPort(number).address
                ports[HostPort(number, port.protocol or "TCP", address)] = None
    return tuple(ports)


_Source = tuple[str, Key]
_Pair = tuple[str, str]


class PodRules:
    """The affinity rules of a cluster's pods and gangs, and the pods that they select.

    ``labels_of`` returns the labels of a namespace. Most selectors require a value of some label.
    A new or deleted selector then affects only the pods with that label.

    Attributes:
        leaving: Pods that are being deleted.
    """

    def __init__(self, labels_of: Callable[[str], Mapping[str, str]]) -> None:
        self._labels_of = labels_of
        # Namespace, labels and demands by pod.
        self._pods: dict[Key, tuple[str, Mapping[str, str], PodKind | None]] = {}
        self.leaving: set[Key] = set()
        self._selectors_of: dict[_Source, tuple[PodSelector, ...]] = {}
        self._count: Counter[PodSelector] = Counter()
        self._by_pair: dict[_Pair | None, dict[PodSelector, None]] = {}
        # Keys of pod labels and of namespace labels that selectors use.
        self._keys: Counter[str] = Counter()
        self._namespace_keys: Counter[str] = Counter()
        # Revision of the last change that affects all pods, and by label the pods with that label.
        self._revisions = count(1)
        self._revision = 0
        self._revision_by_pair: dict[_Pair | None, int] = {}
        # Selected pods, pods that must be checked again, and pods by label.
        self._kind_by_pod: dict[Key, PodKind] = {}
        self._dirty: dict[Key, None] = {}
        self._pods_by_label: dict[_Pair, dict[Key, None]] = {}
        self._with_demands: set[Key] = set()

    def put_pod(self, key: Key, namespace: str, pod: wire.V1Pod, labels: Mapping[str, str]) -> None:
        """Store a pod with its ``labels``, which must not be changed later.

        Rules with an unknown operator of a later Kubernetes are left to kube-scheduler.
        """
        try:
            demands = demands_of_spec(pod.spec, namespace, labels)
        except ValueError:
            demands = None
        if pod.metadata.deletion_timestamp is None:
            self.leaving.discard(key)
        else:
            self.leaving.add(key)
        if self._pods.get(key) == (namespace, labels, demands):
            return
        self._forget(key)
        self._pods[key] = (namespace, labels, demands)
        self._dirty[key] = None
        self._put(("Pod", key), demands)
        if demands is not None:
            self._with_demands.add(key)

    def delete_pod(self, key: Key) -> None:
        """Forget a pod."""
        if key in self._pods:
            self._forget(key)
            self.leaving.discard(key)
            self._put(("Pod", key), None)

    def _forget(self, key: Key) -> None:
        record = self._pods.pop(key, None)
        for pair in record[1].items() if record is not None else ():
            pods = self._pods_by_label.get(pair, {})
            pods.pop(key, None)
            if not pods:
                self._pods_by_label.pop(pair, None)
        self._kind_by_pod.pop(key, None)
        self._dirty.pop(key, None)
        self._with_demands.discard(key)

    def put_job(self, key: Key, demands: Iterable[PodKind | None]) -> None:
        """Store the demands of the tasks of a job; none for a deleted job."""
        self._put(("TrainingJob", key), *demands)

    def put_preferences(self, key: Key, preferences: Iterable[PodKind]) -> None:
        """Store the preferences of a gated pod; none once it is released.

        Preferences of other pods do not matter.
        """
        self._put(("Preferences", key), *preferences)

    def _put(self, source: _Source, *demands: PodKind | None) -> None:
        selectors = tuple(
            selector for kind in demands if kind is not None for selector in kind.selectors
        )
        previous = self._selectors_of.pop(source, ())
        if selectors:
            self._selectors_of[source] = selectors
        if previous == selectors:
            return
        for selector in selectors:
            self._count[selector] += 1
            if self._count[selector] == 1:
                self._by_pair.setdefault(selector.pair, {})[selector] = None
                self._change(selector, 1)
        for selector in previous:
            self._count[selector] -= 1
            if not self._count[selector]:
                del self._count[selector]
                del self._by_pair[selector.pair][selector]
                if not self._by_pair[selector.pair]:
                    del self._by_pair[selector.pair]
                self._change(selector, -1)

    def _change(self, selector: PodSelector, change: int) -> None:
        """Record a selector that is new (``change`` 1) or gone (-1)."""
        is_about_all = selector.pair is None
        for counts, selector_requirements in (
            (self._keys, selector.requirements),
            (self._namespace_keys, selector.spaces),
        ):
            for key in (requirement.key for requirement in selector_requirements):
                previous = counts[key]
                counts[key] += change
                is_about_all |= not (previous and counts[key])
        # Without a selector there is no entry: the number of labels is unbounded.
        if selector.pair in self._by_pair:
            self._revision_by_pair[selector.pair] = next(self._revisions)
        else:
            self._revision_by_pair.pop(selector.pair, None)
        if is_about_all or selector.pair is None:
            self._change_all()
            return
        self._dirty.update(self._pods_by_label.get(selector.pair, {}))

    def _change_all(self) -> None:
        self._revision = next(self._revisions)
        self._kind_by_pod.clear()
        self._pods_by_label.clear()
        self._dirty = dict.fromkeys(self._pods)

    def namespaces_changed(self) -> bool:
        """Handle changed labels of namespaces; return whether any rule uses such labels."""
        if not any(self._namespace_keys.values()):
            return False
        self._change_all()
        return True

    def revision_of(self, labels: Iterable[tuple[str, str]]) -> tuple[int, ...]:
        """Return a revision that changes when rules may select pods with ``labels`` differently."""
        return (self._revision, *(self._revision_by_pair.get(pair, 0) for pair in labels))

    @property
    def has_selectors(self) -> bool:
        """True if any rule selects other pods."""
        return bool(self._count)

    def kind_of(
        self, namespace: str, labels: Mapping[str, str], demands: PodKind | None
    ) -> PodKind | None:
        """Return the pod's kind for rules; None if it has no rules and no rule selects it."""
        if not self._count:
            return demands
        spaces = self._labels_of(namespace) if self._namespace_keys else {}
        plain = PodKind(
            namespace=namespace,
            labels=_filter_labels(labels, self._keys),
            space=_filter_labels(spaces, self._namespace_keys),
        )
        return self._select_kind(plain, demands)

    def _select_kind(self, plain: PodKind, demands: PodKind | None) -> PodKind | None:
        if demands is not None:
            return _intern(
                replace(demands, namespace=plain.namespace, labels=plain.labels, space=plain.space)
            )
        for pair in (None, *plain.labels):
            for pods in self._by_pair.get(pair, ()):
                if matches(pods, plain):
                    return _intern(plain)
        return None

    def pods(self) -> Iterator[tuple[Key, PodKind]]:
        """Yield every pod that a rule selects or that has rules, with its kind."""
        if not self._count:
            # No selectors: the only remaining demands are host ports.
            for key in sorted(self._with_demands):
                if (kind := self._pods[key][2]) is not None:
                    yield key, kind
            return
        for key in self._dirty:
            _, labels, _ = record = self._pods[key]
            for pair in labels.items():
                if self._keys[pair[0]] > 0:
                    self._pods_by_label.setdefault(pair, {})[key] = None
            kind = self.kind_of(*record)
            if kind is None:
                self._kind_by_pod.pop(key, None)
            else:
                self._kind_by_pod[key] = kind
        self._dirty.clear()
        yield from self._kind_by_pod.items()

    def of_pod(self, key: Key) -> PodKind | None:
        """Return the kind of a pod; None if no rule concerns it."""
        record = self._pods.get(key)
        return self.kind_of(*record) if record is not None else None


def _filter_labels(labels: Mapping[str, str], keys: Counter[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in labels.items() if keys[key] > 0))
