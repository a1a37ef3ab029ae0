"""Reads the two objects that state who leads: one Lease per release, and the ClusterClaim.

Their content may come from somebody else or from an old backup. So numbers beyond their bounds
count as absent, and dates are not read here at all. A duration above its bound counts as the bound:
its holder may trust it for longer, and so long it is waited for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme.kube.conditions import cleaned

CLAIM_NAME: Final = "bireme"
"""Name of the one ClusterClaim."""
MAX_LEASE_SECONDS: Final = 60
"""The longest lease of a leader: nobody waits longer for one that is silent."""
MAX_TRANSITIONS: Final = 1_000_000_000
"""Far below 2**31, the end of what a Lease can count."""
_MAX_NAME: Final = 317
"""Characters of a holder that are shown."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The content of one of the two objects.

    Attributes:
        namespace: Of the release of the holder.
        holder: Identity of a process; empty when nobody holds it.
        seconds: The time that the holder asks others to wait, up to the bound; None if it is none.
        transitions: Count of leaders; None if it is out of bounds.
        faults: Sentences about fields that are out of bounds.
    """

    namespace: str
    holder: str
    seconds: int | None
    transitions: int | None
    faults: tuple[str, ...] = ()


def lease_statement(namespace: str, name: str, spec: Mapping[str, Any]) -> Statement:
    """Return what a Lease of a release states."""
    fields = ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")
    return _bounded(f"Lease {namespace}/{name}", namespace, spec, fields)


def claim_statement(spec: Mapping[str, Any]) -> Statement:
    """Return what the ClusterClaim states."""
    fields = ("holder", "durationSeconds", "transitions")
    return _bounded(f"ClusterClaim {CLAIM_NAME}", _text(spec.get("namespace")), spec, fields)


def _bounded(
    title: str, namespace: str, spec: Mapping[str, Any], fields: tuple[str, str, str]
) -> Statement:
    """Return the statement of the ``fields`` for holder, seconds and transitions."""
    holder, seconds, transitions = (spec.get(name) for name in fields)
    faults = []

    def number(name: str, value: object, least: int, most: int) -> int | None:
        if value is None:
            return None
        # A bool is an int in Python, and 15.0 is none in Kubernetes.
        if type(value) is int and least <= value <= most:
            return value
        text = cleaned(str(value))[:40]
        if type(value) is int and value > most and name == fields[1]:
            faults.append(f"{name} of {title} is {text}, and counts as {most}, the most")
            return most
        faults.append(f"{name} of {title} is {text}, not {least} to {most}, and is not counted")
        return None

    return Statement(
        namespace,
        _text(holder),
        number(fields[1], seconds, 1, MAX_LEASE_SECONDS),
        number(fields[2], transitions, 0, MAX_TRANSITIONS),
        tuple(faults),
    )


def _text(value: object) -> str:
    """Return a name off the wire as it can be shown."""
    return cleaned(str(value))[:_MAX_NAME] if value else ""
