"""RLPTO beside its rivals: accuracy and time of twelve tasks, and points in four priority mixes.

All contenders meet the same tasks, drawn by the seed. Those that are ended by beta stand in the
tables once per beta, ``name-0.0003`` say, the checkpoint also under its own name at 3e-4, which is
the beta of the mixes. Points are what the owners of tasks pay when they are done: ten times the
priority a task was submitted with, and 80 for the highest. They are read every 1000 s for two hours
and averaged (figures 10 and 11 of the paper); the last reading falls on 7000 s.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray
from bireme.heuristics.rlpto_queues import URGENT
from bireme.training.rlpto import settings as experiments
from bireme.training.rlpto.baselines import RIVALS, Contender, carry_out, rule, share_among_gaining
from bireme.training.rlpto.environment import MOST_ITERATIONS, Cluster, RlptoWorld, View, raw
from bireme.training.rlpto.settings import BETAS, MIX_BETA, Setting
from bireme.training.worlds import Observation

SETTINGS: Final[Mapping[str, str]] = {
    "table-2": "12 tasks on 12 nodes, 3 servers among them",
    "table-3": "12 tasks on 16 nodes, 4 servers among them",
    "mix-1": "12 nodes, tasks of priorities 1 to 3",
    "mix-2": "12 nodes, two of 12 tasks have priority 4",
    "mix-3": "12 nodes, six of 12 tasks have priority 4",
    "mix-4": "12 nodes, four of 12 tasks have priority 4, two are urgent",
    "arrivals": "the same in the course of an hour; owners ask for other priorities",
}
PRIMARY: Final = ("total_seconds", True)
JUDGED_BETAS: Final = (*BETAS[:-1], 7e-4, BETAS[-1])
"""Those of the tables, and one between the last two, where TRADL's time is."""
_READ_SECONDS: Final = np.arange(1000.0, 7200.0, 1000.0)
_HIGHEST_POINTS: Final = 80.0
Chooser: TypeAlias = Callable[[Observation], IntArray]
"""The move of every world, shape (worlds,), from what it is shown."""


def evaluate(
    name: str, seed: int, choosers: Mapping[str, Chooser], view: View
) -> dict[str, dict[str, float]]:
    """Metrics of all contenders with ``seed``: those of :func:`measured`.

    ``choosers`` are the learned ones by name, which see the world through ``view``.
    """
    if name not in experiments.SETTINGS:
        known = ", ".join(experiments.SETTINGS)
        raise SettingError(f"setting is {name!r}; write one of {known}")
    setting = experiments.SETTINGS[name]
    betas = (MIX_BETA,) if setting.priorities else JUDGED_BETAS
    found = {rival: carry_out(how, setting, seed) for rival, how in RIVALS.items()}
    for beta in betas:
        stop = Contender(rule("fair-sharing"), least_gain=beta, iterations=MOST_ITERATIONS)
        found[f"fair-stop-{beta}"] = carry_out(stop, setting, seed)
        found[f"simple-rule-{beta}"] = played(share_among_gaining, raw, setting, beta, seed)
        for chooser, choose in choosers.items():
            found[f"{chooser}-{beta}"] = played(choose, view, setting, beta, seed)
    for chooser in choosers:
        found[chooser] = found[f"{chooser}-{MIX_BETA}"]
    return {contender: measured(cluster, setting) for contender, cluster in found.items()}


def played(choose: Chooser, view: View, setting: Setting, beta: float, seed: int) -> Cluster:
    """Let ``choose`` move workers until all tasks are done; the cluster then, of one world."""
    world = RlptoWorld(1, [setting], [beta], view)
    seen = world.reset([seed])
    while not world.cluster.is_over.all():
        seen = world.step(choose(seen)).observation
    return world.cluster


def measured(cluster: Cluster, setting: Setting) -> dict[str, float]:
    """Mean accuracy (percent) and when all are done (s); with priorities, points on average."""
    found = {
        "mean_accuracy": 100 * float(cluster.accuracy.mean()),
        "total_seconds": float(cluster.clock[0]),
    }
    if setting.priorities:
        found["mean_reward"] = float(points(cluster.finished[0], setting.priorities).mean())
    return found


def points(finished: FloatArray, priorities: Sequence[int]) -> FloatArray:
    """Points at every reading, shape (readings,), of tasks that finish at these seconds."""
    priority = np.array(priorities, dtype=np.float64)
    worth = np.where(priority >= URGENT, _HIGHEST_POINTS, 10 * priority)
    return np.asarray((worth * (finished <= _READ_SECONDS[:, None])).sum(axis=1))
