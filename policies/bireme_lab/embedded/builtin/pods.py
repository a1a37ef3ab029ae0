"""Pods: defaults, validation, what may change of one that exists, grace of deletions."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from bireme.kube.quantities import parse_quantity
from bireme_lab.embedded.amounts import (
    QUANTITY,
    QUANTITY_WORDS,
    canonical,
    parse_amounts,
)
from bireme_lab.embedded.api import bodies, kinds, models
from bireme_lab.embedded.api.errors import Faults, Object
from bireme_lab.embedded.api.schemas import Schema
from bireme_lab.embedded.builtin import pod_fields
from bireme_lab.embedded.builtin.plain import filled
from bireme_lab.embedded.builtin.pod_amounts import (
    POD_LEVEL,
    amounts_of_containers,
    is_huge,
    is_pod_level,
    pod_level_amounts,
)

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_MAX_LABEL: Final = 63
_TEXTS: Final = ("restartPolicy", "dnsPolicy", "schedulerName", "serviceAccountName")
"""Fields whose empty text means that they are absent."""
_WITH_MODES: Final = ("configMap", "secret", "downwardAPI", "projected")
_DEFAULT_MODE: Final = 0o644
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_IMMUTABLE_WORDS: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_DEFAULT_TOLERATIONS: Final = tuple(
    {
        "key": f"node.kubernetes.io/{name}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for name in ("not-ready", "unreachable")
)


@dataclass(eq=False)
class PodBehaviour:
    """Behaviour of pods."""

    @cached_property
    def schema(self) -> Schema | None:
        pods = next(kind for kind in kinds.KINDS if kind.path == kinds.PODS)
        return models.schema_of(pods)

    def complete(self, obj: Object, old: Object | None) -> Object:
        spec = _complete_pod(complete_spec(obj.get("spec") or {}))
        spec = {**spec, "tolerations": _with_default_tolerations(spec.get("tolerations") or ())}
        if old is not None:
            return {**obj, "spec": spec}
        spec = filled(spec, serviceAccountName="default", serviceAccount="default")
        status: Object = {"phase": "Pending", "qosClass": quality_of(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": None,
                    "lastTransitionTime": obj["metadata"]["creationTimestamp"],
                    "observedGeneration": 1,
                }
            ]
        return {**obj, "spec": spec, "status": status}

    def validate(self, obj: Object, old: Object | None, faults: Faults) -> None:
        spec = obj.get("spec") or {}
        validate_spec(spec, faults, "spec")
        if old is not None and spec != old["spec"]:
            _validate_change(spec, old["spec"], faults)

    def grace_seconds(self, obj: Object, desired: int | None) -> int:
        """Return the grace of a deletion: none for a pod without a node, or one that ended."""
        spec, status = obj["spec"], obj.get("status") or {}
        grace = spec.get("terminationGracePeriodSeconds", 30) if desired is None else desired
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        previous = obj["metadata"].get("deletionGracePeriodSeconds")
        return int(grace) if previous is None else min(int(previous), int(grace))


def _complete_pod(spec: Object) -> Object:
    """Return the spec of a pod with the defaults that templates do not have."""
    spec = filled(spec, enableServiceLinks=True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec = {**spec, "terminationGracePeriodSeconds": 1}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec = {**spec, name: [_with_requests(each) for each in spec[name]]}
    return _with_pod_requests(spec)


def _with_pod_requests(spec: Object) -> Object:
    """Return a spec that requests for the pod what its containers do, or what it limits."""
    resources = spec.get("resources") or {}
    if not (limits := resources.get("limits")):
        return spec
    of_containers = amounts_of_containers(spec, "requests")
    requests = {
        **{name: value for name, value in limits.items() if is_pod_level(name)},
        **{name: str(of_containers[name]) for name in POD_LEVEL if name in of_containers},
        **(resources.get("requests") or {}),
    }
    return {**spec, "resources": {**resources, "requests": requests}}


def _with_requests(container: Object) -> Object:
    """Return a container that requests what it limits and does not request."""
    resources = container["resources"]
    if not (limits := resources.get("limits")):
        return container
    requests = {**limits, **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def complete_template(template: Object) -> Object:
    """Return a template of pods with the defaults of its fields."""
    completed = {**template, "spec": complete_spec(template.get("spec") or {})}
    if template.get("metadata"):
        completed["metadata"] = bodies.plain_metadata(template["metadata"])
    return completed


def complete_spec(spec: Object) -> Object:
    """Return the spec of a pod, or of a template, with the defaults of its fields."""
    spec = {
        name: value
        for name, value in spec.items()
        if (value != "" or name not in _TEXTS) and (value != [] or name == "containers")
    }
    if account := spec.get("serviceAccountName"):
        spec = filled(spec, serviceAccount=account)
    if spec.get("volumes"):
        spec = {**spec, "volumes": [_with_source(each) for each in spec["volumes"]]}
    spec = filled(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30,
        securityContext={},
    )
    if "resources" in spec:
        spec = {**spec, "resources": _canonical_resources(spec["resources"])}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec = {**spec, name: [_complete_container(each) for each in spec[name]]}
    return spec


def _with_source(volume: Object) -> Object:
    if set(volume) <= {"name"}:
        return {**volume, "emptyDir": {}}
    if source := next((name for name in _WITH_MODES if volume.get(name) is not None), None):
        return {**volume, source: filled(volume[source], defaultMode=_DEFAULT_MODE)}
    return volume


def _complete_container(container: Object) -> Object:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition(":")[2]
    is_readable = image and image == image.strip()
    is_latest = is_readable and tag in ("", "latest") and "@" not in image
    pull = "Always" if is_latest else "IfNotPresent"
    container = filled(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=pull,
    )
    container = {**container, "resources": _canonical_resources(container["resources"])}
    if container.get("ports"):
        container = {**container, "ports": [filled(p, protocol="TCP") for p in container["ports"]]}
    return container


def _canonical_resources(resources: Object) -> Object:
    return {
        name: {k: canonical(v) for k, v in amounts.items()}
        if name in ("limits", "requests") and isinstance(amounts, dict)
        else amounts
        for name, amounts in resources.items()
    }


def _with_default_tolerations(tolerations: Any) -> list[Object]:
    added = [
        dict(default)
        for default in _DEFAULT_TOLERATIONS
        if not any(
            each.get("key") in (None, "", default["key"])
            and each.get("effect") in (None, "", "NoExecute")
            for each in tolerations
        )
    ]
    return [*tolerations, *added]


def quality_of(spec: Object) -> str:
    """Return the QoS class of a pod: Guaranteed, Burstable or BestEffort."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if pod_level_amounts(spec, "requests") or pod_level_amounts(spec, "limits"):
        containers = [spec]
    has_any, is_guaranteed = False, True
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        has_any = has_any or any(name in requests or name in limits for name in _NATIVE[:2])
        is_guaranteed = is_guaranteed and all(
            name in limits and requests.get(name, limits[name]) == limits[name]
            for name in _NATIVE[:2]
        )
    return "Guaranteed" if has_any and is_guaranteed else "Burstable" if has_any else "BestEffort"


def validate_spec(spec: Object, faults: Faults, path: str) -> None:
    """Add the faults of the spec of a pod, or of a template."""
    _validate_volumes(spec, faults, path)
    if not spec.get("containers"):
        faults.required(f"{path}.containers")
    names: set[str] = set()
    for place, container in _containers(spec, path):
        _validate_container(container, names, faults, place)
    _validate_pod_resources(spec, faults, path)
    policies = ("Always", "OnFailure", "Never")
    if spec.get("restartPolicy") not in policies:
        faults.unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), policies)
    pod_fields.check_spec(spec, faults, path)


def _containers(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    """Yield the containers of a pod, init containers first, each after its path."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield f"{path}.{group}[{index}]", container


def _validate_volumes(spec: Object, faults: Faults, path: str) -> None:
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name", "")
        if not _LABEL.fullmatch(name):
            faults.invalid(f"{path}.volumes[{index}].name", name, _LABEL_WORDS)
        elif name in volumes:
            faults.duplicate(f"{path}.volumes[{index}].name", name)
        volumes.add(name)
    for place, container in _containers(spec, path):
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                text = f'Not found: "{mount.get("name")}"'
                faults.add(f"{place}.volumeMounts[{number}].name", "FieldValueNotFound", text)


def _validate_container(container: Object, names: set[str], faults: Faults, path: str) -> None:
    name = container.get("name", "")
    if not name:
        if not any(cause.path == f"{path}.name" for cause in faults.causes):
            faults.required(f"{path}.name")
    elif len(name) > _MAX_LABEL:
        faults.invalid(f"{path}.name", name, f"must be no more than {_MAX_LABEL} characters")
    elif not _LABEL.fullmatch(name):
        faults.invalid(f"{path}.name", name, _LABEL_WORDS)
    elif name in names:
        faults.duplicate(f"{path}.name", name)
    names.add(name)
    pod_fields.check_container(container, faults, path)
    _validate_resources(container, _refuse_of_container, faults, path)


def _validate_resources(
    owner: Object, refuse: Callable[[str, Faults, str], None], faults: Faults, path: str
) -> None:
    """Add the faults of what a container or a pod asks; ``refuse`` adds those of a name."""
    resources = owner.get("resources") or {}
    limits, requests = (
        _validate_amounts(resources.get(part) or {}, refuse, faults, f"{path}.resources.{part}")
        for part in ("limits", "requests")
    )
    for resource, value in requests.items():
        _validate_request(resource, value, resources, limits, faults, path)
    stated = {*limits, *requests}
    if any(map(is_huge, stated)) and not stated.intersection(POD_LEVEL):
        faults.forbidden(f"{path}.resources", "HugePages require cpu or memory")


def _validate_pod_resources(spec: Object, faults: Faults, path: str) -> None:
    """Add the faults of what a pod asks for all its containers."""
    if "resources" not in spec:
        return
    if spec["resources"].get("claims"):
        text = "claims may not be set for Resources at pod-level"
        faults.forbidden(f"{path}.resources.claims", text)
    _validate_resources(spec, _refuse_of_pod, faults, path)
    requests = pod_level_amounts(spec, "requests")
    for name, minimum in sorted(amounts_of_containers(spec, "requests").items()):
        if name in requests and requests[name].value < minimum.value:
            text = f"must be greater than or equal to aggregate container requests of {minimum}"
            faults.invalid(f"{path}.resources.requests[{name}]", str(requests[name]), text)
    limits = pod_level_amounts(spec, "limits")
    for index, container in enumerate(spec.get("containers") or ()):
        amounts = parse_amounts((container.get("resources") or {}).get("limits"))
        for name in sorted(amounts.keys() & limits.keys()):
            if amounts[name].value > limits[name].value:
                text = f"must be less than or equal to pod limits of {limits[name]}"
                place = f"{path}.resources.containers[{index}][{name}].limits"
                faults.invalid(place, str(amounts[name]), text)


def _validate_amounts(
    amounts: Object, refuse: Callable[[str, Faults, str], None], faults: Faults, path: str
) -> dict[str, int]:
    """Return the amounts that can be read, in units; add the faults of the others."""
    units_by_name = {}
    for resource, amount in amounts.items():
        place, text = f"{path}[{resource}]", str(canonical(amount))
        refuse(resource, faults, place)
        if not QUANTITY.fullmatch(text):
            faults.invalid(place, text, QUANTITY_WORDS)
            continue
        if text.startswith("-"):
            faults.invalid(place, text, "must be greater than or equal to 0")
            continue
        units = parse_quantity(resource, amount)
        units_by_name[resource] = units
        if "/" in resource and units != parse_quantity(resource, amount, rounding="down"):
            faults.invalid(place, text, "must be an integer")
    return units_by_name


def _refuse_of_container(resource: str, faults: Faults, path: str) -> None:
    if "/" not in resource and resource not in _NATIVE and not is_huge(resource):
        faults.invalid(path, resource, "must be a standard resource type or fully qualified")
        faults.invalid(path, resource, "must be a standard resource for containers")


def _refuse_of_pod(resource: str, faults: Faults, path: str) -> None:
    if is_pod_level(resource):
        return
    if "/" in resource or resource in _NATIVE:
        faults.unsupported(path, resource, ("cpu", "hugepages-", "memory"))
    else:
        faults.invalid(path, resource, "must be a standard resource type or fully qualified")


def _validate_request(
    resource: str,
    value: int,
    resources: Object,
    limits: Mapping[str, int],
    faults: Faults,
    path: str,
) -> None:
    """Add the fault of a request that does not go with its limit."""
    limit, place = limits.get(resource), f"{path}.resources.requests"
    is_whole = "/" in resource or is_huge(resource)
    if limit is None:
        if is_whole:
            text = "Limit must be set for non overcommitable resources"
            faults.required(f"{path}.resources.limits", text)
        return
    text, shown = str(resources["requests"][resource]), resources["limits"][resource]
    if value > limit:
        faults.invalid(place, text, f"must be less than or equal to {resource} limit of {shown}")
    elif is_whole and value != limit:
        faults.invalid(place, text, f"must be equal to {resource} limit of {shown}")


def _validate_change(spec: Object, old: Object, faults: Faults) -> None:
    """Add a fault where a change of a pod touches a field that is fixed."""
    for group in ("initContainers", "containers"):
        if len(spec.get(group) or ()) != len(old.get(group) or ()):
            text = "pod updates may not add or remove containers"
            faults.forbidden(f"spec.{group}", text)
            return
    gates, previous = spec.get("schedulingGates") or [], old.get("schedulingGates") or []
    added = [(index, gate["name"]) for index, gate in enumerate(gates) if gate not in previous]
    for index, name in added:
        text = f"only deletion is allowed, but found new scheduling gate '{name}'"
        faults.forbidden(f"spec.schedulingGates[{index}].name", text)
    if added:
        return
    is_gated = bool(previous)
    if _fixed(spec, is_gated) != _fixed(old, is_gated):
        faults.forbidden("spec", _IMMUTABLE_WORDS)


def _fixed(spec: Mapping[str, Any], is_gated: bool) -> Object:
    free = {
        "activeDeadlineSeconds",
        "tolerations",
        "schedulingGates",
    }
    if is_gated:
        free |= {"nodeSelector", "affinity"}
    fixed = {name: value for name, value in spec.items() if name not in free}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[group]]
    return fixed
