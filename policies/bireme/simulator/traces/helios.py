"""Job logs of SenseTime's Helios clusters (Venus, Earth, Saturn, Uranus), 2020.

``cluster_log.csv`` as the README of S-Lab-System-Group/HeliosData gives it (commit 106713b,
"Schema"): ``job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,
duration,queue``. ``queue`` is the seconds a job waited, no queue's name; its virtual cluster is
``vc``. All states count, as in the paper: a job that failed or was cancelled ran all the same.
Jobs without GPUs are left out, as HeliosArtifact does (``framework/QSSF Service/utils.py``).
"""

from pathlib import Path

from bireme.simulator.traces.tables import JobColumns, read_table, tasks_of_gpus, trace_of
from bireme.simulator.workload import Trace

COLUMNS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "submit_time", "duration")


def read_helios(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """All GPU jobs; CPU as the log states it, memory as in :mod:`.tables`."""
    table = read_table(path, COLUMNS)
    gpus, cores = table.counts("gpu_num"), table.counts("cpu_num")
    columns = JobColumns(
        names=table.texts("job_id"),
        submitted=table.times("submit_time"),
        run_seconds=table.numbers("duration", may_be_blank=True),
        gpus=gpus,
        users=table.texts("user"),
        queues=table.texts("vc"),
    )
    return trace_of(
        path.name,
        table,
        columns,
        lambda row: tasks_of_gpus(gpus[row], gpus_per_node, 1000 * cores[row]),
    )
