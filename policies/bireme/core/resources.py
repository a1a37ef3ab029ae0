"""Amounts of resources: exact integers by name outside, int64 vectors inside.

Units are fixed per resource: ``cpu`` in millicores, everything else in its base unit (bytes,
devices, pods). A :class:`ResourceAxis` gives every resource of a cluster its column, so that
"fits" is one comparison of arrays. Python integers cannot overflow but int64 can, so amounts
saturate when they enter a vector: what a node offers at 2**46, what a pod asks at 2**47. A pod
that asks for an absurd amount therefore still never fits, and 2**15 of them still do not wrap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Amounts: TypeAlias = Mapping[str, int]
"""Resource name to amount, in the resource's unit."""
Request: TypeAlias = tuple[tuple[str, int], ...]
"""Hashable amounts: sorted (name, amount) pairs, amounts > 0."""
IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
STANDARD = (CPU, MEMORY, PODS, EPHEMERAL_STORAGE)

OFFER_CEILING = 2**46
REQUEST_CEILING = 2**47


def request_of(amounts: Amounts) -> Request:
    """``amounts`` as a hashable request, zero entries dropped."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))


def add(left: Amounts, right: Amounts | Request, times: int = 1) -> dict[str, int]:
    """``left + times * right`` in exact integers."""
    total = dict(left)
    for name, amount in right.items() if isinstance(right, Mapping) else right:
        total[name] = total.get(name, 0) + times * amount
    return total


@dataclass(frozen=True, slots=True)
class ResourceAxis:
    """The resources some node of the cluster offers, in a fixed order of columns."""

    names: tuple[str, ...]
    _columns: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = {name: column for column, name in enumerate(self.names)}
        object.__setattr__(self, "_columns", columns)

    @classmethod
    def of(cls, offers: Iterable[Amounts]) -> "ResourceAxis":
        """The standard resources first, then everything else offered, by name."""
        extended = {name for offer in offers for name in offer} - set(STANDARD)
        return cls((*STANDARD, *sorted(extended)))

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> int | None:
        """The column of ``name``, or None when no node offers it."""
        return self._columns.get(name)

    def offer(self, amounts: Amounts) -> IntArray:
        """What a node offers, shape (resources,)."""
        vector = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items():
            vector[self._columns[name]] = min(max(amount, 0), OFFER_CEILING)
        return vector

    def request(self, request: Request) -> IntArray | None:
        """What a pod asks, shape (resources,); None when it asks for what no node offers."""
        vector = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in request:
            column = self._columns.get(name)
            if column is None:
                return None
            vector[column] = min(max(amount, 0), REQUEST_CEILING)
        return vector

    def usage(self, amounts: Amounts | Request) -> IntArray:
        """What a running pod takes, shape (resources,); resources no node offers are left out."""
        vector = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items() if isinstance(amounts, Mapping) else amounts:
            column = self._columns.get(name)
            if column is not None:
                vector[column] = min(max(amount, 0), REQUEST_CEILING)
        return vector
