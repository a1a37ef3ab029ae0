"""Seeded workloads: random ones with known laws, Gavel's, and one built to starve.

Each generator has only keyword arguments, so that ``gen:poisson?jobs=500&rate=30`` can name all of
them. The same arguments give the same trace. ``rate`` is in arrivals an hour. ``sizes`` is a mix of
gang sizes, GPUs and their shares: ``1:0.7,8:0.3``.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import ceil, isfinite, log
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.errors import require
from bireme.core.nodes import Node
from bireme.core.resources import FloatArray, IntArray
from bireme.core.times import DAY, HOUR
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.physics.tables import GavelTable
from bireme_lab.simulator.traces.tables import tasks_of_gpus
from bireme_lab.simulator.workload import Trace, TraceJob

_SIZES: Final = "1:0.7,2:0.1,4:0.1,8:0.05,16:0.05"
_GAVEL_SIZES: Final = "1:0.7,2:0.1,4:0.15,8:0.05"
_GAVEL_LONG_SHARE: Final = 0.2


def poisson(
    *,
    jobs: int = 1000,
    rate: float = 60.0,
    durations: str = "lognormal",
    mean_seconds: float = 3600.0,
    spread: float = 1.5,
    sizes: str = _SIZES,
    users: int = 10,
    gpus_per_node: int = 8,
    seed: int = 0,
) -> Trace:
    """Draw Poisson arrivals: gaps are exponential with mean ``3600 / rate`` seconds.

    ``durations`` is ``exponential`` or ``lognormal``, both with mean ``mean_seconds``; ``spread``
    is the standard deviation of the logarithm of the latter.
    """
    require_positive(jobs=jobs, rate=rate, users=users)
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(HOUR / rate, jobs))
    gpus = draw_sizes(rng, sizes, jobs)
    runs = draw_durations(rng, durations, mean_seconds, spread, jobs)
    return gpu_trace("poisson", times, gpus, runs, rng.integers(users, size=jobs), gpus_per_node)


def diurnal(
    *,
    jobs: int = 1000,
    rate: float = 60.0,
    swing: float = 0.8,
    peak_hour: float = 14.0,
    burst_chance: float = 0.05,
    burst_jobs: float = 8.0,
    durations: str = "lognormal",
    mean_seconds: float = 3600.0,
    spread: float = 1.5,
    sizes: str = _SIZES,
    users: int = 10,
    gpus_per_node: int = 8,
    seed: int = 0,
) -> Trace:
    """Draw Poisson arrivals with a daily rhythm, some of them sweeps of many equal jobs.

    The rate at time ``t`` is ``rate * (1 + swing * cos(2 pi (t / 24 h - peak_hour / 24)))``, drawn
    by thinning (Lewis and Shedler, 1979). With ``burst_chance`` an arrival is a parameter sweep: a
    geometric number of jobs, ``burst_jobs`` on average, at one instant, of one user and size.
    """
    require_positive(jobs=jobs, rate=rate, users=users, burst_jobs=burst_jobs)
    require_share(swing=swing, burst_chance=burst_chance)
    rng = np.random.default_rng(seed)
    arrivals = _thin_arrivals(rng, jobs, rate, swing, peak_hour)
    is_burst = rng.random(jobs) < burst_chance
    copies = np.where(is_burst, rng.geometric(min(1.0, 1.0 / burst_jobs), jobs), 1)
    of = np.repeat(np.arange(jobs), copies)[:jobs]
    runs = draw_durations(rng, durations, mean_seconds, spread, jobs)
    gpus, owners = draw_sizes(rng, sizes, jobs)[of], rng.integers(users, size=jobs)[of]
    return gpu_trace("diurnal", arrivals[of], gpus, runs, owners, gpus_per_node)


def adversarial(
    *,
    jobs: int = 2000,
    cluster_gpus: int = 64,
    load: float = 1.05,
    small_gpus: int = 1,
    small_seconds: float = 600.0,
    large_gpus: int = 32,
    large_seconds: float = 3600.0,
    gpus_per_node: int = 8,
) -> Trace:
    """Make endless small jobs beside one large gang; a policy that fills every hole starves it.

    The small jobs arrive evenly and together request ``load`` times the cluster, so above 1 every
    hole fills at once. The gang ``large`` arrives at the first moment when the cluster is full.
    Nothing is random.
    """
    require_positive(jobs=jobs, cluster_gpus=cluster_gpus, load=load, small_gpus=small_gpus)
    require_positive(small_seconds=small_seconds, large_gpus=large_gpus)
    require_positive(large_seconds=large_seconds)
    gap_seconds = small_seconds * small_gpus / (cluster_gpus * load)
    small = tasks_of_gpus(small_gpus, gpus_per_node)
    crowd = [
        TraceJob(f"small-{i + 1}", i * gap_seconds, small, small_seconds, user="crowd")
        for i in range(jobs)
    ]
    gang = tasks_of_gpus(large_gpus, gpus_per_node)
    large = TraceJob("large", small_seconds, gang, large_seconds, user="patient")
    return in_order("adversarial", [*crowd, large])


def gavel(
    *,
    speeds: str = "",
    gpu: str = "v100",
    jobs: int = 1000,
    rate: float = 60.0,
    sizes: str = _GAVEL_SIZES,
    gpus_per_node: int = 8,
    seed: int = 0,
) -> Trace:
    """Draw jobs of 26 kinds, each at its measured speeds on ``gpu``.

    Narayanan et al., OSDI 2020; stanford-futuredata/gavel, ``scheduler/utils.py``. Arrivals are a
    Poisson process. A job draws its GPUs from a mix, and its kind uniformly from those measured
    with so many GPUs. It draws its minutes from ``10^U(1.5, 3)`` or, one time in five, from
    ``10^U(3, 4)``. That is its run time on the fewest nodes; on more nodes it is slower as
    measured.

    ``speeds`` is Gavel's throughput file. Raises TraceError without measurements of such GPUs, or
    of so many.
    """
    require_positive(jobs=jobs, rate=rate)
    if not speeds:
        raise TraceError("speeds is ''; name Gavel's throughput file: gen:gavel?speeds=FILE")
    table = GavelTable.load(Path(speeds).expanduser())
    kinds_of = cache(lambda gpus: table.jobs(gpu, gpus))
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(HOUR / rate, jobs)).tolist()
    gpu_counts = draw_sizes(rng, sizes, jobs).tolist()
    is_long, power = rng.random(jobs) < _GAVEL_LONG_SHARE, rng.random(jobs)
    runs = (60.0 * 10 ** np.where(is_long, 3 + power, 1.5 + 1.5 * power)).tolist()
    trace_jobs = []
    for i, (submitted, gpus, seconds) in enumerate(
        zip(times, gpu_counts, runs, strict=True), start=1
    ):
        kind, tasks = str(rng.choice(kinds_of(gpus))), tasks_of_gpus(gpus, 1)
        job = TraceJob(f"job-{i}", submitted, tasks, seconds, application=kind)
        law = table.speed(kind, gpu, gpus_per_node)
        steps = seconds * law.steps_per_second({"worker": gpus}, ceil(gpus / gpus_per_node))
        trace_jobs.append(replace(job, speed=law, steps=steps))
    return in_order("gavel", trace_jobs)


def _thin_arrivals(
    rng: np.random.Generator, jobs: int, rate: float, swing: float, peak_hour: float
) -> FloatArray:
    """Draw ``jobs`` arrival times, shape (jobs,), by thinning arrivals at the peak rate."""
    chunks: list[FloatArray] = []
    now = 0.0
    while sum(map(len, chunks)) < jobs:
        times = now + np.cumsum(rng.exponential(HOUR / (rate * (1 + swing)), jobs))
        phase = 2 * np.pi * (times / DAY - peak_hour / 24)
        accepted = rng.random(jobs) * (1 + swing) < 1 + swing * np.cos(phase)
        chunks.append(times[accepted])
        now = float(times[-1])
    return np.concatenate(chunks)[:jobs]


def draw_durations(
    rng: np.random.Generator, law: str, mean_seconds: float, spread: float, jobs: int
) -> FloatArray:
    """Draw run times in seconds, shape (jobs,), with mean ``mean_seconds`` under either law."""
    require_positive(mean_seconds=mean_seconds)
    if law == "exponential":
        return rng.exponential(mean_seconds, jobs)
    if law != "lognormal" or not 0 <= spread < 10:
        raise TraceError(
            f"durations is {law!r} with spread {spread}; "
            "write exponential, or lognormal with a spread from 0 to 10"
        )
    # the mean of a lognormal is exp(mu + sigma^2 / 2)
    return rng.lognormal(log(mean_seconds) - spread**2 / 2, spread, jobs)


def draw_sizes(rng: np.random.Generator, sizes: str, jobs: int) -> IntArray:
    """Draw the GPUs of each job, shape (jobs,), from a mix such as ``1:0.7,8:0.3``."""
    values, shares = parse_sizes(sizes)
    return np.asarray(rng.choice(values, size=jobs, p=shares), dtype=np.int64)


def parse_sizes(sizes: str) -> tuple[IntArray, FloatArray]:
    """Return the GPUs of a mix and their shares, scaled to a sum of 1; equal shapes."""
    pairs = [entry.partition(":") for entry in sizes.split(",")]
    try:
        values = np.array([int(size) for size, _, _ in pairs], dtype=np.int64)
        shares = np.array([float(share) for _, _, share in pairs])
        is_mix = values.min() >= 1 and shares.min() >= 0 and 0 < shares.sum() < np.inf
    except (ValueError, OverflowError):
        is_mix = False
    if not is_mix:
        raise TraceError(f"sizes is {sizes!r}; write GPUs and shares such as 1:0.7,8:0.3")
    return values, shares / shares.sum()


def gpu_trace(
    name: str,
    times: FloatArray,
    gpus: IntArray,
    run_seconds: FloatArray,
    users: NDArray[np.int64],
    gpus_per_node: int,
    nodes: Sequence[Node] = (),
) -> Trace:
    """Make jobs ``job-1, job-2, ...`` from arrays of shape (jobs,), ``times`` ascending."""
    rows = zip(times.tolist(), gpus.tolist(), run_seconds.tolist(), users.tolist(), strict=True)
    jobs = [
        TraceJob(f"job-{i}", time, tasks_of_gpus(size, gpus_per_node), run, user=f"user-{user + 1}")
        for i, (time, size, run, user) in enumerate(rows, start=1)
    ]
    return in_order(name, jobs, nodes)


def in_order(name: str, jobs: Sequence[TraceJob], nodes: Sequence[Node] = ()) -> Trace:
    """Return a generated trace, its jobs by submission; TraceError without jobs."""
    if not jobs:
        raise TraceError(f"gen:{name}: no job arrived; raise the rate or the number of steps")
    ordered = sorted(jobs, key=lambda job: job.submitted)
    return Trace(f"gen:{name}", tuple(ordered), nodes=tuple(nodes))


def require_positive(**values: float) -> None:
    """Raise TraceError naming the first of ``values`` that is not a number above 0."""
    for name, value in values.items():
        if not (value > 0 and isfinite(value)):
            raise TraceError(f"{name} is {value}; it must be above 0")


def require_share(**values: float) -> None:
    """Raise TraceError naming the first of ``values`` that is not from 0 to 1."""
    for name, value in values.items():
        require(name, value, 0, 1, TraceError)
