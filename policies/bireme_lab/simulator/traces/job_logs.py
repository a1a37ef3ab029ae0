"""Job logs with one row a job: Philly, Helios, Acme, Tiresias and Muri.

All states count, because failed and cancelled jobs ran too. Jobs without GPUs are left out. CPU and
memory that a log does not state are in proportion to the GPUs
(:func:`~bireme_lab.simulator.traces.tables.tasks_of_gpus`).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import takewhile
from math import isnan
from pathlib import Path

from bireme.core.gangs import Task
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.laws import MeasuredSpeed
from bireme_lab.simulator.physics.tables import ElasticFlowTable
from bireme_lab.simulator.traces import tables
from bireme_lab.simulator.workload import Trace, TraceJob


def read_acme(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """Read GPU jobs of Shanghai AI Lab's clusters Seren and Kalos, 2023, with logged CPU.

    ``trace_seren.csv`` and ``trace_kalos.csv`` as the README of InternLM/AcmeTrace gives them
    (commit 6d6ac9c, "Schema"). Kalos also states memory, in ``mem_per_pod_GB``.
    """
    names = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "type")
    times = ("submit_time", "start_time", "end_time")
    table = tables.read_table(path, (*names, *times), optional=("mem_per_pod_GB",))
    gpus, cores = table.counts("gpu_num"), table.counts("cpu_num")
    starts, ends = table.times("start_time"), table.times("end_time")
    requests = zip(gpus, cores, _acme_memory_bytes(table, gpus), strict=True)
    columns = tables.JobColumns(
        names=table.texts("job_id"),
        submitted=table.times("submit_time"),
        # The README defines duration so, but in its rows of Kalos duration counts from the
        # submission. The column queue is the wait in seconds, not a queue's name.
        run_seconds=[end - start for start, end in zip(starts, ends, strict=True)],
        tasks=[
            tables.tasks_of_gpus(n, gpus_per_node, 1000 * cpu, memory)
            for n, cpu, memory in requests
        ],
        gpus=gpus,
        users=table.texts("user"),
        applications=table.texts("type"),
    )
    return tables.trace_of(path.name, table, columns)


def _acme_memory_bytes(table: tables.CsvTable, gpus: list[int]) -> list[int]:
    """Return a job's memory: of its pods (Kalos), or in proportion to its GPUs (Seren, blank)."""
    if "mem_per_pod_GB" not in table.columns:
        return [count * tables.MEMORY_BYTES_PER_GPU for count in gpus]
    per_pod = table.numbers("mem_per_pod_GB", may_be_blank=True, minimum=0)
    return [
        count * tables.MEMORY_BYTES_PER_GPU if isnan(gigabytes) else round(gigabytes * 1e9) * pods
        for gigabytes, pods, count in zip(per_pod, table.counts("node_num"), gpus, strict=True)
    ]


def read_helios(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """Read GPU jobs of SenseTime's clusters Venus, Earth, Saturn and Uranus, 2020, with logged CPU.

    ``cluster_log.csv`` as the README of S-Lab-System-Group/HeliosData gives it (commit 106713b,
    "Schema"). The queue is the virtual cluster ``vc``; ``queue`` is the wait in seconds.
    HeliosArtifact leaves out jobs without GPUs too (``framework/QSSF Service/utils.py``).
    """
    names = ("job_id", "user", "vc", "gpu_num", "cpu_num", "submit_time", "duration")
    table = tables.read_table(path, names)
    gpus, cores = table.counts("gpu_num"), table.counts("cpu_num")
    requests = zip(gpus, cores, strict=True)
    columns = tables.JobColumns(
        names=table.texts("job_id"),
        submitted=table.times("submit_time"),
        run_seconds=table.numbers("duration", may_be_blank=True),
        tasks=[tables.tasks_of_gpus(count, gpus_per_node, 1000 * cpu) for count, cpu in requests],
        gpus=gpus,
        users=table.texts("user"),
        queues=table.texts("vc"),
    )
    return tables.trace_of(path.name, table, columns)


_TIRESIAS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


def read_tiresias(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """Read jobs in the format of SymbioticLab/Tiresias (``simulator/60_job.csv``), in seconds."""
    table = tables.read_table(path, _TIRESIAS)
    # Muri's file looks alike, but its times are milliseconds.
    if "iteration_time" in table.header:
        raise TraceError(
            f"{path}, line 1: it has the column iteration_time of Muri, whose times are "
            f"milliseconds; read it as muri:{path}"
        )
    return tables.trace_of(path.name, table, _tiresias_columns(table, 1.0, gpus_per_node))


def read_muri(path: Path, *, gpus_per_node: int = 8) -> Trace:
    """Read jobs in the format of Rivendile/Muri: Tiresias' columns and more, in milliseconds.

    The column ``priority`` is not read, because no owner stated it. It is 1 in half of the rows,
    independent of size, run time and neighbours, so it was drawn at random.
    """
    table = tables.read_table(path, (*_TIRESIAS, "iteration_time"))
    return tables.trace_of(path.name, table, _tiresias_columns(table, 1000.0, gpus_per_node))


def _tiresias_columns(
    table: tables.CsvTable, per_second: float, gpus_per_node: int
) -> tables.JobColumns:
    gpus = table.counts("num_gpu")
    return tables.JobColumns(
        names=[f"job-{name}" for name in table.texts("job_id")],
        submitted=[time / per_second for time in table.numbers("submit_time")],
        run_seconds=[time / per_second for time in table.numbers("duration", may_be_blank=True)],
        tasks=[tables.tasks_of_gpus(count, gpus_per_node) for count in gpus],
        gpus=gpus,
        applications=table.texts("model_name"),
    )


_PHILLY = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly(path: Path, *, gpus_per_node: int = 8, speeds: str = "", users: str = "") -> Trace:
    """Read jobs of Microsoft's Philly cluster, from the artifacts of Pollux or ElasticFlow.

    The header tells which. Pollux has the whole cluster with a queue for each virtual cluster
    (petuum/adaptdl, branch osdi21-artifact, ``simulator/traces/philly.csv``). ElasticFlow has one
    virtual cluster with assigned models. With ``users`` "vc" the virtual cluster of a job is also
    its user, who is charged for its service; the log names no other users. ``speeds`` is a folder
    of pkusys/ElasticFlow's measurements, which makes ElasticFlow's jobs elastic.
    """
    if "job_id" in tables.read_header(path):
        return _read_elasticflow(path, gpus_per_node, speeds)
    if speeds:
        raise TraceError(
            f"speeds is {speeds!r}, and {path} names no models; leave speeds out, or give the "
            "file of one virtual cluster that ElasticFlow published"
        )
    if users not in ("", "vc"):
        raise TraceError(
            f"users is {users!r}; vc makes users of virtual clusters, and without it there are none"
        )
    table = tables.read_table(path, _PHILLY)
    gpus = table.counts("num_gpus")
    columns = tables.JobColumns(
        names=[f"job-{line - 1}" for line in table.lines],
        submitted=table.times("timestamp"),
        run_seconds=table.numbers("duration", may_be_blank=True),
        tasks=[tables.tasks_of_gpus(count, gpus_per_node) for count in gpus],
        gpus=gpus,
        queues=table.texts("cluster"),
        users=table.texts("cluster") if users else None,
    )
    return tables.trace_of(path.name, table, columns)


# --- ElasticFlow's jobs, at the speeds that it measured ------------------------------------------
#
# Its traces state the model and the global batch size of every job. Its measurements give the speed
# by number of GPUs. With them a job may run on any measured number of GPUs around its own, one GPU
# a replica, with linear interpolation. Its steps are those of its run time on the requested GPUs.


def _read_elasticflow(path: Path, gpus_per_node: int, speeds: str) -> Trace:
    table = tables.read_table(path, (*_TIRESIAS, "batch_size") if speeds else _TIRESIAS)
    columns = _tiresias_columns(table, 1.0, 1 if speeds else gpus_per_node)
    trace = tables.trace_of(path.name, table, columns)
    if not speeds:
        return trace
    folder = Path(speeds).expanduser()
    measured = cache(lambda model: ElasticFlowTable.load(folder / f"{model}.csv"))
    models = {path.stem for path in folder.glob("*.csv")}
    laws = tables.laws_of(
        table,
        "model_name",
        models,
        lambda model, batch: measured(model).speed(batch),
        folder,
        "speeds",
    )
    law_of = dict(zip(columns.names, laws, strict=True))
    return replace(trace, jobs=tuple(_elastic(job, law_of[job.name]) for job in trace.jobs))


def _elastic(job: TraceJob, law: MeasuredSpeed) -> TraceJob:
    """Return one-task ``job`` with the speeds of ``law``; TraceError if its size never ran."""
    (task,) = job.tasks
    if not _pace(law, task.replicas):
        raise TraceError(
            f"{job.name} asks for {task.replicas} GPUs, with which {job.application} was not "
            f"measured to run; leave it out, or name other measurements with ?speeds=FOLDER"
        )
    sizes = list(_running(law, task))
    bounds = replace(task, min_replicas=min(sizes), max_replicas=max(sizes))
    steps = _pace(law, task.replicas) * job.duration_seconds
    return replace(job, tasks=(bounds,), is_elastic=True, speed=law, steps=steps)


def _running(law: MeasuredSpeed, task: Task) -> Iterator[int]:
    """Yield the numbers of replicas around its own at which ``task`` runs, without a gap."""
    fewer, more = range(task.replicas, 0, -1), range(task.replicas, law.gpus[-1] + 1)
    for sizes in (fewer, more):
        yield from takewhile(lambda size: _pace(law, size) > 0, sizes)


def _pace(law: MeasuredSpeed, replicas: int) -> float:
    return law.steps_per_second({"worker": replicas}, 1)
