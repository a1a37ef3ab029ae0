"""Memory of the API server: objects with versions, and their history for watches.

One counter versions everything, as in etcd. Objects are plain dictionaries that are replaced, never
edited, so that history and open pages can share them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bireme_lab.embedded.api.errors import ApiRefusal, Object
from bireme_lab.embedded.api.object_selectors import Selector

Key = tuple[str, str]
"""Namespace, empty for cluster-scoped kinds, and name."""
_MAX_HISTORY: Final = 100_000
"""Changes of one collection that watches can go back, about a minute of the largest demo."""


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One step of history; ``old`` and ``new`` are None at creation and deletion."""

    version: int
    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        """The object as it is now, or was before its deletion."""
        return self.new or self.old or {}


@dataclass(slots=True)
class Collection:
    """All objects of one resource in all namespaces.

    Attributes:
        oldest_version: Watches from before this version get 410.
        subscribers: Functions that are called with every change, in order.
    """

    objects: dict[Key, Object] = field(default_factory=dict)
    history: deque[StoreChange] = field(default_factory=deque)
    oldest_version: int = 0
    subscribers: list[Callable[[StoreChange], None]] = field(default_factory=list)

    def since(self, version: int) -> Iterator[StoreChange]:
        """Yield the changes after ``version``; 410 where history does not go back so far."""
        if version < self.oldest_version:
            message = f"too old resource version: {version} ({self.oldest_version})"
            raise ApiRefusal(410, "Expired", message)
        for change in self.history:
            if change.version > version:
                yield change


class Store:
    """Every collection, by the path of its resource, such as ``/api/v1/pods``."""

    def __init__(self) -> None:
        self.version = 1
        self._collections: dict[str, Collection] = {}

    def collection(self, path: str) -> Collection:
        """Return the collection of a resource, made where there is none."""
        if path not in self._collections:
            self._collections[path] = Collection(oldest_version=self.version)
        return self._collections[path]

    def get(self, path: str, key: Key) -> Object | None:
        """Return the stored object; nobody may edit it."""
        return self.collection(path).objects.get(key)

    def select(self, path: str, selector: Selector) -> list[Object]:
        """Return the objects that ``selector`` accepts, by namespace and name."""
        objects = self.collection(path).objects
        return [objects[key] for key in sorted(objects) if selector(objects[key])]

    def write(self, path: str, key: Key, new: Object | None) -> Object:
        """Replace, add or (None) remove an object; return it with its version."""
        collection = self.collection(path)
        old = collection.objects.get(key)
        self.version += 1
        version = str(self.version)
        if new is not None:
            new = {**new, "metadata": {**new["metadata"], "resourceVersion": version}}
            collection.objects[key] = new
        elif old is not None:
            del collection.objects[key]
            # A DELETED event has the version of the deletion, as in etcd.
            old = {**old, "metadata": {**old["metadata"], "resourceVersion": version}}
        change = StoreChange(self.version, old, new)
        collection.history.append(change)
        while len(collection.history) > _MAX_HISTORY:
            collection.oldest_version = collection.history.popleft().version
        for subscriber in tuple(collection.subscribers):
            subscriber(change)
        return new or old or {}
