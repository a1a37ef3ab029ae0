"""How A2cScheduler came to what it can: the figure of its paper (Liang et al., 2020, figure 3).

Rewards, slowdown, completion and waiting time at an arrival rate of 0.7 over the decisions taken,
from the ``curves.csv`` of a run; the rules on the same validation envs as straight lines.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
STYLE: Final[dict[Any, Any]] = {"svg.fonttype": "none", "svg.hashsalt": "bireme", "font.size": 8}


def drawn(curves: Path, name: str) -> str:
    """Draw the curves of a run of the recipe ``name`` as SVG."""
    recipe = load_recipe(name)
    if not isinstance(recipe, DeepRmRecipe):
        raise ValueError(f"{curves} is of recipe {name!r}; draw those of a2c and a2c-cnn")
    rows = list(csv.DictReader(curves.read_text(encoding="utf-8").splitlines()))
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
        held = io.StringIO()
        figure.savefig(held, format="svg", metadata={"Date": None})
    return held.getvalue()


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
