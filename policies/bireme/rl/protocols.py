"""What an encoder is: how a network is shown the facts that a decision may depend on.

A network sees arrays, a policy sees gangs and nodes; an encoder turns the one into the other. It is
named and versioned (``das-machines/1``), because weights mean nothing without it: a change of what
it computes is a new version, and old checkpoints keep the old one.

Every array is float32. Its shape is that of ``inputs``: a number where the size is fixed, a name
where it varies; axes of one name have one size in a call. Encoders are pure and loop over no nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Ranked
from bireme.core.resources import BoolArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.onnx.sessions import Array, Ask, Shape

GANGS = "gangs"
"""The axis of an orderer's answer."""
NODES = "nodes"
"""The axis of a placer's answer."""
MOVES = "moves"
"""The axis of a sizer's answer; its encoder gives the number of moves with every question."""


class OrderEncoder(Protocol):
    """Shows a network gangs to be ordered.

    It may set ``keeps_equal_gangs_in_order = True``, with the meaning that
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


@runtime_checkable
class SizeEncoder(Protocol):
    """Sizes gangs by asking a network, as often as it has moves to make.

    What a move is, and what is done with its logit, is the encoder's own.
    """

    inputs: Mapping[str, Shape]

    def sizes(
        self, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """As :meth:`bireme.core.policy.Sizer.sizes`, of at least one gang and one node."""
        ...


@dataclass(frozen=True, slots=True)
class Choices:
    """Who is started, with how many replicas, and where.

    Attributes:
        order: Uids of waiting gangs, first to start first; those left out come after them.
        sizes: Replicas by uid and task name, of any gang; those left out go by the general rule.
        pools: The nodes that a gang should be on, by uid, bool, shape (nodes,).
    """

    order: tuple[str, ...] = ()
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pools: Mapping[str, BoolArray] = field(default_factory=dict)


@runtime_checkable
class ChoiceEncoder(Protocol):
    """Chooses gangs, sizes and node pools together, by asking a network (a sizer's part)."""

    inputs: Mapping[str, Shape]

    def chooses(self, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices:
        """What to do with ``gangs``, which wait, sorted by arrival and uid; there are nodes.

        Running gangs are those of ``snapshot``.
        """
        ...
