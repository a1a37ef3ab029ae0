"""Jobs of Alibaba's PAI platform (clusterdata ``cluster-trace-gpu-v2020``, MLaaS, NSDI 2022).

A folder has the tables as published: ``pai_job_table`` and ``pai_task_table``, and optionally
``pai_instance_table`` (7.5 million rows: leave it out to read faster) and ``pai_machine_spec``.
Each is ``.csv``, ``.csv.gz`` or ``.tar.gz``. They have no header line; the ``.header`` file beside
a table names its columns. Without that file the published order applies. A job's tasks become its
tasks, their instances the replicas. ``plan_cpu`` and ``plan_gpu`` are per cent of a core and of a
GPU, ``plan_mem`` is GiB. A share of a GPU becomes a whole one.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil, isnan, nan
from pathlib import Path
from typing import Final

from bireme.core.gangs import Role, Task
from bireme.core.gpus import GPU, GPU_MODEL_LABEL
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.resources import CPU, MEMORY, PODS, Request, request_of
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces import tables
from bireme_lab.simulator.workload import Trace

HEADERS: Final = {
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_task_table": (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    "pai_instance_table": (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status"),
        *("start_time", "end_time", "machine"),
    ),
    "pai_machine_spec": ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
}
"""The columns of the tables, in the published order."""

NO_INSTANCES: Final = "task without instances, left out"
NAMED_TWICE: Final = "task named twice in its job, left out"
SHARED: Final = "share of a GPU, rounded up to a whole one"

_FINAL_STATES = frozenset({"Terminated", "Failed"})
_TASK = (
    *("job_name", "task_name", "inst_num", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu"),
)

_Spans = dict[str, tuple[float, float]]
"""Job name to its first known start and last known end, in seconds."""


def read_pai(path: Path) -> Trace:
    """Read all jobs that ended and had instances, CPU-only jobs and parameter servers included.

    A job is submitted at its own ``start_time``. It runs from the first start to the last end of
    its instances, or of its tasks without the instance table.
    """
    treatments: Counter[str] = Counter()
    gangs, spans = _tasks(path, treatments)
    spans |= _instances(path)
    source, header = _source(path, "pai_job_table")
    table = tables.read_table(source, ("job_name", "user", "status", "start_time"), header=header)
    names = table.texts("job_name")
    run_seconds = []
    for name, status in zip(names, table.texts("status"), strict=True):
        is_whole = status in _FINAL_STATES and name in gangs
        first, last = spans.get(name, (nan, nan)) if is_whole else (nan, nan)
        run_seconds.append(last - first)
    columns = tables.JobColumns(
        names=names,
        submitted=table.numbers("start_time", may_be_blank=True),
        run_seconds=run_seconds,
        tasks=[tuple(gangs.get(name, {}).values()) for name in names],
        users=table.texts("user"),
    )
    return tables.trace_of(path.name, table, columns, nodes=_machines(path), treatments=treatments)


def _source(folder: Path, name: str) -> tuple[Path, tuple[str, ...]]:
    """Return the path of a table, and the names of its columns."""
    table = _find(folder, name)
    if table is None:
        raise TraceError(
            f"{folder}: no {name}.csv, .csv.gz or .tar.gz in it; give the folder with the tables "
            "as Alibaba publishes them"
        )
    header = folder / f"{name}.header"
    return table, tables.read_header(header) if header.is_file() else HEADERS[name]


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{name}{suffix}" for suffix in (".csv", ".csv.gz", ".tar.gz"))
    return next((path for path in candidates if path.is_file()), None)


def _rows(
    folder: Path, name: str, required: tuple[str, ...]
) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    path, header = _source(folder, name)
    return ((str(path), line, cells) for line, cells in tables.each_row(path, required, header))


def _tasks(folder: Path, treatments: Counter[str]) -> tuple[dict[str, dict[str, Task]], _Spans]:
    """Return every job's tasks by name, and their first start and last end."""
    gangs: dict[str, dict[str, Task]] = {}
    spans: _Spans = {}
    for file, line, (job, name, instances, start, end, *plan) in _rows(
        folder, "pai_task_table", _TASK
    ):
        replicas = tables.number(file, line, "inst_num", instances, may_be_blank=True)
        if isnan(replicas) or replicas == 0:
            treatments[NO_INSTANCES] += 1
        elif name in gangs.setdefault(job, {}):
            treatments[NAMED_TWICE] += 1
        else:
            request, is_share = _request(file, line, *plan)
            treatments.update({SHARED: 1} if is_share else {})
            # Task names that are not a role (``tensorflow``) become workers.
            role = Role(name.lower()) if name.lower() in set(Role) else Role.WORKER
            replicas = tables.count(file, line, "inst_num", instances)
            gangs[job][name] = Task(name, replicas, request, role, priority=role.default_priority)
            _stretch(spans, job, file, line, start, end)
    return {job: tasks for job, tasks in gangs.items() if tasks}, spans


def _request(file: str, line: int, cpu: str, memory: str, gpu: str) -> tuple[Request, bool]:
    """Return the request of one instance, and whether it rounds up a share of a GPU."""
    plan = {"plan_cpu": cpu, "plan_mem": memory, "plan_gpu": gpu}
    amounts = [tables.number(file, line, name, cell, True, 0.0) for name, cell in plan.items()]
    # A blank cell requests nothing.
    percent, gib, gpu_percent = (0.0 if isnan(amount) else amount for amount in amounts)
    resources = {CPU: ceil(10 * percent), MEMORY: round(gib * 2**30), GPU: ceil(gpu_percent / 100)}
    return request_of(resources | {PODS: 1}), gpu_percent % 100 > 0


def _stretch(spans: _Spans, job: str, file: str, line: int, start: str, end: str) -> None:
    """Extend ``spans[job]`` to cover ``start`` to ``end``; 0 or blank is unknown."""
    start_seconds = tables.number(file, line, "start_time", start, may_be_blank=True)
    end_seconds = tables.number(file, line, "end_time", end, may_be_blank=True)
    if start_seconds > 0 and end_seconds > 0:
        first, last = spans.get(job, (start_seconds, end_seconds))
        spans[job] = min(first, start_seconds), max(last, end_seconds)


def _instances(folder: Path) -> _Spans:
    spans: _Spans = {}
    if _find(folder, "pai_instance_table") is not None:
        columns = ("job_name", "start_time", "end_time")
        for file, line, (job, start, end) in _rows(folder, "pai_instance_table", columns):
            _stretch(spans, job, file, line, start, end)
    return spans


def _machines(folder: Path) -> list[Node]:
    if _find(folder, "pai_machine_spec") is None:
        return []
    nodes = []
    for file, line, (name, model, *capacity) in _rows(
        folder, "pai_machine_spec", HEADERS["pai_machine_spec"]
    ):
        cores, gib, gpus = (
            tables.number(file, line, column, cell, minimum=0)
            for column, cell in zip(("cap_cpu", "cap_mem", "cap_gpu"), capacity, strict=True)
        )
        offer = {CPU: int(1000 * cores), MEMORY: int(gib * 2**30), GPU: int(gpus)}
        labels = {HOSTNAME_LABEL: name, GPU_MODEL_LABEL: model}
        nodes.append(Node(name, offer | {PODS: tables.PODS_PER_NODE}, labels))
    return nodes
