"""Evaluation of the learned index: beside every orderer of the registry that is quick to ask.

All meet the same jobs, guardrails, placement and history of run times, on weeks of the traces that
training never saw.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from bireme import registry
from bireme.core.errors import SettingError
from bireme.rl.checkpoint import Checkpoint
from bireme.rl.components import LearnedOrderer
from bireme.simulator.metrics import SimulationMetrics
from bireme.training.index.environment import CASE_LOADS, play, test_case
from bireme.training.recipes import Results

SLOW: Final = ("malo", "mosa", "rifling")
"""Orderers that search for seconds per decision: not beside the others."""
ORACLE: Final = "-knowing"
"""Ending of the name of a rule that is given the true run times."""
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
    for load in CASE_LOADS
    for charged in ("", "-charged")
}


def evaluate(
    checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
) -> Results:
    """Return the metrics of the checkpoint and of all baselines with ``seed``.

    Options: ``data``, the folder of the traces; ``only``, baselines with + between, of which
    ``NAME-knowing`` is a rule that is given the true run times: the best that could be had.
    """
    if unknown := sorted(set(options) - {"data", "only"}):
        raise SettingError(f"there is no option {unknown[0]!r}; there are data and only")
    case = test_case(Path(options.get("data", "data")), setting, seed)
    names = options["only"].split("+") if "only" in options else baselines()
    orderers = {name: registry.make_orderer(name.removesuffix(ORACLE)) for name in names if name}
    orderers[checkpoint.card.name] = LearnedOrderer(checkpoint)
    # the mean completion time, if no job ever waited
    alone = float(np.mean([job.duration_seconds for job in case.trace.jobs]))
    return {
        name: _numbers(play(case, each, name.endswith(ORACLE)), alone)
        for name, each in orderers.items()
    }


def baselines() -> list[str]:
    """Return the rule-based orderers of the registry that are quick to ask."""
    return [
        name
        for name, path in registry.ORDERERS.items()
        if path.startswith("bireme.heuristics") and name not in (*SLOW, *_ALIASES)
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
