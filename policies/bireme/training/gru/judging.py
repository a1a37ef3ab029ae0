"""How a network does on series that it has not learned, beside persistence and the season.

What is compared is the absolute error over the whole horizon, from one origin a day, each series
relative to its own mean so that large pools do not speak for small ones.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray
from bireme.forecasting.backtest import back_test
from bireme.forecasting.forecasters import Forecaster
from bireme.forecasting.naive import Persistence, SeasonalNaive
from bireme.forecasting.series import Series
from bireme.rl.cards import Result
from bireme.simulator import bootstrap
from bireme.training.gru.families import DAY

RIVALS: Final = (Persistence, SeasonalNaive)
LEAST_MEAN: Final = 1e-9
"""For series that are all but without demand."""


def judged(
    forecaster: Forecaster,
    every: Sequence[Series],
    steps: int,
    days: int,
    setting: str,
    command: str,
) -> Result:
    """Its mean error over the last ``days`` of hourly series, as a ratio to the better rival's.

    The interval is that of series drawn anew; where there is one, that of its days.
    """
    own = _errors(forecaster, every, steps, days)
    rivals = {rival.name: _errors(rival(), every, steps, days) for rival in RIVALS}
    best = min(rivals, key=lambda name: float(rivals[name].mean()))
    (found,) = bootstrap.ratios(own, rivals[best], bootstrap.draws(len(own)))
    if found is None or found.low is None or found.high is None:
        raise RuntimeError(f"{setting}: {best} is never wrong, or there is nothing to draw from")
    return Result(
        setting=setting,
        metric=f"mean error of {steps} hours, as a ratio",
        value=round(found.mean, 4),
        interval=(round(found.low, 4), round(found.high, 4)),
        rival=best,
        rival_value=1.0,
        command=command,
    )


def _errors(forecaster: Forecaster, every: Sequence[Series], steps: int, days: int) -> FloatArray:
    """Errors relative to each series' mean, by series, or by day of the only one; (n, 1)."""
    found = []
    for series in every:
        test = back_test(forecaster, series, len(series) - days * DAY, every=DAY, steps=steps)
        wrong = np.abs(test.forecasts - test.actuals).mean(axis=1)
        found.append(wrong / max(series.values.mean(), LEAST_MEAN))
    by_unit: FloatArray = found[0] if len(every) == 1 else np.array(found).mean(axis=1)
    return by_unit[:, None]
