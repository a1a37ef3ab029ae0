"""Answer requests out of a :class:`~testbed.fakeapi.store.Store`, whatever carries them.

HTTP and the simulated network only carry bytes.
"""

import base64
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonpatch
import msgspec

from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.patches import merge
from bireme_lab.embedded.api.requests import ApiUser
from bireme_lab.embedded.cel.policies import judge
from bireme_lab.embedded.cel.requests import AdmissionRequest, Check, Surroundings
from testbed.cel.tickets import ticket_policies
from testbed.fakeapi.store import (
    Change,
    Collection,
    Key,
    Object,
    Selector,
    Store,
)


class Feed:
    """Turns changes into the lines of one watch; ``put`` takes them, and None as the end."""

    def __init__(
        self, selector: Selector, put: Callable[[bytes | None], None], *, bookmarks: bool
    ) -> None:
        self._selector = selector
        self._put = put
        self._bookmarks = bookmarks

    def change(self, change: Change) -> None:
        """Queue the event that this change is to a watcher with this selector."""
        before = change.before is not None and self._selector(change.before)
        after = change.after is not None and self._selector(change.after)
        if after:
            self._event("MODIFIED" if before else "ADDED", change.after)
        elif before:
            left = change.before or {}
            meta = {**left["metadata"], "resourceVersion": str(change.version)}
            self._event("DELETED", {**left, "metadata": meta})

    def bookmark(self, version: int) -> None:
        """Queue a bookmark, if this watch asked for them."""
        if self._bookmarks:
            self._event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def error(self, code: int, reason: str, message: str) -> None:
        """Queue an in-stream error and the end of the stream, as the real server does."""
        self._event("ERROR", {"code": code, "reason": reason, "message": message})
        self.end()

    def end(self) -> None:
        self._put(None)

    def send(self, line: bytes) -> None:
        self._put(line + b"\n")

    def _event(self, type_: str, obj: Object | dict[str, Any] | None) -> None:
        self.send(msgspec.json.encode({"type": type_, "object": obj}))


# --- the scale subresource ----------------------------------------------------------------
#
# As API server 1.37 does it for custom resources: a merge patch takes ``spec.replicas`` over from
# anybody. A server-side apply without force is refused with the names of the owners where it would
# change what others set, and answered with 500 where it would go through.

_FIELD: Object = {"f:spec": {"f:replicas": {}}}
_CREATOR: Object = {"manager": "kubectl-create", "operation": "Update", "fieldsV1": _FIELD}


def owner(manager: str, operation: str = "Update", subresource: str = "") -> Object:
    """Return an entry of ``metadata.managedFields`` for the replicas."""
    entry: Object = {"manager": manager, "operation": operation, "fieldsV1": _FIELD}
    return entry | ({"subresource": subresource} if subresource else {})


def scale_of(found: Object) -> Object:
    replicas = (found.get("spec") or {}).get("replicas")
    if replicas is None:
        raise ApiRefusal(
            500, "InternalError", 'the spec replicas field ".spec.replicas" does not exist'
        )
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {name: found["metadata"][name] for name in kept if name in found["metadata"]},
        "spec": {"replicas": replicas},
        "status": {"replicas": 0},
    }


def patch_scale(
    store: Store, resource: str, key: Key, query: Mapping[str, str], content: Any, *, applies: bool
) -> Object:
    old = store.get(resource, key)
    wanted, manager = content["spec"]["replicas"], query["fieldManager"]
    if applies:
        _try_apply(old, wanted)
    meta = {**old["metadata"], "managedFields": [owner(manager, subresource="scale")]}
    meta["resourceVersion"] = content.get("metadata", {}).get(
        "resourceVersion", meta["resourceVersion"]
    )
    new = {**old, "metadata": meta, "spec": {**old["spec"], "replicas": wanted}}
    return scale_of(store.update(resource, key, new))


def _try_apply(old: Object, wanted: int) -> None:
    owners = old["metadata"].get("managedFields", [_CREATOR])
    if owners and wanted != old["spec"]["replicas"]:
        conflicts = "".join(f"\n{_conflict(entry)}:\n- .spec.replicas" for entry in owners)
        raise ApiRefusal(409, "Conflict", f"Apply failed with {len(owners)} conflicts:{conflicts}")
    raise ApiRefusal(500, "Unknown", "failed to convert live object to proper version")


def _conflict(entry: Object) -> str:
    by = f' with subresource "{entry["subresource"]}"' if "subresource" in entry else ""
    using = " using autoscaling/v1" if entry["operation"] == "Update" else ""
    return f'conflict with "{entry["manager"]}"{by}{using}'


# --- evictions ----------------------------------------------------------------------------
#
# ``status.disruptionsAllowed`` of a budget counts down with every pod; raising it again is up to
# the test, in place of the controller. Selectors know ``matchLabels`` alone.

PODS = "/api/v1/pods"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def evict(store: Store, pod: Key, eviction: Object) -> Object:
    """Delete ``pod`` if its uid is the one asked for and no budget forbids it (429)."""
    found = store.get(PODS, pod)
    options = eviction.get("deleteOptions") or {}
    if found.get("status", {}).get("phase") == "Running":
        covering = [key for key in store.collection(BUDGETS).objects if _covers(store, key, found)]
        if len(covering) > 1:
            raise ApiRefusal(500, "InternalError", "This pod has more than one PodDisruptionBudget")
        for budget in covering:
            _spend(store, budget)
    wanted = options.get("preconditions") or {}
    if wanted.get("uid", found["metadata"]["uid"]) == found["metadata"]["uid"]:
        status = merge_conditions(found.get("status") or {}, {"conditions": [_EVICTED]})
        store.update(PODS, pod, {"status": status}, "status")
    store.delete(PODS, pod, wanted, options.get("gracePeriodSeconds"))
    return {"kind": "Status", "apiVersion": "v1", "status": "Success"}


def merge_conditions(old: Object, patch: Object) -> Object:
    """Merge a status as a strategic patch does: conditions by their type, all else as ever."""
    by_type = {each["type"]: each for each in old.get("conditions") or ()}
    by_type |= {each["type"]: each for each in patch.get("conditions") or ()}
    return {**merge(old, patch), "conditions": list(by_type.values())}


_EVICTED: Object = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def _covers(store: Store, budget: Key, pod: Object) -> bool:
    wanted: dict[str, str] = store.get(BUDGETS, budget)["spec"]["selector"]["matchLabels"]
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    is_beside = bool(budget[0] == pod["metadata"]["namespace"])
    return is_beside and wanted.items() <= labels.items()


def _spend(store: Store, budget: Key) -> None:
    status = store.get(BUDGETS, budget).get("status") or {}
    allowed = int(status.get("disruptionsAllowed") or 0)
    if allowed < 1:
        message = "Cannot evict pod as it would violate the pod's disruption budget."
        raise ApiRefusal(429, "TooManyRequests", message)
    spent = {"status": {**status, "disruptionsAllowed": allowed - 1}}
    store.update(BUDGETS, budget, spent, "status")


# --- TokenReview --------------------------------------------------------------------------
#
# A token has the form of a ServiceAccount token. Its signature is a word, so that tests can forge
# one; it is good as long as the pod with this uid exists.

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TICKETS = "/apis/bireme.dev/v1alpha1/tickets"
_REVIEWS = {REVIEWS, ACCESS_REVIEWS, SELF_REVIEWS}
_MAX_PAGES = 64
_SIGNED = "signed"


def token_of(pod: Object, *audiences: str, signature: str = _SIGNED) -> str:
    """Return a token for ``audiences``, bound to ``pod`` as it is stored."""
    meta = pod["metadata"]
    bound = {
        "namespace": meta["namespace"],
        "pod": {"name": meta["name"], "uid": meta["uid"]},
        "serviceaccount": {"name": "default"},
    }
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (
            msgspec.json.encode({"alg": "RS256"}),
            msgspec.json.encode({"aud": list(audiences), "kubernetes.io": bound}),
            signature.encode(),
        )
    )


def review(store: Store, asked: Object) -> Object:
    spec = asked["spec"]
    return {**asked, "status": _verdict(store, spec["token"], spec.get("audiences") or [])}


def _verdict(store: Store, token: str, wanted: Sequence[str]) -> Object:
    _, payload, signature = (_decoded(part) for part in token.split("."))
    claims = msgspec.json.decode(payload)
    bound = claims["kubernetes.io"]
    name, uid = bound["pod"]["name"], bound["pod"]["uid"]
    pod = store.collection(PODS).objects.get((bound["namespace"], name))
    shared = [audience for audience in claims["aud"] if audience in wanted]
    is_good = pod is not None and pod["metadata"]["uid"] == uid and shared
    if signature.decode() != _SIGNED or not is_good:
        return {"authenticated": False, "user": {}, "error": "[invalid bearer token]"}
    return {
        "authenticated": True,
        "audiences": shared,
        "user": {
            "username": f"system:serviceaccount:{bound['namespace']}:default",
            "extra": {
                "authentication.kubernetes.io/pod-name": [name],
                "authentication.kubernetes.io/pod-uid": [uid],
            },
        },
    }


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


# --- requests -----------------------------------------------------------------------------

_GROUP = r"/api/v1|/apis/[^/]+/[^/]+"
_PATH = re.compile(
    rf"(?P<prefix>{_GROUP})(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?"
    r"(?:/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?)?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Parts of a request path; empty strings for those it leaves out."""

    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def is_group(self) -> bool:
        return re.fullmatch(_GROUP, self.resource) is not None


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    at: Address
    query: Mapping[str, str]
    content_type: str = "application/json"
    body: bytes = b""
    accept: str = ""


def address(path: str) -> Address:
    """Take a request path apart, e.g. ``/api/v1/namespaces/a/pods/p/status``."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")
    part = found.groupdict(default="")
    resource = f"{part['prefix']}/{part['plural']}" if part["plural"] else part["prefix"]
    return Address(resource, part["namespace"], part["name"], part["subresource"])


def _no_rights(user: ApiUser, check: Check) -> bool:
    raise LookupError(f"the fake API server has no rights of {user.name}: {dict(check)}")


def _no_objects(kind: str, namespace: str) -> list[Object]:
    raise LookupError(f"the fake API server gives policies no {kind} of {namespace}")


class Answers:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.documents: dict[str, Object] = {}
        """Discovery documents by path."""
        self.counts_remaining = True
        """Lists give the number of items that follow a page."""
        self.readers: dict[str, set[str]] = {}
        """By user, where they may list; "" for everywhere."""
        self.creators: dict[str, set[str]] = {}
        """The same of where they may create."""
        self.user: dict[str, Any] = {"username": "ann", "groups": ["readers"]}
        """Whose every request is."""
        self.policies: Sequence[Object] = ticket_policies()
        """Admission policies and bindings, which judge creations; none may ask the authorizer."""
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._tokens = itertools.count(1)

    def forget_pages(self) -> None:
        self._pages.clear()

    def answer(self, call: Call) -> tuple[int, Object]:
        """Return HTTP status and body, or raise a Refusal."""
        at, store = call.at, self.store
        if at.is_group:
            return 200, self._document(at.resource)
        if call.method == "GET" and at.subresource == "scale":
            return 200, scale_of(store.get(at.resource, at.key))
        if call.method == "GET":
            return 200, store.get(at.resource, at.key) if at.name else self._list(call)
        content = msgspec.json.decode(call.body) if call.body else {}
        match call.method:
            case "POST" if at.subresource == "eviction":
                return 201, evict(store, at.key, content)
            case "POST" if at.resource in _REVIEWS:
                return 201, self._review(at.resource, content)
            case "POST":
                self._judge(at, content)
                # Kinds with a status subresource ignore a status at creation.
                content.pop("status", None)
                key = (at.namespace, content.get("metadata", {}).get("name", ""))
                tried = call.query.get("dryRun") == "All"
                return 201, store.create(at.resource, key, content, dry_run=tried)
            case "PUT":
                return 200, store.update(at.resource, at.key, content, at.subresource)
            case "PATCH":
                return self._patch(call, content)
            case "DELETE":
                wanted, grace = content.get("preconditions", {}), content.get("gracePeriodSeconds")
                return 200, store.delete(at.resource, at.key, wanted, grace)
        raise ApiRefusal(405, "MethodNotAllowed", f"{call.method} is not supported")

    def _review(self, resource: str, content: Object) -> Object:
        if resource == SELF_REVIEWS:
            return {**content, "status": {"userInfo": self.user}}
        if resource == ACCESS_REVIEWS:
            return {**content, "status": {"allowed": self._may(content["spec"])}}
        return review(self.store, content)

    def _judge(self, at: Address, content: Object) -> None:
        """Raise a Refusal where a policy denies the creation of ``content``."""
        prefix, _, resource = at.resource.rpartition("/")
        *_, group, version = prefix.split("/")
        request = AdmissionRequest(
            operation="CREATE",
            group="" if group == "api" else group,
            version=version,
            resource=resource,
            kind=content.get("kind", ""),
            namespace=at.namespace,
            name=content.get("metadata", {}).get("name", ""),
            user=ApiUser(
                self.user["username"],
                tuple(self.user.get("groups", ())),
                self.user.get("uid", ""),
                self.user.get("extra", {}),
            ),
            object=content,
        )
        namespaces = {at.namespace: {"metadata": {"name": at.namespace}}}
        judge(self.policies, request, Surroundings(namespaces, _no_rights, _no_objects))

    def _may(self, spec: Object) -> bool:
        asked = spec["resourceAttributes"]
        where = asked.get("namespace", "")
        kind = {"group": "bireme.dev", "resource": "trainingjobs", "namespace": where}
        known = {"list": self.readers, "create": self.creators}.get(asked["verb"], {})
        is_known = {**asked, "namespace": where} == {**kind, "verb": asked["verb"]}
        return is_known and bool(known.get(spec["user"], set()) & {"", where})

    def _document(self, path: str) -> Object:
        if path not in self.documents:
            raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")
        return self.documents[path]

    def _patch(self, call: Call, content: Any) -> tuple[int, Object]:
        """Apply a patch of one of three kinds; server-side apply is a merge that may create."""
        at = call.at
        applies = call.content_type == "application/apply-patch+yaml"
        if applies and "fieldManager" not in call.query:
            raise ApiRefusal(400, "BadRequest", "fieldManager is required for apply patch")
        if at.subresource == "scale":
            query = call.query
            return 200, patch_scale(
                self.store, at.resource, at.key, query, content, applies=applies
            )
        if applies and at.key not in self.store.collection(at.resource).objects:
            return 201, self.store.create(at.resource, at.key, content)
        old = self.store.get(at.resource, at.key)
        if call.content_type == "application/json-patch+json":
            try:
                new = json_patched(old, content)
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
                raise ApiRefusal(422, "Invalid", f"cannot apply {content}: {error}") from error
        else:
            new = merge(old, content)
            if call.content_type == "application/strategic-merge-patch+json":
                new["status"] = merge_conditions(old.get("status") or {}, content["status"])
                wanted, uid = content["metadata"]["uid"], old["metadata"]["uid"]
                if wanted != uid:
                    raise ApiRefusal(422, "Invalid", f"metadata.uid: {wanted}: field is immutable")
        return 200, self.store.update(at.resource, at.key, new, at.subresource)

    def _list(self, call: Call) -> Object:
        """Return one page, cut from the state that the first page saw."""
        token = call.query.get("continue")
        if token is not None:
            if token not in self._pages:
                raise ApiRefusal(410, "Expired", "The provided continue parameter is too old")
            version, rest = self._pages[token]  # a client may ask again, for fewer
        else:
            selected = Selector.from_query(call.query, call.at.resource, call.at.namespace)
            objects = self.store.collection(call.at.resource).objects
            version = self.store.version
            rest = [objects[key] for key in sorted(objects) if selected(objects[key])]
        limit = int(call.query.get("limit", 0)) or len(rest)
        metadata: Object = {"resourceVersion": str(version)}
        if len(rest) > limit:
            metadata["continue"] = f"page-{next(self._tokens)}"
            self._pages[metadata["continue"]] = version, rest[limit:]
            if len(self._pages) > _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            if self.counts_remaining:
                metadata["remainingItemCount"] = len(rest) - limit
        items = rest[:limit]
        if "as=PartialObjectMetadataList" in call.accept:
            items = [{"metadata": item["metadata"]} for item in items]
        return {"kind": "List", "metadata": metadata, "items": items}


def json_patched(old: Object, operations: Sequence[Object]) -> Object:
    """Apply a JSON patch as the API server does: a test for null holds where there is nothing."""

    def holds(test: Object) -> bool:
        is_null = test["op"] == "test" and test["value"] is None
        return is_null and jsonpatch.JsonPointer(test["path"]).resolve(old, None) is None

    patched: Object = jsonpatch.apply_patch(old, [each for each in operations if not holds(each)])
    return patched


def replay(collection: Collection, since: int, feed: Feed) -> None:
    """Feed the history after ``since``, or the in-stream 410 of the real server."""
    if since < collection.oldest_version:
        feed.error(410, "Expired", f"too old resource version: {since}")
        return
    for change in collection.history:
        if change.version > since:
            feed.change(change)


def status_object(status: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "code": status, "reason": reason, "message": message}
