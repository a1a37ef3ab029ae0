"""Rules over other pods: the filters InterPodAffinity and PodTopologySpread."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.scheduler import node_affinity

Placed = tuple[Object, Object]
"""A node and a pod that is bound or assumed there."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
Labels = Mapping[str, Mapping[str, str]]
"""Labels of namespaces, by name."""


def obstacle(
    pod: Object, node: Object, nodes: Sequence[Object], placements: Sequence[Placed], labels: Labels
) -> str:
    """Return kube-scheduler's words against ``node``; empty where the rules allow it."""
    if any(
        _selects(term, pod, other, labels) and _is_same(term, place, node)
        for term in _terms(pod, "podAntiAffinity")
        for place, other in placements
    ):
        return "node(s) didn't match pod anti-affinity rules"
    for place, other in placements:
        for term in _terms(other, "podAntiAffinity"):
            if _selects(term, other, pod, labels) and _is_same(term, place, node):
                return "node(s) didn't satisfy existing pods anti-affinity rules"
    if not _is_near(pod, node, placements, labels):
        return "node(s) didn't match pod affinity rules"
    for limit in pod["spec"].get("topologySpreadConstraints") or ():
        if limit["whenUnsatisfiable"] != "DoNotSchedule":
            continue
        if _domain(limit, node) is None:
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        if _is_skewed(limit, pod, node, nodes, placements):
            return "node(s) didn't match pod topology spread constraints"
    return ""


def has_rules(pod: Object) -> bool:
    """Return whether a pod has rules over other pods."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    return bool(
        affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or spec.get("topologySpreadConstraints")
    )


def _terms(pod: Object, kind: str) -> Sequence[Mapping[str, Any]]:
    terms = ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(_REQUIRED)
    return terms or ()


def _selects(term: Mapping[str, Any], owner: Object, other: Object, labels: Labels) -> bool:
    namespace = other["metadata"]["namespace"]
    names, selector = term.get("namespaces") or (), term.get("namespaceSelector")
    if not names and selector is None:
        is_in = namespace == owner["metadata"]["namespace"]
    else:
        is_in = namespace in names or (
            selector is not None and matches_labels(selector, labels.get(namespace, {}))
        )
    return is_in and matches_labels(_selector(term, owner), other["metadata"].get("labels") or {})


def _selector(rule: Mapping[str, Any], owner: Object) -> Mapping[str, Any] | None:
    """Return the label selector of a rule, with ``matchLabelKeys`` filled in."""
    selector = rule.get("labelSelector")
    keys, labels = rule.get("matchLabelKeys") or (), owner["metadata"].get("labels") or {}
    if selector is None or not keys:
        whole: Mapping[str, Any] | None = selector
        return whole
    extra = [{"key": k, "operator": "In", "values": [labels[k]]} for k in keys if k in labels]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *extra]}


def _domain(rule: Mapping[str, Any], node: Object) -> str | None:
    domain: str | None = (node["metadata"].get("labels") or {}).get(rule["topologyKey"])
    return domain


def _is_same(rule: Mapping[str, Any], one: Object, other: Object) -> bool:
    return _domain(rule, one) is not None and _domain(rule, one) == _domain(rule, other)


def _is_near(pod: Object, node: Object, placements: Sequence[Placed], labels: Labels) -> bool:
    terms = _terms(pod, "podAffinity")
    if not terms:
        return True
    if any(_domain(term, node) is None for term in terms):
        return False
    matching = [
        place
        for place, other in placements
        if all(_selects(term, pod, other, labels) for term in terms)
    ]
    if not matching:  # the first of them may go anywhere
        return all(_selects(term, pod, pod, labels) for term in terms)
    return all(any(_is_same(term, place, node) for place in matching) for term in terms)


def _is_skewed(
    limit: Mapping[str, Any],
    pod: Object,
    node: Object,
    nodes: Sequence[Object],
    placements: Sequence[Placed],
) -> bool:
    counted = list(_counted(limit, pod, nodes))
    counts = Counter({_domain(limit, each): 0 for each in counted})
    names = {each["metadata"]["name"] for each in counted}
    namespace, selector = pod["metadata"]["namespace"], _selector(limit, pod)
    for place, other in placements:
        meta = other["metadata"]
        if place["metadata"]["name"] in names and meta["namespace"] == namespace:
            is_selected = matches_labels(selector, meta.get("labels") or {})
            counts[_domain(limit, place)] += is_selected and "deletionTimestamp" not in meta
    is_selected_itself = matches_labels(selector, pod["metadata"].get("labels") or {})
    is_enough = len(counts) >= int(limit.get("minDomains") or 1)
    fewest = min(counts.values(), default=0) if is_enough else 0
    return counts[_domain(limit, node)] + is_selected_itself - fewest > int(limit["maxSkew"])


def _counted(limit: Mapping[str, Any], pod: Object, nodes: Sequence[Object]) -> Iterator[Object]:
    """Yield the nodes whose domains count, by the policies of the constraint."""
    keys = [each["topologyKey"] for each in pod["spec"]["topologySpreadConstraints"]]
    for node in nodes:
        node_labels = node["metadata"].get("labels") or {}
        if any(key not in node_labels for key in keys):
            continue
        if limit.get("nodeAffinityPolicy") != "Ignore" and not node_affinity.allows(pod, node):
            continue
        taints = node["spec"].get("taints") or ()
        if limit.get("nodeTaintsPolicy") == "Honor" and node_affinity.untolerated_taint(
            pod, taints
        ):
            continue
        yield node
