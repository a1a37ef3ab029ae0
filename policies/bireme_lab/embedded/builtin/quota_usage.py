"""Amounts that an object uses of quotas, by the names in ``spec.hard``, and the scopes it is in.

Source: ``pkg/quota/v1/evaluator`` of Kubernetes. Scopes of claims and volumes, and amounts by
storage class or device class, are not modelled: a quota that names them is refused.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from bireme_lab.embedded.amounts import ZERO, Amount, Amounts, parse_amounts
from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.builtin.pod_amounts import POD_LEVEL, amounts_of_pod, requests_of_pod
from bireme_lab.embedded.builtin.pods import quality_of
from bireme_lab.embedded.objects import is_ended

ONE: Final = Amount.parse("1")
COMPUTE: Final = (
    *("cpu", "memory", "ephemeral-storage"),
    *("requests.cpu", "requests.memory", "requests.ephemeral-storage"),
    *("limits.cpu", "limits.memory", "limits.ephemeral-storage"),
)
REQUIRED: Final = frozenset(name for name in COMPUTE if "ephemeral" not in name)
"""Amounts that every container of a pod must state under a quota of them."""
_ALIASES: Final = {
    "configmaps": "configmaps",
    "persistentvolumeclaims": "persistentvolumeclaims",
    "resourcequotas": "resourcequotas",
    "secrets": "secrets",
    "services": "services",
}
_UNCOUNTED: Final = frozenset({kinds.EVENTS})


def is_counted(resource: ResourceKind) -> bool:
    """Return whether quotas count objects of a kind."""
    return resource.is_namespaced and resource.path not in _UNCOUNTED


def names_of(resource: ResourceKind, hard: Iterable[str]) -> list[str]:
    """Return the names among ``hard`` that objects of a kind use."""
    names = {f"count/{resource.name}"}
    if not resource.group and resource.plural in _ALIASES:
        names.add(_ALIASES[resource.plural])
    if resource.path == kinds.CLAIMS:
        names.add("requests.storage")
    if resource.path != kinds.PODS:
        return sorted(names.intersection(hard))
    names |= {"pods", *COMPUTE}
    return sorted(name for name in hard if name in names or _is_extended(name))


def _is_extended(name: str) -> bool:
    """Return whether pods use a resource of a vendor, or huge pages, by this name."""
    if name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    return name.startswith("requests.") and "/" in name


def usage_of(resource: ResourceKind, obj: Object, now: float) -> Amounts:
    """Return what an object uses; ``now`` is POSIX seconds."""
    usage = {f"count/{resource.name}": ONE}
    if resource.path == kinds.PODS:
        return usage if _is_over(obj, now) else {**usage, **_usage_of_pod(obj["spec"])}
    if not resource.group and resource.plural in _ALIASES:
        usage[_ALIASES[resource.plural]] = ONE
    if resource.path == kinds.CLAIMS:
        requests = parse_amounts(((obj.get("spec") or {}).get("resources") or {}).get("requests"))
        usage["requests.storage"] = requests.get("storage", ZERO)
    return usage


def _is_over(pod: Object, now: float) -> bool:
    """Return whether a pod has ended, or its grace period for a deletion."""
    end = end_of_grace(pod)
    return is_ended(pod) or (end is not None and now > end)


def end_of_grace(pod: Object) -> float | None:
    """Return when quotas stop to count a pod that is being deleted; None for others."""
    meta = pod["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("deletionGracePeriodSeconds") is None:
        return None
    deletion = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp()
    return deletion + float(meta["deletionGracePeriodSeconds"])


def _usage_of_pod(spec: Object) -> Amounts:
    overhead = parse_amounts(spec.get("overhead"))
    limits = {
        name: amount + overhead.get(name, ZERO)
        for name, amount in amounts_of_pod(spec, "limits").items()
    }
    return {"pods": ONE, **_quota_amounts(requests_of_pod(spec), limits)}


def _quota_amounts(requests: Mapping[str, Amount], limits: Mapping[str, Amount]) -> Amounts:
    """Return requests and limits by the names that quotas have for them."""
    usage: Amounts = {}
    for name, amount in requests.items():
        if name in COMPUTE or name.startswith("hugepages-"):
            usage |= {name: amount, f"requests.{name}": amount}
        elif "/" in name:
            usage[f"requests.{name}"] = amount
    named_limits = {f"limits.{name}": amount for name, amount in limits.items() if name in COMPUTE}
    return usage | named_limits


def missing_amounts(spec: Object, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of containers that do not state an amount, by the amount's name."""
    level = spec.get("resources") or {}
    if any(
        name in (level.get(part) or {}) for part in ("requests", "limits") for name in POD_LEVEL
    ):
        return {}
    required = REQUIRED.intersection(names)
    missing: dict[str, list[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        stated = _quota_amounts(
            parse_amounts(resources.get("requests")), parse_amounts(resources.get("limits"))
        )
        for name in required - set(stated):
            missing.setdefault(name, []).append(container["name"])
    return {name: sorted(containers) for name, containers in sorted(missing.items())}


# --- scopes ---------------------------------------------------------------------------------------


def scopes_of(spec: Mapping[str, Any]) -> list[Object]:
    """Return the scopes of a quota as requirements."""
    plain = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    selector = spec.get("scopeSelector") or {}
    return [*plain, *(selector.get("matchExpressions") or ())]


def is_in_scopes(resource: ResourceKind, obj: Object, scopes: Iterable[Object]) -> bool:
    """Return whether an object is in all scopes; those that are known are about pods."""
    listed = list(scopes)
    if resource.path != kinds.PODS:
        return not listed
    return all(_is_in_scope(obj["spec"], item) for item in listed)


def has_deadline(spec: Object) -> bool:
    return spec.get("activeDeadlineSeconds") is not None


def _is_in_scope(spec: Object, scope: Object) -> bool:
    match scope["scopeName"]:
        case "Terminating":
            return has_deadline(spec)
        case "NotTerminating":
            return not has_deadline(spec)
        case "BestEffort":
            return quality_of(spec) == "BestEffort"
        case "NotBestEffort":
            return quality_of(spec) != "BestEffort"
    name, values = spec.get("priorityClassName", ""), scope.get("values") or ()
    return {
        "In": name in values,
        "NotIn": name not in values,
        "Exists": bool(name),
        "DoesNotExist": not name,
    }[scope["operator"]]
