"""Fragmentation gradient descent: every replica where it strands the fewest devices.

A free device is a fragment for a task that its node cannot host. The expected fragmentation of a
node is that over a target workload of typical tasks,

    F = sum over typical tasks m of share_m * f(m),
    f(m) = 0 where the node has room for m, else all free devices of the node

(a task that requests no device can use none: all are fragments to it). A replica goes to the node
whose F it raises least, or lowers most; ties to the tightest node. The paper also shares single
devices among tasks; here devices are whole.

Weng et al., "Beware of Fragmentation", USENIX ATC'23, sections 3 and 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from bireme.core.bounds import Within
from bireme.core.errors import SettingError
from bireme.core.gangs import Task
from bireme.core.parameters import check_parameters
from bireme.core.placement import FreeCapacity
from bireme.core.resources import CPU, MEMORY, FloatArray, IntArray
from bireme.heuristics.packing import RulePlacer, descend, device_column


@dataclass(frozen=True, slots=True)
class TypicalTask:
    """One kind of replica of the target workload, and its share of all (any positive number)."""

    share: float
    devices: int
    cpu_millis: int = 0
    memory_bytes: int = 0


_SHARE = "share, relative to the others, of replicas of {} in what is to come"


class FragmentationGradientDescent(RulePlacer):
    """Every replica on the node where expected fragmentation grows least (FGD).

    Source: Weng et al., Beware of Fragmentation, USENIX ATC'23, section 4.
    """

    def __init__(
        self,
        workload: Sequence[TypicalTask] | None = None,
        share_of_1: Annotated[float, Within(0), _SHARE.format("1 device")] = 1.0,
        share_of_2: Annotated[float, Within(0), _SHARE.format("2 devices")] = 1.0,
        share_of_4: Annotated[float, Within(0), _SHARE.format("4 devices")] = 1.0,
        share_of_8: Annotated[float, Within(0), _SHARE.format("8 devices")] = 1.0,
    ) -> None:
        """``workload`` is the expected workload; its shares need not sum to 1.

        Without one, it consists of replicas of 1, 2, 4 and 8 devices, with few cores and little
        memory.
        This keeps whole nodes, halves and pairs together. The shares are equal by default.

        Raises:
            SettingError: it is empty, or a share is not a finite number above 0.
        """
        if workload is None:
            shares = {1: share_of_1, 2: share_of_2, 4: share_of_4, 8: share_of_8}
            check_parameters(type(self), **{f"share_of_{n}": s for n, s in shares.items()})
            workload = [TypicalTask(share, n) for n, share in shares.items() if share > 0]
        if not workload or not all(0 < task.share < math.inf for task in workload):
            raise SettingError(
                f"workload is {list(workload)}; name at least one task, each with a share above 0"
            )
        self._workload = tuple(workload)

    def divide(self, task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
        """Divide by the growth of expected fragmentation."""
        axis = capacity.nodes.axis
        request = axis.usage(task.request)
        device = device_column(task, capacity.nodes)
        columns = [axis.names.index(CPU), axis.names.index(MEMORY)]

        def fragments(rows: IntArray, placed_counts: IntArray) -> FloatArray:
            free = capacity.free[rows] - placed_counts[:, None] * request
            devices = np.zeros(len(rows), dtype=np.int64) if device is None else free[:, device]
            cpu_millis, memory_bytes = free[:, columns].T
            return fragmentation(devices, cpu_millis, memory_bytes, self._workload)

        return descend(
            lambda rows, placed_counts: (
                fragments(rows, placed_counts + 1) - fragments(rows, placed_counts)
            ),
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
    """Return the expected fragmentation in devices, shape (nodes,), of free amounts (same shape).

    Source: ATC'23, section 3, for whole devices.
    """
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
