"""A trial of forecasters as a table for people, and as numbers for programs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from bireme.command_line import aligned
from bireme.forecasting.backtest import BackTest
from bireme.simulator.reports.words import digits, duration, plural, share
from bireme.training.forecasts.trial import PERSISTENCE, SEASONAL, Trial

_LEAST_GAIN: Final = 0.01
"""Of skill; below it the simple rule is the better choice."""
_SHOWN: Final = 8
"""So many of the intervals to come are written out."""


def table(trial: Trial) -> str:
    """A line per forecaster, the best first, and below who was chosen and what comes next."""
    rows = [cells(name, _numbers(trial, name)) for name in ranked(trial)]
    lines = [*told_series(trial), "", *aligned([head(trial.asked.quantile), *rows])]
    lines += [f"{name}: not tried: {fault}" for name, fault in trial.chosen.faults.items()]
    lines += ["", *(f"{name}: {words}" for name, words in trial.about.items())]
    lines += [f"chosen   {trial.chosen.said}", f"verdict  {verdict(trial)}", *_ahead(trial)]
    return "\n".join(lines) + "\n"


def ranked(trial: Trial) -> list[str]:
    """The forecasters tried, by their loss at the quantile asked for."""
    scores, q = trial.chosen.scores, trial.asked.quantile
    return sorted(scores, key=lambda name: scores[name].pinball(q))


def verdict(trial: Trial) -> str:
    """Whether any model says more than the better of the two simple rules."""
    scores, name, q = trial.chosen.scores, trial.chosen.name, trial.asked.quantile
    simple = [rule for rule in (PERSISTENCE, SEASONAL) if rule in scores]
    rule = min(simple, key=lambda each: scores[each].pinball(q))
    loss, simple_loss = scores[name].pinball(q), scores[rule].pinball(q)
    closest = min(scores, key=lambda each: scores[each].mean_absolute_error)
    skill = min(trial.skill(closest, each) or 0.0 for each in simple)
    also = f"; {closest} errs least, {share(skill)} less than both" if skill >= _LEAST_GAIN else ""
    if loss >= (1 - _LEAST_GAIN) * simple_loss:
        helps_not = ", so forecasting does not help here" if rule == PERSISTENCE else ""
        return f"no gain at {100 * q:g} %: {rule} alone does as well{also or helps_not}"
    gain = share(1 - loss / simple_loss)
    doubt = "" if is_beyond_chance(scores[name], scores[rule], q) else ", which may be chance"
    told = f"{name} has {gain} less loss than {rule}, the better of the two simple rules{doubt}"
    return f"{told}{also}" if closest != name else told


def is_beyond_chance(one: BackTest, other: BackTest, quantile: float) -> bool:
    """Whether the loss of ``one`` is lower by two standard errors of the difference.

    After Diebold and Mariano (Journal of Business & Economic Statistics, 1995); of forecasts many
    steps ahead, those that overlap count as one.
    """
    gains = other.losses(quantile) - one.losses(quantile)
    independent = len(gains) / one.forecasts.shape[1]
    return bool(gains.mean() > 2 * gains.std() / np.sqrt(independent))


def document(trial: Trial, command: str) -> dict[str, Any]:
    """What ``--json`` writes.

    ``bireme`` (the version), ``command``, ``series`` (how it was read), ``test`` (what was judged
    and how), ``models`` (by name: accuracies, skills, loss, share of actual values below the upper
    bound, seconds of fitting, or the fault for which it was not tried), ``chosen``, ``said``,
    ``verdict`` and ``forecast`` (per interval to come: begin, point, lower and upper bound).
    """
    asked, chosen = trial.asked, trial.chosen
    series = asked.read.series
    return {
        "bireme": version("bireme"),
        "command": command,
        "series": {
            "file": asked.file.name,
            "column": asked.read.column,
            "intervals": len(series),
            "step_seconds": series.step_seconds,
            "periods": list(series.periods),
            "start": series.start,
            "notes": list(asked.read.notes),
        },
        "test": {
            "intervals": asked.test,
            "horizon": asked.horizon,
            "origins": len(chosen.scores[chosen.baseline].origins),
            "quantile": asked.quantile,
        },
        "models": {name: _numbers(trial, name) for name in ranked(trial)}
        | {name: {"fault": fault} for name, fault in chosen.faults.items()},
        "chosen": chosen.name,
        "said": chosen.said,
        "verdict": verdict(trial),
        "forecast": _forecast(trial),
    }


def told_series(trial: Trial) -> list[str]:
    """What was read, and what of it is forecast."""
    asked = trial.asked
    series, notes = asked.read.series, asked.read.notes
    seasons = " and ".join(str(period) for period in series.periods) or "nothing"
    intervals = f"{plural(len(series), 'interval')} of {duration(series.step_seconds)}"
    return [
        f"{asked.read.column} of {asked.file.name}: {intervals}, repeating after {seasons}",
        *(f"  {note}" for note in notes),
        f"forecast {asked.horizon} ahead from every origin in the last {asked.test:,}",
    ]


def head(quantile: float) -> list[str]:
    """The columns of the table."""
    q = f"{100 * quantile:g} %"
    skills = "skill: persistence", SEASONAL
    return ["model", "1-MAPE", "1-WAPE", *skills, f"loss at {q}", f"below {q}", "fitted in"]


def cells(name: str, numbers: Mapping[str, Any]) -> list[str]:
    """The row of the model called ``name``, from its ``numbers`` in the document."""
    keys = "accuracy_mape", "accuracy_wape", "skill_persistence", "skill_seasonal_naive"
    return [
        name,
        *("" if numbers[key] is None else share(numbers[key]) for key in keys),
        digits(numbers["pinball"]),
        share(numbers["below_upper"]),
        duration(round(numbers["fit_seconds"], 3)),
    ]


def _numbers(trial: Trial, name: str) -> dict[str, float | str | None]:
    score: BackTest = trial.chosen.scores[name]
    q = trial.asked.quantile
    about = {"about": trial.about[name]} if name in trial.about else {}
    return {
        "accuracy_mape": score.accuracy_mape,
        "accuracy_wape": score.accuracy_wape,
        "skill_persistence": trial.skill(name, PERSISTENCE),
        "skill_seasonal_naive": trial.skill(name, SEASONAL),
        "mean_absolute_error": score.mean_absolute_error,
        "pinball": score.pinball(q),
        "below_upper": score.coverage(q),
        "fit_seconds": trial.fit_seconds[name],
        **about,
    }


def when(trial: Trial, ahead: int) -> str | None:
    """When the interval ``ahead`` behind the last one begins, as RFC 3339; None if unknown."""
    series = trial.asked.read.series
    if series.start is None:
        return None
    begins = series.start + (len(series) + ahead) * series.step_seconds
    return f"{datetime.fromtimestamp(begins, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _forecast(trial: Trial) -> list[dict[str, float | str | None]]:
    return [
        {"begins": when(trial, at), "point": point, "lower": lower, "upper": upper}
        for at, (point, lower, upper) in enumerate(trial.ahead.T.tolist())
    ]


def _ahead(trial: Trial) -> list[str]:
    q = trial.asked.quantile
    lines = [
        f"next     {when(trial, at) or f'interval {at + 1}'}  {digits(point)}, "
        f"{digits(lower)} to {digits(upper)} with {100 * (2 * q - 1):.0f} %"
        for at, (point, lower, upper) in enumerate(trial.ahead.T[:_SHOWN].tolist())
    ]
    more = trial.asked.horizon - _SHOWN
    return [*lines, f"         and {more} more in --json and --plot"] if more > 0 else lines
