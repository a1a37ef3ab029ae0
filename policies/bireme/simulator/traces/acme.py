"""Job logs of Shanghai AI Lab's Acme clusters Seren and Kalos, 2023.

``trace_seren.csv`` and ``trace_kalos.csv`` as the README of InternLM/AcmeTrace gives them (commit
6d6ac9c, "Schema"): ``job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,
end_time,duration,queue,gpu_time``; Kalos also ``mem_per_pod_GB``, ``shared_mem_per_pod``,
``fail_time``, ``stop_time``. ``queue`` is the seconds a job waited, no queue's name. The run time
is ``end_time - start_time``: the README says ``duration`` is that, but in its own rows of Kalos
``duration`` counts from the submission. Jobs without GPUs are left out, as in Helios.
"""

from math import isnan
from pathlib import Path

from bireme.simulator.traces.tables import (
    MEMORY_BYTES_PER_GPU,
    CsvTable,
    JobColumns,
    read_table,
    tasks_of_gpus,
    trace_of,
)
from bireme.simulator.workload import Trace

COLUMNS = (
    *("job_id", "user", "node_num", "gpu_num", "cpu_num", "type"),
    *("submit_time", "start_time", "end_time"),
)


def read_acme(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """All GPU jobs; CPU and, in Kalos, memory as the log states them."""
    table = read_table(path, COLUMNS, optional=("mem_per_pod_GB",))
    gpus, cores = table.counts("gpu_num"), table.counts("cpu_num")
    memory_bytes = _memory_bytes(table, gpus)
    starts, ends = table.times("start_time"), table.times("end_time")
    columns = JobColumns(
        names=table.texts("job_id"),
        submitted=table.times("submit_time"),
        run_seconds=[end - start for start, end in zip(starts, ends, strict=True)],
        gpus=gpus,
        users=table.texts("user"),
        applications=table.texts("type"),
    )
    return trace_of(
        path.name,
        table,
        columns,
        lambda row: tasks_of_gpus(gpus[row], gpus_per_node, 1000 * cores[row], memory_bytes[row]),
    )


def _memory_bytes(table: CsvTable, gpus: list[int]) -> list[int]:
    """Of the whole job: what its pods were given (Kalos), or the amount per GPU (Seren, blank)."""
    if "mem_per_pod_GB" not in table.columns:
        return [count * MEMORY_BYTES_PER_GPU for count in gpus]
    per_pod = table.numbers("mem_per_pod_GB", may_be_blank=True, least=0)
    return [
        count * MEMORY_BYTES_PER_GPU if isnan(gigabytes) else round(gigabytes * 1e9) * pods
        for gigabytes, pods, count in zip(per_pod, table.counts("node_num"), gpus, strict=True)
    ]
