"""Figures of learned policies: learning curves of runs, and the levels of the learned index.

``python -m benchmarks.learning.figures`` writes ``docs/results/learning/learned-index.svg`` from
the checkpoint that is shipped. The curves of A2cScheduler are those of its paper (Liang et al.,
2020, figure 3): rewards, slowdown, completion and waiting time at an arrival rate of 0.7, the rules
as straight lines. TapFinger's (Li et al., figures 8, 13 and 14) are mean completion times, first
while the rule was copied, then while agents improved.
"""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import RESULTS
from benchmarks.simulations.figures import as_svg
from bireme.core.resources import FloatArray
from bireme.rl.builtin import checkpoint
from bireme.rl.checkpoint import OrderPart
from bireme.rl.encoders.index import ATTAINED, DEVICES, FEATURES, IS_KNOWN, WHOLE
from bireme_lab.training.deeprm.baselines import rules, run_rule
from bireme_lab.training.deeprm.environment import DeepRmEnv, DeepRmEnvConfig, measure
from bireme_lab.training.deeprm.evaluation import RATE, VALIDATION_SEED
from bireme_lab.training.deeprm.recipe import DeepRmRecipe
from bireme_lab.training.recipes import load_recipe

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
            axes.set(xlabel="decisions", ylabel=label, xscale="log")
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
        mean = np.convolve(values, np.full(width, 1 / width), mode="valid")
        steps, values = steps[width - 1 :], mean
    axes.plot(steps, values, color="#2b5c9e", linewidth=1.5, label="learned")


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
            axes.set(xlabel="decisions", ylabel=label, yscale="log")
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


LEVELS: Final = RESULTS / "learning" / "learned-index.svg"
_GPUS: Final = (1, 8, 64)
_SECONDS: Final = np.geomspace(10.0, 1e6, 400)
_HOUR: Final = 3600.0
_THRESHOLD: Final = 3250.0
"""Device-seconds between the queues of ``tiresias-las``."""
_LIMIT_SECONDS: Final = 10.0


def levels_drawn(part: OrderPart) -> str:
    """Draw the scores over service, beside the two queues of Tiresias, as SVG.

    The x axis is how long a gang has run; a line per number of GPUs, for gangs of unknown run time
    and for those expected to run an hour.
    """
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, title, score in (
        (panels[0], "learned-index, nothing known", partial(_scores, part, whole=None)),
        (panels[1], "learned-index, an hour expected", partial(_scores, part, whole=_HOUR)),
        (panels[2], "tiresias-las", lambda gpus: -(gpus * _SECONDS >= _THRESHOLD).astype(float)),
    ):
        for gpus in _GPUS:
            label = f"{gpus} GPUs" if gpus > 1 else "1 GPU"
            axes.step(_SECONDS, score(gpus), where="post", label=label)
        axes.set(xscale="log", xlabel="seconds it has run")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("index (higher goes first)")
    panels[2].legend(frameon=False)
    return as_svg(figure)


def _scores(part: OrderPart, gpus: int, whole: float | None) -> FloatArray:
    rows = np.zeros((len(_SECONDS), FEATURES), dtype=np.float32)
    rows[:, ATTAINED] = np.log2(_SECONDS)
    rows[:, WHOLE] = 0.0 if whole is None else np.log2(whole)
    rows[:, IS_KNOWN] = whole is not None
    rows[:, DEVICES] = np.log2(gpus)
    return part.session.answer({"gangs": rows}, len(rows), _LIMIT_SECONDS)


def main() -> None:
    part = checkpoint("learned-index").orderer
    if part is None:
        raise SystemExit("the shipped learned-index has no orderer; train it again")
    LEVELS.write_text(levels_drawn(part), encoding="utf-8")


if __name__ == "__main__":
    main()
