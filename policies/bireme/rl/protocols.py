"""What an encoder is: how a network is shown the facts that a decision may depend on.

A network sees arrays, a policy sees gangs and nodes; an encoder turns the one into the other. It is
named and versioned (``das-machines/1``), because weights mean nothing without it: a change of what
it computes is a new version, and old checkpoints keep the old one.

Every array is float32. Its shape is that of ``inputs``: a number where the size is fixed, a name
where it varies; axes of one name have one size in a call. Encoders are pure and loop over no nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang, Role, Task
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot

Array: TypeAlias = NDArray[np.float32]
Shape: TypeAlias = tuple[int | str, ...]
"""Sizes of axes: a number, or the name of an axis whose size varies."""

GANGS = "gangs"
"""The axis of an orderer's answer."""
NODES = "nodes"
"""The axis of a placer's answer."""


class OrderEncoder(Protocol):
    """Shows a network gangs to be ordered.

    It may set ``keeps_kin_in_line = True``, with the meaning that
    :class:`~bireme.core.policy.Orderer` gives it: what it shows of a gang depends on nobody else
    and, of kin, never puts the later one first.
    """

    inputs: Mapping[str, Shape]

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Mapping[str, Array]:
        """Arrays by name of ``inputs``; axis ``gangs`` is that of ``gangs``, which is not empty.

        ``gangs`` are sorted by uid and hold waiting and running ones.
        """
        ...


class PlaceEncoder(Protocol):
    """Shows a network the nodes that one task may go to."""

    inputs: Mapping[str, Shape]

    def encode(
        self, gang: Gang, task: Task, capacity: FreeCapacity, peers: Mapping[Role, IntArray]
    ) -> Mapping[str, Array]:
        """Arrays by name of ``inputs``; axis ``nodes`` is that of all nodes of ``capacity``.

        ``peers`` are node rows that members of the same gang have taken, by role, int64, shape
        (members,). In score mode ``gang`` consists of ``task`` alone, with one replica, and all
        else that is known of it is in ``peers``.
        """
        ...
