"""A comparison of forecasters as a table, as numbers for programs, and as a picture."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.selection import BackTest
from bireme.tables import align_columns
from bireme_lab.simulator.reports.page import LIGHT, LIGHT_POLICIES
from bireme_lab.simulator.reports.terminal import digits, duration, plural, share
from bireme_lab.training.gru.evaluation import PERSISTENCE, SEASONAL, ForecastComparison, bounds

_MIN_GAIN: Final = 0.01
"""Minimum skill of a model that is a better choice than a simple rule."""
_MAX_ROWS: Final = 8
"""Maximum number of future intervals in the table."""


def table(comparison: ForecastComparison) -> str:
    """Return a line per forecaster, the best first; then the choice and the forecast."""
    rows = [cells(name, _numbers(comparison, name)) for name in names_by_loss(comparison)]
    lines = [*_about(comparison), "", *align_columns([head(comparison.request.quantile), *rows])]
    lines += [f"{name}: not tried: {fault}" for name, fault in comparison.chosen.faults.items()]
    lines += ["", *(f"{name}: {note}" for name, note in comparison.about.items())]
    lines += [
        f"chosen   {comparison.chosen.summary}",
        f"verdict  {verdict(comparison)}",
        *_forecast_lines(comparison),
    ]
    return "\n".join(lines) + "\n"


def names_by_loss(comparison: ForecastComparison) -> list[str]:
    """Return the forecasters that were tried, by their loss at the requested quantile."""
    scores, q = comparison.chosen.scores, comparison.request.quantile
    return sorted(scores, key=lambda name: scores[name].pinball(q))


def verdict(comparison: ForecastComparison) -> str:
    """Return as text whether a model is better than both simple rules."""
    scores, name, q = comparison.chosen.scores, comparison.chosen.name, comparison.request.quantile
    simple = [rule for rule in (PERSISTENCE, SEASONAL) if rule in scores]
    rule = min(simple, key=lambda candidate: scores[candidate].pinball(q))
    loss, simple_loss = scores[name].pinball(q), scores[rule].pinball(q)
    closest = min(scores, key=lambda candidate: scores[candidate].mean_absolute_error)
    skill = min(comparison.skill(closest, model) or 0.0 for model in simple)
    also = ""
    if skill >= _MIN_GAIN:
        also = f"; {closest} has the smallest error, {share(skill)} below both"
    if loss >= (1 - _MIN_GAIN) * simple_loss:
        helps_not = ", so forecasting does not help here" if rule == PERSISTENCE else ""
        return f"no gain at {100 * q:g} %: {rule} alone is as accurate{also or helps_not}"
    gain = share(1 - loss / simple_loss)
    doubt = "" if is_beyond_chance(scores[name], scores[rule], q) else ", which may be chance"
    gained = f"{name} has {gain} less loss than {rule}, the better of the two simple rules{doubt}"
    return f"{gained}{also}" if closest != name else gained


def is_beyond_chance(one: BackTest, other: BackTest, quantile: float) -> bool:
    """Return whether the loss of ``one`` is lower by two standard errors of the difference.

    After Diebold and Mariano (Journal of Business & Economic Statistics, 1995). Overlapping
    forecasts of several steps count as one.
    """
    gains = other.losses(quantile) - one.losses(quantile)
    independent = len(gains) / one.forecasts.shape[1]
    return bool(gains.mean() > 2 * gains.std() / np.sqrt(independent))


def document(comparison: ForecastComparison) -> dict[str, Any]:
    """Return the numbers that ``--json`` writes.

    ``series`` (its source and form), ``test`` (its size and quantile), ``models`` (by name:
    accuracies, skills, loss, share of actual values below the upper bound, seconds of fitting, or
    the fault for which it was not tried), ``choice``, ``reason`` (why), ``verdict`` and
    ``forecast`` (per interval to come: begin, point, lower and upper bound).
    """
    request, choice = comparison.request, comparison.chosen
    series = request.read.series
    return {
        "series": {
            "file": request.file.name,
            "column": request.read.column,
            "intervals": len(series),
            "step_seconds": series.step_seconds,
            "periods": list(series.periods),
            "start": series.start,
            "notes": list(request.read.notes),
        },
        "test": {
            "intervals": request.test,
            "horizon": request.horizon,
            "origins": len(choice.scores[choice.baseline].origins),
            "quantile": request.quantile,
        },
        "models": {name: _numbers(comparison, name) for name in names_by_loss(comparison)}
        | {name: {"fault": fault} for name, fault in choice.faults.items()},
        "chosen": choice.name,
        "reason": choice.summary,
        "verdict": verdict(comparison),
        "forecast": _forecast(comparison),
    }


def _about(comparison: ForecastComparison) -> list[str]:
    """Return the lines about the series that was read."""
    request = comparison.request
    series, notes = request.read.series, request.read.notes
    seasons = " and ".join(str(period) for period in series.periods) or "nothing"
    intervals = f"{plural(len(series), 'interval')} of {duration(series.step_seconds)}"
    return [
        f"{request.read.column} of {request.file.name}: {intervals}, repeating after {seasons}",
        *(f"  {note}" for note in notes),
        f"forecast {request.horizon} ahead from every origin in the last {request.test:,}",
    ]


def head(quantile: float) -> list[str]:
    """Return the columns of the table."""
    q = f"{100 * quantile:g} %"
    skills = "skill: persistence", SEASONAL
    return ["model", "1-MAPE", "1-WAPE", *skills, f"loss at {q}", f"below {q}", "fitted in"]


def cells(name: str, numbers: Mapping[str, Any]) -> list[str]:
    """Return the row of the model ``name`` from its ``numbers`` in the document."""
    keys = "accuracy_mape", "accuracy_wape", "skill_persistence", "skill_seasonal_naive"
    return [
        name,
        *("" if numbers[key] is None else share(numbers[key]) for key in keys),
        digits(numbers["pinball"]),
        share(numbers["below_upper"]),
        duration(round(numbers["fit_seconds"], 3)),
    ]


def _numbers(comparison: ForecastComparison, name: str) -> dict[str, float | str | None]:
    score: BackTest = comparison.chosen.scores[name]
    q = comparison.request.quantile
    about = {"about": comparison.about[name]} if name in comparison.about else {}
    return {
        "accuracy_mape": score.accuracy_mape,
        "accuracy_wape": score.accuracy_wape,
        "skill_persistence": comparison.skill(name, PERSISTENCE),
        "skill_seasonal_naive": comparison.skill(name, SEASONAL),
        "mean_absolute_error": score.mean_absolute_error,
        "pinball": score.pinball(q),
        "below_upper": score.coverage(q),
        "fit_seconds": comparison.fit_seconds[name],
        **about,
    }


def when(comparison: ForecastComparison, steps: int) -> str | None:
    """Return the beginning of the interval ``steps`` after the last, RFC 3339; None if unknown."""
    series = comparison.request.read.series
    if series.start is None:
        return None
    begins = series.start + (len(series) + steps) * series.step_seconds
    return f"{datetime.fromtimestamp(begins, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _forecast(comparison: ForecastComparison) -> list[dict[str, float | str | None]]:
    return [
        {"begins": when(comparison, index), "point": point, "lower": lower, "upper": upper}
        for index, (point, lower, upper) in enumerate(comparison.ahead.T.tolist())
    ]


def _forecast_lines(comparison: ForecastComparison) -> list[str]:
    q = comparison.request.quantile
    lines = [
        f"next     {when(comparison, index) or f'interval {index + 1}'}  {digits(point)}, "
        f"{digits(lower)} to {digits(upper)} with {100 * (2 * q - 1):.0f} %"
        for index, (point, lower, upper) in enumerate(comparison.ahead.T[:_MAX_ROWS].tolist())
    ]
    more = comparison.request.horizon - _MAX_ROWS
    return [*lines, f"         and {more} more in --json and --plot"] if more > 0 else lines


# --- the picture: the end of the test with its forecasts, and the forecast beyond the series -----

_INCHES: Final = (10.0, 4.4)
_DPI: Final = 100
_SMALL: Final[dict[str, Any]] = {".png": {"pil_kwargs": {"optimize": True}}}
_PICTURE_SHOWN: Final = 336
"""Maximum number of intervals of the test in the picture, two weeks of hours."""
_LINE, _BASELINE = LIGHT_POLICIES[:2]


def draw(comparison: ForecastComparison, target: Path) -> None:
    """Write the picture of ``comparison`` to ``target``, in the format of its suffix."""
    from matplotlib.figure import Figure  # only a picture needs it, and it may not be installed

    figure = Figure(figsize=_INCHES, layout="constrained", facecolor=LIGHT["card"])
    axes = figure.add_subplot(facecolor=LIGHT["card"])
    _draw(axes, comparison)
    _dress(axes, comparison)
    figure.savefig(target, dpi=_DPI, **_SMALL.get(target.suffix, {}))


def _draw(axes: Any, comparison: ForecastComparison) -> None:
    series, choice = comparison.request.read.series, comparison.chosen
    rows, score = _rows(comparison), choice.scores[choice.name]
    places = score.origins[rows, None] + np.arange(comparison.request.horizon)
    if choice.name != choice.baseline:
        baseline = choice.scores[choice.baseline].forecasts[rows]
        style = {"color": _BASELINE, "lw": 0.9, "alpha": 0.7, "label": choice.baseline}
        axes.plot(*_curve(comparison, places, baseline), **style)
    percent = f"{100 * (2 * comparison.request.quantile - 1):.0f} %"
    label = f"{choice.name}, {percent} interval"
    past = bounds(choice.intervals, score.forecasts[rows], comparison.request.quantile)
    beyond = len(series) + np.arange(comparison.request.horizon)[None]
    for positions, (point, lower, upper) in ((places, past), (beyond, comparison.ahead[:, None])):
        across, low = _curve(comparison, positions, lower)
        # A single point has no width: draw a bar and a dot.
        width, marks = (0, {}) if positions.size > 1 else (5, {"marker": "o", "markersize": 4})
        high = _curve(comparison, positions, upper)[1]
        axes.fill_between(across, low, high, color=_LINE, alpha=0.18, lw=width)
        axes.plot(*_curve(comparison, positions, point), color=_LINE, lw=1.5, label=label, **marks)
        label = ""
    visible = np.arange(places[0, 0], len(series))[None]
    axes.plot(
        *_curve(comparison, visible, series.values[visible]),
        color=LIGHT["ink"],
        lw=1.1,
        label="actual",
    )
    axes.axvline(_across(comparison, beyond)[0], color=LIGHT["soft"], lw=0.8, ls=":")


def _rows(comparison: ForecastComparison) -> IntArray:
    """Return origins whose forecasts do not overlap, so that no interval is drawn twice."""
    origins = len(comparison.chosen.scores[comparison.chosen.name].origins)
    first = max(0, origins - _PICTURE_SHOWN)
    return np.arange(origins - 1, first - 1, -comparison.request.horizon, dtype=np.int64)[::-1]


def _curve(
    comparison: ForecastComparison, places: IntArray, values: FloatArray
) -> tuple[list[Any], FloatArray]:
    """Return places on the axis and values of forecasts (a row each), with a gap between them."""
    if places.shape[1] > 1:
        places = np.pad(places, ((0, 0), (0, 1)), mode="edge")
        values = np.pad(values, ((0, 0), (0, 1)), constant_values=np.nan)
    return _across(comparison, places), values.ravel()


def _across(comparison: ForecastComparison, places: IntArray) -> list[Any]:
    """Return times if they are known, else the numbers of the intervals."""
    series = comparison.request.read.series
    if series.start is None:
        return list(places.ravel())
    seconds = series.start + places.ravel() * series.step_seconds
    return [datetime.fromtimestamp(second, UTC) for second in seconds]


def _dress(axes: Any, comparison: ForecastComparison) -> None:
    ink, soft = LIGHT["ink"], LIGHT["soft"]
    axes.set_title(_title(comparison), loc="left", color=ink, size=12, weight="bold", pad=24)
    axes.text(0, 1.025, _subtitle(comparison), transform=axes.transAxes, color=soft, fontsize=9)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.yaxis.set_major_formatter(lambda value, _: digits(value))
    if comparison.request.read.series.start is not None:
        from matplotlib.dates import ConciseDateFormatter

        formatter: Any = ConciseDateFormatter  # has no types
        axes.xaxis.set_major_formatter(formatter(axes.xaxis.get_major_locator()))
    axes.grid(axis="y", color=LIGHT["grid"])
    axes.tick_params(colors=soft, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(LIGHT["edge"])
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0, -0.07), ncols=3)


def _title(comparison: ForecastComparison) -> str:
    request = comparison.request
    step = duration(request.read.series.step_seconds * request.horizon)
    return f"{request.read.column} of {request.file.name}, {step} ahead"


def _subtitle(comparison: ForecastComparison) -> str:
    score = comparison.chosen.scores[comparison.chosen.name]
    accuracy = score.accuracy_wape
    skills = [
        (rule, comparison.skill(comparison.chosen.name, rule))
        for rule in (PERSISTENCE, SEASONAL)
        if rule != comparison.chosen.name
    ]
    parts = [f"1-WAPE {share(accuracy)}"] if accuracy is not None else []
    parts += [f"skill {share(skill)} against {rule}" for rule, skill in skills if skill is not None]
    return f"last {comparison.request.test:,} intervals: {', '.join(parts)}"
