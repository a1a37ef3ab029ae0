"""The API server: what each verb does to the store, and what it answers.

Messages and codes are those of Kubernetes 1.37. Read :meth:`ApiServer.answer`, then the verbs.
"""

import base64
import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec
import yaml

from bireme_lab.embedded.api import apply, errors, openapi, patches, protobuf, schemas
from bireme_lab.embedded.api.apply import Manager
from bireme_lab.embedded.api.errors import Faults, Object, Refusal, bad_request
from bireme_lab.embedded.api.field_sets import Shape
from bireme_lab.embedded.api.object_selectors import Selector
from bireme_lab.embedded.api.requests import Address, Answer, Request, User
from bireme_lab.embedded.api.resources import Resource, Resources
from bireme_lab.embedded.api.store import Key, Store
from bireme_lab.embedded.api.tables import table

_VERSION: Final = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1+embedded",
    "platform": "python",
}
_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_FIXED_META: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_MAX_PAGES: Final = 64


class Behaviour(Protocol):
    """How one of Kubernetes' kinds differs from plain storage."""

    schema: schemas.Schema | None

    def complete(self, obj: Object, old: Object | None) -> Object:
        """Return the object with defaults and what the server sets by itself."""

    def validate(self, obj: Object, old: Object | None, faults: Faults) -> None:
        """Add the faults of an object that is about to be stored."""

    def grace_seconds(self, obj: Object, wanted: int | None) -> int:
        """Return the grace period of a deletion; 0 removes the object at once."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write that is about to happen, as admission sees it.

    Attributes:
        operation: CREATE, UPDATE, DELETE or CONNECT.
        obj: The object to be stored; None for a deletion.
        old: The stored object; None for a creation.
    """

    operation: str
    resource: Resource
    subresource: str
    key: Key
    obj: Object | None
    old: Object | None
    user: User
    is_dry_run: bool


@dataclass(frozen=True, slots=True)
class WatchStart:
    """A watch that the carrier has to serve.

    Attributes:
        since: The version after which changes are sent.
        initial: Objects that are sent first, as ADDED.
        form: Makes of an object what is sent.
    """

    resource: Resource
    selector: Selector
    since: int
    initial: tuple[Object, ...]
    sends_bookmarks: bool
    marks_initial_end: bool
    timeout_seconds: float
    form: Callable[[Object], Object]


@dataclass(eq=False)
class ApiServer:
    """Answers requests out of a store.

    Attributes:
        now: POSIX seconds.
        behaviours: By resource path, for kinds that are more than storage.
        mutators: Change what is created or updated, in order.
        validators: Raise a Refusal for what may not be written.
        rules: Adds the faults that CEL rules of a custom kind find.
        authorizer: Returns whether the user of a request may do it.
    """

    now: Callable[[], float]
    resources: Resources
    store: Store = field(default_factory=Store)
    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    mutators: list[Callable[[Attempt], Object]] = field(default_factory=list)
    validators: list[Callable[[Attempt], None]] = field(default_factory=list)
    connects: dict[tuple[str, str], Callable[[Request, Resource, Key, Object], Answer]] = field(
        default_factory=dict
    )
    """By resource path and subresource, handlers of subresources that are verbs."""
    reviews: dict[str, Callable[[Request, Object], Object]] = field(default_factory=dict)
    """By resource path, what answers a kind that is only created."""
    rules: Callable[[Resource, Object, Object | None, Faults], None] = lambda *_: None
    authorizer: Callable[[Request, str, Resource, Address], bool] = lambda *_: True
    documents: dict[str, Callable[[Request], Answer]] = field(default_factory=dict)
    """By path, what is no resource: versions, health, OpenAPI."""
    chance: random.Random = field(default_factory=random.Random)
    _pages: dict[str, tuple[int, list[Object]]] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    # --- requests ------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer | WatchStart:
        """Return the answer to a request, or the watch that it starts."""
        try:
            return self._answer(request)
        except Refusal as refusal:
            return Answer(
                refusal.status, refusal.to_object(), retry_after_seconds=refusal.retry_after_seconds
            )

    def _answer(self, request: Request) -> Answer | WatchStart:
        path = request.path.rstrip("/") or "/"
        if (found := self._document(request, path)) is not None:
            return found
        at = Address.parse(path)
        resource = self._served(at)
        verb = _verb(request, at)
        if not self.authorizer(request, verb, resource, at):
            raise _unauthorized(request.user, verb, resource, at)
        if at.namespace and request.method == "POST" and not at.name:
            self._require_namespace(at.namespace)
        if (handler := self.connects.get((at.resource, at.subresource))) is not None:
            return handler(request, resource, at.key, self._find(resource, at.key))
        if resource.is_create_only:
            review = self.reviews.get(resource.path)
            if review is None or verb != "create":
                raise errors.no_resource()
            return Answer(201, review(request, decode_body(request)))
        verbs: dict[str, Callable[[Request, Resource, Address], Answer | WatchStart]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_all,
        }
        if verb not in verbs or (verb == "create" and at.name):
            message = "the server does not allow this method on the requested resource"
            raise Refusal(405, "MethodNotAllowed", message)
        return verbs[verb](request, resource, at)

    def _document(self, request: Request, path: str) -> Answer | None:
        """Return the answer to a request for what is no resource; None for others."""
        if path in self.documents:
            return self.documents[path](request)
        if path == "/version":
            return Answer(200, dict(_VERSION))
        if (found := openapi.answer(self.resources, request)) is not None:
            return found
        document = self.resources.document(path)
        return None if document is None else Answer(200, document)

    def _served(self, at: Address) -> Resource:
        """Return the kind that an address is about; 404 for one that is not served."""
        resource = self.resources.get(at.resource)
        if resource is None or (at.namespace and not resource.is_namespaced):
            raise errors.no_resource()
        if at.subresource and at.subresource not in resource.subresources:
            raise errors.no_resource()
        return resource

    # --- reading -------------------------------------------------------------------------------

    def _find(self, resource: Resource, key: Key) -> Object:
        found = self.store.get(resource.path, key)
        if found is None:
            raise errors.not_found(resource.subject(key[1]))
        return found

    def _get(self, request: Request, resource: Resource, at: Address) -> Answer:
        found = self._find(resource, at.key)
        if at.subresource == "scale":
            return Answer(200, scale_of(found))
        return Answer(200, self._form(request, resource)(found))

    def _list(self, request: Request, resource: Resource, at: Address) -> Answer:
        """Answer one page, cut from the state that the first page saw."""
        token = request.query.get("continue")
        if token:
            if token not in self._pages:
                message = "The provided continue parameter is too old to display a consistent list"
                raise Refusal(410, "Expired", message)
            version, rest = self._pages[token]  # a client may ask again
        else:
            selector = self._selector(request, resource, at)
            version, rest = self.store.version, self.store.select(resource.path, selector)
        limit = int(request.query.get("limit") or 0)
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta: Object = {"resourceVersion": str(version)}
        if rest:
            name = base64.urlsafe_b64encode(f"page-{next(self._numbers)}".encode()).decode()
            self._pages[name] = version, rest
            while len(self._pages) > _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            meta |= {"continue": name, "remainingItemCount": len(rest)}
        if (include := _table_include(request)) is not None:
            body = table(resource, page, self.now(), include, str(version))
            body["metadata"] = meta
            return Answer(200, body)
        is_partial = "as=PartialObjectMetadataList" in request.accept
        form = _partial if is_partial else lambda obj: obj
        kind = "PartialObjectMetadata" if is_partial else resource.kind
        api_version = "meta.k8s.io/v1" if is_partial else resource.group_version
        items = list(map(form, page))
        if not is_partial and not resource.is_custom:
            # As the real server, which leaves type fields out of the items of its own kinds.
            items = [{k: v for k, v in i.items() if k not in ("kind", "apiVersion")} for i in items]
        body = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": meta, "items": items}
        return Answer(200, body)

    def _selector(self, request: Request, resource: Resource, at: Address) -> Selector:
        selector = Selector.from_query(request.query, at.namespace, resource.selectable)
        if not at.name:
            return selector
        named = Selector.from_query({"fieldSelector": f"metadata.name={at.name}"}, "", ())
        return Selector(selector.namespace, selector.labels, (*selector.fields, *named.fields))

    def _watch(self, request: Request, resource: Resource, at: Address) -> WatchStart:
        selector = self._selector(request, resource, at)
        query = request.query
        version = query.get("resourceVersion") or ""
        wants_initial = query.get("sendInitialEvents") == "true"
        initial: tuple[Object, ...] = ()
        since = int(version or 0)
        if wants_initial or since == 0:
            initial = tuple(self.store.select(resource.path, selector))
            since = self.store.version
        elif since > self.store.version:
            message = f"Too large resource version: {since}, current: {self.store.version}"
            raise Refusal(504, "Timeout", message)
        return WatchStart(
            resource,
            selector,
            since,
            initial,
            sends_bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
            marks_initial_end=wants_initial,
            timeout_seconds=float(query.get("timeoutSeconds") or 1800),
            form=self._form(request, resource),
        )

    def _form(self, request: Request, resource: Resource) -> Callable[[Object], Object]:
        """Return what makes of an object the form that the request wants."""
        include = _table_include(request)
        if include is not None:
            return lambda obj: table(
                resource, [obj], self.now(), include, obj["metadata"].get("resourceVersion", "")
            )
        return _partial if "as=PartialObjectMetadata" in request.accept else lambda obj: obj

    # --- writing -------------------------------------------------------------------------------

    def _create(self, request: Request, resource: Resource, at: Address) -> Answer:
        content = self._content(request, resource)
        meta = content.setdefault("metadata", {})
        if meta.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if at.namespace and meta.get("namespace", at.namespace) != at.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if not meta.get("name") and meta.get("generateName"):
            suffix = "".join(self.chance.choice(_CHARACTERS) for _ in range(5))
            meta["name"] = meta["generateName"] + suffix
        if not meta.get("name"):
            faults = Faults()
            faults.required("metadata.name", "name or generateName is required")
            raise errors.invalid(resource.subject(""), faults.causes)
        return self._store_new(request, resource, (at.namespace, meta["name"]), content)

    def _store_new(
        self, request: Request, resource: Resource, key: Key, content: Object, *, manager: str = ""
    ) -> Answer:
        warnings = self._check_fields(request, resource, content)
        new = self._fresh(resource, key, content)
        new = self._admit(Attempt(
            "CREATE", resource, "", key, new, None, request.user, request.is_dry_run
        ))  # fmt: skip
        if self.store.get(resource.path, key) is not None:
            raise errors.already_exists(resource.subject(key[1]))
        if manager:
            entry = Manager(manager, "Apply", resource.group_version)
            applied = {**content, "metadata": {**new["metadata"]}}
            entries = apply.apply(
                None, applied, entry, self.shape(resource), self.timestamp(), is_forced=True
            )["metadata"]["managedFields"]
            new["metadata"]["managedFields"] = entries
        else:
            new = self._track(request, resource, "", None, new)
        if request.is_dry_run:
            return Answer(201, new, warnings)
        stored = self.store.write(resource.path, key, new)
        return Answer(201, self._form(request, resource)(stored), warnings)

    def _fresh(self, resource: Resource, key: Key, content: Object) -> Object:
        meta = {k: v for k, v in content["metadata"].items() if k != "selfLink"}
        meta |= {
            "name": key[1],
            "uid": self._uid(),
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
            **{k: v for k, v in content.items() if k not in ("apiVersion", "kind", "metadata")},
        }
        # A kubelet registers its node with what it has.
        if "status" in resource.subresources and resource.path != _NODES:
            new.pop("status", None)
        return self._completed(resource, new, None)

    def _update(self, request: Request, resource: Resource, at: Address) -> Answer:
        content = self._content(request, resource)
        old = self.store.get(resource.path, at.key)
        if old is None:
            raise errors.not_found(resource.subject(at.name))
        if at.subresource == "scale":
            content = self._scaled(old, content)
            return self._replace(request, resource, at, old, content, scale=True)
        meta = content.get("metadata") or {}
        if meta.get("name", at.name) != at.name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL "
                f"({at.name})"
            )
        if resource.is_custom and not meta.get("resourceVersion"):
            faults = Faults()
            faults.add(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0x0: must be specified for an update",
            )
            raise errors.invalid(resource.subject(at.name), faults.causes)
        return self._replace(request, resource, at, old, content)

    def _scaled(self, old: Object, scale: Object) -> Object:
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

    def _replace(
        self,
        request: Request,
        resource: Resource,
        at: Address,
        old: Object,
        content: Object,
        *,
        scale: bool = False,
        entries: Sequence[Object] | None = None,
    ) -> Answer:
        """Store ``content`` in place of ``old``; ``entries`` are its owners, if known."""
        subject = resource.subject(at.name)
        meta = content.get("metadata") or {}
        if meta.get("uid") and meta["uid"] != old["metadata"]["uid"]:
            raise errors.precondition(subject, "UID", meta["uid"], old["metadata"]["uid"])
        if (
            meta.get("resourceVersion")
            and meta["resourceVersion"] != old["metadata"]["resourceVersion"]
        ):
            raise errors.modified(subject)
        warnings = self._check_fields(request, resource, content)
        subresource = at.subresource if at.subresource in ("status", "finalize") else ""
        new = self._updated(resource, old, content, subresource)
        new = self._admit(Attempt(
            "UPDATE", resource, at.subresource, at.key, new, old, request.user, request.is_dry_run
        ))  # fmt: skip
        if entries is None:
            new = self._track(request, resource, at.subresource, old, new)
        else:
            new["metadata"]["managedFields"] = list(entries)
        if request.is_dry_run:
            return Answer(200, scale_of(new) if scale else new, warnings)
        if apply.is_same(old, new):
            stored = old
        else:
            stored = self.store.write(resource.path, at.key, new)
            if stored["metadata"].get("deletionTimestamp") and self._may_go(resource, stored):
                self.store.write(resource.path, at.key, None)
        body = scale_of(stored) if scale else self._form(request, resource)(stored)
        return Answer(200, body, warnings)

    def _updated(
        self, resource: Resource, old: Object, content: Object, subresource: str
    ) -> Object:
        """Return ``old`` with what an update of this subresource may change."""
        old_meta = old["metadata"]
        if subresource == "status":
            meta = dict(old_meta)
            if resource.is_custom:
                pass
            new = {**old, "metadata": meta, "status": content.get("status") or {}}
            if content.get("status") is None:
                new.pop("status")
            return self._completed(resource, new, old)
        if subresource == "finalize":
            return {**old, "metadata": dict(old_meta), "spec": content.get("spec") or {}}
        meta = {k: v for k, v in (content.get("metadata") or {}).items() if k != "selfLink"}
        kept = ("name", "namespace", "resourceVersion", "generation", *_FIXED_META)
        for name in kept:
            meta.pop(name, None)
            if name in old_meta:
                meta[name] = old_meta[name]
        if meta.get("deletionTimestamp"):
            # Finalizers can only go once an object is being deleted.
            before = old_meta.get("finalizers") or []
            meta["finalizers"] = [f for f in meta.get("finalizers") or [] if f in before]
        new = {
            "apiVersion": resource.group_version,
            "kind": resource.kind,
            "metadata": meta,
            **{k: v for k, v in content.items() if k not in ("apiVersion", "kind", "metadata")},
        }
        if "status" in resource.subresources:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        new = self._completed(resource, new, old)
        has_generation = resource.is_custom or resource.path in _WITH_GENERATION
        if has_generation and _without_meta(new) != _without_meta(old):
            new["metadata"]["generation"] = int(old_meta.get("generation", 0)) + 1
        return new

    def _patch(self, request: Request, resource: Resource, at: Address) -> Answer:
        old = self.store.get(resource.path, at.key)
        if request.content_type.startswith("application/apply-patch"):
            return self._apply(request, resource, at, old)
        if old is None:
            raise errors.not_found(resource.subject(at.name))
        target = scale_of(old) if at.subresource == "scale" else old
        content = decode_body(request)
        match request.content_type.partition(";")[0]:
            case patches.JSON_PATCH:
                new = patches.patch_json(target, content)
            case patches.MERGE_PATCH:
                new = patches.merge(target, content)
            case patches.STRATEGIC_PATCH if not resource.is_custom:
                new = patches.merge_strategic(target, content)
            case other:
                types = ", ".join((patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH))
                message = (
                    f"the body of the request was in an unknown format - accepted media types "
                    f"include: {types}"
                )
                raise Refusal(415, "UnsupportedMediaType", f"{message} (not {other})")
        meta = new.setdefault("metadata", {})
        stated = content.get("metadata") if isinstance(content, dict) else None
        if not (stated or {}).get("resourceVersion") and not isinstance(content, list):
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        if at.subresource == "scale":
            return self._replace(request, resource, at, old, self._scaled(old, new), scale=True)
        return self._replace(request, resource, at, old, new)

    def _apply(
        self, request: Request, resource: Resource, at: Address, old: Object | None
    ) -> Answer:
        if not request.query.get("fieldManager"):
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required "
                "for apply patch"
            )
        content = decode_body(request)
        for name, wanted in (("apiVersion", resource.group_version), ("kind", resource.kind)):
            if content.get(name) != wanted:
                raise bad_request(f"invalid object type: {name} must be {wanted}")
        if content.get("metadata", {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        manager = request.query["fieldManager"]
        if old is None:
            if at.subresource:
                raise errors.not_found(resource.subject(at.name))
            content["metadata"] = {**content.get("metadata", {}), "name": at.name}
            return self._store_new(request, resource, at.key, content, manager=manager)
        owner = Manager(manager, "Apply", resource.group_version, at.subresource)
        if at.subresource == "status":
            content = {
                k: v
                for k, v in content.items()
                if k in ("apiVersion", "kind", "metadata", "status")
            }
        elif "status" in resource.subresources:
            content = {k: v for k, v in content.items() if k != "status"}
        stated = content.get("metadata", {})
        is_forced = request.query.get("force") in ("1", "true")
        merged = apply.apply(
            old, content, owner, self.shape(resource), self.timestamp(), is_forced=is_forced
        )
        if stated.get("resourceVersion"):
            merged["metadata"]["resourceVersion"] = stated["resourceVersion"]
        entries = merged["metadata"].pop("managedFields", [])
        return self._replace(request, resource, at, old, merged, entries=entries)

    # --- deletion ------------------------------------------------------------------------------

    def _delete(self, request: Request, resource: Resource, at: Address) -> Answer:
        options = decode_body(request) if request.body else {}
        for name in ("gracePeriodSeconds", "propagationPolicy"):
            if name in request.query:
                value = request.query[name]
                options[name] = int(value) if name.startswith("grace") else value
        is_dry_run = request.is_dry_run or bool(options.get("dryRun"))
        old = self._find(resource, at.key)
        subject = resource.subject(at.name)
        for name, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = (options.get("preconditions") or {}).get(name)
            if wanted and wanted != old["metadata"][name]:
                raise errors.precondition(subject, word, wanted, old["metadata"][name])
        self._admit(Attempt(
            "DELETE", resource, "", at.key, None, old, request.user, is_dry_run
        ))  # fmt: skip
        if is_dry_run:
            return Answer(200, self._deleted_answer(resource, old))
        left = self.delete(
            resource, at.key, options.get("gracePeriodSeconds"), options.get("propagationPolicy")
        )
        return Answer(200, left if left is not None else self._deleted_answer(resource, old))

    def delete(
        self,
        resource: Resource,
        key: Key,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> Object | None:
        """Delete an object; return it while finalizers or its grace keep it, else None."""
        old = self._find(resource, key)
        meta = dict(old["metadata"])
        finalizers = [f for f in meta.get("finalizers") or () if f not in _PROPAGATION.values()]
        if propagation in _PROPAGATION:
            finalizers.append(_PROPAGATION[propagation])
        if finalizers != list(meta.get("finalizers") or ()):
            meta["finalizers"] = finalizers
            if not finalizers:
                del meta["finalizers"]
        behaviour = self.behaviours.get(resource.path)
        grace = behaviour.grace_seconds(old, grace_seconds) if behaviour is not None else 0
        is_kept = bool(finalizers) or grace > 0 or self._holds_content(resource, old)
        if not is_kept:
            self.store.write(resource.path, key, None)
            return None
        was_leaving = bool(meta.get("deletionTimestamp"))
        if not was_leaving or (
            behaviour is not None and grace < int(meta.get("deletionGracePeriodSeconds") or 0)
        ):
            meta["deletionTimestamp"] = self.timestamp(grace)
            meta["deletionGracePeriodSeconds"] = grace
            if "generation" in meta and not was_leaving:
                meta["generation"] = int(meta["generation"]) + 1
        new = {**old, "metadata": meta}
        if resource.path == _NAMESPACES:
            new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
        return old if apply.is_same(old, new) else self.store.write(resource.path, key, new)

    def _delete_all(self, request: Request, resource: Resource, at: Address) -> Answer:
        options = decode_body(request) if request.body else {}
        found = self.store.select(resource.path, self._selector(request, resource, at))
        for obj in found:
            key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            self._admit(Attempt(
                "DELETE", resource, "", key, None, obj, request.user, request.is_dry_run
            ))  # fmt: skip
            if not request.is_dry_run:
                self.delete(
                    resource,
                    key,
                    options.get("gracePeriodSeconds"),
                    options.get("propagationPolicy"),
                )
        meta = {"resourceVersion": str(self.store.version)}
        body = {"kind": f"{resource.kind}List", "apiVersion": resource.group_version}
        return Answer(200, {**body, "metadata": meta, "items": found})

    def _may_go(self, resource: Resource, obj: Object) -> bool:
        """Return whether nothing keeps an object any more that is being deleted."""
        meta = obj["metadata"]
        if meta.get("finalizers") or self._holds_content(resource, obj):
            return False
        return int(meta.get("deletionGracePeriodSeconds") or 0) == 0

    @staticmethod
    def _holds_content(resource: Resource, obj: Object) -> bool:
        return resource.path == _NAMESPACES and bool((obj.get("spec") or {}).get("finalizers"))

    def _deleted_answer(self, resource: Resource, old: Object) -> Object:
        details = {
            **resource.subject(old["metadata"]["name"]).details,
            "uid": old["metadata"]["uid"],
        }
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }

    # --- steps of writes -----------------------------------------------------------------------

    def _content(self, request: Request, resource: Resource) -> Object:
        content = decode_body(request)
        if not isinstance(content, dict):
            raise bad_request("the request body is no object")
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

    def _check_fields(self, request: Request, resource: Resource, content: Object) -> list[str]:
        """Refuse unknown fields, or warn of them, as ``fieldValidation`` says."""
        mode = request.query.get("fieldValidation", "Warn")
        schema = self.schema_of(resource)
        if mode == "Ignore" or schema is None or not request.query.get("fieldValidation"):
            return []
        rest = {k: v for k, v in content.items() if k not in ("apiVersion", "kind", "metadata")}
        _, unknown = schemas.prune(rest, schema)
        texts = [f'unknown field "{path}"' for path in unknown]
        if texts and mode == "Strict":
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a '
                f"{resource.kind}: strict decoding error: {', '.join(texts)}"
            )
        return texts

    def schema_of(self, resource: Resource) -> schemas.Schema | None:
        """Return the schema of a kind; None where only its storage is modelled."""
        if resource.schema is not None:
            return resource.schema
        behaviour = self.behaviours.get(resource.path)
        return behaviour.schema if behaviour is not None else None

    def shape(self, resource: Resource) -> Shape:
        """Return how objects of a kind are merged."""
        return Shape(resource.schema)

    def _completed(self, resource: Resource, new: Object, old: Object | None) -> Object:
        """Return ``new`` pruned and with its defaults."""
        schema = self.schema_of(resource)
        if schema is not None:
            rest = {k: v for k, v in new.items() if k not in ("apiVersion", "kind", "metadata")}
            head = {k: v for k, v in new.items() if k in ("apiVersion", "kind", "metadata")}
            if resource.is_custom:
                rest = schemas.with_defaults(rest, schema)
            rest, _ = schemas.prune(rest, schema)
            new = {**head, **rest}
        if (behaviour := self.behaviours.get(resource.path)) is not None:
            new = behaviour.complete(new, old)
        return new

    def _admit(self, attempt: Attempt) -> Object:
        """Return what is to be stored, after admission and validation."""
        obj = attempt.obj
        for mutator in self.mutators:
            if obj is None:
                break
            obj = mutator(_with(attempt, obj))
        attempt = _with(attempt, obj)
        if obj is not None:
            self._validate(attempt, obj)
        for validator in self.validators:
            validator(attempt)
        return obj if obj is not None else {}

    def _validate(self, attempt: Attempt, obj: Object) -> None:
        resource, faults = attempt.resource, Faults()
        if attempt.operation == "CREATE":
            _validate_name(obj["metadata"], faults, is_segment=resource.group == _RBAC)
        _validate_labels(obj["metadata"], faults)
        if resource.schema is not None:
            rest = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
            schemas.validate(rest, resource.schema, faults)
            if not faults.causes:
                self.rules(resource, obj, attempt.old, faults)
        elif (behaviour := self.behaviours.get(resource.path)) is not None:
            behaviour.validate(obj, attempt.old, faults)
        if faults.causes:
            raise errors.invalid(resource.subject(attempt.key[1]), faults.causes)

    def _track(
        self,
        request: Request,
        resource: Resource,
        subresource: str,
        old: Object | None,
        new: Object,
    ) -> Object:
        manager = Manager(request.manager, "Update", resource.group_version, subresource)
        return apply.track(old, new, manager, self.shape(resource), self.timestamp())

    def _require_namespace(self, name: str) -> None:
        found = self.store.get(_NAMESPACES, ("", name))
        if found is None:
            namespaces = errors.Subject("Namespace", "", "namespaces", name)
            raise errors.not_found(namespaces)
        if found["metadata"].get("deletionTimestamp"):
            text = (
                f"unable to create new content in namespace {name} because it is being terminated"
            )
            raise Refusal(403, "Forbidden", text)

    def timestamp(self, later_seconds: float = 0.0) -> str:
        """Return the time, or a later one, as the API writes it."""
        moment = datetime.fromtimestamp(self.now() + later_seconds, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"

    def _uid(self) -> str:
        bits = f"{self.chance.getrandbits(128):032x}"
        return "-".join((bits[:8], bits[8:12], "4" + bits[13:16], "a" + bits[17:20], bits[20:]))


_NAMESPACES: Final = "/api/v1/namespaces"
_RBAC: Final = "rbac.authorization.k8s.io"
_NODES: Final = "/api/v1/nodes"
_PROPAGATION: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
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
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    }
)


def scale_of(obj: Object) -> Object:
    """Return the Scale of an object of a kind whose replicas are at ``spec.replicas``."""
    meta = obj["metadata"]
    replicas = (obj.get("spec") or {}).get("replicas")
    if replicas is None:
        message = 'the spec replicas field ".spec.replicas" does not exist'
        raise Refusal(500, "InternalError", message)
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"replicas": replicas},
        "status": {"replicas": int((obj.get("status") or {}).get("replicas") or 0)},
    }


def _with(attempt: Attempt, obj: Object | None) -> Attempt:
    return replace(attempt, obj=obj)


def decode_body(request: Request) -> Any:
    """Return the object in the body of a request; 400 for one that cannot be read."""
    if not request.body:
        return {}
    if request.content_type == protobuf.CONTENT_TYPE:
        kind = "DeleteOptions" if request.method == "DELETE" else ""
        return protobuf.decode(request.body, kind)
    try:
        if "yaml" in request.content_type:
            return yaml.safe_load(request.body)
        return msgspec.json.decode(request.body)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def _without_meta(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}


def _verb(request: Request, at: Address) -> str:
    if request.method == "GET":
        if request.is_watch:
            return "watch"
        return "get" if at.name else "list"
    if request.method == "DELETE" and not at.name:
        return "deletecollection"
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs.get(request.method, request.method.lower())


def _unauthorized(user: User, verb: str, resource: Resource, at: Address) -> Refusal:
    plural = f"{resource.plural}/{at.subresource}" if at.subresource else resource.plural
    where = f'in the namespace "{at.namespace}"' if at.namespace else "at the cluster scope"
    text = (
        f'User "{user.name}" cannot {verb} resource "{plural}" in API group '
        f'"{resource.group}" {where}'
    )
    return errors.forbidden(resource.subject(at.name), text)


def _table_include(request: Request) -> str | None:
    """Return ``includeObject`` of a request for a Table; None for one for objects."""
    if "as=Table" not in request.accept:
        return None
    return request.query.get("includeObject", "Metadata")


def _partial(obj: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def _validate_name(meta: Object, faults: Faults, *, is_segment: bool) -> None:
    """Add the fault of a name; roles and bindings may have any that is one segment of a path."""
    name = meta["name"]
    if is_segment:
        if name in (".", "..") or "/" in name or "%" in name:
            faults.invalid("metadata.name", name, "may not contain '/' or '%', or be '.' or '..'")
    elif len(name) > 253:
        faults.invalid("metadata.name", name, "must be no more than 253 characters")
    elif not _NAME.fullmatch(name):
        faults.invalid("metadata.name", name, _NAME_WORDS)


def _validate_labels(meta: Object, faults: Faults) -> None:
    for value in (meta.get("labels") or {}).values():
        if not isinstance(value, str):
            faults.invalid("metadata.labels", value, "must be a string")
        elif len(value) > 63:
            faults.invalid("metadata.labels", value, "must be no more than 63 bytes")
        elif not _LABEL_VALUE.fullmatch(value):
            faults.invalid("metadata.labels", value, _LABEL_WORDS)
