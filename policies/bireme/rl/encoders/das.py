"""What the agents of DAS see of a real cluster: ``das-jobs/1`` and ``das-machines/1``.

The formulas are those of :mod:`~bireme.rl.encoders.das_inputs` and
:mod:`~bireme.rl.encoders.das_inputs`, which the world of DAS uses as well; here gangs become jobs
and nodes machines. A GPU's speed and rent follow from its label. A gang without an estimate counts
as the middle one of those that have one, or as an hour.

No operator tells yet how fast finished runs were, so that the posterior over machines is the prior
and what is believed of their health is zero. Whoever knows sets :attr:`DasMachines.finished`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bireme.core.gangs import Gang, Role, Task
from bireme.core.gpus import GPU_MODEL_LABEL, gpu_model
from bireme.core.nodes import HOSTNAME_LABEL, NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import devices
from bireme.onnx.errors import AnswerError
from bireme.rl.encoders import das_inputs
from bireme.rl.encoders.das_inputs import (
    JOB_FEATURES,
    MACHINE_FEATURES,
    PLACE_FEATURES,
    PLACED_FEATURES,
    Machines,
    believed,
    job_inputs,
    place_inputs,
    placed_inputs,
    reach,
)

LAST_PLACE: Final = 63
"""Jobs further back in the queue count as being there: training saw no longer one."""

MOST_GANGS: Final = 3000
"""Gangs that are compared with each other; beside more, a network's memory is the operator's."""

Finished: TypeAlias = Callable[[], tuple[FloatArray, FloatArray]]
"""Shares (runs, nodes) and normalised speeds (runs,) of the last runs that finished."""

_UNKNOWN_SECONDS: Final = 3600.0
_MOST_KINDS: Final = 256
"""Kinds of replicas remembered per table: templates have no end, memory has one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Facts:
    """What never changes about the nodes of a table; all arrays have shape (nodes,)."""

    column: int | None
    gpus: IntArray
    speed: FloatArray
    dollars: FloatArray
    rack: IntArray
    kind: IntArray
    capacities: dict[object, IntArray]

    @classmethod
    def of(cls, nodes: NodeTable) -> "_Facts":
        """Found once per table."""
        known = nodes.memo.get(cls)
        if not isinstance(known, cls):
            known = cls._found(nodes)
            nodes.remember(cls, known)
        return known

    @classmethod
    def _found(cls, nodes: NodeTable) -> "_Facts":
        label = nodes.label(GPU_MODEL_LABEL)
        models = [gpu_model(value) for value in (*label.values, "")]
        speeds, rents = das_inputs.within_training(
            np.array([model.speed for model in models]),
            np.array([model.dollars_per_hour for model in models]),
        )
        offered = nodes.allocatable.sum(axis=0).tolist()
        known = [(n, i) for i, n in enumerate(offered) if n and "/" in nodes.axis.names[i]]
        column = max(known)[1] if known else None
        levels = [
            codes
            for level, codes in zip(nodes.topology_levels, nodes.domains, strict=True)
            if level != HOSTNAME_LABEL and (codes >= 0).any()
        ]
        rack = levels[0].astype(np.int64) if levels else np.zeros(len(nodes), dtype=np.int64)
        return cls(
            column=column,
            gpus=np.zeros_like(rack) if column is None else nodes.allocatable[:, column],
            speed=speeds[label.codes],
            dollars=rents[label.codes],
            rack=rack,
            kind=label.codes.astype(np.int64),
            capacities={},
        )

    def capacity(self, task: Task, nodes: NodeTable) -> IntArray:
        """How many replicas of ``task`` each node would take if it were empty."""
        key = (task.request, task.constraints)
        known = self.capacities.get(key)
        if known is None:
            if len(self.capacities) >= _MOST_KINDS:
                self.capacities.clear()
            known = FreeCapacity(nodes, nodes.fixed).replicas(task)
            self.capacities[key] = known
        return known

    def free(self, free: IntArray) -> IntArray:
        """Free GPUs per node, from what is free of everything, shape (nodes, resources)."""
        if self.column is None:
            return np.zeros_like(self.gpus)
        return np.maximum(free[:, self.column], 0)


class DasJobs:
    """Gangs as jobs of DAS, nodes as its machines; the order of listing does not matter."""

    inputs: Mapping[str, tuple[int | str, ...]] = {
        "jobs": ("gangs", JOB_FEATURES),
        "places": ("gangs",),
        "machines": ("nodes", MACHINE_FEATURES),
    }

    def encode(
        self, gangs: Sequence[Gang], snapshot: ClusterSnapshot
    ) -> dict[str, NDArray[np.float32]]:
        """``gangs``, at least one, as float32 arrays of the shapes of ``inputs``.

        Raises AnswerError for more than MOST_GANGS: the rules order them.
        """
        if len(gangs) > MOST_GANGS:
            raise AnswerError(
                f"{len(gangs)} gangs are more than das-jobs/1 compares, which is {MOST_GANGS}; "
                "for lines as long as that choose an orderer that judges each gang by itself"
            )
        facts = _Facts.of(snapshot.nodes)
        free = facts.free(snapshot.nodes.allocatable - snapshot.used)
        none = np.zeros_like(free)
        machines = Machines(free, facts.gpus, facts.speed, facts.dollars, facts.rack, none)
        gpus = np.array([devices(gang) for gang in gangs])
        by_arrival = np.lexsort(([g.uid for g in gangs], [g.arrived for g in gangs]))
        jobs = das_inputs.job_features(
            gpus,
            _estimates(gangs),
            np.array([snapshot.wait_seconds(gang) for gang in gangs]),
            free.sum(keepdims=True),
            facts.gpus.sum(keepdims=True),
        )
        return {
            "jobs": job_inputs(jobs, machines, gpus),
            "places": np.minimum(np.argsort(by_arrival), LAST_PLACE).astype(np.float32),
            "machines": _machine_inputs(machines, facts.kind),
        }


class DasMachines:
    """Nodes as places for one task.

    Attributes:
        finished: Tells of finished runs, where anybody knows; see the module.
    """

    inputs: Mapping[str, tuple[int | str, ...]] = {
        "job": (PLACED_FEATURES,),
        "machines": ("nodes", PLACE_FEATURES),
    }

    def __init__(self) -> None:
        self.finished: Finished | None = None

    def encode(
        self, gang: Gang, task: Task, capacity: FreeCapacity, peers: Mapping[Role, IntArray]
    ) -> dict[str, NDArray[np.float32]]:
        """All nodes of ``capacity`` for what is left of ``gang``, as float32 arrays."""
        facts = _Facts.of(capacity.nodes)
        rows = [there for there in peers.values() if len(there)]
        held = np.zeros(len(facts.rack), dtype=np.int64)
        if rows:
            held = np.bincount(np.concatenate(rows), minlength=len(held))
        machines = Machines(
            room=capacity.replicas(task),
            capacity=facts.capacity(task, capacity.nodes),
            speed=facts.speed,
            dollars=facts.dollars,
            rack=facts.rack,
            held=held,
        )
        need = np.asarray(task.replicas + held.sum())
        estimate = np.asarray(gang.estimated_seconds or _UNKNOWN_SECONDS)
        mean = None
        if self.finished is not None:
            near = das_inputs.adjacency(das_inputs.share_of_rack(facts.rack))
            mean = believed(machines, need, near, *self.finished()).mean
        return {
            "job": placed_inputs(machines, need, estimate),
            "machines": place_inputs(machines, need, mean),
        }


class UnawareDasMachines:
    """The same, but nobody can tell it of finished runs: for DAS without its Gaussian process."""

    inputs: Mapping[str, tuple[int | str, ...]] = DasMachines.inputs

    def __init__(self) -> None:
        self._seeing = DasMachines()

    def encode(
        self, gang: Gang, task: Task, capacity: FreeCapacity, peers: Mapping[Role, IntArray]
    ) -> dict[str, NDArray[np.float32]]:
        """As :meth:`DasMachines.encode`."""
        return self._seeing.encode(gang, task, capacity, peers)


def _machine_inputs(machines: Machines, kind: IntArray) -> NDArray[np.float32]:
    """Features of all machines for the ordering agent; those of one ``kind`` have the same GPU."""
    alone = -1 - np.arange(len(kind))
    rack = np.where(machines.rack < 0, alone, machines.rack)
    alike = np.where(machines.rack < 0, alone, rack * (int(kind.max(initial=0)) + 2) + kind + 1)
    even = np.zeros_like(rack)
    (rack_free, rack_gpus), _ = reach(rack, even, np.stack([machines.room, machines.capacity]))
    (alike_free,), _ = reach(alike, even, machines.room[None])
    return das_inputs.machine_features(
        machines.room,
        machines.capacity,
        machines.speed,
        machines.dollars,
        rack_free,
        rack_gpus,
        alike_free,
    ).astype(np.float32)


def _estimates(gangs: Sequence[Gang]) -> FloatArray:
    """Seconds each is expected to run, shape (gangs,)."""
    known = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds is not None]
    middle = float(np.median(known)) if known else _UNKNOWN_SECONDS
    return np.array([middle if g.estimated_seconds is None else g.estimated_seconds for g in gangs])
