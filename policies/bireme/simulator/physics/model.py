"""The physics of a simulation in one object: how fast jobs run, and what goes wrong.

Progress is a fraction of a job's whole work, from 0 to 1. A job at rate ``r`` gains
``r / duration_seconds`` of it a second, so that at rate 1 it runs exactly its ``duration_seconds``.

A job without a speed law runs at rate 1 at the size it asks for. A job with a law does
``steps_per_second`` of its ``steps``: it gains ``steps_per_second / steps`` a second and its
``duration_seconds`` cancels out. On top come the factors for spread, neighbours and stragglers,
all of them 1 unless switched on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from bireme.core.errors import SettingError
from bireme.core.nodes import Node
from bireme.simulator.errors import SimulationError
from bireme.simulator.physics import disturbances
from bireme.simulator.physics.courses import Course, UnevenSpeedLaw
from bireme.simulator.physics.failures import NODE_MTBF_SECONDS, NodeChange, node_changes
from bireme.simulator.physics.laws import PlacedSpeedLaw
from bireme.simulator.physics.machines import MachineLaw
from bireme.simulator.workload import TraceJob

_NOBODY: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Physics:
    """What a simulation adds to the durations of its trace; by default nothing.

    Attributes:
        over_nodes, over_racks: Speed of a gang on several nodes, or several racks, relative to
            one node (:func:`~.disturbances.placement_penalty`). Not for jobs whose law says that
            it knows the spread.
        per_neighbour: Speed per gang that shares a node with it.
        machines: How fast each machine is, and for whom; None for machines that are all alike.
        fluctuation: How unequal the replicas of a start are; None for equal.
        start_seconds: From the first start until work begins (images, rendezvous).
        restart_seconds: From every later start until work goes on (checkpoint restore).
        checkpoint_interval_seconds: A start that is stopped loses its work since the last
            checkpoint, written every so often; 0 for no loss, infinity for no checkpoint.
        node_mtbf_seconds: Mean time between failures of one node; infinity for none.
        node_repair_seconds: From a failure until the node is back.
    """

    over_nodes: float = 1.0
    over_racks: float = 1.0
    per_neighbour: float = 1.0
    machines: MachineLaw | None = None
    fluctuation: disturbances.Fluctuation | None = None
    start_seconds: float = 0.0
    restart_seconds: float = 0.0
    checkpoint_interval_seconds: float = 0.0
    node_mtbf_seconds: float = inf
    node_repair_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("over_nodes", "over_racks", "per_neighbour"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(f"{name} is {getattr(self, name)}; it must be above 0, up to 1")
        for name in (
            *("start_seconds", "restart_seconds"),
            *("checkpoint_interval_seconds", "node_repair_seconds"),
        ):
            if not getattr(self, name) >= 0:
                raise SettingError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if not self.node_mtbf_seconds > 0:
            raise SettingError(f"node_mtbf_seconds is {self.node_mtbf_seconds}; it must be above 0")

    def rate(
        self,
        job: TraceJob,
        sizes: Mapping[str, int],
        nodes: int,
        racks: int = 1,
        neighbours: int = 0,
        straggler: float = 1.0,
        places: tuple[int, ...] = (),
        others: Mapping[str, int] = _NOBODY,
    ) -> float:
        """Progress of ``job`` relative to its ``duration_seconds``; 0 where it cannot run.

        Args:
            sizes: Replicas by task name.
            nodes, racks: How many of each it is on.
            neighbours: Other gangs with a replica on any of its nodes.
            straggler: What :meth:`straggler` gave for this start.
            places: Replicas on each of its nodes, for laws that were measured by placement.
            others: Other gangs on each of its nodes, by node name, where ``machines`` is set.

        Raises:
            SimulationError: A job without a law at a size it did not ask for, or one whose
                ``steps`` do not go with its law.
        """
        rate = _own_rate(job, sizes, nodes, places)
        if nodes > 1 and not getattr(job.speed, "knows_spread", False):
            rate *= disturbances.placement_penalty(nodes, racks, self.over_nodes, self.over_racks)
        if neighbours:
            rate *= disturbances.interference(neighbours, self.per_neighbour)
        if straggler != 1.0:
            rate *= disturbances.straggling(straggler, sum(sizes.values()))
        if self.machines is not None:
            rate *= self.machines.rate(others)
        return rate

    def course(self, job: TraceJob, places: tuple[int, ...]) -> Course | None:
        """How the work of ``job`` is spread over its time on ``places``; None for evenly."""
        return job.speed.course(places) if isinstance(job.speed, UnevenSpeedLaw) else None

    @property
    def interferes(self) -> bool:
        """Whether a gang's neighbours change its speed at all."""
        return self.per_neighbour < 1 or self.machines is not None

    def straggler(self, job: str, start: int, seed: int) -> float:
        """The luck of the ``start``-th start of ``job``: its speed with ten replicas, up to 1."""
        return 1.0 if self.fluctuation is None else self.fluctuation.factor(seed, job, start)

    def failures(self, nodes: Iterable[Node], horizon: float, seed: int) -> list[NodeChange]:
        """When which node goes and comes, by time; see :func:`~.failures.node_changes`."""
        if self.node_mtbf_seconds == inf:
            return []
        return node_changes(nodes, horizon, seed, self.node_mtbf_seconds, self.node_repair_seconds)


MEASURED = Physics(
    over_nodes=disturbances.OVER_NODES,
    over_racks=disturbances.OVER_RACKS,
    per_neighbour=disturbances.PER_NEIGHBOUR,
    fluctuation=disturbances.Fluctuation(),
    restart_seconds=30.0,  # Pollux' simulator (petuum/adaptdl): every rescale stalls that long
    checkpoint_interval_seconds=1800.0,  # an assumption
    node_mtbf_seconds=NODE_MTBF_SECONDS,
)
"""Everything switched on, at what was measured elsewhere; sources beside the constants."""


def _own_rate(
    job: TraceJob, sizes: Mapping[str, int], nodes: int, places: tuple[int, ...]
) -> float:
    """The rate by size, places and law alone."""
    if job.speed is None:
        if any(sizes.get(task.name, 0) != task.replicas for task in job.tasks):
            raise SimulationError(
                f"job {job.name} has no speed law and runs with {dict(sizes)} replicas, which is "
                "not what it asks for; give it a speed and steps"
            )
        return 1.0
    if job.steps is None or not 0 < job.steps < inf:
        raise SimulationError(
            f"job {job.name} has a speed law, but steps is {job.steps}; "
            "give its work in the law's unit, above 0"
        )
    if places and isinstance(job.speed, PlacedSpeedLaw):
        pace = job.speed.steps_per_second_on(places)
    else:
        pace = job.speed.steps_per_second(sizes, nodes)
    return pace / job.steps * job.duration_seconds
