"""Protocols of encoders, which convert gangs and nodes into the input arrays of a network.

An encoder has a name and a version (``das-machines/1``), because weights depend on it. A change of
its computation is a new version; old checkpoints keep the old one.

Every array is float32. Its shape is that of ``inputs``: a number for a fixed size, a name for a
variable one. Axes of one name have one size in a call. Encoders are pure and never loop over nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from bireme.core.finished_runs import FinishedRuns
from bireme.core.gangs import Gang, Role, Task
from bireme.core.placement import FreeCapacity
from bireme.core.policy import PartName, Ranked
from bireme.core.resources import BoolArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.onnx.sessions import Array, Ask, Shape

GANGS: Final = "gangs"
AXES: Final[Mapping[PartName, str]] = {"orderer": GANGS, "placer": "nodes", "sizer": "moves"}
"""The only axis of each part's answer; a sizer's encoder gives the moves with every question."""


class OrderEncoder(Protocol):
    """Encodes gangs to be ordered.

    It may set ``keeps_equal_gangs_in_order = True`` (see :class:`~bireme.core.policy.Orderer`).
    Then the row of a gang depends on no other gang, and the later of two equal gangs never scores
    higher.
    """

    inputs: Mapping[str, Shape]

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Mapping[str, Array]:
        """Return arrays by name of ``inputs``, with a row per gang; ``gangs`` is not empty.

        ``gangs`` are sorted by uid and include waiting and running gangs.
        """


class PlaceEncoder(Protocol):
    """Encodes the nodes for one task."""

    inputs: Mapping[str, Shape]

    def encode(
        self,
        gang: Gang,
        task: Task,
        capacity: FreeCapacity,
        peers: Mapping[Role, IntArray],
        finished: FinishedRuns,
    ) -> Mapping[str, Array]:
        """Return arrays by name of ``inputs``, with a row per node of ``capacity``.

        ``peers`` are the node rows of placed members of the same gang, by role, int64, shape
        (members,). In score mode ``gang`` has only ``task``, with one replica, and ``peers`` have
        the rest. ``finished`` are the last finished runs; score mode has none.
        """


@runtime_checkable
class SizeEncoder(Protocol):
    """Sizes gangs by asking a network once or several times.

    The encoder defines a move and the meaning of its logit.
    """

    inputs: Mapping[str, Shape]

    def sizes(
        self, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Return sizes as :meth:`bireme.core.policy.Sizer.sizes`; at least one gang and node."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Gangs to start, with their sizes and node pools.

    Attributes:
        order: Uids of waiting gangs in order of start; all others come after them.
        sizes: Replicas by uid and task name; the general rule sizes the other gangs.
        pools: Preferred nodes of a gang, by uid, bool, shape (nodes,).
    """

    order: tuple[str, ...] = ()
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pools: Mapping[str, BoolArray] = field(default_factory=dict)


@runtime_checkable
class ChoiceEncoder(Protocol):
    """Chooses gangs, sizes and node pools together, by asking a network (a sizer's part)."""

    inputs: Mapping[str, Shape]

    def chooses(self, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices:
        """Choose among waiting ``gangs``, sorted by arrival and uid; at least one node.

        Running gangs are those of ``snapshot``.
        """
