"""The garbage collector: dependents go after their owners, or lose the reference to them."""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue
from bireme_lab.embedded.objects import is_leaving, key_of, object_path

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"


@dataclass(eq=False)
class GarbageCollector:
    """Follows every kind that is served; runs as a task of the cluster's loop."""

    client: Client
    work: KeyQueue[tuple[str, Key]] = field(init=False)
    _owned: dict[str, set[tuple[str, Key]]] = field(default_factory=dict)
    """By uid of an owner, its dependents: path and key."""
    _alive: dict[str, tuple[str, Key]] = field(default_factory=dict)
    _followed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.work = KeyQueue(self._sync)

    def start(self) -> None:
        """Follow the kinds that are served now, and again when it is called again."""
        for resource in list(self.client.api.resources):
            if resource.path not in self._followed and not resource.is_create_only:
                self._followed.add(resource.path)
                path = resource.path
                self.client.follow(path, partial(self._changed, path))

    def _changed(self, path: str, change: StoreChange) -> None:
        obj = change.object
        key, uid = key_of(obj), obj["metadata"]["uid"]
        for owner in obj["metadata"].get("ownerReferences") or ():
            if change.new is not None:
                self._owned.setdefault(owner["uid"], set()).add((path, key))
        if change.new is None:
            self._alive.pop(uid, None)
            for dependent in self._owned.pop(uid, ()):
                self.work.add(dependent)
            return
        self._alive[uid] = (path, key)
        meta = change.new["metadata"]
        if meta.get("ownerReferences") or meta.get("deletionTimestamp"):
            self.work.add((path, key))

    def _sync(self, item: tuple[str, Key]) -> None:
        path, key = item
        obj = self.client.get(path, key)
        if obj is None:
            return
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            self._finalize(path, key, obj)
            return
        owners = meta.get("ownerReferences") or []
        living = [owner for owner in owners if owner["uid"] in self._alive]
        if not owners:
            return
        waits = [
            owner
            for owner in living
            if _FOREGROUND in self._finalizers(owner["uid"]) and owner.get("blockOwnerDeletion")
        ]
        if not living or len(waits) == len(living):
            policy = "Foreground" if waits else "Background"
            options = {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": policy}
            self.client.send("DELETE", object_path(path, key), options)
        elif len(living) < len(owners):
            self._write(path, key, {**obj, "metadata": {**meta, "ownerReferences": living}})

    def _finalize(self, path: str, key: Key, obj: Object) -> None:
        """Take the collector's finalizers off an object whose dependents are done with."""
        meta = obj["metadata"]
        finalizers, uid = list(meta.get("finalizers") or ()), meta["uid"]
        dependents = sorted(self._owned.get(uid, ()))
        if _ORPHAN in finalizers:
            for other_path, other in dependents:
                dependent = self.client.get(other_path, other)
                if dependent is None:
                    continue
                refs = dependent["metadata"].get("ownerReferences") or ()
                retained = [ref for ref in refs if ref["uid"] != uid]
                new_meta = {**dependent["metadata"], "ownerReferences": retained}
                self._write(other_path, other, {**dependent, "metadata": new_meta})
            self._owned.pop(uid, None)
            finalizers.remove(_ORPHAN)
        elif _FOREGROUND in finalizers:
            blocking = [
                (p, k)
                for p, k in dependents
                if (owned := self.client.get(p, k)) is not None
                and any(ref["uid"] == uid for ref in owned["metadata"].get("ownerReferences") or ())
            ]
            for place in blocking:
                owned = self.client.get(*place)
                if owned is not None and not is_leaving(owned):
                    self.client.send("DELETE", object_path(*place), {})
            if any(self.client.get(p, k) is not None for p, k in blocking):
                self.work.add_later(0.2, (path, key))
                return
            finalizers.remove(_FOREGROUND)
        else:
            return
        self._write(path, key, {**obj, "metadata": {**meta, "finalizers": finalizers}})

    def _finalizers(self, uid: str) -> list[str]:
        owner = self.client.get(*self._alive[uid]) if uid in self._alive else None
        return list((owner or {"metadata": {}})["metadata"].get("finalizers") or ())

    def _write(self, path: str, key: Key, obj: Object) -> None:
        self.client.send("PUT", object_path(path, key), obj)
