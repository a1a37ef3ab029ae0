"""Rules over other pods in simulated clusters: what jobs ask, and kube-scheduler's two filters.

Selectors are ``matchLabels`` in the pod's own namespace.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from testbed.fakeapi.store import Object
from testbed.simcluster import objects

HOST = "kubernetes.io/hostname"
RACK = "topology.bireme.dev/rack"
SHY = {"manner": "shy"}
LOUD = {"noise": "loud"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Placed = tuple[Object, Object]
"""A node and a pod that is bound or assumed there."""


# --- what pods ask ---


def of_job(name: str, chance: Random) -> dict[str, Any]:
    """Return fields of a pod spec with a rule that three nodes in two racks can keep."""
    own = {"bireme.dev/training-job": name}
    spread = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}
    selected = {"labelSelector": {"matchLabels": own}}
    return chance.choice(
        (
            {"affinity": {"podAntiAffinity": _required(HOST, own)}},
            {"affinity": {"podAntiAffinity": _required(HOST, LOUD)}},
            {"affinity": {"podAffinity": _required(RACK, own)}},
            {"topologySpreadConstraints": [{**spread, **selected}]},
            {"topologySpreadConstraints": [{**spread, **selected, "minDomains": 2}]},
            {"topologySpreadConstraints": [{**spread, **selected, "nodeAffinityPolicy": "Ignore"}]},
        )
    )


def has_rules(spec: Object) -> bool:
    """Return whether pods of this spec have rules over other pods."""
    return "affinity" in spec or "topologySpreadConstraints" in spec


def of_other(chance: Random) -> tuple[dict[str, str], dict[str, Any]]:
    """Return labels and fields of the spec of a pod of no gang."""
    if chance.random() < 0.5:
        return LOUD, {}
    return {}, {"affinity": {"podAntiAffinity": _required(HOST, SHY)}}


def _required(key: str, labels: dict[str, str]) -> Object:
    return {_REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": labels}}]}


# --- the filters InterPodAffinity and PodTopologySpread ---


def against(pod: Object, node: Object, nodes: Sequence[Object], placed: Sequence[Placed]) -> str:
    """Return the words against ``node``; empty where the rules allow it."""
    if any(_is_together(term, pod, node, placed) for term in _terms(pod, "podAntiAffinity")):
        return "node(s) didn't match pod anti-affinity rules"
    for at, other in placed:
        for term in _terms(other, "podAntiAffinity"):
            if _selects(term, other, pod) and _is_same(term, at, node):
                return "node(s) didn't satisfy existing pods anti-affinity rules"
    if not _is_near(pod, node, placed):
        return "node(s) didn't match pod affinity rules"
    if any(_is_skewed(limit, pod, node, nodes, placed) for limit in _limits(pod)):
        return "node(s) didn't match pod topology spread constraints"
    return ""


def _terms(pod: Object, kind: str) -> list[Object]:
    found: list[Object] = pod["spec"].get("affinity", {}).get(kind, {}).get(_REQUIRED, [])
    return found


def _limits(pod: Object) -> list[Object]:
    found: list[Object] = pod["spec"].get("topologySpreadConstraints", [])
    return found


def _selects(rule: Object, owner: Object, other: Object) -> bool:
    if owner["metadata"]["namespace"] != other["metadata"]["namespace"]:
        return False
    wanted: dict[str, str] = rule["labelSelector"]["matchLabels"]
    return wanted.items() <= (other["metadata"].get("labels") or {}).items()


def _domain(rule: Object, node: Object) -> str | None:
    found: str | None = (node["metadata"].get("labels") or {}).get(rule["topologyKey"])
    return found


def _is_same(rule: Object, one: Object, other: Object) -> bool:
    return _domain(rule, one) is not None and _domain(rule, one) == _domain(rule, other)


def _is_together(term: Object, pod: Object, node: Object, placed: Sequence[Placed]) -> bool:
    return any(_selects(term, pod, other) and _is_same(term, at, node) for at, other in placed)


def _is_near(pod: Object, node: Object, placed: Sequence[Placed]) -> bool:
    terms = _terms(pod, "podAffinity")
    if any(_domain(term, node) is None for term in terms):
        return False
    wanted = [at for at, other in placed if all(_selects(term, pod, other) for term in terms)]
    if not wanted:  # the first of them may go anywhere
        return all(_selects(term, pod, pod) for term in terms)
    return all(any(_is_same(term, at, node) for at in wanted) for term in terms)


def _is_skewed(
    limit: Object, pod: Object, node: Object, nodes: Sequence[Object], placed: Sequence[Placed]
) -> bool:
    if _domain(limit, node) is None:
        return True
    counted = list(_counted(limit, pod, nodes))
    found = Counter({_domain(limit, each): 0 for each in counted})
    names = {each["metadata"]["name"] for each in counted}
    for at, other in placed:
        if at["metadata"]["name"] in names and _selects(limit, pod, other):
            found[_domain(limit, at)] += not objects.is_leaving(other)
    own = _selects(limit, pod, pod)
    is_enough = len(found) >= int(limit.get("minDomains", 1))
    fewest = min(found.values(), default=0) if is_enough else 0
    skew = found[_domain(limit, node)] + own - fewest
    return skew > int(limit["maxSkew"])


def _counted(limit: Object, pod: Object, nodes: Sequence[Object]) -> Iterator[Object]:
    honours = limit.get("nodeAffinityPolicy") != "Ignore"
    for each in nodes:
        is_selected = not honours or objects.may_be_on(pod, each)
        if is_selected and _domain(limit, each) is not None:
            yield each
