"""ResourceQuotas: their defaults and validation, and the admission plugin that charges them.

Sources: ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`` and the validation of
``pkg/apis/core``.
"""

import json
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

from bireme_lab.embedded.amounts import (
    ZERO,
    Amounts,
    format_amounts,
    parse_amounts,
    total,
)
from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import Faults, Object, forbidden
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.store import Store
from bireme_lab.embedded.builtin import quota_usage
from bireme_lab.embedded.builtin.plain import canonical_quantities
from bireme_lab.embedded.builtin.quota_usage import COMPUTE, REQUIRED, names_of, usage_of
from bireme_lab.embedded.objects import key_of

_INTEGERS: Final = (
    *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
    *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
)
_STANDARD: Final = frozenset({*_INTEGERS, *COMPUTE, "requests.storage"})
_UNMODELLED: Final = ("services.nodeports", "services.loadbalancers", "replicationcontrollers")
_UNMODELLED_PARTS: Final = (".storageclass.storage.k8s.io/", "deviceclass.resource.k")
_NATIVE: Final = "kubernetes.io/"
_CONFLICTS: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_PLAIN_SCOPES: Final = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort")
_UNMODELLED_SCOPES: Final = ("CrossNamespacePodAffinity", "VolumeAttributesClass")
_SCOPES: Final = (*_PLAIN_SCOPES, "PriorityClass", *_UNMODELLED_SCOPES)
_OF_PODS: Final = frozenset({"pods", *REQUIRED})


def complete(obj: Object, _: Object | None) -> Object:
    """Return a quota with amounts as the server writes them; 400 for what is no amount."""
    for part in ("spec", "status"):
        amounts = obj.get(part) or {}
        for name in ("hard", "used"):
            if name in amounts:
                texts = canonical_quantities("ResourceQuota", amounts[name])
                amounts = {**amounts, name: texts}
        obj = {**obj, part: amounts}
    return obj


def validate(obj: Object, old: Object | None, faults: Faults) -> None:
    """Add the faults of a quota; what is not modelled is one."""
    spec = obj["spec"]
    hard = parse_amounts(spec.get("hard"))
    for name, amount in hard.items():
        _check_amount(name, amount.value, str(amount), faults)
    _check_scopes(spec, hard, faults)
    if spec.get("scopeSelector") is not None:
        _check_selector(spec, hard, faults)
    if old is not None and set(spec.get("scopes") or ()) != set(old["spec"].get("scopes") or ()):
        _invalid_scopes(spec, "field is immutable", faults)


def _check_amount(name: str, value: Fraction, text: str, faults: Faults) -> None:
    path = f"spec.hard[{name}]"
    if "/" not in name and name not in _STANDARD and "hugepages-" not in name:
        faults.invalid(path, name, "must be a standard resource type or fully qualified")
        faults.invalid(path, name, "must be a standard resource for quota")
    elif name in _UNMODELLED or any(part in name for part in _UNMODELLED_PARTS):
        faults.invalid(path, name, "the embedded cluster counts no amounts of this name")
    if value < 0:
        faults.invalid(path, text, "must be greater than or equal to 0")
    is_extended = "/" in name and not name.startswith("requests.") and _NATIVE not in name
    if (name in _INTEGERS or is_extended) and value.denominator != 1:
        faults.invalid(path, text, "must be an integer")


def _check_scopes(spec: Object, hard: Iterable[str], faults: Faults) -> None:
    scopes = spec.get("scopes") or ()
    for scope in scopes:
        if scope not in _SCOPES:
            _invalid_scopes(spec, "unsupported scope", faults)
        elif scope in _UNMODELLED_SCOPES:
            _invalid_scopes(spec, "the embedded cluster has no quotas of this scope", faults)
        if any(not _may_limit(scope, name) for name in hard):
            _invalid_scopes(spec, "unsupported scope applied to resource", faults)
    if any(set(pair) <= set(scopes) for pair in _CONFLICTS):
        _invalid_scopes(spec, "conflicting scopes", faults)


def _invalid_scopes(spec: Object, detail: str, faults: Faults) -> None:
    value = json.dumps(spec.get("scopes"), separators=(",", ":"))
    faults.add("spec.scopes", "FieldValueInvalid", f"Invalid value: {value}: {detail}")


def _may_limit(scope: str, name: str) -> bool:
    """Return whether quotas of a scope may limit a resource."""
    if scope not in _SCOPES or (name not in _STANDARD and "hugepages-" not in name):
        return True
    return name == "pods" if scope == "BestEffort" else name in _OF_PODS


def _check_selector(spec: Object, hard: Iterable[str], faults: Faults) -> None:
    path = "spec.scopeSelector.matchExpressions"
    requirements = spec["scopeSelector"].get("matchExpressions") or ()
    for requirement in requirements:
        scope, values = requirement["scopeName"], requirement.get("values")
        if scope not in _SCOPES:
            faults.invalid(f"{path}.scopeName", scope, "unsupported scope")
        elif scope in _UNMODELLED_SCOPES:
            text = "the embedded cluster has no quotas of this scope"
            faults.invalid(f"{path}.scopeName", scope, text)
        if any(not _may_limit(scope, name) for name in hard):
            value = json.dumps(_in_go(requirements), separators=(",", ":"))
            text = f"Invalid value: {value}: unsupported scope applied to resource"
            faults.add(path, "FieldValueInvalid", text)
        if scope in _PLAIN_SCOPES and requirement["operator"] != "Exists":
            faults.invalid(f"{path}.operator", requirement["operator"], _ONLY_EXISTS)
        _check_operator(requirement["operator"], values, path, faults)
    scopes = {requirement["scopeName"] for requirement in requirements}
    if any(set(pair) <= scopes for pair in _CONFLICTS):
        _invalid_scopes(spec, "conflicting scopes", faults)


def _check_operator(operator: str, values: list[str] | None, path: str, faults: Faults) -> None:
    if operator in ("In", "NotIn"):
        if not values:
            text = (
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            )
            faults.required(f"{path}.values", text)
    elif operator not in ("Exists", "DoesNotExist"):
        faults.invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif values:
        value = json.dumps(values, separators=(",", ":"))
        text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        faults.add(f"{path}.values", "FieldValueInvalid", f"Invalid value: {value}: {text}")


def _in_go(requirements: Iterable[Object]) -> Object:
    """Return a selector by the names of fields in Go, as the server shows it."""
    return {
        "MatchExpressions": [
            {
                "ScopeName": requirement["scopeName"],
                "Operator": requirement["operator"],
                "Values": requirement.get("values"),
            }
            for requirement in requirements
        ]
    }


_ONLY_EXISTS: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


# --- admission ------------------------------------------------------------------------------------


def quota_admission(store: Store, now: Callable[[], float]) -> Callable[[Attempt], None]:
    """Return the validator that charges the quotas of a namespace with a new object."""

    def admit(attempt: Attempt) -> None:
        if attempt.obj is None or not quota_usage.is_counted(attempt.resource):
            return
        if not _is_charged(attempt):
            return
        namespace = attempt.key[0]
        quotas = [
            quota
            for (of, _), quota in store.collection(kinds.QUOTAS).objects.items()
            if of == namespace
        ]
        charged = [
            (quota, used)
            for quota in quotas
            if (used := _charge(quota, attempt, attempt.obj, now())) is not None
        ]
        if attempt.is_dry_run:
            return
        for quota, used in charged:
            status = {**quota["status"], "used": format_amounts(used)}
            store.write(kinds.QUOTAS, key_of(quota), {**quota, "status": status})

    return admit


def _is_charged(attempt: Attempt) -> bool:
    """Return whether quotas are charged with a write: a creation, or a change of a pod's scopes."""
    if attempt.subresource:
        return False
    if attempt.operation == "CREATE":
        return True
    if attempt.resource.path != kinds.PODS or attempt.obj is None or attempt.old is None:
        return False
    old, new = attempt.old["spec"], attempt.obj["spec"]
    return quota_usage.has_deadline(old) != quota_usage.has_deadline(new)


def _charge(quota: Object, attempt: Attempt, obj: Object, now: float) -> Amounts | None:
    """Return what a quota uses with an object, None where that changes nothing.

    Raises:
        ApiRefusal: the quota has no room for it, or cannot say.
    """
    resource, status = attempt.resource, quota.get("status") or {}
    hard, used = parse_amounts(status.get("hard")), parse_amounts(status.get("used"))
    names, scopes = names_of(resource, hard), quota_usage.scopes_of(quota["spec"])
    if not names or not quota_usage.is_in_scopes(resource, obj, scopes):
        return None
    name, subject = quota["metadata"]["name"], resource.subject(attempt.key[1])
    if resource.path == kinds.PODS and (missing := quota_usage.missing_amounts(obj["spec"], names)):
        text = "; ".join(f"{part} for: {','.join(names)}" for part, names in missing.items())
        raise forbidden(subject, f"failed quota: {name}: must specify {text}")
    if any(item not in used for item in names):
        text = f"status unknown for quota: {name}, resources: {','.join(names)}"
        raise forbidden(subject, text)
    requested = _requested_amounts(resource, attempt, obj, scopes, now)
    requested = {item: amount for item, amount in requested.items() if item in hard}
    if not requested:
        return None
    new_usage = total((used, requested))
    exceeded = sorted(item for item in requested if new_usage[item].value > hard[item].value)
    if exceeded:
        parts = (
            ",".join(f"{item}={amounts[item]}" for item in exceeded)
            for amounts in (requested, used, hard)
        )
        template = "exceeded quota: {}, requested: {}, used: {}, limited: {}"
        raise forbidden(subject, template.format(name, *parts))
    return new_usage


def _requested_amounts(
    resource: ResourceKind, attempt: Attempt, obj: Object, scopes: list[Object], now: float
) -> Amounts:
    """Return what a write uses more than the stored object does in the same scopes."""
    usage = usage_of(resource, obj, now)
    if attempt.old is not None and quota_usage.is_in_scopes(resource, attempt.old, scopes):
        previous = usage_of(resource, attempt.old, now)
        usage = {name: amount - previous.get(name, ZERO) for name, amount in usage.items()}
    return {name: amount for name, amount in usage.items() if amount.value > 0}
