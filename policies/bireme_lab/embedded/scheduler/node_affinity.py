"""Which nodes a pod may be on by itself: selector, affinity, taints."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bireme_lab.embedded.api.errors import Object

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HARD: Final = ("NoSchedule", "NoExecute")


def allows(pod: Object, node: Object) -> bool:
    """Return whether node selector and required node affinity of a pod allow a node."""
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if (required := affinity.get(_REQUIRED)) is None:
        return True
    return any(matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def matches(term: Mapping[str, Any], node: Object) -> bool:
    """Return whether a node selector term selects a node; an empty one selects none."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions, of_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not of_fields:
        return False
    return all(_meets(each, labels) for each in expressions) and all(
        _meets(each, fields) for each in of_fields
    )


def _meets(requirement: Mapping[str, Any], values_by_key: Mapping[str, str]) -> bool:
    value = values_by_key.get(requirement["key"])
    values: Sequence[str] = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.lstrip("-").isdigit() and int(value) > int(values[0])
        case "Lt":
            return value is not None and value.lstrip("-").isdigit() and int(value) < int(values[0])
    return False


def preference(pod: Object, node: Object) -> int:
    """Return the sum of the weights of preferred node affinities that a node meets."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    preferred = affinity.get(_PREFERRED) or ()
    return sum(int(each["weight"]) for each in preferred if matches(each["preference"], node))


def pinned_names(pod: Object) -> frozenset[str] | None:
    """Return the names of the only nodes that a pod may be on; None without such a pin."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    names: set[str] = set()
    for term in terms:
        fields = [f for f in term.get("matchFields") or () if f["key"] == "metadata.name"]
        if not fields or fields[0]["operator"] != "In":
            return None
        names.update(fields[0]["values"])
    return frozenset(names) if terms else None


def untolerated_taint(pod: Object, taints: Sequence[Object]) -> Object | None:
    """Return the first hard taint that no toleration of the pod is for."""
    for taint in taints:
        if taint["effect"] in _HARD and not tolerates(pod, taint):
            return taint
    return None


def tolerates(pod: Object, taint: Object) -> bool:
    """Return whether one of a pod's tolerations is for this taint."""
    for each in pod["spec"].get("tolerations") or ():
        if each.get("effect") not in (None, "", taint["effect"]):
            continue
        if each.get("key") not in (None, "", taint["key"]):
            continue
        operator = each.get("operator") or "Equal"
        if operator == "Exists" or each.get("value", "") == taint.get("value", ""):
            return True
    return False
