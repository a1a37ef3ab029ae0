"""The interface of forecasters, and all of them by name, loaded on first use.

Fitting and forecasting are two steps, so that a forecaster can be evaluated at many origins with
the parameters that it had at the first. A :class:`FittedModel` forecasts from any origin of its
series, or of one that continues it, and learns nothing more.
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
            TooShortError: the series has too few values.
            ForecastError: the forecaster cannot be fitted for another reason.
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
"""The fit for a back-test, and the shorter one that sets the weights of a blend."""


class CachedFits:
    """Caches the last two fits of a forecaster, so that a blend and its parts share them."""

    def __init__(self, inner: Forecaster) -> None:
        self.name = inner.name
        self._inner = inner
        self._fits: deque[tuple[Series, FittedModel]] = deque(maxlen=_REMEMBERED)

    def fit(self, series: Series) -> FittedModel:
        """Return the cached model of an equal series, else that of the forecaster."""
        for cached_series, model in self._fits:
            if cached_series.equals(series):
                return model
        model = self._inner.fit(series)
        self._fits.append((series, model))
        return model


def make(
    names: Iterable[str] = FORECASTERS, steps: int = 1, **parts: Forecaster
) -> list[Forecaster]:
    """Return the forecasters called ``names``; LSP shares its parts with the others.

    Args:
        names: Names of forecasters, in the order of the result.
        steps: Lead time at which the forecasts matter.
        parts: Replacements by name: ``make(gru=Gru(train=...))``.

    Raises:
        SettingError: no forecaster has the name; the message proposes the nearest.
    """
    cache: dict[str, Forecaster] = {name: CachedFits(part) for name, part in parts.items()}
    return [_forecaster(name, steps, cache) for name in names]


def _forecaster(name: str, steps: int, cache: dict[str, Forecaster]) -> Forecaster:
    if name not in cache:
        if name == "lsp":
            short, long = (_forecaster(part, steps, cache) for part in ("gru", "arima"))
            cache[name] = _load(name)(short, long, steps=steps)
        elif name in ("holt-winters", "arima"):
            cache[name] = CachedFits(_load(name)(steps))
        else:
            cache[name] = CachedFits(_load(name)())
    return cache[name]


def _load(name: str) -> Any:
    path = FORECASTERS.get(name)
    if path is None:
        raise SettingError(f"no forecaster is called {name!r}; {nearest(name, FORECASTERS)}")
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
