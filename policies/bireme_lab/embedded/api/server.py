"""The API server: what each verb does to the store, and what it answers.

Messages and codes are those of Kubernetes 1.37. Read :meth:`ApiServer.answer`, then the verbs.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

from bireme_lab.embedded.api import (
    apply,
    bodies,
    contents,
    errors,
    openapi,
    patches,
    routes,
    typed_patches,
)
from bireme_lab.embedded.api.admission import Admission, Attempt, complete_object
from bireme_lab.embedded.api.apply import Manager
from bireme_lab.embedded.api.deletion import Deleter
from bireme_lab.embedded.api.errors import ApiRefusal, Object, bad_request
from bireme_lab.embedded.api.options import check_write
from bireme_lab.embedded.api.reading import StoreReader, WatchStart, scale_of
from bireme_lab.embedded.api.requests import (
    ApiAnswer,
    ApiRequest,
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
_TOO_DEEP: Final = "the body has more levels than the embedded API server takes, some hundreds"
_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


_NAMED: Final = ("create", "update", "patch")
"""Verbs that do not go with every path: an object is created without a name in it."""
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
    _warnings: list[str] = field(default_factory=list)
    """Texts of ``Warning`` headers of the answer in the making, which refusals have too."""
    reader: StoreReader = field(init=False)
    deleter: Deleter = field(init=False)

    def __post_init__(self) -> None:
        self.reader = StoreReader(self.store, self.now)
        self.deleter = Deleter(
            self.store,
            self.reader,
            self.admission,
            self.timestamp,
            self.warn,
        )

    # --- requests ------------------------------------------------------------------------------

    def answer(self, request: ApiRequest) -> ApiAnswer | WatchStart:
        """Return the answer to a request, or the watch that it starts."""
        # Subscribers of the store may ask for something while this is answered.
        outer, self._warnings = self._warnings, []
        try:
            answer = self._answer(request)
        except (ApiRefusal, RecursionError) as error:
            refusal = error if isinstance(error, ApiRefusal) else bad_request(_TOO_DEEP)
            answer = ApiAnswer(
                refusal.status, refusal.to_object(), retry_after_seconds=refusal.retry_after_seconds
            )
        if isinstance(answer, ApiAnswer):
            answer.warnings += self._warnings
        self._warnings = outer
        return answer

    def _answer(self, request: ApiRequest) -> ApiAnswer | WatchStart:
        path = request.path.rstrip("/") or "/"
        if (answer := self._document(request, path)) is not None:
            return answer
        if routes.is_unknown(self.resources, path):
            return ApiAnswer(404, "404 page not found\n")
        target = RequestPath.parse(path)
        resource = routes.served(self.resources, target)
        verb = routes.verb_of(request, target)
        if not self.authorizer(request, verb, resource, target):
            raise routes.unauthorized(request.user, verb, resource, target)
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
        if verb in ("update", "patch") and not target.name and resource.is_custom:
            if verb == "patch":
                patches.require_type(request.content_type, is_custom=True)
            raise bad_request("name must be provided")
        if verb not in verbs or (bool(target.name) is (verb == "create") and verb in _NAMED):
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

    def warn(self, text: str) -> None:
        """Add a text to the warnings of the answer in the making."""
        self._warnings.append(text)

    # --- writing -------------------------------------------------------------------------------

    def _create(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        check_write(request)
        content = contents.stated_object(request, resource, target.subresource)
        self._check_fields(request, resource, content)
        if resource.is_custom:
            bodies.require_kind(content, resource)
        meta = content.setdefault("metadata", {})
        if resource.is_namespaced and not target.namespace:
            raise bad_request("an empty namespace may not be set during creation")
        contents.require_namespace(content, resource, target)
        if target.namespace:
            self._require_namespace(target.namespace)
        if not meta.get("name") and meta.get("generateName"):
            suffix = "".join(self.chance.choice(_CHARACTERS) for _ in range(5))
            meta["name"] = meta["generateName"] + suffix
        name = meta.setdefault("name", "")
        version = str(meta.get("resourceVersion") or "0")
        if version.isdigit() and int(version) and not request.is_dry_run:
            text = "resourceVersion should not be set on objects to be created"
            raise ApiRefusal(500, "", text)
        return self._store_new(request, resource, (target.namespace, name), content)

    def _check_fields(self, request: ApiRequest, resource: ResourceKind, content: Object) -> None:
        if content.get("kind") != "Scale":
            self._warnings += self.admission.check_fields(request, resource, content)
            advice = self.admission.advice.get(resource.path)
            self._warnings += () if advice is None or request.method != "POST" else advice(content)

    def _store_new(
        self,
        request: ApiRequest,
        resource: ResourceKind,
        key: Key,
        content: Object,
        *,
        manager: str = "",
    ) -> ApiAnswer:
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
            owned = self._track(
                request, resource, "", None, contents.as_written(new, content, resource)
            )
            if entries := owned["metadata"].get("managedFields"):
                new["metadata"]["managedFields"] = entries
        if request.is_dry_run:
            return ApiAnswer(201, new)
        stored = self.store.write(resource.path, key, new)
        return ApiAnswer(201, self.reader.form(request, resource)(stored))

    def _fresh(self, resource: ResourceKind, key: Key, content: Object, uid: str = "") -> Object:
        meta = bodies.plain_metadata(content["metadata"])
        meta |= {
            "name": key[1],
            "uid": uid or _uid(self.chance),
            "creationTimestamp": self.timestamp(),
            "generation": 1,
        }
        if key[0]:
            meta["namespace"] = key[0]
        if not resource.is_custom and resource.path not in contents.WITH_GENERATION:
            del meta["generation"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
            meta.pop(name, None)
        new = {
            "apiVersion": resource.group_version,
            "kind": resource.kind,
            "metadata": meta,
            **{k: v for k, v in content.items() if k not in HEAD},
        }
        if not key[0]:
            meta.pop("namespace", None)
        # A kubelet registers its node with what it has.
        if "status" in resource.subresources and resource.path != _NODES:
            new.pop("status", None)
        return self.admission.completed(resource, new, None)

    def _renewed(self, resource: ResourceKind, key: Key, uid: str, content: Object) -> Object:
        """Return a new object that a policy has changed; its name may be another."""
        meta = content["metadata"]
        if not meta.get("name") and not meta.get("generateName"):
            raise contents.unnamed(resource)
        return self._fresh(resource, (key[0], meta.get("name") or key[1]), content, uid)

    def _update(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        check_write(request)
        content = contents.stated_object(request, resource, target.subresource)
        self._check_fields(request, resource, content)
        if not (content.get("metadata") or {}).get("name"):
            based = f"the name of the object ({target.name} based on URL) was undeterminable"
            raise bad_request(f"{based}: name must be provided")
        contents.require_name(content, target)
        contents.require_namespace(content, resource, target)
        old = self.store.get(resource.path, target.key)
        if old is None:
            raise errors.not_found(resource.subject(target.name))
        if target.subresource == "scale":
            content = contents.scaled(old, content)
            return self._replace(request, resource, target, old, content, scale=True)
        if resource.is_custom:
            bodies.require_kind(content, resource)
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
        if (
            request.method == "PUT"
            and meta.get("uid", old["metadata"]["uid"]) != (old["metadata"]["uid"])
        ):
            text = contents.storage_fault(
                resource,
                target,
                meta["uid"],
                old["metadata"]["uid"],
                is_dry_run=request.is_dry_run,
            )
            raise errors.conflict(subject, text)
        contents.check_version(resource, subject, contents.version_of(content), old)
        subresource = target.subresource if target.subresource in ("status", "finalize") else ""
        renew = partial(contents.updated, self.admission, resource, old, subresource=subresource)
        new = renew(content)
        new = self.admission.admit(Attempt(
            "UPDATE", resource, target.subresource, target.key, new, old,
            request.user, request.is_dry_run, renew,
            stated_meta={**meta, "namespace": target.namespace},
        ))  # fmt: skip
        if entries is None:
            new = self._track(request, resource, target.subresource, old, new)
        else:
            new["metadata"]["managedFields"] = list(entries)
        if request.is_dry_run:
            return ApiAnswer(200, scale_of(new) if scale else new)
        if apply.is_same(old, new):
            stored = old
        else:
            stored = self.store.write(resource.path, target.key, new)
            if stored["metadata"].get("deletionTimestamp") and self.deleter.may_go(
                resource, stored
            ):
                self.store.write(resource.path, target.key, None)
        body = scale_of(stored) if scale else self.reader.form(request, resource)(stored)
        return ApiAnswer(200, body)

    def _patch(self, request: ApiRequest, resource: ResourceKind, target: RequestPath) -> ApiAnswer:
        kind = request.content_type.partition(";")[0]
        patches.require_type(kind, is_custom=resource.is_custom)
        check_write(request)
        old = self.store.get(resource.path, target.key)
        if kind == patches.APPLY_PATCH:
            return self._apply(request, resource, target, old)
        content = patches.decode(request.body)
        if old is None:
            raise errors.not_found(resource.subject(target.name))
        original = scale_of(old) if target.subresource == "scale" else old
        patched = patches.patched(original, content, kind)
        new = bodies.typed_patched(patched, resource, target.subresource)
        self._check_fields(request, resource, new)
        contents.require_name(new, target)
        contents.require_namespace(new, resource, target)
        if target.subresource == "scale":
            return self._replace(
                request, resource, target, old, contents.scaled(old, new), scale=True
            )
        return self._replace(request, resource, target, old, new)

    def _apply(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath, old: Object | None
    ) -> ApiAnswer:
        content = bodies.decode_applied(request, resource)
        typed_patches.check(content, self.admission.schema_of(resource))
        content = bodies.typed(content, resource)
        if old is not None:
            content = bodies.without_nulls(content)
        if content.get("metadata", {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        manager = request.query["fieldManager"]
        if old is None:
            if target.subresource:
                raise errors.not_found(resource.subject(target.name))
            content["metadata"] = {"name": target.name, **content.get("metadata", {})}
            contents.require_name(content, target)
            contents.require_namespace(content, resource, target)
            subject, uid = resource.subject(target.name), content["metadata"].get("uid")
            contents.check_version(resource, subject, contents.version_of(content), None)
            if uid:
                text = f"the provided object specified uid {uid}, and no existing object was found"
                raise errors.conflict(subject, f"uid mismatch: {text}")
            if target.namespace:
                self._require_namespace(target.namespace)
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
        merged["metadata"] |= {k: v for k, v in stated.items() if k in contents.STATED}
        contents.require_name(merged, target)
        contents.require_namespace(merged, resource, target)
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


def _uid(chance: random.Random) -> str:
    bits = f"{chance.getrandbits(128):032x}"
    return "-".join((bits[:8], bits[8:12], "4" + bits[13:16], "a" + bits[17:20], bits[20:]))
