"""The workloads of Pollux (OSDI 2021): ``name,time,application,num_replicas,batch_size``.

petuum/adaptdl, branch osdi21-artifact, ``simulator/workloads*/workload-*.csv``. A workload has no
run times; they follow from the measurements of the applications. These are in the folder ``traces``
beside the folder of the workload (or in the option ``traces``). Workload and measurements may lie
in one archive. A replica is a process with one GPU. Each job has the speed law of
:mod:`bireme_lab.simulator.physics.goodput`. Its run time is that of its requested size, packed on
nodes of 4 GPUs as measured.
"""

from dataclasses import replace
from functools import cache
from itertools import takewhile
from math import ceil, nan
from pathlib import Path
from typing import Final, cast

from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.goodput import PolluxSpeed
from bireme_lab.simulator.traces import tables
from bireme_lab.simulator.workload import Trace, TraceJob

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")

_MODES: Final = ("rigid", "elastic", "adaptive")
_GPUS_PER_NODE: Final = 4
_MAX_REPLICAS: Final = 64
"""The limit of the authors' simulator, whose cluster has 16 nodes."""

_UNSPREAD: Final = frozenset({"ncf"})
"""Applications that the authors' elastic policies keep at one replica and the requested batch
size."""


def read_pollux(path: Path, *, mode: str = "rigid", traces: str = "") -> Trace:
    """Read all jobs of one workload.

    ``mode`` is ``rigid`` (size and batch of the workload, as the authors give Tiresias),
    ``elastic`` (from one replica up, at its batch, as for Optimus) or ``adaptive`` (elastic, with
    the best batch at every size, as for Pollux itself). Raises TraceError for another mode, and for
    an unmeasured application, batch or size.
    """
    if mode not in _MODES:
        raise TraceError(f"mode is {mode!r}; write one of {', '.join(_MODES)}")
    table = tables.read_table(path, COLUMNS)
    with tables.unpack(path) as workload:
        folder = Path(traces).expanduser() if traces else workload.parent.parent / "traces"
        laws = _laws(table, folder, mode)
    sizes = table.counts("num_replicas")
    columns = tables.JobColumns(
        names=table.texts("name"),
        submitted=table.numbers("time"),
        run_seconds=[_run_seconds(table, row, law, sizes[row]) for row, law in enumerate(laws)],
        tasks=[tables.tasks_of_gpus(size, 1) for size in sizes],
        gpus=sizes,
        applications=table.texts("application"),
    )
    name = f"{path.parent.name}/{path.name}"  # the folder is named after the load
    trace = tables.trace_of(name, table, columns)
    law_of = dict(zip(columns.names, laws, strict=True))
    jobs = [replace(j, speed=law_of[j.name], steps=law_of[j.name].steps) for j in trace.jobs]
    return replace(trace, jobs=tuple(jobs if mode == "rigid" else map(_elastic, jobs)))


def _laws(table: tables.CsvTable, folder: Path, mode: str) -> list[PolluxSpeed]:
    """Return the law of every row; equal applications and batch sizes share one object."""
    application = cache(lambda name: PolluxSpeed.load(folder / name))
    law = cache(lambda name, batch: replace(application(name), batch=batch))
    applications = {path.name for path in folder.glob("*") if path.is_dir()}

    def law_of(name: str, batch: int) -> PolluxSpeed:
        keeps_batch = mode != "adaptive" or name in _UNSPREAD
        return law(name, batch if keeps_batch else None)

    return tables.laws_of(table, "application", applications, law_of, folder, "traces")


def _run_seconds(table: tables.CsvTable, row: int, law: PolluxSpeed, replicas: int) -> float:
    """Return the seconds of a training on the fewest nodes; NaN for a job without replicas."""
    if replicas == 0:
        return nan
    pace = _pace(law, replicas)
    if pace > 0:
        return law.steps / pace
    raise TraceError(
        f"{table.file}, line {table.lines[row]}: batch size {law.batch} was not measured at "
        f"num_replicas {replicas}; use a measured size"
    )


def _pace(law: PolluxSpeed, replicas: int) -> float:
    return law.steps_per_second({"worker": replicas}, ceil(replicas / _GPUS_PER_NODE))


def _elastic(job: TraceJob) -> TraceJob:
    """Let ``job`` run from one replica to the largest size measured without a gap."""
    (task,) = job.tasks
    law = cast(PolluxSpeed, job.speed)
    sizes = range(1, 2 if job.application in _UNSPREAD else _MAX_REPLICAS + 1)
    max_replicas = len(list(takewhile(lambda size: _pace(law, size) > 0, sizes)))
    task = replace(task, min_replicas=1, max_replicas=max(max_replicas, task.replicas))
    return replace(job, tasks=(task,), is_elastic=True)
