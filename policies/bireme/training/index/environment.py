"""The cases of the learned index: days of traces on small clusters, under all guardrails.

Philly's weeks are kept apart: the index learns from the first six, the seventh says when to stop,
the others evaluate it. A case is one day of every n-th job, on a cluster that it loads to a given
degree (:mod:`bireme.simulator.loads`). A virtual cluster stands for its users, as a namespace does
in a real cluster, and the jobs that ran before the case are the history of run times.

Stopping is free, as in most published comparisons, or charged for.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme import registry
from bireme.contest.worlds import CHARGED, Part, World, world_of
from bireme.core.errors import SettingError
from bireme.core.estimates import RuntimeHistory
from bireme.core.policy import Orderer, Policy
from bireme.core.settings import SchedulingSettings
from bireme.simulator.loads import DAY, GPUS_PER_NODE, made, stretch
from bireme.simulator.metrics import SimulationMetrics
from bireme.simulator.physics.model import Physics
from bireme.simulator.traces.sources import read_trace
from bireme.simulator.workload import Trace, template_of

FILES: Final[Mapping[str, str]] = {
    "philly": "philly/philly_2017-09-04_2017-11-14.csv.gz",
    "muri": "muri/trace2.csv.gz",
}
CASE_LOADS: Final = (0.7, 0.9, 1.1)
TRAINING_DAYS: Final = (3, 42)
VALIDATION_DAYS: Final = (42, 49)
TEST_DAYS: Final = (49, 71)
TEST_EVERY: Final = 6
"""Every sixth job makes clusters of two to four nodes; training takes every tenth, for speed."""
_MURI_DAYS: Final = 24.8
_MURI_BEGINS: Final = (_MURI_DAYS, 2 * _MURI_DAYS, 3 * _MURI_DAYS)
_FEWEST_JOBS: Final = 360
_REMEMBERED: Final = 3000
"""More runs than these before a case are not worth the time to learn them."""


def play(world: World, orderer: Orderer, knows_run_times: bool = False) -> SimulationMetrics:
    """Return the metrics of ``orderer`` in ``world``, with the default placement."""
    return world.play(replace(_rules(), orderer=orderer), knows_run_times=knows_run_times)


@cache
def _rules() -> Policy:
    return registry.make_policy(SchedulingSettings())


def philly_days(
    data: Path, days: tuple[int, int], fewest: float, most: float = np.inf
) -> list[float]:
    """Return those of ``days`` on which Philly had from ``fewest`` to ``most`` jobs."""
    jobs = _trace(data, "philly").jobs
    counts = np.bincount([int(job.submitted // DAY) for job in jobs], minlength=days[1])
    return [float(day) for day in range(*days) if fewest <= counts[day] <= most]


def case(
    data: Path, trace: str, begin_days: float, take: slice, load: float, physics: Physics
) -> World:
    """Return the case of ``trace`` from ``begin_days`` on; ``take`` says which jobs stay."""
    days = 1.0 if trace == "philly" else _MURI_DAYS
    block = f"{trace}, day {begin_days:g}"
    return world_of(
        stretch(_trace(data, trace), 0, begin_days, days, take),
        load,
        name=f"{block}, jobs {take.start}::{take.step}, load {load}",
        block=block,
        part=_part(trace, begin_days),
        physics=physics,
        history=_history(data, trace, begin_days, take.step),
    )


def _part(trace: str, day: float) -> Part:
    if trace != "philly" or day >= TEST_DAYS[0]:
        return "test"
    return "validation" if day >= VALIDATION_DAYS[0] else "training"


def test_case(data: Path, setting: str, seed: int) -> World:
    """Return the test case of ``setting`` that ``seed`` stands for.

    Raises:
        SettingError: ``data`` has no such trace.
    """
    trace, load, *charged = setting.split("-")
    physics = CHARGED if charged else Physics()
    if trace == "poisson":
        jobs = read_trace("gen:poisson?jobs=200", gpus_per_node=GPUS_PER_NODE, seed=seed)
        name = f"poisson, seed {seed}"
        return world_of(
            made(seed, jobs), float(load), name=name, block=name, part="test", physics=physics
        )
    begins = _philly_test_days(data) if trace == "philly" else _MURI_BEGINS
    # first every window, then the same windows with other jobs
    turn, which = divmod(seed, len(begins))
    take = slice(3 * turn % TEST_EVERY, None, TEST_EVERY)
    return case(data, trace, begins[which], take, float(load), physics)


@cache
def _philly_test_days(data: Path) -> list[float]:
    """Return the test days with enough jobs, and more than one node at every load."""
    windows = {
        day: stretch(_trace(data, "philly"), 0, day, 1.0, slice(0, None, TEST_EVERY))
        for day in philly_days(data, TEST_DAYS, _FEWEST_JOBS)
    }
    return [day for day, window in windows.items() if len(window.nodes(max(CASE_LOADS))) > 1]


@cache
def _trace(data: Path, name: str) -> Trace:
    path = data / FILES[name]
    if not path.is_file():
        raise SettingError(
            f"there is no {FILES[name]} in {str(data)!r}; name the folder that has the traces"
        )
    trace = read_trace(f"{name}:{path}", gpus_per_node=GPUS_PER_NODE)
    # the virtual cluster stands for users that the trace does not name
    jobs = (replace(job, user=job.user or job.queue) for job in trace.jobs)
    return replace(trace, jobs=tuple(jobs))


@cache
def _history(data: Path, trace: str, begin_days: float, every: int) -> RuntimeHistory:
    """Return the history of jobs that ended before then, as many as a thinned cluster runs."""
    ended = sorted(
        (job.submitted + job.duration_seconds, job.user, template_of(job), job.duration_seconds)
        for job in _trace(data, trace).jobs
        if job.submitted + job.duration_seconds <= begin_days * DAY
    )[::every]
    history = RuntimeHistory()
    for _, user, template, seconds in ended[-_REMEMBERED:]:
        history.observe(user, template, seconds)
    return history
