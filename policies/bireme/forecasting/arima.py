"""ARIMA with Fourier terms and a seasonal lag, on logs: orders by AIC, parameters by likelihood.

    (1 - phi B^s) z_t = m_t + u_t

with B the step back, ``m_t`` a constant and Fourier terms of the seasons, and ``u_t`` ARIMA(p, d,
q). With the seasonal lag the shape of a day follows that of the last one, which terms of fixed
weight cannot do.

A grid of orders is ranked cheaply; the best is fitted by generalised least squares with exact
likelihood (statsmodels). ``log1p`` makes errors relative, as those of load are, and allows a load
of 0. A forecast is the expectation of the log turned back, which is the median.

Many origins cost one pass: the Kalman filter gives the state after every value, and the forecast
``j`` steps ahead of state ``a`` is ``Z T^j a`` (Durbin and Koopman, Time Series Analysis by State
Space Methods, 2012, section 4.11).
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.arima.estimators.gls import gls
from statsmodels.tsa.arima.estimators.innovations import innovations_mle
from statsmodels.tsa.statespace.sarimax import SARIMAX

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.series import (
    ForecastError,
    Series,
    TooShortError,
    evaluation_origins,
    from_logs,
    require_origins,
)


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of one model.

    Attributes:
        arma: p, d and q.
        season: Steps of the seasonal lag; 0 without one.
        phi: Its weight; 0 without one.
        frequencies: Frequencies of the Fourier terms, per step.
    """

    arma: tuple[int, int, int]
    season: int = 0
    phi: float = 0.0
    frequencies: tuple[float, ...] = ()

    def without_season(self, z: FloatArray) -> FloatArray:
        """Return ``z_t - phi z_(t - season)``, ``season`` values shorter."""
        return z[self.season :] - self.phi * z[: len(z) - self.season]

    def with_season(self, forecasts: FloatArray, z: FloatArray, origins: IntArray) -> FloatArray:
        """Return forecasts of ``z`` from ``forecasts`` of :meth:`without_season` of it.

        Both have shape (origins, steps).
        """
        if not self.season:
            return forecasts
        last_season = z[origins[:, None] + np.arange(-self.season, 0)]
        whole = np.concatenate([last_season, forecasts], axis=1)
        for begin in range(self.season, whole.shape[1], self.season):
            # A season at a time: each adds the one before, known or just forecast.
            block = whole[:, begin : begin + self.season]
            block += self.phi * whole[:, begin - self.season :][:, : block.shape[1]]
        return whole[:, self.season :]


def terms(begin: int, end: int, frequencies: Sequence[float]) -> FloatArray:
    """Return 1, then cosine and sine of each frequency, at steps ``begin`` to before ``end``.

    Shape (end - begin, 1 + 2 * frequencies).
    """
    angles = 2 * np.pi * np.outer(np.arange(begin, end), frequencies)
    waves = np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(end - begin, -1)
    return np.column_stack([np.ones(end - begin), waves])


# --- Order selection: a small grid by the estimator of Hannan and Rissanen ----------------------
#
# Fourier terms one step back are Fourier terms again, so the conditional form of the model is one
# linear regression: of its left side, differenced d times, on its own lags, on lags of its
# innovations and on the Fourier terms. The innovations are unknown; those of a long autoregression
# stand for them (Hannan and Rissanen, Biometrika 1982). All p, q and Fourier terms share a matrix
# of products: the grid has some 1500 models, too many for a search by likelihood.
#
# For each (phi, s, d, Fourier terms) the p and q with the least AIC stay, corrected for small
# samples (Hurvich and Tsai, Biometrika 1989). AIC measures one step ahead. So the error of their
# logs on the last quarter of the values, at the requested lead times, decides between them (AIC
# again, if that quarter is too short).

# With two seasons: 14 pairs of p and q, 6 sets of harmonics, 9 of season and phi, 2 of d.
MAX_AR = 4
MAX_MA = 2
_PHIS = (0.2, 0.4, 0.6, 0.8)
_HARMONICS = ((), (2,), (4,), (4, 3), (4, 10), (8, 10))
"""Numbers of harmonics of the shortest season and of the next."""
# The seasonal lag consumes one of them; two are left to fit to.
_SEASONS_NEEDED = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Regression:
    """The shared parts of the regressions of one (phi, s, d); row 0 is step ``begin``.

    Attributes:
        base: phi, s and d.
        x: Left side, shape (n,).
        innovations: Innovations of the long autoregression, shape (n,), 0 where unknown.
        terms: Constant and Fourier terms of all frequencies, shape (n, 1 + 2 * frequencies).
    """

    base: Orders
    begin: int
    x: FloatArray
    innovations: FloatArray
    terms: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """Orders with the weights of their regression, on p lags, q innovations and ``columns``."""

    orders: Orders
    aic: float
    weights: FloatArray
    columns: list[int]
    regression: _Regression


def rank_orders(z: FloatArray, periods: tuple[int, ...], steps: int) -> list[Orders]:
    """Return the grid, best ``steps`` ahead first; empty if ``z`` is too short for all of it.

    ``z`` are logs of the series, shape (n,); ``periods`` are its seasons, shortest first.
    """
    z = z - z.mean()
    # The deciding values must not have been fitted, or the largest orders would win.
    origins = evaluation_origins(len(z), steps)
    end = int(origins[0]) if len(origins) else len(z)
    periods = tuple(p for p in periods if _SEASONS_NEEDED * p <= end)
    candidates = list(_candidates(z, periods, end))
    if len(origins):
        scores = [_error(candidate, z, origins, steps) for candidate in candidates]
    else:
        scores = [candidate.aic for candidate in candidates]
    return [candidates[i].orders for i in np.argsort(scores, kind="stable")]


def _candidates(z: FloatArray, periods: tuple[int, ...], end: int) -> Iterator[_Candidate]:
    """Yield the best p and q of every (phi, s, d, Fourier terms), fitted to ``z[:end]``."""
    sets = list(dict.fromkeys(_frequencies(periods, counts) for counts in _HARMONICS))
    every = list(dict.fromkeys(f for frequencies in sets for f in frequencies))
    # All leave out the values that the longest season needs first, so that AIC compares.
    skipped = max(periods, default=0)
    # Its lags are weights: more of them than a quarter of the rows would fit the noise.
    long_order = min(MAX_AR + MAX_MA + round(2 * math.log(end)), (end - skipped) // 4)
    if long_order <= MAX_AR:
        return
    for (season, phi), d in product([(0, 0.0), *product(periods, _PHIS)], (0, 1)):
        base = Orders((0, d, 0), season, phi)
        begin = skipped + d
        x = np.diff(base.without_season(z)[skipped - season :], n=d)
        shared = terms(begin, len(z), every)
        innovations = _innovations(
            x, np.delete(shared, 0, 1) if d else shared, long_order, end - begin
        )
        regression = _Regression(base, begin, x, innovations, shared)
        # From where the innovations of all lags are known; the same steps with d of 0 and 1.
        rows = slice(long_order + MAX_MA + 1 - d, end - begin)
        yield from _of_regression(regression, rows, sets, every)


def _frequencies(periods: tuple[int, ...], counts: tuple[int, ...]) -> tuple[float, ...]:
    """Return that many harmonics of each of ``periods``, without repeats, below half a turn."""
    pairs = zip(periods, counts, strict=False)
    return tuple(sorted({round(k / p, 12) for p, n in pairs for k in range(1, n + 1) if 2 * k < p}))


def _innovations(x: FloatArray, shared: FloatArray, order: int, end: int) -> FloatArray:
    """Return the residuals of an autoregression of order ``order``, fitted to ``x[:end]``."""
    columns = np.column_stack([_lags(x, order, order), shared[order:]])
    rows = slice(0, end - order)
    weights = np.linalg.lstsq(columns[rows], x[order:end], rcond=None)[0]
    return np.concatenate([np.zeros(order), x[order:] - columns @ weights])


def _lags(x: FloatArray, count: int, first: int) -> FloatArray:
    """Return lags 1 to ``count`` of ``x[first:]``."""
    return np.column_stack([x[first - lag : len(x) - lag] for lag in range(1, count + 1)])


def _of_regression(
    regression: _Regression, rows: slice, sets: list[tuple[float, ...]], every: list[float]
) -> Iterator[_Candidate]:
    """Yield the p and q with the least AIC for each of ``sets``, by the products of ``rows``."""
    base, x = regression.base, regression.x
    lags = _lags(x, MAX_AR, MAX_AR), _lags(regression.innovations, MAX_MA, MAX_AR)
    table = np.column_stack([x[MAX_AR:], *lags, regression.terms[MAX_AR:]])
    table = table[rows.start - MAX_AR : rows.stop - MAX_AR]
    products = table.T @ table
    for frequencies in sets:
        waves = [1 + 2 * every.index(f) + i for f in frequencies for i in (0, 1)]
        columns = waves if base.arma[1] else [0, *waves]
        candidates = [
            _regress(regression, products, len(table), (p, q), frequencies, columns)
            for p in range(MAX_AR + 1)
            for q in range(MAX_MA + 1)
            if p + q
        ]
        best = min(candidates, key=lambda candidate: candidate.aic)
        if best.aic < math.inf:
            yield best


def _regress(
    regression: _Regression,
    products: FloatArray,
    n: int,
    pq: tuple[int, int],
    frequencies: tuple[float, ...],
    columns: list[int],
) -> _Candidate:
    """Regress column 0 of ``products``; the AIC is infinite if the rows are too few."""
    (p, q), base = pq, regression.base
    picked = [*range(1, 1 + p), *range(1 + MAX_AR, 1 + MAX_AR + q)]
    picked += [1 + MAX_AR + MAX_MA + column for column in columns]
    gram, mixed = products[np.ix_(picked, picked)], products[picked, 0]
    # A trace of ridge, as columns of short or steady series depend on each other.
    ridge = 1e-10 * np.trace(gram) / len(picked) + 1e-30
    weights = np.linalg.solve(gram + ridge * np.eye(len(picked)), mixed)
    # Rounding may make the residual of a perfect fit negative, which has no logarithm.
    residual = max(products[0, 0] - weights @ mixed, 1e-12 * products[0, 0], 1e-30)
    # Parameters are those picked, phi (which was chosen too) and the variance.
    room = n - len(picked) - (base.season > 0) - 2
    spent = 2 * (n - room - 1) * n / room if room > 0 else math.inf
    orders = Orders((p, base.arma[1], q), base.season, base.phi, frequencies)
    return _Candidate(orders, n * math.log(residual / n) + spent, weights, columns, regression)


def _error(candidate: _Candidate, z: FloatArray, origins: IntArray, steps: int) -> float:
    """Return the mean absolute error from ``origins`` on; infinite if it explodes."""
    orders = candidate.orders
    with np.errstate(over="ignore", invalid="ignore"):
        steps_ahead = _forecast_x(candidate, origins, steps)
        if orders.arma[1]:
            last = orders.without_season(z)[origins - orders.season - 1]
            steps_ahead = last[:, None] + np.cumsum(steps_ahead, axis=1)
        forecasts = orders.with_season(steps_ahead, z, origins)
        wrong = float(np.abs(forecasts - z[origins[:, None] + np.arange(steps)]).mean())
    return wrong if math.isfinite(wrong) else math.inf


def _forecast_x(candidate: _Candidate, origins: IntArray, steps: int) -> FloatArray:
    """Return the forecast of ``x`` from ``origins`` on, shape (origins, steps)."""
    (p, _, q), regression = candidate.orders.arma, candidate.regression
    ar, ma, shared = np.split(candidate.weights, [p, p + q])
    level = regression.terms[:, candidate.columns] @ shared
    start = origins - regression.begin
    # Rows of p known values, then the forecast ones; future innovations are expected to be 0.
    values = np.empty((p + steps, len(start)))
    for lag in range(p):
        values[lag] = regression.x[start - p + lag]
    for step in range(steps):
        row = level[start + step]
        for lag, weight in enumerate(ar, start=1):
            row = row + weight * values[p + step - lag]
        for lag in range(step + 1, q + 1):
            row = row + ma[lag - 1] * regression.innovations[start + step - lag]
        values[p + step] = row
    return values[p:].T


_TRIES = 5
"""Maximum number of best orders to try, as the likelihood of some has no maximum."""
_ROUNDS = 2
"""Rounds of generalised least squares: parameters of the errors, then of the regression."""
_SEARCH = {"minimize_kwargs": {"options": {"gtol": 0.1, "maxiter": 50}}}
"""The search ends when a log-likelihood in the hundreds is stable to its third decimal."""


@dataclass(frozen=True, slots=True)
class ArimaModel:
    """Orders with their parameters.

    Attributes:
        orders: The fitted orders.
        terms: Weights of the constant and the Fourier terms.
        errors: Parameters of the ARIMA errors: autoregressive, moving average, variance.
        max_value: The largest fitted value.
    """

    orders: Orders
    terms: FloatArray
    errors: FloatArray
    max_value: float

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        orders = self.orders
        require_origins(origins, values, orders.season + orders.arma[1] + 1)
        z = np.log1p(values)
        mean = terms(orders.season, len(z) + steps, orders.frequencies) @ self.terms
        u = orders.without_season(z) - mean[: len(z) - orders.season]
        since = origins - orders.season
        logs_ahead = (
            self._forecast_errors(u, since, steps) + mean[since[:, None] + np.arange(steps)]
        )
        return from_logs(orders.with_season(logs_ahead, z, origins), self.max_value)

    def _forecast_errors(self, u: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        """Return forecasts of the ARIMA errors from ``origins`` on, shape (origins, steps)."""
        model = SARIMAX(
            u, order=self.orders.arma, enforce_stationarity=False, enforce_invertibility=False
        )
        states = model.filter(self.errors).predicted_state[:, origins]
        errors: FloatArray = np.empty((steps, len(origins)))
        design, transition = model.ssm["design"][0], model.ssm["transition"]
        for step in range(steps):
            errors[step] = design @ states
            states = transition @ states
        return errors.T


class Arima:
    """The ARIMA with the best forecasts ``steps`` ahead on the last quarter, or the least AIC."""

    name = "arima"

    def __init__(self, steps: int = 1) -> None:
        self._steps = steps

    def fit(self, series: Series) -> ArimaModel:
        """Raises TooShortError for about 20 values or fewer, ForecastError if all are the same."""
        z = np.log1p(series.values)
        if np.ptp(z) == 0:
            raise ForecastError(
                "arima: all values are the same; persistence says all there is to say"
            )
        ranked = rank_orders(z, series.periods, self._steps)
        if not ranked:
            raise TooShortError(
                f"arima: {len(z)} values are too few for the smallest of its orders"
            )
        faults = []
        for orders in ranked[:_TRIES]:
            try:
                return ArimaModel(orders, *_fit(z, orders), float(series.values.max()))
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                faults.append(f"{orders.arma}: {' '.join(str(error).split())}")
        raise ForecastError(f"arima: none of the best orders can be fitted; {'; '.join(faults)}")


def _fit(z: FloatArray, orders: Orders) -> tuple[FloatArray, FloatArray]:
    """Return weights of the terms and parameters of the errors, by exact likelihood.

    Raises ValueError, ArithmeticError or LinAlgError if it finds no maximum.
    """
    p, d, q = orders.arma
    u = orders.without_season(z)
    shared = terms(orders.season, len(z), orders.frequencies)
    # A difference removes the constant, and without waves leaves no column to regress on.
    u, shared = (np.diff(u), np.diff(shared[:, 1:], axis=0)) if d else (u, shared)
    with warnings.catch_warnings():
        # The warnings are about the search; the back-test evaluates its result.
        for kind in (ConvergenceWarning, UserWarning, RuntimeWarning):
            warnings.simplefilter("ignore", kind)
        if shared.shape[1]:
            estimate, _ = gls(
                u,
                exog=shared,
                order=(p, 0, q),
                include_constant=False,
                n_iter=_ROUNDS,
                arma_estimator_kwargs=_SEARCH,
            )
        else:
            estimate, _ = innovations_mle(u, order=(p, 0, q), demean=False, **_SEARCH)
    errors = np.concatenate([estimate.ar_params, estimate.ma_params, [estimate.sigma2]])
    weights = (
        np.concatenate([np.zeros(d), estimate.exog_params]) if shared.shape[1] else np.zeros(1)
    )
    if not np.isfinite(errors).all():
        raise ValueError(f"parameters {errors} are no numbers")
    return weights, errors
