"""Forecast against what came: the end of the test with the interval, and on beyond the series.

A point of the line is the forecast made as many intervals before as the trial asked for; where that
is more than one, forecasts are drawn whole, one after the other, so that none is seen twice.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure

from bireme.core.resources import FloatArray, IntArray
from bireme.simulator.reports.style import LIGHT, LIGHT_POLICIES
from bireme.simulator.reports.words import digits, duration, share
from bireme.training.forecasts.trial import PERSISTENCE, SEASONAL, Trial, bounds

_INCHES: Final = (10.0, 4.4)
_DPI: Final = 100
_SMALL: Final[dict[str, Any]] = {".png": {"pil_kwargs": {"optimize": True}}}
_SHOWN: Final = 336
"""Intervals of the test that are drawn, a fortnight of hours."""
_LINE, _RIVAL = LIGHT_POLICIES[:2]


def draw(trial: Trial, target: Path) -> None:
    """Write the picture of ``trial`` to ``target``; its ending says of what kind.

    Raises:
        OSError: it cannot be written.
    """
    figure = Figure(figsize=_INCHES, layout="constrained", facecolor=LIGHT["card"])
    axes = figure.add_subplot(facecolor=LIGHT["card"])
    _draw(axes, trial)
    _dress(axes, trial)
    figure.savefig(target, dpi=_DPI, **_SMALL.get(target.suffix, {}))


def _draw(axes: Any, trial: Trial) -> None:
    series, chosen = trial.asked.read.series, trial.chosen
    rows, score = _rows(trial), chosen.scores[chosen.name]
    places = score.origins[rows, None] + np.arange(trial.asked.horizon)
    if chosen.name != chosen.baseline:
        rival = chosen.scores[chosen.baseline].forecasts[rows]
        style = {"color": _RIVAL, "lw": 0.9, "alpha": 0.7, "label": chosen.baseline}
        axes.plot(*_curve(trial, places, rival), **style)
    percent = f"{100 * (2 * trial.asked.quantile - 1):.0f} %"
    label = f"{chosen.name}, {percent} interval"
    past = bounds(chosen.intervals, score.forecasts[rows], trial.asked.quantile)
    beyond = len(series) + np.arange(trial.asked.horizon)[None]
    for at, (point, lower, upper) in ((places, past), (beyond, trial.ahead[:, None])):
        across, low = _curve(trial, at, lower)
        # One point alone has no width: a bar and a dot are seen.
        width, marks = (0, {}) if at.size > 1 else (5, {"marker": "o", "markersize": 4})
        high = _curve(trial, at, upper)[1]
        axes.fill_between(across, low, high, color=_LINE, alpha=0.18, lw=width)
        axes.plot(*_curve(trial, at, point), color=_LINE, lw=1.5, label=label, **marks)
        label = ""
    shown = np.arange(places[0, 0], len(series))[None]
    axes.plot(
        *_curve(trial, shown, series.values[shown]), color=LIGHT["ink"], lw=1.1, label="actual"
    )
    axes.axvline(_across(trial, beyond)[0], color=LIGHT["soft"], lw=0.8, ls=":")


def _rows(trial: Trial) -> IntArray:
    """Origins so far from each other that their forecasts do not overlap, up to the last one."""
    origins = len(trial.chosen.scores[trial.chosen.name].origins)
    first = max(0, origins - _SHOWN)
    return np.arange(origins - 1, first - 1, -trial.asked.horizon, dtype=np.int64)[::-1]


def _curve(trial: Trial, places: IntArray, values: FloatArray) -> tuple[list[Any], FloatArray]:
    """Places on the axis and values of forecasts, a row each, with a break after every long one."""
    if places.shape[1] > 1:
        places = np.pad(places, ((0, 0), (0, 1)), mode="edge")
        values = np.pad(values, ((0, 0), (0, 1)), constant_values=np.nan)
    return _across(trial, places), values.ravel()


def _across(trial: Trial, places: IntArray) -> list[Any]:
    """Times where they are known, else the numbers of the intervals."""
    series = trial.asked.read.series
    if series.start is None:
        return list(places.ravel())
    seconds = series.start + places.ravel() * series.step_seconds
    return [datetime.fromtimestamp(at, UTC) for at in seconds]


def _dress(axes: Any, trial: Trial) -> None:
    ink, soft = LIGHT["ink"], LIGHT["soft"]
    axes.set_title(_title(trial), loc="left", color=ink, fontsize=12, fontweight="bold", pad=24)
    axes.text(0, 1.025, _subtitle(trial), transform=axes.transAxes, color=soft, fontsize=9)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.yaxis.set_major_formatter(lambda value, _: digits(value))
    if trial.asked.read.series.start is not None:
        formatter: Any = ConciseDateFormatter  # has no types
        axes.xaxis.set_major_formatter(formatter(axes.xaxis.get_major_locator()))
    axes.grid(axis="y", color=LIGHT["grid"])
    axes.tick_params(colors=soft, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(LIGHT["edge"])
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0, -0.07), ncols=3)


def _title(trial: Trial) -> str:
    asked = trial.asked
    step = duration(asked.read.series.step_seconds * asked.horizon)
    return f"{asked.read.column} of {asked.file.name}, {step} ahead"


def _subtitle(trial: Trial) -> str:
    score = trial.chosen.scores[trial.chosen.name]
    accuracy = score.accuracy_wape
    rivals = [rival for rival in (PERSISTENCE, SEASONAL) if rival != trial.chosen.name]
    skills = [(rival, trial.skill(trial.chosen.name, rival)) for rival in rivals]
    told = [f"1-WAPE {share(accuracy)}"] if accuracy is not None else []
    told += [
        f"skill {share(skill)} against {rival}" for rival, skill in skills if skill is not None
    ]
    return f"last {trial.asked.test:,} intervals: {', '.join(told)}"
