"""Everything a decision may depend on, immutable, including the time.

The operator builds it from watched objects, the simulator from its own state; equal snapshots
give equal decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bireme.core.errors import SnapshotError
from bireme.core.gangs import Gang
from bireme.core.nodes import NodeTable
from bireme.core.queues import Queue
from bireme.core.resources import Amounts, IntArray
from bireme.core.settings import SchedulingSettings


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """The cluster at one moment.

    Attributes:
        now: POSIX seconds.
        nodes: All nodes.
        used: int64, shape (nodes, resources): bound pods plus planned, not yet bound replicas.
        waiting: Gangs that want to start, in any order.
        queues: By name.
        queue_usage: By queue name, what its admitted gangs ask together.
    """

    now: float
    nodes: NodeTable
    used: IntArray
    waiting: tuple[Gang, ...]
    queues: Mapping[str, Queue]
    queue_usage: Mapping[str, Amounts] = field(default_factory=dict)
    settings: SchedulingSettings = field(default_factory=SchedulingSettings)

    def __post_init__(self) -> None:
        if self.used.shape != self.nodes.allocatable.shape:
            raise SnapshotError(
                f"used has shape {self.used.shape}, the nodes {self.nodes.allocatable.shape}"
            )

    def wait_bound_seconds(self, gang: Gang) -> int:
        """After how long a wait ``gang`` goes before all others."""
        queue = self.queues.get(gang.queue)
        own = queue.wait_bound_seconds if queue else None
        return own or self.settings.wait_bound_seconds

    def wait_seconds(self, gang: Gang) -> float:
        """How long ``gang`` has waited; never negative, whatever the clocks say."""
        return max(0.0, self.now - gang.arrived)
