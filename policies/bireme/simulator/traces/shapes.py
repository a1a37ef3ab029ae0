"""Gangs from GPU counts: most traces say how many GPUs a job had, not how it was cut.

A job of ``n`` GPUs becomes equal replicas, each of the largest divisor of ``n`` that fits a node
of ``gpus_per_node``: 4 on nodes of 8 is one replica, 16 is two of 8, 12 is two of 6.
"""

from functools import lru_cache
from typing import Final

from bireme.core.gangs import Task
from bireme.core.resources import CPU, MEMORY, PODS, request_of
from bireme.kube.names import GPU
from bireme.simulator.errors import TraceError

CPU_MILLIS_PER_GPU: Final = 4_000
MEMORY_BYTES_PER_GPU: Final = 16 * 2**30
"""What a job asks per GPU where its trace is silent: about half of what the machines of the
published traces have (8 to 32 cores and 32 to 128 GiB a GPU), so that GPUs stay what is scarce."""

PODS_PER_NODE: Final = 110
"""The kubelet's own default, for machines that a trace describes."""


@lru_cache(maxsize=65_536)  # a trace repeats a few hundred shapes; equal gangs share one object
def gang_of(
    gpus: int,
    gpus_per_node: int,
    cpu_millis: int | None = None,
    memory_bytes: int | None = None,
) -> tuple[Task, ...]:
    """One task of equal workers with ``gpus`` in all.

    ``cpu_millis`` and ``memory_bytes`` are of the whole job, split over the replicas and rounded
    up; None takes the amounts per GPU above. Raises TraceError when ``gpus_per_node`` is below 1.
    """
    if gpus_per_node < 1:
        raise TraceError(f"gpus_per_node is {gpus_per_node}; it must be at least 1")
    size = next((s for s in range(min(gpus, gpus_per_node), 0, -1) if gpus % s == 0), 0)
    replicas = gpus // size if size else 1
    cpu = gpus * CPU_MILLIS_PER_GPU if cpu_millis is None else cpu_millis
    memory = gpus * MEMORY_BYTES_PER_GPU if memory_bytes is None else memory_bytes
    request = {GPU: size, CPU: -(-cpu // replicas), MEMORY: -(-memory // replicas), PODS: 1}
    return (Task("worker", replicas, request_of(request)),)
