"""Jobs in the format of Tiresias, and of Muri, which looks like it but counts in milliseconds.

Tiresias (SymbioticLab/Tiresias, ``simulator/60_job.csv``):
``job_id,num_gpu,submit_time,iterations,model_name,duration,interval``, times in seconds. Muri
(Rivendile/Muri) has the same columns and ``batch_size``, ``iteration_time``, ``resource_time_0``
to ``_2`` and ``priority`` besides, all times in milliseconds. To read one as the other would be
wrong by a thousand, so each reader refuses the other's file.
"""

from pathlib import Path

from bireme.simulator.errors import TraceError
from bireme.simulator.traces.tables import CsvTable, JobColumns, read_table, tasks_of_gpus, trace_of
from bireme.simulator.workload import Trace

TIRESIAS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
MURI = (*TIRESIAS, "iteration_time", "priority")


def read_tiresias(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """All jobs; they ask for the amounts per GPU of :mod:`.tables`."""
    table = read_table(path, TIRESIAS)
    if "iteration_time" in table.header:
        raise TraceError(
            f"{path}, line 1: it has the column iteration_time of Muri, whose times are "
            f"milliseconds; read it as muri:{path}"
        )
    return _read(path, table, 1.0, None, gpus_per_node)


def read_muri(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """All jobs, times turned to seconds; ``priority`` is taken as the value of the job's class."""
    table = read_table(path, MURI)
    return _read(path, table, 1000.0, table.counts("priority"), gpus_per_node)


def _read(
    path: Path, table: CsvTable, per_second: float, priorities: list[int] | None, gpus_per_node: int
) -> Trace:
    gpus = table.counts("num_gpu")
    columns = JobColumns(
        names=[f"job-{name}" for name in table.texts("job_id")],
        submitted=[time / per_second for time in table.numbers("submit_time")],
        run_seconds=[time / per_second for time in table.numbers("duration", may_be_blank=True)],
        gpus=gpus,
        applications=table.texts("model_name"),
        priorities=priorities,
    )
    return trace_of(path.name, table, columns, lambda row: tasks_of_gpus(gpus[row], gpus_per_node))
