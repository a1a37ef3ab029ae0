"""A trial of forecasters as a table for people, and as numbers for programs."""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from bireme.forecasting.backtest import BackTest
from bireme.simulator.reports.terminal import aligned
from bireme.simulator.reports.words import digits, duration, plural, share
from bireme.training.forecasts.trial import PERSISTENCE, SEASONAL, Trial

_LEAST_GAIN: Final = 0.01
"""Of skill; below it the simple rule is the better choice."""
_SHOWN: Final = 8
"""So many of the intervals to come are written out."""


def table(trial: Trial) -> str:
    """A line per forecaster, the best first, and below who was chosen and what comes next."""
    q = f"{100 * trial.asked.quantile:g} %"
    head = [
        *("model", "1-MAPE", "1-WAPE", "skill: persistence", "seasonal-naive"),
        *(f"loss at {q}", f"below {q}", "fitted in"),
    ]
    lines = [
        *told_series(trial),
        "",
        *aligned([head, *(_row(trial, name) for name in ranked(trial))]),
    ]
    lines += [f"{name}: not tried: {fault}" for name, fault in trial.chosen.faults.items()]
    lines += ["", *(f"{name}: {words}" for name, words in trial.about.items())]
    lines += [f"chosen   {trial.chosen.said}", f"verdict  {verdict(trial)}", *_ahead(trial)]
    return "\n".join(lines) + "\n"


def ranked(trial: Trial) -> list[str]:
    """The forecasters tried, by their loss at the quantile asked for."""
    scores, q = trial.chosen.scores, trial.asked.quantile
    return sorted(scores, key=lambda name: scores[name].pinball(q))


def verdict(trial: Trial) -> str:
    """Whether the one chosen says more than the better of the two simple rules."""
    scores, name = trial.chosen.scores, trial.chosen.name
    simple = [rule for rule in (PERSISTENCE, SEASONAL) if rule in scores]
    rule = min(simple, key=lambda each: scores[each].mean_absolute_error)
    gain = trial.skill(name, rule)
    if gain is None or gain < _LEAST_GAIN:
        return f"no gain: {rule} alone does as well, so forecasting does not help here"
    return f"{name} errs {share(gain)} less than {rule}, the better of the two simple rules"


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


def _row(trial: Trial, name: str) -> list[str]:
    score, q = trial.chosen.scores[name], trial.asked.quantile
    shares = (
        score.accuracy_mape,
        score.accuracy_wape,
        trial.skill(name, PERSISTENCE),
        trial.skill(name, SEASONAL),
    )
    return [
        name,
        *("" if value is None else share(value) for value in shares),
        digits(score.pinball(q)),
        share(score.coverage(q)),
        duration(round(trial.fit_seconds[name], 3)),
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
