"""Reads the two objects that name the leader: one Lease per release, and the ClusterClaim.

Anybody may have written their content, or it may come from an old backup. So numbers beyond their
bounds count as absent, and dates are not read at all. A duration above its bound counts as the
bound: the holder may rely on it for longer, but others wait only that long.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bireme.kube.conditions import cleaned

CLAIM_NAME: Final = "bireme"
"""Name of the one ClusterClaim."""
MAX_LEASE_SECONDS: Final = 60
"""The longest lease of a leader: nobody waits longer for a silent leader."""
MAX_TRANSITIONS: Final = 1_000_000_000
"""Far below 2**31, the largest number in a Lease."""
_MAX_NAME: Final = 317
"""Maximum length of a holder's name in messages."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The content of one of the two objects.

    Attributes:
        namespace: Namespace of the holder's release.
        holder: Identity of a process; empty without a holder.
        seconds: Duration of the lease, up to the bound; None if it is invalid.
        transitions: Count of leaders; None if it is out of bounds.
        faults: Sentences about fields that are out of bounds.
    """

    namespace: str
    holder: str
    seconds: int | None
    transitions: int | None
    faults: tuple[str, ...] = ()


def lease_statement(namespace: str, name: str, spec: Mapping[str, Any]) -> Statement:
    """Return the statement of a release's Lease."""
    fields = ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")
    return _statement(f"Lease {namespace}/{name}", namespace, spec, fields)


def claim_statement(spec: Mapping[str, Any]) -> Statement:
    """Return the statement of the ClusterClaim."""
    fields = ("holder", "durationSeconds", "transitions")
    return _statement(f"ClusterClaim {CLAIM_NAME}", _text(spec.get("namespace")), spec, fields)


def _statement(
    title: str, namespace: str, spec: Mapping[str, Any], fields: tuple[str, str, str]
) -> Statement:
    """Return the statement of the ``fields`` for holder, seconds and transitions."""
    holder, seconds, transitions = (spec.get(name) for name in fields)
    faults = []

    def number(name: str, value: object, minimum: int, maximum: int) -> int | None:
        if value is None:
            return None
        # A bool is an int in Python, but not in Kubernetes; 15.0 is no int there either.
        if type(value) is int and minimum <= value <= maximum:
            return value
        text = cleaned(str(value))[:40]
        if type(value) is int and value > maximum and name == fields[1]:
            faults.append(f"{name} of {title} is {text} and counts as the maximum, {maximum}")
            return maximum
        faults.append(
            f"{name} of {title} is {text}, outside {minimum} to {maximum}, and is ignored"
        )
        return None

    return Statement(
        namespace,
        _text(holder),
        number(fields[1], seconds, 1, MAX_LEASE_SECONDS),
        number(fields[2], transitions, 0, MAX_TRANSITIONS),
        tuple(faults),
    )


def _text(value: object) -> str:
    """Return a name off the wire in printable form."""
    return cleaned(str(value))[:_MAX_NAME] if value else ""
