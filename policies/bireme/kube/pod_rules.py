"""Rules over pods as Kubernetes writes them, and the pods of a cluster that they are about.

Host ports, required affinity and anti-affinity, and hard topology spread are planned. Few pods have
such rules, so nothing is worked out for pods that no rule is about.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain, count
from typing import Any, Final

from bireme.core.gangs import (
    HostPort,
    Key,
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
    """Return what a pod of this spec demands of other pods; None if nothing.

    Its own labels, which others' demands are about, are not part of it. ``template`` is the one
    that Bireme makes such pods of; None for pods of others.

    Raises:
        ValueError: an operator is unknown.
    """
    affinity = spec.affinity
    near = _required(affinity.pod_affinity if affinity else None)
    apart = _required(affinity.pod_anti_affinity if affinity else None)
    limits = _hard(spec)
    ports = _host_ports(spec)
    if not (near or apart or limits or ports):
        return None
    return _shared(
        PodKind(
            ports,
            # A pod is near the right ones by all of its terms, or by none.
            near=()
            if any(map(_is_left, near))
            else tuple(_term(each, namespace, labels) for each in near),
            apart=tuple(_term(each, namespace, labels) for each in apart if not _is_left(each)),
            spread=tuple(
                _limit(each, namespace, labels)
                # Which nodes one of them counts depends on all.
                for each in (() if _are_left(limits, template) else limits)
            ),
        )
    )


_Weighted = tuple[int, PodTerm]


def soft_terms(
    spec: wire.V1PodSpec, namespace: str, labels: Mapping[str, str]
) -> tuple[list[_Weighted], list[_Weighted]]:
    """Return the pods that a pod of this spec would rather be near, and apart from, by weight.

    Raises:
        ValueError: an operator is unknown.
    """
    affinity = spec.affinity or wire.V1Affinity()
    near, apart = (
        [
            (each.weight, _term(each.pod_affinity_term, namespace, labels))
            for each in _preferred(given)
            if not _is_left(each.pod_affinity_term)
        ]
        for given in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )
    return near, apart


def soft_limits(
    spec: wire.V1PodSpec, namespace: str, labels: Mapping[str, str]
) -> list[SpreadLimit]:
    """Return the topology spread that a pod of this spec would rather have.

    Raises:
        ValueError: an operator is unknown.
    """
    given = spec.topology_spread_constraints or ()
    return [
        _limit(each, namespace, labels)
        for each in given
        if each.when_unsatisfiable != _HARD
        if not _selects_one_pod(each.label_selector, each.match_label_keys)
    ]


@lru_cache(maxsize=65_536)
def _shared(kind: PodKind) -> PodKind:
    return kind


def left_to_scheduler(
    spec: wire.V1PodSpec, template: wire.V1PodSpec | None = None
) -> tuple[str, ...]:
    """Return in words the demands on other pods that are not planned.

    ``template`` is the one that Bireme makes pods of this spec of; None for pods of others.
    """
    affinity = spec.affinity or wire.V1Affinity()
    words = []
    for kind, given in (
        ("affinity", affinity.pod_affinity),
        ("anti-affinity", affinity.pod_anti_affinity),
    ):
        words += [
            f"required pod {kind} on {term.topology_key}"
            for term in _required(given)
            if _is_left(term)
        ]
    limits = _hard(spec)
    if _are_left(limits, template):
        words += [f"topology spread over {each.topology_key}" for each in limits]
    return tuple(words)


def spread_under_pin(constraint: dict[str, Any]) -> dict[str, Any]:
    """Return a raw spread constraint of a template as a pinned pod has it.

    Of a pinned pod kube-scheduler counts the pinned node's domain alone, which ``minDomains`` would
    call too few; with ``nodeAffinityPolicy: Ignore`` it counts all, in the order in which it binds.
    Both are for the plan to keep.
    """
    if constraint.get("whenUnsatisfiable") != _HARD:
        return constraint
    kept = {key: value for key, value in constraint.items() if key != "minDomains"}
    return kept | {"nodeAffinityPolicy": "Honor"} if "nodeAffinityPolicy" in kept else kept


def names_own_labels(spec: wire.V1PodSpec) -> bool:
    """Return whether pods of one template select others by labels that Bireme gives its pods."""
    affinity = spec.affinity or wire.V1Affinity()
    keys: list[Iterable[str] | None] = []
    for given in (affinity.pod_affinity, affinity.pod_anti_affinity):
        soft = (each.pod_affinity_term for each in _preferred(given))
        for term in (*_required(given), *soft):
            keys += term.match_label_keys, term.mismatch_label_keys
    keys += [each.match_label_keys for each in spec.topology_spread_constraints or ()]
    return any(key in names.POD_LABELS for key in chain(*filter(None, keys)))


def _is_left(term: wire.V1PodAffinityTerm) -> bool:
    keys = term.match_label_keys, term.mismatch_label_keys
    return _selects_one_pod(term.label_selector, *keys)


def _are_left(
    limits: Iterable[wire.V1TopologySpreadConstraint], template: wire.V1PodSpec | None
) -> bool:
    # Only what stands in a template is under a pin as the plan needs it (spread_under_pin).
    own = {_counting(each) for each in _hard(template)} if template is not None else set()
    return any(
        _selects_one_pod(each.label_selector, each.match_label_keys)
        or not (_is_plain(each) or _counting(each) in own)
        for each in limits
    )


def _is_plain(each: wire.V1TopologySpreadConstraint) -> bool:
    return (each.min_domains or 1) == 1 and each.node_affinity_policy != "Ignore"


def _counting(each: wire.V1TopologySpreadConstraint) -> tuple[str, int | None, str | None]:
    # A template has one hard constraint of a topology key.
    return each.topology_key, each.min_domains, each.node_affinity_policy


def _required(given: wire.V1PodAffinity | None) -> tuple[wire.V1PodAffinityTerm, ...]:
    terms = given.required_during_scheduling_ignored_during_execution if given else None
    return terms or ()


def _preferred(given: wire.V1PodAffinity | None) -> tuple[wire.V1WeightedPodAffinityTerm, ...]:
    terms = given.preferred_during_scheduling_ignored_during_execution if given else None
    return terms or ()


def _hard(spec: wire.V1PodSpec) -> list[wire.V1TopologySpreadConstraint]:
    given = spec.topology_spread_constraints or ()
    return [each for each in given if each.when_unsatisfiable == _HARD]


def _selects_one_pod(
    selector: wire.V1LabelSelector | None, *label_keys: Iterable[str] | None
) -> bool:
    given = selector or wire.V1LabelSelector()
    keys = (*(given.match_labels or ()), *(each.key for each in given.match_expressions or ()))
    return any(key in names.OF_ONE_START for key in chain(keys, *filter(None, label_keys)))


def _term(term: wire.V1PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    keys = term.match_label_keys, term.mismatch_label_keys
    asked = _selected(term.label_selector, labels, *keys)
    named, selector = tuple(sorted(term.namespaces or ())), term.namespace_selector
    if selector is None:
        return PodTerm(term.topology_key, PodSelector(named or (namespace,), (), asked))
    wanted = _requirements(selector)
    # One without requirements is all namespaces.
    pods = PodSelector(named, wanted, asked) if wanted else PodSelector(None, (), asked)
    return PodTerm(term.topology_key, pods)


def _limit(
    each: wire.V1TopologySpreadConstraint, namespace: str, labels: Mapping[str, str]
) -> SpreadLimit:
    asked = _selected(each.label_selector, labels, each.match_label_keys, ())
    pods = PodSelector((namespace,), (), asked)
    return SpreadLimit(
        each.topology_key,
        each.max_skew,
        pods,
        honors_taints=each.node_taints_policy == "Honor",
        honors_affinity=each.node_affinity_policy != "Ignore",
        least_domains=each.min_domains or 1,
    )


def _requirements(selector: wire.V1LabelSelector) -> tuple[Requirement, ...]:
    pairs = sorted((selector.match_labels or {}).items())
    plain = (Requirement(key, SelectorOperator.IN, (value,)) for key, value in pairs)
    return (*plain, *requirements(selector.match_expressions))


def _selected(
    selector: wire.V1LabelSelector | None,
    labels: Mapping[str, str],
    same: Iterable[str] | None,
    other: Iterable[str] | None,
) -> tuple[Requirement, ...]:
    """Return the requirements of a selector; without a selector no pod meets them.

    The pods have the values of ``labels``, the pod's own, under ``same``, and not under ``other``.
    The API server writes both into the selector of a pod when it is created.
    """
    if selector is None:
        return _NO_POD
    found = [*_requirements(selector)]
    for keys, operator in ((same, SelectorOperator.IN), (other, SelectorOperator.NOT_IN)):
        found += [Requirement(k, operator, (labels[k],)) for k in keys or () if k in labels]
    return tuple(dict.fromkeys(found))


def _host_ports(spec: wire.V1PodSpec) -> tuple[HostPort, ...]:
    sidecars = (c for c in spec.init_containers or () if c.restart_policy == "Always")
    found: dict[HostPort, None] = {}
    for container in (*sidecars, *(spec.containers or ())):
        for port in container.ports or ():
            # On the host's network a container port is a host port (default of the API).
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                address = port.host_ip or HostPort(number).address
                found[HostPort(number, port.protocol or "TCP", address)] = None
    return tuple(found)


_Source = tuple[str, Key]
_Pair = tuple[str, str]


class PodRules:
    """The rules of a cluster's pods and gangs, and the pods that could be among those they name.

    ``labels_of`` returns the labels of a namespace. Most selectors ask for a value of some label:
    with one that comes or goes only the pods of that label are looked at again.

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
        # Labels of pods, and of their namespaces, that selectors ask for.
        self._keys: Counter[str] = Counter()
        self._space_keys: Counter[str] = Counter()
        # The last change to what rules are about, of any pod, and of those that have a label.
        self._numbers = count(1)
        self._changed = 0
        self._changes_of: dict[_Pair | None, int] = {}
        # What is seen of pods, pods that are to be looked at again, and pods by what is asked.
        self._seen: dict[Key, PodKind] = {}
        self._unsure: dict[Key, None] = {}
        self._labelled: dict[_Pair, dict[Key, None]] = {}
        self._with_demands: set[Key] = set()

    def put_pod(self, key: Key, namespace: str, pod: wire.V1Pod, labels: Mapping[str, str]) -> None:
        """Take in a pod with its ``labels``, which are kept as they are.

        Rules with an operator that is not known, as of a later Kubernetes, are left to
        kube-scheduler.
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
        self._unsure[key] = None
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
        known = self._pods.pop(key, None)
        for pair in known[1].items() if known is not None else ():
            there = self._labelled.get(pair, {})
            there.pop(key, None)
            if not there:
                self._labelled.pop(pair, None)
        self._seen.pop(key, None)
        self._unsure.pop(key, None)
        self._with_demands.discard(key)

    def put_job(self, key: Key, demands: Iterable[PodKind | None]) -> None:
        """Take in the demands of the tasks of a job; none where it is gone."""
        self._put(("TrainingJob", key), *demands)

    def put_wishes(self, key: Key, wishes: Iterable[PodKind]) -> None:
        """Take in what a pod that waits for its gang would rather have; nothing once it does not.

        What others prefer is no matter of a gang's.
        """
        self._put(("Wishes", key), *wishes)

    def _put(self, source: _Source, *demands: PodKind | None) -> None:
        found = tuple(pods for kind in demands if kind is not None for pods in kind.selectors)
        before = self._selectors_of.pop(source, ())
        if found:
            self._selectors_of[source] = found
        if before == found:
            return
        for pods in found:
            self._count[pods] += 1
            if self._count[pods] == 1:
                self._by_pair.setdefault(pods.pair, {})[pods] = None
                self._change(pods, 1)
        for pods in before:
            self._count[pods] -= 1
            if not self._count[pods]:
                del self._count[pods]
                del self._by_pair[pods.pair][pods]
                if not self._by_pair[pods.pair]:
                    del self._by_pair[pods.pair]
                self._change(pods, -1)

    def _change(self, pods: PodSelector, change: int) -> None:
        """Note a selector that is new, ``change`` 1, or gone, -1."""
        is_about_all = pods.pair is None
        for counts, asked in ((self._keys, pods.requirements), (self._space_keys, pods.spaces)):
            for key in (each.key for each in asked):
                before = counts[key]
                counts[key] += change
                is_about_all |= not (before and counts[key])
        # No number stands for no selector: labels of jobs are without end.
        if pods.pair in self._by_pair:
            self._changes_of[pods.pair] = next(self._numbers)
        else:
            self._changes_of.pop(pods.pair, None)
        if is_about_all or pods.pair is None:
            self._change_all()
            return
        self._unsure.update(self._labelled.get(pods.pair, {}))

    def _change_all(self) -> None:
        self._changed = next(self._numbers)
        self._seen.clear()
        self._labelled.clear()
        self._unsure = dict.fromkeys(self._pods)

    def namespaces_changed(self) -> bool:
        """Take note that labels of namespaces have changed; return whether rules ask for any."""
        if not any(self._space_keys.values()):
            return False
        self._change_all()
        return True

    def revision_of(self, labels: Iterable[tuple[str, str]]) -> tuple[int, ...]:
        """Return what is another one once what is seen of pods with ``labels`` may have changed."""
        return (self._changed, *(self._changes_of.get(pair, 0) for pair in labels))

    @property
    def has_selectors(self) -> bool:
        """True if any rule names other pods."""
        return bool(self._count)

    def seen(
        self, namespace: str, labels: Mapping[str, str], demands: PodKind | None
    ) -> PodKind | None:
        """Return what rules see of a pod; None where none is about it and it has none."""
        if not self._count:
            return demands
        spaces = self._labels_of(namespace) if self._space_keys else {}
        plain = PodKind(
            namespace=namespace,
            labels=_asked(labels, self._keys),
            space=_asked(spaces, self._space_keys),
        )
        return self._narrowed(plain, demands)

    def _narrowed(self, plain: PodKind, demands: PodKind | None) -> PodKind | None:
        if demands is not None:
            return _shared(
                replace(demands, namespace=plain.namespace, labels=plain.labels, space=plain.space)
            )
        for pair in (None, *plain.labels):
            for pods in self._by_pair.get(pair, ()):
                if matches(pods, plain):
                    return _shared(plain)
        return None

    def pods(self) -> Iterator[tuple[Key, PodKind]]:
        """Yield every pod that some rule is about, and what rules see of it."""
        if not self._count:
            # No more than host ports are left, which only these pods have.
            for key in sorted(self._with_demands):
                if (kind := self._pods[key][2]) is not None:
                    yield key, kind
            return
        for key in self._unsure:
            _, labels, _ = known = self._pods[key]
            for pair in labels.items():
                if self._keys[pair[0]] > 0:
                    self._labelled.setdefault(pair, {})[key] = None
            kind = self.seen(*known)
            if kind is None:
                self._seen.pop(key, None)
            else:
                self._seen[key] = kind
        self._unsure.clear()
        yield from self._seen.items()

    def of_pod(self, key: Key) -> PodKind | None:
        """Return what rules see of a pod; None where none is about it."""
        known = self._pods.get(key)
        return self.seen(*known) if known is not None else None


def _asked(labels: Mapping[str, str], keys: Counter[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in labels.items() if keys[key] > 0))
