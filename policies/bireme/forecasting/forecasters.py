"""The interface of forecasters, and all of them by name, loaded when one is asked for.

Fitting and forecasting are two steps, so that a forecaster can be evaluated at many origins with
the parameters it had at the first: a :class:`FittedModel` forecasts from any origin of its series,
or of one that continues it, and learns nothing more.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from bireme.core.errors import SettingError, nearest
from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.series import Series


class FittedModel(Protocol):
    """A forecaster fitted to one series."""

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        """Return point forecasts, shape (origins, steps), finite and not below 0.

        Row i forecasts ``values[o : o + steps]`` from ``values[:o]``, ``o = origins[i]``; o may be
        ``len(values)``. ``values`` begin with the first value of the series fitted.

        Raises:
            TooShortError: an origin has too few values before it.
        """


class Forecaster(Protocol):
    """A forecasting method."""

    name: str

    def fit(self, series: Series) -> FittedModel:
        """Return the model for ``series``.

        Raises:
            TooShortError: it has too few values.
            ForecastError: it cannot be fitted for another reason.
        """


FORECASTERS: Final[Mapping[str, str]] = {
    "persistence": "bireme.forecasting.naive:Persistence",
    "seasonal-naive": "bireme.forecasting.naive:SeasonalNaive",
    "holt-winters": "bireme.forecasting.holt_winters:HoltWinters",
    "arima": "bireme.forecasting.arima:Arima",
    "gru": "bireme.forecasting.gru:Gru",
    "lsp": "bireme.forecasting.lsp:Lsp",
}

_REMEMBERED: Final = 2
"""The fit for a back-test, and the shorter one by which a blend weighs its parts."""


class CachedFits:
    """Caches the last two fits of a forecaster, so that a blend and its parts share them."""

    def __init__(self, inner: Forecaster) -> None:
        self.name = inner.name
        self._inner = inner
        self._fits: deque[tuple[Series, FittedModel]] = deque(maxlen=_REMEMBERED)

    def fit(self, series: Series) -> FittedModel:
        """Return the cached model of an equal series, else that of the forecaster."""
        for known, model in self._fits:
            if known.equals(series):
                return model
        model = self._inner.fit(series)
        self._fits.append((series, model))
        return model


def make(
    names: Iterable[str] = FORECASTERS, steps: int = 1, **parts: Forecaster
) -> list[Forecaster]:
    """Return the forecasters called ``names``; LSP shares its parts with the others.

    Args:
        names: Which, in the order wanted.
        steps: How far ahead the forecasts matter.
        parts: Takes the place of what a name stands for: ``make(gru=Gru(train=...))``.

    Raises:
        SettingError: no forecaster is called so (it names the nearest).
    """
    made: dict[str, Forecaster] = {name: CachedFits(part) for name, part in parts.items()}
    return [_made(name, steps, made) for name in names]


def _made(name: str, steps: int, made: dict[str, Forecaster]) -> Forecaster:
    if name not in made:
        if name == "lsp":
            short, long = (_made(part, steps, made) for part in ("gru", "arima"))
            made[name] = _load(name)(short, long, steps=steps)
        elif name in ("holt-winters", "arima"):
            made[name] = CachedFits(_load(name)(steps))
        else:
            made[name] = CachedFits(_load(name)())
    return made[name]


def _load(name: str) -> Any:
    path = FORECASTERS.get(name)
    if path is None:
        raise SettingError(f"no forecaster is called {name!r}; {nearest(name, FORECASTERS)}")
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
