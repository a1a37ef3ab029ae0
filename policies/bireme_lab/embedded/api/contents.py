"""Contents of writes: bodies against their addresses, and what they make of stored objects."""

from typing import Final

from bireme_lab.embedded.api import bodies, errors
from bireme_lab.embedded.api.admission import Admission
from bireme_lab.embedded.api.errors import ApiRefusal, Object, bad_request
from bireme_lab.embedded.api.requests import ApiRequest, RequestPath
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.schemas import HEAD

FIXED_META: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that no update changes."""
WITH_GENERATION: Final = frozenset(
    {
        "/api/v1/pods",
        "/apis/batch/v1/jobs",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/apis/apps/v1/statefulsets",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
        "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    }
)


_PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
"""Their generation stays 1."""
STATED: Final = (*FIXED_META, "name", "namespace", "resourceVersion")
"""Metadata that nobody owns, and that an applied object may state."""


_OF_SERVER: Final = {
    "/api/v1/pods": ("tolerations", "serviceAccountName", "serviceAccount", "priority",
                     "preemptionPolicy"),
    "/apis/batch/v1/jobs": ("selector",),
}  # fmt: skip
"""Fields of specs that the server writes by itself, whose manager nobody is."""


def stated_object(request: ApiRequest, resource: ResourceKind, subresource: str) -> Object:
    content = bodies.decode_object(request, resource, subresource)
    kind, version = content.get("kind"), content.get("apiVersion")
    if kind == "Scale":
        return content
    if resource.is_custom:
        if (version or "") != resource.group_version:
            raise bad_request(
                f"the API version in the data ({version or ''}) does not match the expected API "
                f"version ({resource.group_version})"
            )
    elif (kind and kind != resource.kind) or (version and version != resource.group_version):
        stated = (version or resource.version).rpartition("/")[2]
        raise bad_request(
            f'{kind or resource.kind} in version "{stated}" cannot be handled as a '
            f"{resource.kind}: no conversion is known"
        )
    return content


def require_name(content: Object, target: RequestPath) -> None:
    """Refuse an object that has another name than the request."""
    name = (content.get("metadata") or {}).get("name") or target.name
    if name != target.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )


def require_namespace(content: Object, resource: ResourceKind, target: RequestPath) -> None:
    """Refuse an object that has another namespace than the request."""
    stated = (content.get("metadata") or {}).get("namespace") or target.namespace
    if resource.is_namespaced and stated != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def version_of(content: Object) -> str | None:
    """Return the version that a body states, None where it states none."""
    version = (content.get("metadata") or {}).get("resourceVersion")
    return None if version is None else str(version)


def check_version(
    resource: ResourceKind, subject: errors.Subject, stated: str | None, old: Object | None
) -> None:
    """Refuse an update of another version of the object than the stored one."""
    if stated and not (stated.isascii() and stated.isdigit()):
        raise ApiRefusal(500, "", f'strconv.ParseUint: parsing "{stated}": invalid syntax')
    if old is None:
        return
    if stated and int(stated):
        if stated != old["metadata"]["resourceVersion"]:
            raise errors.modified(subject)
    elif resource.is_custom:
        text = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        message = f'{subject.resource} "{subject.name}" is invalid: {text}'
        raise ApiRefusal(422, "Invalid", message, subject.details)


def unnamed(resource: ResourceKind) -> ApiRefusal:
    """Return the refusal of an object from which admission took its name."""
    faults = errors.Faults()
    faults.required("metadata.name", "name or generateName is required")
    return errors.invalid(resource.subject(""), faults.causes)


def storage_fault(
    resource: ResourceKind, target: RequestPath, stated: str, stored: str, *, is_dry_run: bool
) -> str:
    """Return the words for an update of an object with another uid than the stored one."""
    group = resource.group if resource.is_custom else ""
    parts = (group, resource.plural, target.namespace, target.name)
    # A dry run asks no store, which has a prefix of its own.
    root = "" if is_dry_run else "/registry"
    key = root + "".join(f"/{part}" for part in parts if part)
    fault = f"Precondition failed: UID in precondition: {stated}, UID in object meta: {stored}"
    where = f"Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {fault}"
    return f"StorageError: invalid object, {where}"


def as_written(new: Object, content: Object, resource: ResourceKind) -> Object:
    """Return a new object without the fields that the server has written by itself."""
    stated = content.get("spec") or {}
    names = [name for name in _OF_SERVER.get(resource.path, ()) if name not in stated]
    if not names:
        return new
    return {**new, "spec": {k: v for k, v in new["spec"].items() if k not in names}}


def updated(
    admission: Admission, resource: ResourceKind, old: Object, content: Object, subresource: str
) -> Object:
    """Return ``old`` with what an update of this subresource may change."""
    old_meta = old["metadata"]
    if subresource == "status":
        meta = dict(old_meta)
        new = {**old, "metadata": meta, "status": content.get("status") or {}}
        if content.get("status") is None:
            new.pop("status")
        return admission.completed(resource, new, old)
    if subresource == "finalize":
        return {**old, "metadata": dict(old_meta), "spec": content.get("spec") or {}}
    meta = bodies.plain_metadata(content.get("metadata") or {})
    retained = ("name", "namespace", "resourceVersion", "generation", *FIXED_META)
    for name in retained:
        meta.pop(name, None)
        if name in old_meta:
            meta[name] = old_meta[name]
    if meta.get("deletionTimestamp"):
        # Finalizers can only go once an object is being deleted.
        previous = old_meta.get("finalizers") or []
        meta["finalizers"] = [f for f in meta.get("finalizers") or [] if f in previous]
    new = {
        "apiVersion": resource.group_version,
        "kind": resource.kind,
        "metadata": meta,
        **{k: v for k, v in content.items() if k not in HEAD},
    }
    if "status" in resource.subresources:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    new = admission.completed(resource, new, old)
    has_generation = resource.is_custom or (
        resource.path in WITH_GENERATION and resource.path != _PRIORITY_CLASSES
    )
    if has_generation and _without_meta(new) != _without_meta(old):
        new["metadata"]["generation"] = int(old_meta.get("generation", 0)) + 1
    return new


def scaled(old: Object, scale: Object) -> Object:
    spec = scale.get("spec") or {}
    meta = dict(old["metadata"])
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        meta["resourceVersion"] = version
    return {
        **old,
        "metadata": meta,
        "spec": {**old["spec"], "replicas": spec.get("replicas", 0)},
    }


def _without_meta(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}
