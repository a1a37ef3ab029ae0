"""The API server: what each verb does to the store, and what it answers.

Messages and codes are those of Kubernetes 1.37. Read :meth:`ApiServer.answer`, then the verbs.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

from bireme_lab.embedded.api import apply, bodies, errors, openapi, patches
from bireme_lab.embedded.api.admission import Admission, Attempt, complete_object
from bireme_lab.embedded.api.apply import Manager
from bireme_lab.embedded.api.deletion import Deleter
from bireme_lab.embedded.api.errors import ApiRefusal, Faults, Object, bad_request
from bireme_lab.embedded.api.reading import StoreReader, WatchStart, scale_of
from bireme_lab.embedded.api.requests import (
    ApiAnswer,
    ApiRequest,
    ApiUser,
    RequestPath,
)
from bireme_lab.embedded.api.resources import ResourceKind, ResourceKinds
from bireme_lab.embedded.api.schemas import HEAD
from bireme_lab.embedded.api.store import Key, Store

_VERSION: Final = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1+embedded",
    "platform": "python",
}
_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_FIXED_META: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


Handler: TypeAlias = Callable[[ApiRequest, ResourceKind, Key, Object], ApiAnswer]


@dataclass(eq=False)
class ApiServer:
    """Answers requests out of a store.

    Attributes:
        now: POSIX seconds.
        admission: The steps of every write.
        connects: By resource path and subresource, handlers of subresources that are verbs.
        reviews: By resource path, the answer to a kind that is only created.
        authorizer: Returns whether the user of a request may do it.
        documents: By path, answers that are about no resource: health, versions.
    """

    now: Callable[[], float]
    resources: ResourceKinds
    store: Store = field(default_factory=Store)
    admission: Admission = field(default_factory=Admission)
    connects: dict[tuple[str, str], Handler] = field(default_factory=dict)
    reviews: dict[str, Callable[[ApiRequest, Object], Object]] = field(default_factory=dict)
    authorizer: Callable[[ApiRequest, str, ResourceKind, RequestPath], bool] = lambda *_: True
    documents: dict[str, Callable[[ApiRequest], ApiAnswer]] = field(default_factory=dict)
    chance: random.Random = field(default_factory=random.Random)
    reader: StoreReader = field(init=False)
    deleter: Deleter = field(init=False)

    def __post_init__(self) -> None:
        self.reader = StoreReader(self.store, self.now)
        self.deleter = Deleter(self.store, self.reader, self.admission, self.timestamp)

    # --- requests ------------------------------------------------------------------------------

    def answer(self, request: ApiRequest) -> ApiAnswer | WatchStart:
        """Return the answer to a request, or the watch that it starts."""
        try:
            try:
                return self._answer(request)
            except RecursionError:
                text = "the body has more levels than the embedded API server takes, some hundreds"
                raise ApiRefusal(400, "BadRequest", text) from None
        except ApiRefusal as refusal:
            return ApiAnswer(
                refusal.status, refusal.to_object(), retry_after_seconds=refusal.retry_after_seconds
            )

    def _answer(self, request: ApiRequest) -> ApiAnswer | WatchStart:
        path = request.path.rstrip("/") or "/"
        if (answer := self._document(request, path)) is not None:
            return answer
        target = RequestPath.parse(path)
        resource = self._served(target)
        verb = _verb(request, target)
        if not self.authorizer(request, verb, resource, target):
            raise _unauthorized(request.user, verb, resource, target)
        if target.namespace and request.method == "POST" and not target.name:
            self._require_namespace(target.namespace)
        if (handler := self.connects.get((target.resource, target.subresource))) is not None:
            return handler(request, resource, target.key, self.reader.find(resource, target.key))
        if resource.is_create_only:
            review = self.reviews.get(resource.path)
            if review is None or verb != "create":
                raise errors.no_resource()
            return ApiAnswer(201, review(request, complete_object(request, resource)))
        verbs: dict[
            str, Callable[[ApiRequest, ResourceKind, RequestPath], ApiAnswer | WatchStart]
        ] = {
            "get": self.reader.get,
            "list": self.reader.list,
            "watch": self.reader.watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self.deleter.delete_one,
            "deletecollection": self.deleter.delete_all,
        }
        if verb not in verbs or (verb == "create" and target.name):
            message = "the server does not allow this method on the requested resource"
            raise ApiRefusal(405, "MethodNotAllowed", message)
        return verbs[verb](request, resource, target)

    def _document(self, request: ApiRequest, path: str) -> ApiAnswer | None:
        """Return the answer to a request for what is no resource; None for others."""
        if path in self.documents:
            return self.documents[path](request)
        if path == "/version":
            return ApiAnswer(200, dict(_VERSION))
        if (answer := openapi.answer(self.resources, request)) is not None:
            return answer
        document = self.resources.document(path)
        return None if document is None else ApiAnswer(200, document)

    def _served(self, target: RequestPath) -> ResourceKind:
        """Return the kind that an address is about; 404 for one that is not served."""
        resource = self.resources.get(target.resource)
        if resource is None or (target.namespace and not resource.is_namespaced):
            raise errors.no_resource()
        if target.subresource and target.subresource not in resource.subresources:
            raise errors.no_resource()
        if resource.is_namespaced and target.name and not target.namespace:
            raise errors.no_resource()
        return resource

    # --- writing -------------------------------------------------------------------------------

    def _create(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        content = _content(request, resource, target.subresource)
        meta = content.setdefault("metadata", {})
        if resource.is_namespaced and not target.namespace:
            raise bad_request("an empty namespace may not be set during creation")
        if meta.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if target.namespace and meta.get("namespace", target.namespace) != target.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if not meta.get("name") and meta.get("generateName"):
            suffix = "".join(self.chance.choice(_CHARACTERS) for _ in range(5))
            meta["name"] = meta["generateName"] + suffix
        if not meta.get("name"):
            raise _unnamed(resource)
        return self._store_new(request, resource, (target.namespace, meta["name"]), content)

    def _store_new(
        self,
        request: ApiRequest,
        resource: ResourceKind,
        key: Key,
        content: Object,
        *,
        manager: str = "",
    ) -> ApiAnswer:
        warnings = self.admission.check_fields(request, resource, content)
        new = self._fresh(resource, key, content)
        renew = partial(self._renewed, resource, key, new["metadata"]["uid"])
        new = self.admission.admit(Attempt(
            "CREATE", resource, "", key, new, None, request.user, request.is_dry_run, renew
        ))  # fmt: skip
        key = (key[0], new["metadata"]["name"])  # policies may rename what is created
        if self.store.get(resource.path, key) is not None:
            raise errors.already_exists(resource.subject(key[1]))
        if manager:
            entry = Manager(manager, "Apply", resource.group_version)
            applied = {**content, "metadata": {**new["metadata"]}}
            shape, now = self.admission.shape(resource), self.timestamp()
            merged = apply.apply(None, applied, entry, shape, now, is_forced=True)
            new["metadata"]["managedFields"] = merged["metadata"]["managedFields"]
        else:
            new = self._track(request, resource, "", None, new)
        if request.is_dry_run:
            return ApiAnswer(201, new, warnings)
        stored = self.store.write(resource.path, key, new)
        return ApiAnswer(201, self.reader.form(request, resource)(stored), warnings)

    def _fresh(self, resource: ResourceKind, key: Key, content: Object, uid: str = "") -> Object:
        meta = {k: v for k, v in content["metadata"].items() if k != "selfLink"}
        meta |= {
            "name": key[1],
            "uid": uid or _uid(self.chance),
            "creationTimestamp": self.timestamp(),
            "generation": 1,
        }
        if key[0]:
            meta["namespace"] = key[0]
        if not resource.is_custom and resource.path not in _WITH_GENERATION:
            del meta["generation"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
            meta.pop(name, None)
        new = {
            "apiVersion": resource.group_version,
            "kind": resource.kind,
            "metadata": meta,
            **{k: v for k, v in content.items() if k not in HEAD},
        }
        # A kubelet registers its node with what it has.
        if "status" in resource.subresources and resource.path != _NODES:
            new.pop("status", None)
        return self.admission.completed(resource, new, None)

    def _renewed(self, resource: ResourceKind, key: Key, uid: str, content: Object) -> Object:
        """Return a new object that a policy has changed; its name may be another."""
        meta = content["metadata"]
        if not meta.get("name") and not meta.get("generateName"):
            raise _unnamed(resource)
        return self._fresh(resource, (key[0], meta.get("name") or key[1]), content, uid)

    def _update(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        content = _content(request, resource, target.subresource)
        old = self.store.get(resource.path, target.key)
        if old is None:
            raise errors.not_found(resource.subject(target.name))
        if target.subresource == "scale":
            content = _scaled(old, content)
            return self._replace(request, resource, target, old, content, scale=True)
        meta = content.get("metadata") or {}
        if meta.get("name", target.name) != target.name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL "
                f"({target.name})"
            )
        if resource.is_custom and not meta.get("resourceVersion"):
            faults = Faults()
            faults.add(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0x0: must be specified for an update",
            )
            raise errors.invalid(resource.subject(target.name), faults.causes)
        return self._replace(request, resource, target, old, content)

    def _replace(
        self,
        request: ApiRequest,
        resource: ResourceKind,
        target: RequestPath,
        old: Object,
        content: Object,
        *,
        scale: bool = False,
        entries: Sequence[Object] | None = None,
    ) -> ApiAnswer:
        """Store ``content`` in place of ``old``; ``entries`` are its owners, if known."""
        subject = resource.subject(target.name)
        meta = content.get("metadata") or {}
        if meta.get("uid") and meta["uid"] != old["metadata"]["uid"]:
            raise errors.precondition(subject, "UID", meta["uid"], old["metadata"]["uid"])
        if (
            meta.get("resourceVersion")
            and meta["resourceVersion"] != old["metadata"]["resourceVersion"]
        ):
            raise errors.modified(subject)
        warnings = self.admission.check_fields(request, resource, content)
        subresource = target.subresource if target.subresource in ("status", "finalize") else ""
        new = self._updated(resource, old, content, subresource)
        renew = partial(self._updated, resource, old, subresource=subresource)
        new = self.admission.admit(Attempt(
            "UPDATE", resource, target.subresource, target.key, new, old,
            request.user, request.is_dry_run, renew
        ))  # fmt: skip
        if entries is None:
            new = self._track(request, resource, target.subresource, old, new)
        else:
            new["metadata"]["managedFields"] = list(entries)
        if request.is_dry_run:
            return ApiAnswer(200, scale_of(new) if scale else new, warnings)
        if apply.is_same(old, new):
            stored = old
        else:
            stored = self.store.write(resource.path, target.key, new)
            if stored["metadata"].get("deletionTimestamp") and self.deleter.may_go(
                resource, stored
            ):
                self.store.write(resource.path, target.key, None)
        body = scale_of(stored) if scale else self.reader.form(request, resource)(stored)
        return ApiAnswer(200, body, warnings)

    def _updated(
        self, resource: ResourceKind, old: Object, content: Object, subresource: str
    ) -> Object:
        """Return ``old`` with what an update of this subresource may change."""
        old_meta = old["metadata"]
        if subresource == "status":
            meta = dict(old_meta)
            new = {**old, "metadata": meta, "status": content.get("status") or {}}
            if content.get("status") is None:
                new.pop("status")
            return self.admission.completed(resource, new, old)
        if subresource == "finalize":
            return {**old, "metadata": dict(old_meta), "spec": content.get("spec") or {}}
        meta = {k: v for k, v in (content.get("metadata") or {}).items() if k != "selfLink"}
        retained = ("name", "namespace", "resourceVersion", "generation", *_FIXED_META)
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
        new = self.admission.completed(resource, new, old)
        has_generation = resource.is_custom or resource.path in _WITH_GENERATION
        if has_generation and _without_meta(new) != _without_meta(old):
            new["metadata"]["generation"] = int(old_meta.get("generation", 0)) + 1
        return new

    def _patch(self, request: ApiRequest, resource: ResourceKind, target: RequestPath) -> ApiAnswer:
        old = self.store.get(resource.path, target.key)
        if request.content_type.startswith("application/apply-patch"):
            return self._apply(request, resource, target, old)
        if old is None:
            raise errors.not_found(resource.subject(target.name))
        original = scale_of(old) if target.subresource == "scale" else old
        content = bodies.decode(request)
        match request.content_type.partition(";")[0]:
            case patches.JSON_PATCH:
                new = patches.patch_json(original, content)
            case patches.MERGE_PATCH:
                new = patches.merge(original, content)
            case patches.STRATEGIC_PATCH if not resource.is_custom:
                new = patches.merge_strategic(original, content)
            case other:
                types = ", ".join((patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH))
                message = (
                    f"the body of the request was in an unknown format - accepted media types "
                    f"include: {types}"
                )
                raise ApiRefusal(415, "UnsupportedMediaType", f"{message} (not {other})")
        new = bodies.typed(new, resource, target.subresource)
        meta = new.setdefault("metadata", {})
        stated = content.get("metadata") if isinstance(content, dict) else None
        if not (stated or {}).get("resourceVersion") and not isinstance(content, list):
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        if target.subresource == "scale":
            return self._replace(request, resource, target, old, _scaled(old, new), scale=True)
        return self._replace(request, resource, target, old, new)

    def _apply(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath, old: Object | None
    ) -> ApiAnswer:
        if not request.query.get("fieldManager"):
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required "
                "for apply patch"
            )
        content = bodies.decode_object(request, resource)
        for name, expected in (("apiVersion", resource.group_version), ("kind", resource.kind)):
            if content.get(name) != expected:
                raise bad_request(f"invalid object type: {name} must be {expected}")
        if content.get("metadata", {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        manager = request.query["fieldManager"]
        if old is None:
            if target.subresource:
                raise errors.not_found(resource.subject(target.name))
            content["metadata"] = {**content.get("metadata", {}), "name": target.name}
            return self._store_new(request, resource, target.key, content, manager=manager)
        owner = Manager(manager, "Apply", resource.group_version, target.subresource)
        if target.subresource == "status":
            content = {k: v for k, v in content.items() if k in (*HEAD, "status")}
        elif "status" in resource.subresources:
            content = {k: v for k, v in content.items() if k != "status"}
        stated = content.get("metadata", {})
        is_forced = request.query.get("force") in ("1", "true")
        merged = apply.apply(
            old,
            content,
            owner,
            self.admission.shape(resource),
            self.timestamp(),
            is_forced=is_forced,
        )
        if stated.get("resourceVersion"):
            merged["metadata"]["resourceVersion"] = stated["resourceVersion"]
        entries = merged["metadata"].pop("managedFields", [])
        return self._replace(request, resource, target, old, merged, entries=entries)

    # --- steps of writes -----------------------------------------------------------------------

    def _track(
        self,
        request: ApiRequest,
        resource: ResourceKind,
        subresource: str,
        old: Object | None,
        new: Object,
    ) -> Object:
        manager = Manager(request.manager, "Update", resource.group_version, subresource)
        return apply.track(old, new, manager, self.admission.shape(resource), self.timestamp())

    def _require_namespace(self, name: str) -> None:
        namespace = self.store.get(_NAMESPACES, ("", name))
        if namespace is None:
            namespaces = errors.Subject("Namespace", "", "namespaces", name)
            raise errors.not_found(namespaces)
        if namespace["metadata"].get("deletionTimestamp"):
            text = (
                f"unable to create new content in namespace {name} because it is being terminated"
            )
            raise ApiRefusal(403, "Forbidden", text)

    def timestamp(self, later_seconds: float = 0.0) -> str:
        """Return the time, or a later one, as the API writes it."""
        moment = datetime.fromtimestamp(self.now() + later_seconds, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


_NAMESPACES: Final = "/api/v1/namespaces"
_NODES: Final = "/api/v1/nodes"
_WITH_GENERATION: Final = frozenset(
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


def _content(request: ApiRequest, resource: ResourceKind, subresource: str) -> Object:
    content = bodies.decode_object(request, resource, subresource)
    kind, version = content.get("kind"), content.get("apiVersion")
    is_scale = kind == "Scale"
    if kind and kind != resource.kind and not is_scale:
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {resource.kind}: '
            "converting (v1) to (v1): unknown conversion"
            if not resource.is_custom
            else f"the object provided is unrecognized (must be of type {resource.kind})"
        )
    if version and version != resource.group_version and not is_scale:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.group_version})"
        )
    return content


def _unnamed(resource: ResourceKind) -> ApiRefusal:
    faults = Faults()
    faults.required("metadata.name", "name or generateName is required")
    return errors.invalid(resource.subject(""), faults.causes)


def _scaled(old: Object, scale: Object) -> Object:
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


def _uid(chance: random.Random) -> str:
    bits = f"{chance.getrandbits(128):032x}"
    return "-".join((bits[:8], bits[8:12], "4" + bits[13:16], "a" + bits[17:20], bits[20:]))


def _without_meta(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}


def _verb(request: ApiRequest, target: RequestPath) -> str:
    if request.method == "GET":
        if request.is_watch:
            return "watch"
        return "get" if target.name else "list"
    if request.method == "DELETE" and not target.name:
        return "deletecollection"
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs.get(request.method, request.method.lower())


def _unauthorized(
    user: ApiUser, verb: str, resource: ResourceKind, target: RequestPath
) -> ApiRefusal:
    plural = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    text = (
        f'User "{user.name}" cannot {verb} resource "{plural}" in API group '
        f'"{resource.group}" {where}'
    )
    return errors.forbidden(resource.subject(target.name), text)
