"""Facts of the kinds that administrators write for the whole cluster, and a watch cache of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from bireme.core.gangs import Key
from bireme.kube import wire
from bireme.kube.api.base import ApiModel

S = TypeVar("S", bound=ApiModel)


@dataclass(frozen=True, slots=True)
class ClusterFacts(Generic[S]):
    """One object; ``fault`` says why its spec is unreadable, empty if it is readable."""

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
        """Key of the spec: uid and generation, which no change of the status changes."""
        return self.uid, self.generation

    @property
    def age(self) -> tuple[str, str]:
        """Sorts the oldest first, ties by name."""
        return self.created, self.name  # timestamps of one form and zone sort as text


F = TypeVar("F", bound=ClusterFacts[Any])


class ClusterObjects(Generic[F]):
    """Objects of one kind by name; ``on_change`` is called when one appears, is edited or goes."""

    read: Callable[[wire.CustomObject], F]

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.known: dict[str, F] = {}
        self.on_change = on_change

    def put(self, key: Key, manifest: wire.CustomObject) -> None:
        before, facts = self.known.get(key[1]), self.read(manifest)
        self.known[key[1]] = facts
        # A new status alone is no change: the operator writes it, and would wake itself for ever.
        if before is None or before.demand != facts.demand:
            self.on_change()

    def delete(self, key: Key) -> None:
        if self.known.pop(key[1], None) is not None:
            self.on_change()
