"""Evaluation of the learned index beside every fast orderer of the registry.

All have the same jobs, guardrails, placement and history of run times, on weeks of the traces
outside the training.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from bireme import policy_names, registry
from bireme.core.errors import SettingError
from bireme.rl.checkpoint import Checkpoint
from bireme.rl.components import LearnedOrderer
from bireme_lab.contest.families import LOADS, PHILLY_DAYS
from bireme_lab.contest.sealed import whole_philly
from bireme_lab.contest.worlds import CHARGED, World, world_of
from bireme_lab.simulator.loads import GPUS_PER_NODE, make_window, stretch
from bireme_lab.simulator.metrics import SimulationMetrics
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.traces.sources import read_trace
from bireme_lab.simulator.workload import Trace
from bireme_lab.training.index.environment import days_with, play, thin
from bireme_lab.training.recipes import Results

SLOW: Final = ("malo", "mosa", "rifling")
"""Orderers that search for seconds per decision: not beside the others."""
ORACLE: Final = "-knowing"
"""The suffix of a rule's name that gives it the true run times."""
TEST_EVERY: Final = 6
"""Every sixth job gives clusters of two to four nodes; training takes every tenth, for speed."""
_MURI: Final = "muri/trace2.csv.gz"
_MURI_DAYS: Final = 24.8
_MURI_BEGINS: Final = (_MURI_DAYS, 2 * _MURI_DAYS, 3 * _MURI_DAYS)
_MIN_JOBS: Final = 360
PRIMARY: Final = ("mean_jct_minutes", True)
_ALIASES: Final = ("fcfs",)
_CHARGED: Final = "; a stop costs 30 s and the work of up to half an hour"
_TRACES: Final = {
    "philly": "days of Philly's last three weeks, every sixth job",
    "muri": "quarters of Muri's trace, every sixth job",
    "poisson": "200 generated jobs",
}
SETTINGS: Final[Mapping[str, str]] = {
    f"{trace}-{load}{charged}": f"{text}, offered load {load}{_CHARGED if charged else ''}"
    for trace, text in _TRACES.items()
    for load in LOADS
    for charged in ("", "-charged")
}


def evaluate(
    checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
) -> Results:
    """Return the metrics of the checkpoint and of all baselines with ``seed``.

    Options: ``data``, the folder of the traces; ``only``, baselines with + between. The rule
    ``NAME-knowing`` gets the true run times, as an upper bound.
    """
    if unknown := sorted(set(options) - {"data", "only"}):
        raise SettingError(f"there is no option {unknown[0]!r}; there are data and only")
    case = test_case(Path(options.get("data", "data")), setting, seed)
    names = options["only"].split("+") if "only" in options else baselines()
    orderers = {name: registry.make_orderer(name.removesuffix(ORACLE)) for name in names if name}
    orderers[checkpoint.card.name] = LearnedOrderer(checkpoint)
    # the mean completion time, if no job ever waited
    mean_run_time = float(np.mean([job.duration_seconds for job in case.trace.jobs]))
    return {
        name: _numbers(play(case, orderer, name.endswith(ORACLE)), mean_run_time)
        for name, orderer in orderers.items()
    }


def test_case(data: Path, setting: str, seed: int) -> World:
    """Return the test case of ``setting`` with number ``seed``.

    Raises:
        SettingError: ``data`` has no such trace.
    """
    trace, load, *charged = setting.split("-")
    physics = CHARGED if charged else Physics()
    if trace == "poisson":
        jobs = read_trace("gen:poisson?jobs=200", gpus_per_node=GPUS_PER_NODE, seed=seed)
        name = f"poisson, seed {seed}"
        return world_of(
            make_window(seed, jobs),
            float(load),
            name=name,
            block=name,
            part="test",
            physics=physics,
        )
    begins = _philly_test_days(data) if trace == "philly" else _MURI_BEGINS
    # first every window, then the same windows with other jobs
    turn, which = divmod(seed, len(begins))
    take = slice(3 * turn % TEST_EVERY, None, TEST_EVERY)
    jobs, days = (whole_philly(data), 1.0) if trace == "philly" else (_muri(data), _MURI_DAYS)
    return thin(jobs, begins[which], days, take, float(load), physics=physics, part="test")


@cache
def _philly_test_days(data: Path) -> list[float]:
    """Return the test days with enough jobs, and more than one node at every load."""
    trace = whole_philly(data)
    windows = {
        day: stretch(trace, 0, day, 1.0, slice(0, None, TEST_EVERY))
        for day in days_with(trace, PHILLY_DAYS["test"][:-1], _MIN_JOBS)  # the last is cut off
    }
    return [day for day, window in windows.items() if len(window.nodes(max(LOADS))) > 1]


@cache
def _muri(data: Path) -> Trace:
    if not (data / _MURI).is_file():
        raise SettingError(
            f"there is no {_MURI} in {str(data)!r}; name the folder that has the traces"
        )
    return read_trace(f"muri:{data / _MURI}", gpus_per_node=GPUS_PER_NODE)


def baselines() -> list[str]:
    """Return the fast rule-based orderers of the registry."""
    return [
        name
        for name, path in policy_names.class_paths("orderer").items()
        if ".heuristics." in path and name not in (*SLOW, *_ALIASES)
    ]


def _numbers(metrics: SimulationMetrics, alone_seconds: float) -> dict[str, float]:
    waits, mean = metrics.wait_seconds, metrics.jct_seconds.mean or 0.0
    return {
        "mean_jct_minutes": mean / 60,
        "mean_jct_to_run_time": mean / alone_seconds,
        "mean_wait_minutes": (waits.mean or 0.0) / 60,
        "p99_wait_minutes": (waits.p99 or 0.0) / 60,
        "past_the_bound": float(metrics.wait_bound_violations),
        "preemptions": float(metrics.preemptions),
        "fallbacks": float(metrics.fallbacks),
    }
