"""Encoders of DAS: ``das-jobs/1`` for the ordering agent, ``das-machines/1`` for the placing one.

Gangs are its jobs and nodes its machines. Training shares the formulas in
:mod:`~bireme_lab.encoders.das_inputs`. Speed and rent of a GPU follow from the node's label. A gang
without an estimate counts as the median of the known estimates, or as an hour.

The health of machines follows from the finished runs in the snapshot. Without such runs, and in
score mode, it is the prior, 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Final

import numpy as np

from bireme.core.finished_runs import NO_RUNS, FinishedRuns
from bireme.core.gangs import Gang, Role, Task
from bireme.core.gpus import GPU_MODEL_LABEL, gpu_model
from bireme.core.nodes import HOSTNAME_LABEL, NodeTable
from bireme.core.placement import FreeCapacity
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import devices
from bireme.onnx.errors import AnswerError
from bireme.onnx.sessions import Array, Shape
from bireme.rl.encoders import UNKNOWN_SECONDS, run_seconds
from bireme_lab.encoders import das_inputs
from bireme_lab.encoders.das_inputs import Machines, reach

LAST_PLACE: Final = 63
"""The last place in the queues of training; places further back count as this one."""
MAX_GANGS: Final = 3000
"""The maximum number of gangs; memory grows with the square of their number."""
_MAX_KINDS: Final = 256
"""Kinds of replicas cached per node table."""


@dataclass(frozen=True, slots=True, eq=False)
class _MachineTable:
    """Constant features of the nodes of a table; all arrays have shape (nodes,)."""

    column: int | None
    gpus: IntArray
    speed: FloatArray
    dollars: FloatArray
    rack: IntArray
    kind: IntArray
    capacities: dict[object, IntArray]

    @classmethod
    def of(cls, nodes: NodeTable) -> "_MachineTable":
        """Return the table of ``nodes``, computed once."""
        cached = nodes.memo.get(cls)
        if isinstance(cached, cls):
            return cached
        label = nodes.label(GPU_MODEL_LABEL)
        models = [gpu_model(value, nodes.gpu_models) for value in (*label.values, "")]
        # clip to the range of the models in training
        speeds, rents = das_inputs.within_training(
            np.array([model.speed for model in models]),
            np.array([model.dollars_per_hour for model in models]),
        )
        offered = nodes.allocatable.sum(axis=0).tolist()
        # the most frequent device of the cluster counts as the GPU
        device_counts = [(n, i) for i, n in enumerate(offered) if n and "/" in nodes.axis.names[i]]
        column = max(device_counts)[1] if device_counts else None
        levels = [
            codes
            for level, codes in zip(nodes.topology_levels, nodes.domains, strict=True)
            if level != HOSTNAME_LABEL and (codes >= 0).any()
        ]
        rack = levels[0].astype(np.int64) if levels else np.zeros(len(nodes), dtype=np.int64)
        table = cls(
            column=column,
            gpus=np.zeros_like(rack) if column is None else nodes.allocatable[:, column],
            speed=speeds[label.codes],
            dollars=rents[label.codes],
            rack=rack,
            kind=label.codes.astype(np.int64),
            capacities={},
        )
        nodes.remember(cls, table)
        return table

    def capacity(self, task: Task, nodes: NodeTable) -> IntArray:
        """Return how many replicas of ``task`` fit each node when it is empty."""
        key = (task.request, task.constraints)
        replicas = self.capacities.get(key)
        if replicas is None:
            if len(self.capacities) >= _MAX_KINDS:
                self.capacities.clear()
            replicas = FreeCapacity(nodes, nodes.fixed).replicas(task)
            self.capacities[key] = replicas
        return replicas

    def free(self, free: IntArray) -> IntArray:
        """Return free GPUs per node from ``free``, shape (nodes, resources)."""
        if self.column is None:
            return np.zeros_like(self.gpus)
        return np.maximum(free[:, self.column], 0)


class DasJobs:
    """``das-jobs/1``: features of gangs, their places in the queue, and features of nodes."""

    inputs: Mapping[str, Shape] = {
        "jobs": ("gangs", das_inputs.JOB_FEATURES),
        "places": ("gangs",),
        "machines": ("nodes", das_inputs.MACHINE_FEATURES),
    }

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> dict[str, Array]:
        """Encode at least one gang; raises AnswerError for more than MAX_GANGS."""
        if len(gangs) > MAX_GANGS:
            raise AnswerError(
                f"{len(gangs)} gangs are more than das-jobs/1 compares, which is {MAX_GANGS}; "
                "for queues as long as that choose an orderer that judges each gang by itself"
            )
        table = _MachineTable.of(snapshot.nodes)
        free = table.free(snapshot.nodes.allocatable - snapshot.used)
        none = np.zeros_like(free)
        machines = Machines(free, table.gpus, table.speed, table.dollars, table.rack, none)
        gpus = np.array([ceil(devices(gang, snapshot)) for gang in gangs])
        by_arrival = np.lexsort(([g.uid for g in gangs], [g.arrived for g in gangs]))
        jobs = das_inputs.job_features(
            gpus,
            run_seconds(gangs),
            np.array([snapshot.wait_seconds(gang) for gang in gangs]),
            free.sum(keepdims=True),
            table.gpus.sum(keepdims=True),
        )
        return {
            "jobs": das_inputs.job_inputs(jobs, machines, gpus),
            "places": np.minimum(np.argsort(by_arrival), LAST_PLACE).astype(np.float32),
            "machines": _machine_inputs(machines, table.kind),
        }


class DasMachines:
    """``das-machines/1``: features of the job to be placed and of nodes."""

    inputs: Mapping[str, Shape] = {
        "job": (das_inputs.PLACED_FEATURES,),
        "machines": ("nodes", das_inputs.PLACE_FEATURES),
    }

    sees_runs: ClassVar[bool] = True

    def encode(
        self,
        gang: Gang,
        task: Task,
        capacity: FreeCapacity,
        peers: Mapping[Role, IntArray],
        finished: FinishedRuns = NO_RUNS,
    ) -> dict[str, Array]:
        table = _MachineTable.of(capacity.nodes)
        rows = [peer_rows for peer_rows in peers.values() if len(peer_rows)]
        own_replicas = np.zeros(len(table.rack), dtype=np.int64)
        if rows:
            own_replicas = np.bincount(np.concatenate(rows), minlength=len(own_replicas))
        machines = Machines(
            room=capacity.replicas(task),
            capacity=table.capacity(task, capacity.nodes),
            speed=table.speed,
            dollars=table.dollars,
            rack=table.rack,
            own_replicas=own_replicas,
        )
        need = np.asarray(task.replicas + own_replicas.sum())  # the whole gang, as in training
        estimate = np.asarray(gang.estimated_seconds or UNKNOWN_SECONDS)
        mean = None
        if self.sees_runs and finished.runs:
            runs = finished.on(capacity.nodes)
            mean = das_inputs.health(machines, need, runs.shares, runs.speeds, runs.group)
        return {
            "job": das_inputs.placed_inputs(machines, need, estimate),
            "machines": das_inputs.place_inputs(machines, need, mean),
        }


class UnawareDasMachines(DasMachines):
    """``das-machines-unaware/1``: ``das-machines/1`` without the Gaussian process of health."""

    sees_runs = False


def _machine_inputs(machines: Machines, kind: IntArray) -> Array:
    """Return features of machines for the ordering agent; equal ``kind`` means the same GPU."""
    # a machine without a rack is its own rack
    single_rack = -1 - np.arange(len(kind))
    rack = np.where(machines.rack < 0, single_rack, machines.rack)
    alike = np.where(
        machines.rack < 0, single_rack, rack * (int(kind.max(initial=0)) + 2) + kind + 1
    )
    even = np.zeros_like(rack)
    (rack_free, rack_gpus), _ = reach(rack, even, np.stack([machines.room, machines.capacity]))
    (alike_free,), _ = reach(alike, even, machines.room[None])
    return das_inputs.machine_features(machines, rack_free, rack_gpus, alike_free).astype(
        np.float32
    )
