"""Jobs of Microsoft's Philly cluster, as the artifacts of Pollux and ElasticFlow carry them.

The whole cluster: ``timestamp,duration,num_gpus,gpu_time,cluster`` (petuum/adaptdl branch
osdi21-artifact, ``simulator/traces/philly.csv``; pkusys/ElasticFlow has the same file); ``cluster``
is the virtual cluster, here a queue each. One virtual cluster with models that ElasticFlow
assigned: ``job_id,submit_time,...,model_name,...,num_gpu,...,duration,...``. The header tells
which. Times are in seconds; neither file names users or asks for CPU or memory.
"""

from pathlib import Path

from bireme.simulator.traces.columns import JobColumns, trace_of
from bireme.simulator.traces.shapes import gang_of
from bireme.simulator.traces.tables import Table, read_header, read_table
from bireme.simulator.workload import Trace

WHOLE = ("timestamp", "duration", "num_gpus", "cluster")
ONE_CLUSTER = ("job_id", "submit_time", "model_name", "num_gpu", "duration")


def read_philly(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """All jobs of either file; they ask for the amounts per GPU of :mod:`.shapes`."""
    is_one = "job_id" in read_header(path)
    table = read_table(path, ONE_CLUSTER if is_one else WHOLE)
    columns = _one_cluster(table) if is_one else _whole(table)
    gpus = columns.gpus or ()
    return trace_of(path.name, table, columns, lambda row: gang_of(gpus[row], gpus_per_node))


def _whole(table: Table) -> JobColumns:
    return JobColumns(
        names=[f"job-{line - 1}" for line in table.lines],
        submitted=table.times("timestamp"),
        run_seconds=table.numbers("duration", may_be_blank=True),
        gpus=table.counts("num_gpus"),
        queues=table.texts("cluster"),
    )


def _one_cluster(table: Table) -> JobColumns:
    return JobColumns(
        names=[f"job-{name}" for name in table.texts("job_id")],
        submitted=table.numbers("submit_time"),
        run_seconds=table.numbers("duration", may_be_blank=True),
        gpus=table.counts("num_gpu"),
        applications=table.texts("model_name"),
    )
