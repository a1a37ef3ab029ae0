"""LimitRanges: their defaults and validation, and the admission plugin that keeps pods in them.

Sources: ``plugin/pkg/admission/limitranger/admission.go`` of Kubernetes, ``pkg/apis/core``.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from bireme_lab.embedded.amounts import Amount, Amounts, parse_amounts
from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.admission import Attempt
from bireme_lab.embedded.api.errors import Faults, Object, forbidden
from bireme_lab.embedded.api.store import Store
from bireme_lab.embedded.builtin.plain import canonical_quantities
from bireme_lab.embedded.builtin.pod_amounts import amounts_of_pod

_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_PARTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_OF_CONTAINERS: Final = ("cpu", "memory", "ephemeral-storage")
_ONE: Final = Fraction(1)


def complete(obj: Object, _: Object | None) -> Object:
    """Return a LimitRange whose limits of containers have their defaults."""
    spec = obj.get("spec") or {}
    return {
        **obj,
        "spec": {**spec, "limits": [_complete(item) for item in spec.get("limits") or ()]},
    }


def _complete(limit: Object) -> Object:
    for part in _PARTS:
        if part in limit:
            limit = {**limit, part: canonical_quantities("LimitRange", limit[part])}
    if limit.get("type") != "Container":
        return limit
    limits = {**limit.get("max", {}), **limit.get("default", {})}
    requests = {**limit.get("min", {}), **limits, **limit.get("defaultRequest", {})}
    defaults = {"default": limits, "defaultRequest": requests}
    return {**limit, **{part: amounts for part, amounts in defaults.items() if amounts}}


def validate(obj: Object, _: Object | None, faults: Faults) -> None:
    """Add the faults of a LimitRange."""
    types: set[str] = set()
    for index, limit in enumerate(obj["spec"]["limits"]):
        path, kind = f"spec.limits[{index}]", limit.get("type", "")
        if "/" not in kind and kind not in _TYPES:
            text = "must be a standard limit type or fully qualified"
            faults.invalid(f"{path}.type", kind, text)
        if kind in types:
            faults.duplicate(f"{path}.type", kind)
        types.add(kind)
        _check_parts(limit, kind, path, faults)
        amounts = {part: parse_amounts(limit.get(part)) for part in _PARTS}
        for name in sorted({name for part in amounts.values() for name in part}):
            _check_amounts(
                name, {part: item[name] for part, item in amounts.items() if name in item},
                path, faults
            )  # fmt: skip


def _check_parts(limit: Object, kind: str, path: str, faults: Faults) -> None:
    if kind == "Pod":
        for part in ("default", "defaultRequest"):
            if limit.get(part):
                text = "may not be specified when `type` is 'Pod'"
                faults.forbidden(f"{path}.{part}", text)
    if kind in ("Pod", "Container"):
        for part in _PARTS:
            for name in limit.get(part) or ():
                _check_name(name, f"{path}.{part}[{name}]", faults)
    stored = {**(limit.get("min") or {}), **(limit.get("max") or {})}
    if kind == "PersistentVolumeClaim" and "storage" not in stored:
        text = "either minimum or maximum storage value is required, but neither was provided"
        faults.required(f"{path}.limits", text)


def _check_name(name: str, path: str, faults: Faults) -> None:
    if "/" not in name and name not in _OF_CONTAINERS and not name.startswith("hugepages-"):
        faults.invalid(path, name, "must be a standard resource type or fully qualified")
        faults.invalid(path, name, "must be a standard resource for containers")


_ORDERS: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    (
        *("min", "defaultRequest", "defaultRequest", "defaultRequest"),
        "min value {} is greater than default request value {}",
    ),
    (
        *("defaultRequest", "max", "defaultRequest", "defaultRequest"),
        "default request value {} is greater than max value {}",
    ),
    (
        *("defaultRequest", "default", "defaultRequest", "defaultRequest"),
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)
"""Pairs of parts, the lower first; the part with the fault, the part that is shown, and words."""


def _check_amounts(name: str, amounts: Mapping[str, Amount], path: str, faults: Faults) -> None:
    """Add the faults of the amounts of one resource, which are by the part they stand in."""
    for lower, higher, part, shown_part, template in _ORDERS:
        if lower in amounts and higher in amounts and amounts[lower].value > amounts[higher].value:
            text = template.format(amounts[lower], amounts[higher])
            faults.invalid(f"{path}.{part}[{name}]", str(amounts[shown_part]), text)
    ratio = amounts.get("maxLimitRequestRatio")
    if ratio is not None:
        _check_ratio(f"{path}.maxLimitRequestRatio[{name}]", ratio, amounts, faults)
    limit, request = amounts.get("default"), amounts.get("defaultRequest")
    is_whole = "/" in name and "kubernetes.io/" not in name
    if is_whole and limit is not None and request is not None and limit.value != request.value:
        text = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        faults.invalid(f"{path}.defaultRequest[{name}]", str(request), text)


def _check_ratio(path: str, ratio: Amount, amounts: Mapping[str, Amount], faults: Faults) -> None:
    if ratio.value < _ONE:
        faults.invalid(path, str(ratio), f"ratio {ratio} is less than 1")
    if "min" in amounts and "max" in amounts and amounts["min"].value:
        highest = float(amounts["max"].value / amounts["min"].value)
        if float(ratio.value) > highest:
            text = f"ratio {ratio} is greater than max/min = {highest:f}"
            faults.invalid(path, str(ratio), text)


# --- admission ------------------------------------------------------------------------------------


def _limits(store: Store, namespace: str) -> Iterator[Object]:
    """Yield the items of all LimitRanges of a namespace."""
    for (of, _), obj in store.collection(kinds.LIMIT_RANGES).objects.items():
        if of == namespace:
            yield from obj["spec"]["limits"]


def default_limits(store: Store) -> Callable[[Attempt], Object]:
    """Return the mutator that gives containers of new pods the amounts that they lack."""

    def admit(attempt: Attempt) -> Object:
        obj = attempt.obj or {}
        if attempt.resource.path != kinds.PODS or attempt.operation != "CREATE":
            return obj
        changed = obj
        for limit in _limits(store, attempt.key[0]):
            if limit.get("type") == "Container":
                changed = _with_defaults(changed, limit)
        return obj if changed is obj else attempt.complete(changed)

    return admit


def _with_defaults(pod: Object, limit: Object) -> Object:
    spec, notes = dict(pod["spec"]), []
    for group, phrase in (("containers", "container"), ("initContainers", "init container")):
        containers = []
        for container in spec.get(group) or ():
            resources = container.get("resources") or {}
            for part, of, word in (
                ("requests", "defaultRequest", "request"),
                ("limits", "default", "limit"),
            ):
                stated = resources.get(part) or {}
                lacking = {n: v for n, v in (limit.get(of) or {}).items() if n not in stated}
                if lacking:
                    resources = {**resources, part: {**stated, **lacking}}
                    names = ", ".join(sorted(lacking))
                    notes.append(f"{names} {word} for {phrase} {container['name']}")
            containers.append({**container, "resources": resources})
        if containers:
            spec[group] = containers
    if not notes:
        return pod
    meta = pod["metadata"]
    note = {_ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}
    annotations = {**(meta.get("annotations") or {}), **note}
    return {**pod, "metadata": {**meta, "annotations": annotations}, "spec": spec}


def limit_admission(store: Store) -> Callable[[Attempt], None]:
    """Return the validator that keeps new pods and claims within the limits of a namespace."""

    def admit(attempt: Attempt) -> None:
        is_pod = attempt.resource.path == kinds.PODS
        is_new = attempt.operation == "CREATE" and not attempt.subresource
        if (
            attempt.obj is None
            or not is_new
            or not (is_pod or attempt.resource.path == kinds.CLAIMS)
        ):
            return
        for (of, _), obj in store.collection(kinds.LIMIT_RANGES).objects.items():
            if of != attempt.key[0]:
                continue
            problems = [
                problem
                for limit in obj["spec"]["limits"]
                for amounts in _limited(limit.get("type", ""), attempt.obj, is_pod=is_pod)
                for problem in _problems(limit, *amounts)
            ]
            if problems:
                text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
                raise forbidden(attempt.resource.subject(attempt.key[1]), text)

    return admit


def _limited(kind: str, obj: Object, *, is_pod: bool) -> Iterator[tuple[Amounts, Amounts | None]]:
    """Yield the requests and limits of every part of an object that a limit is about.

    The limits are None for what has none at all.
    """
    spec = obj.get("spec") or {}
    if kind == "PersistentVolumeClaim" and not is_pod:
        yield parse_amounts((spec.get("resources") or {}).get("requests")), None
    elif kind == "Container" and is_pod:
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            yield parse_amounts(resources.get("requests")), parse_amounts(resources.get("limits"))
    elif kind == "Pod" and is_pod:
        yield amounts_of_pod(spec, "requests"), amounts_of_pod(spec, "limits")


def _problems(limit: Object, requests: Amounts, limits: Amounts | None) -> Iterator[str]:
    """Yield what of an object is outside a limit, in the server's words."""
    kind = limit["type"]
    for name, lowest in sorted(parse_amounts(limit.get("min")).items()):
        yield from _below(f"minimum {name} usage per {kind} is {lowest}", name, lowest,
                          requests, limits or {})  # fmt: skip
    for name, highest in sorted(parse_amounts(limit.get("max")).items()):
        yield from _above(f"maximum {name} usage per {kind} is {highest}", name, highest,
                          requests, limits)  # fmt: skip
    for name, ratio in sorted(parse_amounts(limit.get("maxLimitRequestRatio")).items()):
        phrase = f"{name} max limit to request ratio per {kind} is {ratio}"
        yield from _above_ratio(phrase, name, ratio, requests, limits or {})


def _below(
    phrase: str, name: str, lowest: Amount, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    if name not in requests:
        yield f"{phrase}.  No request is specified"
    elif requests[name].value < lowest.value:
        yield f"{phrase}, but request is {requests[name]}"
    elif name in limits and limits[name].value < lowest.value:
        yield f"{phrase}, but limit is {limits[name]}"


def _above(
    phrase: str, name: str, highest: Amount, requests: Amounts, limits: Amounts | None
) -> Iterator[str]:
    if limits is None:
        if name not in requests:
            yield f"{phrase}.  No request is specified"
    elif name not in limits:
        yield f"{phrase}.  No limit is specified"
        return
    elif limits[name].value > highest.value:
        yield f"{phrase}, but limit is {limits[name]}"
        return
    if name in requests and requests[name].value > highest.value:
        yield f"{phrase}, but request is {requests[name]}"


def _above_ratio(
    phrase: str, name: str, ratio: Amount, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    request, limit = (amounts.get(name, Amount()).value for amounts in (requests, limits))
    if not request:
        yield f"{phrase}, but no request is specified or request is 0"
    elif not limit:
        yield f"{phrase}, but no limit is specified or limit is 0"
    elif limit / request > ratio.value:
        yield f"{phrase}, but provided ratio is {float(limit / request):f}"
