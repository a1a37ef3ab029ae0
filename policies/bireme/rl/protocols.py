"""Protocols of encoders, which turn gangs and nodes into the arrays that a network reads.

An encoder has a name and a version (``das-machines/1``), because weights mean nothing without it: a
change of what it computes is a new version, and old checkpoints keep the old one.

Every array is float32. Its shape is that of ``inputs``: a number where the size is fixed, a name
where it varies; axes of one name have one size in a call. Encoders are pure and loop over no nodes.
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

    It may set ``keeps_equal_gangs_in_order = True``, with the meaning that
    :class:`~bireme.core.policy.Orderer` gives it: the rows of a gang then depend on no other gang,
    and of equal gangs the later one never scores higher.
    """

    inputs: Mapping[str, Shape]

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Mapping[str, Array]:
        """Return arrays by name of ``inputs``, with a row per gang; ``gangs`` is not empty.

        ``gangs`` are sorted by uid and hold waiting and running ones.
        """


class PlaceEncoder(Protocol):
    """Encodes the nodes that one task may go to."""

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

        ``peers`` are node rows that members of the same gang have taken, by role, int64, shape
        (members,). In score mode ``gang`` consists of ``task`` alone, with one replica, and all
        else that is known of it is in ``peers``. ``finished`` are the last runs that ended, as far
        as they are known; in score mode none are.
        """


@runtime_checkable
class SizeEncoder(Protocol):
    """Sizes gangs by asking a network once or several times.

    The encoder defines what a move is, and what its logit means.
    """

    inputs: Mapping[str, Shape]

    def sizes(
        self, ask: Ask, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Size as :meth:`bireme.core.policy.Sizer.sizes`; at least one gang and one node."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Gangs to start, with their sizes and node pools.

    Attributes:
        order: Uids of waiting gangs, first to start first; all others come after them.
        sizes: Replicas by uid and task name; gangs left out go by the general rule.
        pools: Nodes that a gang should be on, by uid, bool, shape (nodes,).
    """

    order: tuple[str, ...] = ()
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pools: Mapping[str, BoolArray] = field(default_factory=dict)


@runtime_checkable
class ChoiceEncoder(Protocol):
    """Chooses gangs, sizes and node pools together, by asking a network (a sizer's part)."""

    inputs: Mapping[str, Shape]

    def chooses(self, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices:
        """Choose among ``gangs``, which wait, sorted by arrival and uid; at least one node.

        Running gangs are those of ``snapshot``.
        """
