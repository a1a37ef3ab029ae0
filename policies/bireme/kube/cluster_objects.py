"""Facts of cluster-scoped objects that administrators write, and a watch cache of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from bireme.core.gangs import Key
from bireme.kube import wire
from bireme.kube.api.base import ApiModel

S = TypeVar("S", bound=ApiModel)


@dataclass(frozen=True, slots=True)
class ClusterFacts(Generic[S]):
    """One object; ``fault`` is the error of an unreadable spec, else empty."""

    name: str
    uid: str
    generation: int
    resource_version: str
    created: str
    spec: S | None
    fault: str
    status: dict[str, Any]

    @classmethod
    def read(cls, manifest: wire.CustomObject, model: type[S], **more: Any) -> Self:
        """Return the facts of an object whose spec is a ``model``."""
        meta = manifest.metadata
        spec, fault = model.read(manifest.fields)
        return cls(
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            resource_version=meta.resource_version,
            created=meta.creation_timestamp or "",
            spec=spec,
            fault=fault,
            status=manifest.status,
            **more,
        )

    @property
    def demand(self) -> tuple[str, int]:
        """Key of the spec: uid and generation. A change of the status does not change it."""
        return self.uid, self.generation

    @property
    def age(self) -> tuple[str, str]:
        """Sort key: oldest first, ties by name."""
        return self.created, self.name  # timestamps of one format and zone sort as text


F = TypeVar("F", bound=ClusterFacts[Any])


class ClusterObjects(Generic[F]):
    """Objects of one kind by name; ``on_change`` is called when one is created, edited, deleted."""

    read: Callable[[wire.CustomObject], F]

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.known: dict[str, F] = {}
        self.on_change = on_change

    def put(self, key: Key, manifest: wire.CustomObject) -> None:
        previous, facts = self.known.get(key[1]), self.read(manifest)
        self.known[key[1]] = facts
        # The operator writes the status: a change of it must not trigger the operator again.
        if previous is None or previous.demand != facts.demand:
            self.on_change()

    def delete(self, key: Key) -> None:
        if self.known.pop(key[1], None) is not None:
            self.on_change()
