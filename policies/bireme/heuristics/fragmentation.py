"""Fragmentation gradient descent: every replica where it strands the fewest devices.

A free device is a fragment for a task that its node cannot host. The expected fragmentation of a
node is that over a target workload of typical tasks,

    F = sum over typical tasks m of share_m * f(m),
    f(m) = 0 where the node has room for m, else all free devices of the node

(a task that asks for no device can use none: all are fragments to it). A replica goes to the node
whose F it raises least, or lowers most; ties to the tightest node. The paper also shares single
devices among tasks; here they are whole.

Weng et al., "Beware of Fragmentation", USENIX ATC'23, sections 3 and 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.gangs import Gang, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.resources import CPU, MEMORY, FloatArray, IntArray
from bireme.heuristics.packing import descend, device_column, place_by


@dataclass(frozen=True, slots=True)
class TypicalTask:
    """One kind of replica of the target workload, and its share of all (any positive number)."""

    share: float
    devices: int
    cpu_millis: int = 0
    memory_bytes: int = 0


EVEN_WORKLOAD = tuple(TypicalTask(1.0, devices) for devices in (1, 2, 4, 8))
"""Replicas of 1, 2, 4 and 8 devices, equally frequent, with cores and memory to spare: what keeps
whole nodes, halves and pairs together when nothing is known of the workload."""


class FragmentationGradientDescent:
    """Every replica on the node where expected fragmentation grows least (FGD).

    Source: Weng et al., Beware of Fragmentation, USENIX ATC'23, section 4.
    """

    def __init__(self, workload: Sequence[TypicalTask] = EVEN_WORKLOAD) -> None:
        """``workload`` is what is expected to come; its shares need not sum to 1.

        Raises:
            SettingError: it is empty, or a share is not a finite number above 0.
        """
        if not workload or not all(0 < task.share < math.inf for task in workload):
            raise SettingError(
                f"workload is {list(workload)}; name at least one task, each with a share above 0"
            )
        self._workload = tuple(workload)

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas, or None."""
        return place_by(gang, capacity, self._divide)

    def _divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        axis = capacity.nodes.axis
        request = axis.usage(task.request)
        device = device_column(task, capacity.nodes)
        columns = [axis.names.index(CPU), axis.names.index(MEMORY)]

        def fragments(rows: IntArray, held: IntArray) -> FloatArray:
            free = capacity.free[rows] - held[:, None] * request
            devices = np.zeros(len(rows), dtype=np.int64) if device is None else free[:, device]
            cpu_millis, memory_bytes = free[:, columns].T
            return fragmentation(devices, cpu_millis, memory_bytes, self._workload)

        return descend(
            lambda rows, held: fragments(rows, held + 1) - fragments(rows, held),
            room,
            task.replicas,
            capacity.tightness,
        )


def fragmentation(
    devices: IntArray,
    cpu_millis: IntArray,
    memory_bytes: IntArray,
    workload: Sequence[TypicalTask],
) -> FloatArray:
    """Expected fragmentation in devices, shape (nodes,), of what is free on every node (same
    shape). Source: ATC'23, section 3, for whole devices."""
    stranded = np.zeros(len(devices))
    for task in workload:
        is_hosted = (
            (devices >= task.devices)
            & (cpu_millis >= task.cpu_millis)
            & (memory_bytes >= task.memory_bytes)
        )
        stranded += task.share * ~(is_hosted & (task.devices > 0))
    total = math.fsum(task.share for task in workload)
    return np.asarray(np.maximum(devices, 0) * stranded / total, dtype=np.float64)
