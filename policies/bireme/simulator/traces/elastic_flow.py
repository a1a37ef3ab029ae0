"""ElasticFlow's speeds for ElasticFlow's jobs: what rigid jobs of a trace may be when elastic.

Its traces say of every job the model and the global batch size, and its folders of measurements how
fast that goes on how many GPUs (:mod:`bireme.simulator.physics.tables`). With these a job may run
on any number of GPUs around its own at which it was measured to run, one GPU a replica; straight
lines stand between the numbers that were measured. It does the steps that it would in its run time
on the GPUs it asks for.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import takewhile
from pathlib import Path

from bireme.core.gangs import Task
from bireme.simulator.errors import TraceError
from bireme.simulator.physics.laws import MeasuredSpeed
from bireme.simulator.physics.tables import ElasticFlowTable
from bireme.simulator.traces.tables import Table, shown
from bireme.simulator.workload import TraceJob


def laws_of(table: Table, folder: Path) -> list[MeasuredSpeed]:
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
