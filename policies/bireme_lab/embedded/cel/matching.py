"""Which requests a policy or a binding is about, by ``matchConstraints`` and ``matchResources``."""

from typing import Any

from bireme_lab.embedded.api.errors import Object as Manifest
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.cel.requests import AdmissionRequest, Surroundings


def matches(constraints: Manifest, request: AdmissionRequest, world: Surroundings) -> bool:
    """Return whether ``request`` is one that the constraints describe."""
    if not _matches_namespace(constraints.get("namespaceSelector", {}), request, world):
        return False
    if not _matches_object(constraints.get("objectSelector", {}), request):
        return False
    if any(_is_named(rule, request) for rule in constraints.get("excludeResourceRules", ())):
        return False
    rules = constraints.get("resourceRules", ())
    return not rules or any(_is_named(rule, request) for rule in rules)


def _matches_namespace(selector: Manifest, request: AdmissionRequest, world: Surroundings) -> bool:
    is_namespace = request.resource == "namespaces"
    if not request.namespace and not is_namespace:
        return True  # nothing of the whole cluster is exempt
    if is_namespace and not request.subresource and request.object is not None:
        return matches_labels(selector, _labels(request.object))
    return matches_labels(selector, _labels(world.namespaces[request.namespace or request.name]))


def _matches_object(selector: Manifest, request: AdmissionRequest) -> bool:
    objects = [each for each in (request.object, request.old) if each is not None]
    return any(matches_labels(selector, _labels(each)) for each in objects)


def _labels(manifest: Manifest) -> dict[str, str]:
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    return labels


def _is_named(rule: Manifest, request: AdmissionRequest) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule["apiGroups"], request.group)
        and _has(rule["apiVersions"], request.version)
        and _has(rule["operations"], request.operation)
        and any(_is_resource(each, request) for each in rule["resources"])
        and _is_in_scope(rule.get("scope", "*"), request)
        and (not names or request.name in names)
    )


def _has(items: list[Any], value: str) -> bool:
    return "*" in items or value in items


def _is_resource(pattern: str, request: AdmissionRequest) -> bool:
    resource, _, subresource = pattern.partition("/")
    return resource in ("*", request.resource) and subresource in ("*", request.subresource)


def _is_in_scope(scope: str, request: AdmissionRequest) -> bool:
    is_of_cluster = request.resource == "namespaces" or not request.namespace
    return scope == "*" or is_of_cluster == (scope == "Cluster")
