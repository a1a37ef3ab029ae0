"""CEL selectors of devices: evaluate an expression for a device."""

import re
from functools import lru_cache
from typing import Any, Final

from bireme.kube import cel, cel_functions, wire

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LITERAL = re.compile("\"([^\"]*)\"|'([^']*)'")
Facts = tuple[tuple[str, str, str, Any], ...]
"""Kind ("attribute" or "capacity"), domain, name and value of the facts of a device."""
_MAX_LENGTH: Final = 256
# Nested macros repeat a part of the expression without bound; a regular expression can be as slow.
_SLOW: Final = frozenset(("all", "exists", "exists_one", "existsOne", "filter", "map", "matches"))


def is_short(expression: str) -> bool:
    """Return whether ``expression`` is cheap enough for tenants: milliseconds at most."""
    return len(expression) <= _MAX_LENGTH and _SLOW.isdisjoint(_identifiers(expression))


def selects(expression: str, driver: str, device: wire.V1Device) -> bool | None:
    """Return whether ``expression`` is true of ``device``; None if it cannot be evaluated."""
    return is_true(expression, driver, read_by(expression, driver, device))


def read_by(expression: str, driver: str, device: wire.V1Device) -> Facts:
    """Return the facts of ``device`` whose names occur in ``expression``.

    Devices differ in serial numbers, which no selector reads. Without them thousands are equal.
    """
    names = _identifiers(expression)
    facts: list[tuple[str, str, str, Any]] = []
    for name, value in (device.attributes or {}).items():
        domain, _, short_name = name.rpartition("/")
        if short_name in names:
            facts.append(("attribute", domain or driver, short_name, value))
    for name, amount in (device.capacity or {}).items():
        domain, _, short_name = name.rpartition("/")
        if short_name in names:
            facts.append(("capacity", domain or driver, short_name, amount.value))
    return tuple(sorted(facts, key=lambda fact: fact[:3]))


@lru_cache(maxsize=1024)
def _identifiers(expression: str) -> frozenset[str]:
    return frozenset(_ID.findall(expression))


@lru_cache(maxsize=8192)
def is_true(expression: str, driver: str, facts: Facts) -> bool | None:
    """Return whether ``expression`` is true of a device with ``facts``; None as in selects."""
    kinds: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in ("attribute", "capacity")}
    # In Kubernetes a domain without values is an empty map.
    for domain in _literals(expression):
        for domains in kinds.values():
            domains[domain] = {}
    try:
        for kind, domain, name, value in facts:
            read = _attribute if kind == "attribute" else cel_functions.quantity
            kinds[kind].setdefault(domain, {})[name] = read(value)
        device = {
            "driver": driver,
            "attributes": kinds["attribute"],
            "capacity": kinds["capacity"],
            "allowMultipleAllocations": False,
        }
        answer = cel.compile_expression(expression, ("device",)).value({"device": device})
    except ValueError:  # an unknown function, a missing attribute, a version of four numbers
        return None
    return answer if isinstance(answer, bool) else None


@lru_cache(maxsize=1024)
def _literals(expression: str) -> frozenset[str]:
    return frozenset(double or single for double, single in _LITERAL.findall(expression))


def _attribute(value: wire.V1DeviceAttribute) -> Any:
    if value.string is not None:
        return value.string
    if value.boolean is not None:
        return value.boolean
    if value.integer is not None:
        return value.integer
    return cel_functions.semver(value.version or "")
