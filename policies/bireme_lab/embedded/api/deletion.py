"""Deletions: of one object or of all that a selector finds, with grace and finalizers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bireme_lab.embedded.api import apply, bodies, errors
from bireme_lab.embedded.api.admission import Admission, Attempt
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.reading import StoreReader
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest, RequestPath
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.store import Key, Store

_NAMESPACES: Final = "/api/v1/namespaces"
_PROPAGATION: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


@dataclass(eq=False)
class Deleter:
    """Deletes out of a store; ``timestamp`` returns the time so many seconds from now."""

    store: Store
    reader: StoreReader
    admission: Admission
    timestamp: Callable[[float], str]

    def delete_one(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        options = bodies.decode_options(request)
        is_dry_run = request.is_dry_run or bool(options.get("dryRun"))
        old = self.reader.find(resource, target.key)
        subject = resource.subject(target.name)
        for name, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            stated = (options.get("preconditions") or {}).get(name)
            if stated and stated != old["metadata"][name]:
                raise errors.precondition(subject, word, stated, old["metadata"][name])
        self.admission.admit(Attempt(
            "DELETE", resource, "", target.key, None, old, request.user, is_dry_run
        ))  # fmt: skip
        if is_dry_run:
            return ApiAnswer(200, self._deleted_answer(resource, old))
        remaining = self.delete(
            resource,
            target.key,
            options.get("gracePeriodSeconds"),
            options.get("propagationPolicy"),
        )
        return ApiAnswer(
            200, remaining if remaining is not None else self._deleted_answer(resource, old)
        )

    def delete(
        self,
        resource: ResourceKind,
        key: Key,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> Object | None:
        """Delete an object; return it while finalizers or its grace keep it, else None."""
        old = self.reader.find(resource, key)
        meta = dict(old["metadata"])
        finalizers = list(meta.get("finalizers") or ())
        if propagation:
            finalizers = [f for f in finalizers if f not in _PROPAGATION.values()]
        if propagation in _PROPAGATION:
            finalizers.append(_PROPAGATION[propagation])
        if finalizers != list(meta.get("finalizers") or ()):
            meta["finalizers"] = finalizers
            if not finalizers:
                del meta["finalizers"]
        behaviour = self.admission.behaviours.get(resource.path)
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

    def delete_all(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        options = bodies.decode_options(request)
        objects = self.store.select(resource.path, self.reader.selector(request, resource, target))
        for obj in objects:
            key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            self.admission.admit(Attempt(
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
        return ApiAnswer(200, {**body, "metadata": meta, "items": objects})

    def may_go(self, resource: ResourceKind, obj: Object) -> bool:
        """Return whether nothing keeps an object any more that is being deleted."""
        meta = obj["metadata"]
        if meta.get("finalizers") or self._holds_content(resource, obj):
            return False
        return int(meta.get("deletionGracePeriodSeconds") or 0) == 0

    @staticmethod
    def _holds_content(resource: ResourceKind, obj: Object) -> bool:
        return resource.path == _NAMESPACES and bool((obj.get("spec") or {}).get("finalizers"))

    def _deleted_answer(self, resource: ResourceKind, old: Object) -> Object:
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
