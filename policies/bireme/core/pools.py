"""Node pools that something outside may enlarge or shrink, as facts of a snapshot.

A pool is the nodes a selector matches; how many there are is decided elsewhere (an autoscaler, a
cloud, the simulator's machines), at our asking. What one more node would offer is its template.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bireme.core.errors import SnapshotError
from bireme.core.nodes import Node, NodeTable
from bireme.core.resources import BoolArray


@dataclass(frozen=True, slots=True)
class GrowablePool:
    """A pool that may be asked for more nodes.

    Attributes:
        template: What one more node offers, without the taints that it only starts with. Its name
            and its host name label stand for no node; new nodes get their own.
        room: Nodes that may still be asked for, beside those asked for already.
        coming: Nodes asked for that are not there yet.
        asked_at: Since when, POSIX seconds, nodes are coming and none has come: when the first of
            them was asked for, or one came last, whichever is later; None while none is coming.
        patience_seconds: After so long the pool is late: other pools are asked in its place.
    """

    name: str
    template: Node
    room: int
    coming: int = 0
    asked_at: float | None = None
    patience_seconds: int = field(kw_only=True)

    def __post_init__(self) -> None:
        for name in ("room", "coming"):
            if (value := getattr(self, name)) < 0:
                raise SnapshotError(
                    f"{name} of pool {self.name!r} is {value}; it must be at least 0"
                )

    def is_late(self, now: float) -> bool:
        """Whether nodes were asked for so long ago that they may never come."""
        return (
            self.coming > 0
            and self.asked_at is not None
            and now - self.asked_at > self.patience_seconds
        )


@dataclass(frozen=True, slots=True)
class ScaledPool:
    """A pool whose demand is measured.

    Attributes:
        selector: The labels its nodes have; without any it has no nodes.
        template: What one node of it offers; None where nobody knows.
        most: Nodes it may have: a task that asks for more of them waits in vain, uncounted.
    """

    name: str
    selector: Mapping[str, str]
    template: Node | None
    most: int


def in_pool(selector: Mapping[str, str], nodes: NodeTable) -> BoolArray:
    """Nodes with all labels of ``selector``, shape (nodes,); none where it is empty."""
    mask = np.full(len(nodes), bool(selector), dtype=np.bool_)
    for key, value in selector.items():
        column = nodes.label(key)
        codes = [code for code, known in enumerate(column.values) if known == value]
        mask &= np.isin(column.codes, codes)
    return mask
