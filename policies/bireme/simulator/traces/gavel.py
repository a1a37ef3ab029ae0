"""Gavel's generated workload: jobs of 26 kinds, each at the speeds that were measured for it.

Narayanan et al., OSDI 2020; stanford-futuredata/gavel, ``scheduler/utils.py``: arrivals are a
Poisson process; a job's GPUs are drawn from a mix, its kind evenly from those measured with so
many, its minutes from ``10^U(1.5, 3)`` or, one time in five, from ``10^U(3, 4)``. It runs so long
on the fewest nodes; spread over more it is as much slower as was measured.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import takewhile
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.gangs import Task
from bireme.core.times import HOUR
from bireme.simulator.errors import TraceError
from bireme.simulator.physics.laws import MeasuredSpeed
from bireme.simulator.physics.tables import ElasticFlowTable, GavelTable
from bireme.simulator.traces.generators import (
    draw_sizes,
    in_order,
    require_positive,
)
from bireme.simulator.traces.tables import CsvTable, shown, tasks_of_gpus
from bireme.simulator.workload import Trace, TraceJob

_SIZES: Final = "1:0.7,2:0.1,4:0.15,8:0.05"
_LONG_SHARE: Final = 0.2
_MINUTE: Final = 60.0


def gavel(
    *,
    speeds: str = "",
    gpu: str = "v100",
    jobs: int = 1000,
    rate: float = 60.0,
    sizes: str = _SIZES,
    gpus_per_node: int = 8,
    seed: int = 0,
) -> Trace:
    """``jobs`` of Gavel's, on GPUs of the type ``gpu``, with the throughput file ``speeds``.

    Raises TraceError where nothing was measured on such GPUs, or with so many of them.
    """
    require_positive(jobs=jobs, rate=rate)
    if not speeds:
        raise TraceError("speeds is ''; name Gavel's throughput file: gen:gavel?speeds=FILE")
    table = GavelTable.load(Path(speeds).expanduser())
    kinds_of = cache(lambda gpus: table.jobs(gpu, gpus))
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(HOUR / rate, jobs)).tolist()
    drawn = draw_sizes(rng, sizes, jobs).tolist()
    is_long, power = rng.random(jobs) < _LONG_SHARE, rng.random(jobs)
    seconds = (_MINUTE * 10 ** np.where(is_long, 3 + power, 1.5 + 1.5 * power)).tolist()
    kinds = [str(rng.choice(kinds_of(gpus))) for gpus in drawn]
    rows = enumerate(zip(times, drawn, kinds, seconds, strict=True), start=1)
    return in_order("gavel", [_job(f"job-{i}", table, gpu, gpus_per_node, *row) for i, row in rows])


def _job(
    name: str,
    table: GavelTable,
    gpu: str,
    gpus_per_node: int,
    submitted: float,
    gpus: int,
    kind: str,
    seconds: float,
) -> TraceJob:
    """One job, of a replica for each GPU; it does its steps in ``seconds`` on the fewest nodes."""
    law = table.speed(kind, gpu, gpus_per_node)
    steps = seconds * law.steps_per_second({"worker": gpus}, ceil(gpus / gpus_per_node))
    tasks = tasks_of_gpus(gpus, 1)
    return TraceJob(name, submitted, tasks, seconds, speed=law, steps=steps, application=kind)


# ElasticFlow's speeds for ElasticFlow's jobs: what rigid jobs of a trace may be when elastic.
#
# Its traces say of every job the model and the global batch size, and its folders of measurements
# how
# fast that goes on how many GPUs (:mod:`bireme.simulator.physics.tables`). With these a job may run
# on any number of GPUs around its own at which it was measured to run, one GPU a replica; straight
# lines stand between the numbers that were measured. It does the steps that it would in its run
# time
# on the GPUs it asks for.


def laws_of(table: CsvTable, folder: Path) -> list[MeasuredSpeed]:
    """The law of every row, from its ``model_name`` and ``batch_size`` and the files in ``folder``.

    Raises TraceError naming the row where its model, or its batch size, was not measured.
    """
    measured = cache(lambda model: ElasticFlowTable.load(folder / f"{model}.csv"))
    known = {path.stem for path in folder.glob("*.csv")}
    laws = []
    rows = zip(table.texts("model_name"), table.counts("batch_size"), table.lines, strict=True)
    for model, batch, line in rows:
        if model not in known:
            raise TraceError(
                f"{table.file}, line {line}: model_name is {shown(model)}, which {folder} has no "
                "measurements of; name the folder that has, with ?speeds=FOLDER"
            )
        try:
            laws.append(measured(model).speed(batch))
        except TraceError as error:
            raise TraceError(f"{table.file}, line {line}: {error}") from None
    return laws


def elastic(job: TraceJob, law: MeasuredSpeed) -> TraceJob:
    """``job``, of one task, at the speeds of ``law``; TraceError where its own size never ran."""
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
    """Every number of replicas around its own with which ``task`` runs, without a gap."""
    fewer, more = range(task.replicas, 0, -1), range(task.replicas, law.gpus[-1] + 1)
    for sizes in (fewer, more):
        yield from takewhile(lambda size: _pace(law, size) > 0, sizes)


def _pace(law: MeasuredSpeed, replicas: int) -> float:
    return law.steps_per_second({"worker": replicas}, 1)
