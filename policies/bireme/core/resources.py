"""Amounts of resources: exact integers by name outside, int64 vectors inside.

Units are fixed per resource: ``cpu`` in millicores, everything else in its base unit (bytes,
devices, pods). A :class:`ResourceAxis` gives every resource of a cluster its column, so "fits" is
one comparison of arrays.
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
NODE_ONLY = "node.bireme.dev/"
"""Prefix of resources that nodes offer and queues do not count: local volumes, for instance."""
ATTACHABLE = f"{NODE_ONLY}attachable-volumes-csi-"
"""Prefix, before a CSI driver, of the volumes that a node can attach."""

# Amounts saturate when they enter a vector, as int64 would wrap: a pod with an absurd request
# still never fits any node, and the sum of 2**15 such pods still does not wrap.
OFFER_CEILING = 2**46
REQUEST_CEILING = 2**47


def request_of(amounts: Amounts) -> Request:
    """Return ``amounts`` as a hashable request, zero entries dropped."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))


def is_device(name: str) -> bool:
    """Return whether people count gangs in the resource ``name``: not every node has it."""
    return name not in STANDARD and not name.startswith(NODE_ONLY)


def add(base: Amounts, right: Amounts | Request, times: int = 1) -> dict[str, int]:
    """Return ``left + times * right`` in exact integers."""
    total = dict(base)
    for name, amount in right.items() if isinstance(right, Mapping) else right:
        total[name] = total.get(name, 0) + times * amount
    return total


@dataclass(frozen=True, slots=True)
class ResourceAxis:
    """The resources that some node of the cluster offers, in a fixed order of columns."""

    names: tuple[str, ...]
    _columns: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen dataclass: the only way to set a derived field.
        columns = {name: column for column, name in enumerate(self.names)}
        object.__setattr__(self, "_columns", columns)

    @classmethod
    def of(cls, offers: Iterable[Amounts]) -> "ResourceAxis":
        """Return the standard resources first, then all other offered ones, by name."""
        extended = {name for offer in offers for name in offer} - set(STANDARD)
        return cls((*STANDARD, *sorted(extended)))

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> int | None:
        """Return the column of ``name``, or None if no node offers it."""
        return self._columns.get(name)

    def offer(self, amounts: Amounts) -> IntArray:
        """Return a node's offer, shape (resources,)."""
        vector = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items():
            vector[self._columns[name]] = min(max(amount, 0), OFFER_CEILING)
        return vector

    def request(self, request: Request) -> IntArray | None:
        """Return a pod's request, shape (resources,); None if no node offers one of its
        resources.
        """
        if any(name not in self._columns for name, _ in request):
            return None
        return self.usage(request)

    def usage(self, amounts: Amounts | Request) -> IntArray:
        """Return a pod's usage, shape (resources,); resources that no node offers are left out."""
        vector = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items() if isinstance(amounts, Mapping) else amounts:
            column = self._columns.get(name)
            if column is not None:
                vector[column] = min(max(amount, 0), REQUEST_CEILING)
        return vector
