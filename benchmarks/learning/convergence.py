"""Learning curves as figures, from the ``curves.csv`` of runs.

A2cScheduler's are those of its paper (Liang et al., 2020, figure 3): rewards, slowdown, completion
and waiting time at an arrival rate of 0.7, the rules as straight lines. TapFinger's (Li et al.,
figures 8, 13 and 14) are mean completion times, first while the rule was copied, then while agents
improved.
"""

import csv
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.simulations.figures import as_svg
from bireme.core.resources import FloatArray
from bireme.training.deeprm.baselines import rules, run_rule
from bireme.training.deeprm.environment import DeepRmEnv, DeepRmEnvConfig, measure
from bireme.training.deeprm.evaluation import RATE, VALIDATION_SEED
from bireme.training.deeprm.recipe import DeepRmRecipe
from bireme.training.recipes import load_recipe

PANELS: Final = {
    "return": "reward of an episode",
    "validation_slowdown": "slowdown",
    "validation_completion_steps": "completion time, steps",
    "validation_waiting_steps": "waiting time, steps",
}
_WORLDS: Final = 100
_SMOOTHED: Final = 20
"""Updates in the mean that the rewards are drawn as."""
_COLOURS: Final = {"random": "#b8b8b8", "sjf": "#d08a2e", "tetris": "#4c8c5c"}
STYLE: Final[dict[Any, Any]] = {"font.size": 8}


def drawn(curves: Path, name: str) -> str:
    """Draw the curves of a run of the recipe ``name`` as SVG."""
    recipe = load_recipe(name)
    if not isinstance(recipe, DeepRmRecipe):
        raise ValueError(f"{curves} is of recipe {name!r}; draw those of a2c and a2c-cnn")
    rows = _rows(curves)
    levels = _rules(recipe.config.queue_slots)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 5.0), layout="constrained")
        figure.suptitle(f"{name}, validated at an arrival rate of {RATE:g}")
        for at, (column, label) in enumerate(PANELS.items()):
            axes = figure.add_subplot(2, 2, at + 1)
            _draw(axes, rows, column)
            for rule, means in levels.items():
                if column in means:
                    axes.axhline(means[column], color=_COLOURS[rule], linewidth=1, label=rule)
            axes.set_ylabel(label)
            axes.set_xlabel("decisions")
            axes.set_xscale("log")
            axes.grid(color="#eeeeee")
            if at:
                axes.legend(frameon=False, loc="upper right")
        return as_svg(figure)


def _rows(curves: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(curves.read_text(encoding="utf-8").splitlines()))


def _draw(axes: Axes, rows: Sequence[Mapping[str, str]], column: str) -> None:
    found = [(float(row["step"]), float(row[column])) for row in rows if row.get(column)]
    steps, values = np.array(found).T
    if column == "return":
        width = min(_SMOOTHED, len(values))
        steps, values = steps[width - 1 :], _running_mean(values, width)
    axes.plot(steps, values, color="#2b5c9e", linewidth=1.5, label="learned")


def _running_mean(values: FloatArray, width: int) -> FloatArray:
    return np.convolve(values, np.full(width, 1 / width), mode="valid")


def _rules(queue_slots: int) -> dict[str, dict[str, float]]:
    """Measure the rules on the validation envs, under the names of the curves."""
    env = DeepRmEnv(_WORLDS, DeepRmEnvConfig(rates=(RATE,), queue_slots=queue_slots))
    levels = {}
    for name, rule in rules(0).items():
        env.reset(range(VALIDATION_SEED, VALIDATION_SEED + _WORLDS))
        found = measure(run_rule(env, rule))
        levels[name] = {f"validation_{metric}": float(row.mean()) for metric, row in found.items()}
    return levels


_DESIGN_PANELS: Final = {
    "multi-3_jct_steps": "multi-3: completion time, steps",
    "pointer_jct_steps": "pointer: completion time, steps",
}
_DESIGN_COLOURS: Final = ("#2b5c9e", "#d08a2e", "#4c8c5c", "#9e2b4f")


def designs_drawn(runs: Mapping[str, Path]) -> str:
    """Draw the curves of ``runs``, folders by recipe, as SVG."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.0), layout="constrained")
        for at, (column, label) in enumerate(_DESIGN_PANELS.items()):
            axes = figure.add_subplot(1, 2, at + 1)
            for (recipe, run), colour in zip(runs.items(), _DESIGN_COLOURS, strict=False):
                points = _points(run / "curves.csv", column)
                axes.plot(*points, color=colour, linewidth=1.5, marker=".", label=recipe)
            axes.set_ylabel(label)
            axes.set_xlabel("decisions")
            axes.set_yscale("log")
            axes.grid(color="#eeeeee")
            if at:
                axes.legend(frameon=False)
        return as_svg(figure)


def _points(curves: Path, column: str) -> tuple[list[float], list[float]]:
    """Return decisions over all stages, and the values where there are any."""
    rows = _rows(curves)
    ends = {row["stage"]: float(row["step"]) for row in rows}
    before = dict(zip(ends, accumulate(ends.values(), initial=0.0), strict=False))
    points = [
        (before[r["stage"]] + float(r["step"]), float(r[column])) for r in rows if r.get(column)
    ]
    return [step for step, _ in points], [value for _, value in points]
