"""SchedulingPolicies as they are watched: which one decides, which are shadows.

Of those in stage Active the oldest counts, ties by name, so that nothing anybody adds takes over
from what decides: whoever wants another policy edits that one, or deletes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bireme.core.gangs import Key
from bireme.kube import wire
from bireme.kube.api.scheduling_policy import SchedulingPolicySpec

MOST_SHADOWS: Final = 4
"""Shadows that count: each costs memory, and all share the time that is left over."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """One SchedulingPolicy; ``fault`` says why its spec cannot be read, and is empty if it can."""

    name: str
    uid: str
    generation: int
    resource_version: str
    created: str
    is_shadow: bool
    spec: SchedulingPolicySpec | None
    fault: str
    status: dict[str, Any]

    @property
    def demand(self) -> tuple[str, int]:
        """What the loaded policy depends on: another object or another spec is another policy."""
        return self.uid, self.generation


def from_manifest(manifest: wire.Custom) -> PolicyFacts:
    """The facts of a SchedulingPolicy as it came off the wire."""
    meta = manifest.metadata
    spec, fault = SchedulingPolicySpec.read(manifest.spec)
    return PolicyFacts(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.creation_timestamp or "",
        is_shadow=manifest.spec.get("stage") == "Shadow",
        spec=spec,
        fault=fault,
        status=manifest.status,
    )


class SchedulingPolicies:
    """All of a cluster. ``on_change`` is called when another policy may have to be loaded."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.known: dict[str, PolicyFacts] = {}

    def put(self, key: Key, manifest: wire.Custom) -> None:
        """A SchedulingPolicy appeared or changed; a new status alone changes nothing."""
        before, facts = self.known.get(key[1]), from_manifest(manifest)
        self.known[key[1]] = facts
        if before is None or before.demand != facts.demand:
            self.on_change()

    def delete(self, key: Key, manifest: wire.Custom) -> None:
        """A SchedulingPolicy is gone."""
        if self.known.pop(key[1], None) is not None:
            self.on_change()

    @property
    def active(self) -> PolicyFacts | None:
        """The one that counts; None where the settings do."""
        return min((p for p in self.known.values() if not p.is_shadow), key=_age, default=None)

    @property
    def shadows(self) -> list[PolicyFacts]:
        """The oldest in stage Shadow, at most ``MOST_SHADOWS``, oldest first."""
        return sorted((p for p in self.known.values() if p.is_shadow), key=_age)[:MOST_SHADOWS]


def _age(policy: PolicyFacts) -> tuple[str, str]:
    """Timestamps of one form and time zone: their order as text is that in time."""
    return policy.created, policy.name
