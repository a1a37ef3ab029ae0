"""Deletions: of one object or of all that a selector finds, with grace and finalizers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bireme_lab.embedded.api import apply, errors
from bireme_lab.embedded.api.admission import Admission, Attempt
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.options import decode_deletion
from bireme_lab.embedded.api.reading import StoreReader
from bireme_lab.embedded.api.requests import ApiAnswer, ApiRequest, RequestPath
from bireme_lab.embedded.api.resources import ResourceKind
from bireme_lab.embedded.api.store import Key, Store

_NAMESPACES: Final = "/api/v1/namespaces"
_PODS: Final = "/api/v1/pods"
_JOBS: Final = "/apis/batch/v1/jobs"
_POLICIES: Final = ("propagationPolicy", "orphanDependents")
_ORPHANS: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
    "to remove them or set propagationPolicy=Orphan to suppress this warning"
)
_PROPAGATION: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


@dataclass(eq=False)
class Deleter:
    """Deletes out of a store.

    Attributes:
        timestamp: Returns the time so many seconds from now.
        warn: Adds a text to the warnings of the answer in the making.
    """

    store: Store
    reader: StoreReader
    admission: Admission
    timestamp: Callable[[float], str]
    warn: Callable[[str], None]

    def delete_one(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        options = decode_deletion(request)
        is_dry_run = bool(options.get("dryRun"))
        options = self._with_policy(resource, options)
        old = self.reader.find(resource, target.key)
        subject = resource.subject(target.name)
        for name, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            stated = (options.get("preconditions") or {}).get(name)
            if stated and stated != old["metadata"][name]:
                raise errors.other_record(subject, word, stated, old["metadata"][name])
        self.admission.admit(Attempt(
            "DELETE", resource, "", target.key, None, old, request.user, is_dry_run
        ))  # fmt: skip
        options = _with_grace(options)
        remaining = self.delete(
            resource,
            target.key,
            options.get("gracePeriodSeconds"),
            options.get("propagationPolicy"),
            is_dry_run=is_dry_run,
        )
        if remaining is None and resource.path == _PODS:
            remaining = self._last_state(old)
        return ApiAnswer(
            200, remaining if remaining is not None else self._deleted_answer(resource, old)
        )

    def delete(
        self,
        resource: ResourceKind,
        key: Key,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        *,
        is_dry_run: bool = False,
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
            if not is_dry_run:
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
        if is_dry_run or apply.is_same(old, new):
            return new
        return self.store.write(resource.path, key, new)

    def _last_state(self, pod: Object) -> Object:
        """Return a pod as it is when it goes."""
        meta = dict(pod["metadata"])
        if not meta.get("deletionTimestamp"):
            meta["generation"] = int(meta.get("generation", 1)) + 1
        meta |= {"deletionTimestamp": self.timestamp(0), "deletionGracePeriodSeconds": 0}
        return {**pod, "metadata": meta}

    def _with_policy(self, resource: ResourceKind, options: Object) -> Object:
        """Return options with what becomes of dependents; those of Jobs stay by default."""
        if resource.path != _JOBS or any(options.get(name) is not None for name in _POLICIES):
            return options
        self.warn(_ORPHANS)
        return {**options, "propagationPolicy": "Orphan"}

    def delete_all(
        self, request: ApiRequest, resource: ResourceKind, target: RequestPath
    ) -> ApiAnswer:
        options = decode_deletion(request)
        is_dry_run = bool(options.get("dryRun"))
        options = self._with_policy(resource, options)
        objects = self.store.select(resource.path, self.reader.selector(request, resource, target))
        for obj in objects:
            key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            self.admission.admit(Attempt(
                "DELETE", resource, "", key, None, obj, request.user, is_dry_run
            ))  # fmt: skip
            if not is_dry_run:
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


def _with_grace(options: Object) -> Object:
    """Return options whose grace is not negative: such a one counts as a second."""
    grace = options.get("gracePeriodSeconds")
    return {**options, "gracePeriodSeconds": 1} if grace is not None and grace < 0 else options
