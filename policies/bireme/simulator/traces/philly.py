"""Jobs of Microsoft's Philly cluster, as the artifacts of Pollux and ElasticFlow carry them.

The whole cluster: ``timestamp,duration,num_gpus,gpu_time,cluster`` (petuum/adaptdl branch
osdi21-artifact, ``simulator/traces/philly.csv``; pkusys/ElasticFlow has the same file); ``cluster``
is the virtual cluster, here a queue each. One virtual cluster with models that ElasticFlow
assigned: ``job_id,submit_time,...,model_name,...,num_gpu,...,duration,...``. The header tells
which. Times are in seconds; neither file names users or asks for CPU or memory.
"""

from dataclasses import replace
from pathlib import Path

from bireme.simulator.errors import TraceError
from bireme.simulator.traces import gavel
from bireme.simulator.traces.tables import (
    CsvTable,
    JobColumns,
    read_header,
    read_table,
    tasks_of_gpus,
    trace_of,
)
from bireme.simulator.workload import Trace

WHOLE = ("timestamp", "duration", "num_gpus", "cluster")
ONE_CLUSTER = ("job_id", "submit_time", "model_name", "num_gpu", "duration")


def read_philly(path: Path, *, gpus_per_node: int = 8, speeds: str = "") -> Trace:
    """All jobs of either file; they ask for the amounts per GPU of :mod:`.tables`.

    ``speeds`` is a folder of ElasticFlow's, with which jobs that have a model are elastic
    (:mod:`.gavel`).
    """
    is_one = "job_id" in read_header(path)
    if speeds:
        return _elastic(path, Path(speeds).expanduser(), is_one)
    table = read_table(path, ONE_CLUSTER if is_one else WHOLE)
    columns = _one_cluster(table) if is_one else _whole(table)
    gpus = columns.gpus or ()
    return trace_of(path.name, table, columns, lambda row: tasks_of_gpus(gpus[row], gpus_per_node))


def _elastic(path: Path, speeds: Path, is_one: bool) -> Trace:
    if not is_one:
        raise TraceError(
            f"speeds is {str(speeds)!r}, and {path} names no models; leave speeds out, or give the "
            "file of one virtual cluster that ElasticFlow published"
        )
    table = read_table(path, (*ONE_CLUSTER, "batch_size"))
    columns = _one_cluster(table)
    gpus = columns.gpus or ()
    law_of = dict(zip(columns.names, gavel.laws_of(table, speeds), strict=True))
    trace = trace_of(path.name, table, columns, lambda row: tasks_of_gpus(gpus[row], 1))
    jobs = (gavel.elastic(job, law_of[job.name]) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


def _whole(table: CsvTable) -> JobColumns:
    return JobColumns(
        names=[f"job-{line - 1}" for line in table.lines],
        submitted=table.times("timestamp"),
        run_seconds=table.numbers("duration", may_be_blank=True),
        gpus=table.counts("num_gpus"),
        queues=table.texts("cluster"),
    )


def _one_cluster(table: CsvTable) -> JobColumns:
    return JobColumns(
        names=[f"job-{name}" for name in table.texts("job_id")],
        submitted=table.numbers("submit_time"),
        run_seconds=table.numbers("duration", may_be_blank=True),
        gpus=table.counts("num_gpu"),
        applications=table.texts("model_name"),
    )
