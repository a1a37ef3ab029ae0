"""From the columns of a table to a trace: what every reader does to its rows, once.

Rows are put in order of submission and counted from the first one. Those that no simulation can
run are left out and counted, each under the first treatment that fits it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import isnan
from typing import Final

from bireme.core.gangs import Task
from bireme.core.gpus import GPU
from bireme.core.nodes import Node
from bireme.core.queues import Queue
from bireme.core.resources import CPU, MEMORY, PODS, request_of
from bireme.simulator.errors import TraceError
from bireme.simulator.traces.tables import Table, shown
from bireme.simulator.workload import Trace, TraceJob

NOT_SUBMITTED: Final = "no submission time, left out"
NOT_RUN: Final = "no start or no end, left out"
NO_RUN_TIME: Final = "run time not above zero, left out"
NO_GPUS: Final = "zero GPUs, left out"
UNSORTED: Final = "submitted before the row above, sorted in"


@dataclass(frozen=True, slots=True)
class JobColumns:
    """What a table says of its jobs: one entry a row, in the order of the file.

    Attributes:
        names: Unique in the table.
        submitted: Seconds from any origin; NaN where the table does not say.
        run_seconds: NaN where the job never started or never ended.
        gpus: Of the whole job; None keeps jobs without GPUs.
        users, queues, applications, priorities: None where the table has none.
    """

    names: Sequence[str]
    submitted: Sequence[float]
    run_seconds: Sequence[float]
    gpus: Sequence[int] | None = None
    users: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    applications: Sequence[str] | None = None
    priorities: Sequence[int] | None = None


def trace_of(
    name: str,
    table: Table,
    columns: JobColumns,
    tasks_of: Callable[[int], tuple[Task, ...]],
    *,
    nodes: Sequence[Node] = (),
    treatments: Counter[str] | None = None,
) -> Trace:
    """The trace of ``columns``; ``tasks_of(row)`` is the gang of a row.

    Raises TraceError when two rows share a name or none is left.
    """
    counts = Counter(treatments or {})
    kept = _kept(table, columns, counts)
    start = columns.submitted[kept[0]]
    jobs = tuple(_job(columns, row, start, tasks_of(row)) for row in kept)
    queues = tuple(Queue(queue) for queue in sorted({job.queue for job in jobs}))
    return Trace(name, jobs, dict(sorted(counts.items())), tuple(nodes), queues)


def _kept(table: Table, columns: JobColumns, counts: Counter[str]) -> list[int]:
    """The rows a simulation can run, by submission; ``counts`` learns what became of the rest."""
    _check_names(table, columns.names)
    gpus = columns.gpus if columns.gpus is not None else [1] * len(table)
    flaws = list(map(_flaw, columns.submitted, columns.run_seconds, gpus))
    counts.update(flaw for flaw in flaws if flaw)
    kept = [row for row, flaw in enumerate(flaws) if not flaw]
    if not kept:
        reasons = ", ".join(f"{count} rows: {what}" for what, count in sorted(counts.items()))
        raise TraceError(
            f"{table.file}: no job is left of {len(table)} rows ({reasons}); name a file with a "
            "job that ran on GPUs"
        )
    submitted = columns.submitted
    late = sum(submitted[after] < submitted[before] for before, after in pairwise(kept))
    counts.update({UNSORTED: late} if late else {})
    return sorted(kept, key=submitted.__getitem__)


def _flaw(submitted: float, run_seconds: float, gpus: int) -> str:
    if gpus == 0:
        return NO_GPUS
    if isnan(run_seconds):
        return NOT_RUN
    if run_seconds <= 0:
        return NO_RUN_TIME
    return NOT_SUBMITTED if isnan(submitted) else ""


def _check_names(table: Table, names: Sequence[str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: dict[str, int] = {}
    for line, name in zip(table.lines, names, strict=True):
        if seen.setdefault(name, line) != line:
            raise TraceError(
                f"{table.file}, line {line}: job {shown(name)} is on line {seen[name]} already; "
                "take one of them out"
            )


def _job(columns: JobColumns, row: int, start: float, tasks: tuple[Task, ...]) -> TraceJob:
    return TraceJob(
        name=columns.names[row],
        submitted=columns.submitted[row] - start,
        tasks=tasks,
        duration_seconds=columns.run_seconds[row],
        user=columns.users[row] if columns.users else "",
        queue=columns.queues[row] if columns.queues else "default",
        priority=columns.priorities[row] if columns.priorities else 0,
        application=columns.applications[row] if columns.applications else "",
    )


# Gangs from GPU counts: most traces say how many GPUs a job had, not how it was cut.
#
# A job of ``n`` GPUs becomes equal replicas, each of the largest divisor of ``n`` that fits a node
# of ``gpus_per_node``: 4 on nodes of 8 is one replica, 16 is two of 8, 12 is two of 6.

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
