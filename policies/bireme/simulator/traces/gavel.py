"""Gavel's generated workload: jobs of 26 kinds, each at the speeds that were measured for it.

Narayanan et al., OSDI 2020; stanford-futuredata/gavel, ``scheduler/utils.py``: arrivals are a
Poisson process; a job's GPUs are drawn from a mix, its kind evenly from those measured with so
many, its minutes from ``10^U(1.5, 3)`` or, one time in five, from ``10^U(3, 4)``. It runs so long
on the fewest nodes; spread over more it is as much slower as was measured.
"""

from functools import cache
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np

from bireme.core.times import HOUR
from bireme.simulator.errors import TraceError
from bireme.simulator.physics.tables import GavelTable
from bireme.simulator.traces.generators import (
    draw_sizes,
    in_order,
    require_positive,
)
from bireme.simulator.traces.shapes import gang_of
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
    tasks = gang_of(gpus, 1)
    return TraceJob(name, submitted, tasks, seconds, speed=law, steps=steps, application=kind)
