"""CEL selectors of devices: evaluate an expression for a device.

The first selector imports the library: a cluster without Dynamic Resource Allocation does not pay
for it.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from bireme.kube import wire
from bireme.kube.quantities import parse_quantity

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    # Any failure is due to the expression: an unknown function, a missing attribute.
    try:
        answer = _program(expression)(driver, facts)
    except Exception:  # noqa: BLE001
        return None
    return answer if isinstance(answer, bool) else None


@lru_cache(maxsize=1024)
def _program(expression: str) -> Callable[[str, Facts], Any]:
    """Return a function of driver and facts that evaluates ``expression``."""
    import celpy
    from celpy import celtypes

    class Domains(celtypes.MapType):
        """As in Kubernetes, a domain without values is an empty map."""

        def __getitem__(self, key: Any) -> Any:
            return self.get(key, celtypes.MapType())

    def attribute(value: wire.V1DeviceAttribute) -> Any:
        if value.string is not None:
            return celtypes.StringType(value.string)
        if value.boolean is not None:
            return celtypes.BoolType(value.boolean)
        if value.integer is not None:
            return celtypes.IntType(value.integer)
        return _version(value.version or "")

    def compare(first: Any, second: Any) -> Any:
        return celtypes.IntType((first > second) - (first < second))

    functions: dict[str, Callable[..., Any]] = {
        "quantity": _quantity,
        "semver": _version,
        "compareTo": compare,
        "isGreaterThan": lambda first, second: celtypes.BoolType(first > second),
        "isLessThan": lambda first, second: celtypes.BoolType(first < second),
    }
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression), functions=functions)

    def run(driver: str, facts: Facts) -> Any:
        kinds: dict[str, Any] = {"attribute": Domains(), "capacity": Domains()}
        for kind, domain, name, value in facts:
            key = celtypes.StringType(domain)
            if key not in kinds[kind]:
                kinds[kind][key] = celtypes.MapType()
            cel_value = attribute(value) if kind == "attribute" else _quantity(value)
            kinds[kind][key][celtypes.StringType(name)] = cel_value
        device = celtypes.MapType(
            {
                celtypes.StringType("driver"): celtypes.StringType(driver),
                celtypes.StringType("attributes"): kinds["attribute"],
                celtypes.StringType("capacity"): kinds["capacity"],
                celtypes.StringType("allowMultipleAllocations"): celtypes.BoolType(False),
            }
        )
        answer = program.evaluate({"device": device})
        return bool(answer) if isinstance(answer, celtypes.BoolType) else None

    return run


def _quantity(value: Any) -> Fraction:
    number = value if isinstance(value, int | float) else str(value)
    return Fraction(parse_quantity("capacity", number))


def _version(text: Any) -> tuple[int, int, int]:
    """Return a version of three numbers; any other raises ValueError."""
    major, minor, patch = str(text).split(".")
    return int(major), int(minor), int(patch)
