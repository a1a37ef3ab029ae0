"""Requests of pods and offers of nodes, as exact fractions, by Kubernetes' own rule.

Written anew on purpose: a checker that shared Bireme's arithmetic would share its mistakes.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

Amounts = dict[str, Fraction]
GPU: Final = "nvidia.com/gpu"
PODS: Final = "pods"
_QUANTITY: Final = re.compile(
    r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(n|u|m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?"
)
_SMALL: Final = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
_LARGE: Final = ("", "k", "M", "G", "T", "P", "E")


@lru_cache(maxsize=1024)
def amount(quantity: str) -> Fraction:
    """Return the value of a Kubernetes quantity, or raise a ValueError that shows it."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f'quantity {quantity!r}: write digits with a suffix, as in "500m", "8Gi"')
    number, suffix = Fraction(match[1]), match[2] or ""
    if suffix in _SMALL:
        return number * _SMALL[suffix]
    if suffix.endswith("i"):
        return number * Fraction(1024 ** _LARGE.index(suffix[0].replace("K", "k")))
    return number * Fraction(1000 ** _LARGE.index(suffix))


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    return {name: amount(str(value)) for name, value in (quantities or {}).items()}


def total(parts: Iterable[Amounts]) -> Amounts:
    result: Amounts = {}
    for part in parts:
        for name, value in part.items():
            result[name] = result.get(name, Fraction(0)) + value
    return result


def request_of(spec: Mapping[str, Any]) -> Amounts:
    """Return the request of a pod of this spec, itself (``pods``) included."""
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = total([running, _asked(container.get("resources"))])
        peak = _larger(peak, asked)
        if container.get("restartPolicy") == "Always":  # a sidecar: it stays
            running = asked
    running = total([running, *(_asked(c.get("resources")) for c in spec["containers"])])
    together = {**_larger(peak, running), **_asked(spec.get("resources"))}
    return total([together, amounts(spec.get("overhead")), {PODS: Fraction(1)}])


def shown(value: Fraction) -> str:
    return f"{float(value):.6g}"


def _asked(resources: Mapping[str, Any] | None) -> Amounts:
    given = resources or {}
    return {**amounts(given.get("limits")), **amounts(given.get("requests"))}


def _larger(left: Amounts, right: Amounts) -> Amounts:
    zero = Fraction(0)
    return {name: max(left.get(name, zero), right.get(name, zero)) for name in {**left, **right}}
