"""ARIMA with Fourier terms and a seasonal lag, on logs: orders by AIC, parameters by likelihood.

    (1 - phi B^s) z_t = m_t + u_t

with B the step back, ``m_t`` a constant and Fourier terms of the seasons, and ``u_t`` ARIMA(p, d,
q). The seasonal lag lets the shape of a day follow that of the last one, which terms of fixed
weight cannot.

A grid of orders is ranked cheaply; the best is fitted by generalised least squares with exact
likelihood (statsmodels). ``log1p`` makes errors relative, as those of load
are, and lets it be 0. A forecast is the expectation of the log turned back, which is the median.

Many origins cost one pass: the Kalman filter gives the state after every value, and what lies
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
    from_logs,
    held_out_origins,
    require_origins,
)


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of one model.

    Attributes:
        arma: p, d and q.
        season: Steps of the seasonal lag; 0 without one.
        phi: Its weight; 0 without one.
        frequencies: Of the Fourier terms, per step.
    """

    arma: tuple[int, int, int]
    season: int = 0
    phi: float = 0.0
    frequencies: tuple[float, ...] = ()

    def without_season(self, z: FloatArray) -> FloatArray:
        """Return ``z_t - phi z_(t - season)``, ``season`` values shorter."""
        return z[self.season :] - self.phi * z[: len(z) - self.season]

    def with_season(self, ahead: FloatArray, z: FloatArray, origins: IntArray) -> FloatArray:
        """Return forecasts of ``z`` from ``ahead``, those of :meth:`without_season` of it.

        Both of shape (origins, steps).
        """
        if not self.season:
            return ahead
        known = z[origins[:, None] + np.arange(-self.season, 0)]
        whole = np.concatenate([known, ahead], axis=1)
        for begin in range(self.season, whole.shape[1], self.season):
            # A season at a time: each leans on the one before, known or just forecast.
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
# innovations and on the Fourier terms. The innovations are not known; those of a long
# autoregression stand for them (Hannan and Rissanen, Biometrika 1982). All p, q and Fourier terms
# share a matrix of products: the grid has some 1500 models, too many for a search by likelihood.
#
# Of each (phi, s, d, Fourier terms) the p and q of the least AIC stay, corrected for small samples
# (Hurvich and Tsai, Biometrika 1989). AIC is about one step ahead; the error of their logs on the
# last quarter of the values, at the lead times wanted, decides between them (AIC again, where that
# quarter is too short).

# With two seasons: 14 pairs of p and q, 6 sets of harmonics, 9 of season and phi, 2 of d.
MAX_AR = 4
MAX_MA = 2
_PHIS = (0.2, 0.4, 0.6, 0.8)
_HARMONICS = ((), (2,), (4,), (4, 3), (4, 10), (8, 10))
"""Numbers of harmonics of the shortest season and of the next."""
# The seasonal lag takes one of them away; two are left to fit to.
_SEASONS_NEEDED = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Regression:
    """The shared parts of the regressions of one (phi, s, d); row 0 is step ``begin``.

    Attributes:
        base: phi, s and d.
        x: Left side, shape (n,).
        innovations: Of the long autoregression, shape (n,), 0 where not known.
        terms: Constant and Fourier terms of all frequencies, shape (n, 1 + 2 * frequencies).
    """

    base: Orders
    begin: int
    x: FloatArray
    innovations: FloatArray
    terms: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """Orders with the weights of their regression: of p lags, of q innovations, of ``columns``."""

    orders: Orders
    aic: float
    weights: FloatArray
    columns: list[int]
    regression: _Regression


def ranked_orders(z: FloatArray, periods: tuple[int, ...], steps: int) -> list[Orders]:
    """Return the grid, best ``steps`` ahead first; empty where ``z`` is too short for all of it.

    ``z`` are logs of the series, shape (n,), ``periods`` its seasons, shortest first.
    """
    z = z - z.mean()
    # What decides between the orders must not have been fitted, or the largest would win.
    origins = held_out_origins(len(z), steps)
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
    # Values that the longest season takes before it can speak are left out by all: AIC compare.
    skipped = max(periods, default=0)
    # Its lags are weights: with more of them than a quarter of the rows they would fit the noise.
    longest = min(MAX_AR + MAX_MA + round(2 * math.log(end)), (end - skipped) // 4)
    if longest <= MAX_AR:
        return
    for (season, phi), d in product([(0, 0.0), *product(periods, _PHIS)], (0, 1)):
        base = Orders((0, d, 0), season, phi)
        begin = skipped + d
        x = np.diff(base.without_season(z)[skipped - season :], n=d)
        shared = terms(begin, len(z), every)
        left = _innovations(x, np.delete(shared, 0, 1) if d else shared, longest, end - begin)
        regression = _Regression(base, begin, x, left, shared)
        # From where the innovations of all lags are known, and the same steps with d of 0 and 1.
        rows = slice(longest + MAX_MA + 1 - d, end - begin)
        yield from _of_regression(regression, rows, sets, every)


def _frequencies(periods: tuple[int, ...], counts: tuple[int, ...]) -> tuple[float, ...]:
    """Return so many harmonics of each of ``periods``, none twice, below half a turn per step."""
    each = zip(periods, counts, strict=False)
    return tuple(sorted({round(k / p, 12) for p, n in each for k in range(1, n + 1) if 2 * k < p}))


def _innovations(x: FloatArray, shared: FloatArray, longest: int, end: int) -> FloatArray:
    """Return the residuals of an autoregression of order ``longest``, fitted to ``x[:end]``."""
    columns = np.column_stack([_lags(x, longest, longest), shared[longest:]])
    known = slice(0, end - longest)
    weights = np.linalg.lstsq(columns[known], x[longest:end], rcond=None)[0]
    return np.concatenate([np.zeros(longest), x[longest:] - columns @ weights])


def _lags(x: FloatArray, most: int, first: int) -> FloatArray:
    """Return lags 1 to ``most`` of ``x[first:]``."""
    return np.column_stack([x[first - lag : len(x) - lag] for lag in range(1, most + 1)])


def _of_regression(
    regression: _Regression, rows: slice, sets: list[tuple[float, ...]], every: list[float]
) -> Iterator[_Candidate]:
    """Yield the p and q of the least AIC for each of ``sets``, by the products of ``rows``."""
    base, x = regression.base, regression.x
    lags = _lags(x, MAX_AR, MAX_AR), _lags(regression.innovations, MAX_MA, MAX_AR)
    table = np.column_stack([x[MAX_AR:], *lags, regression.terms[MAX_AR:]])
    table = table[rows.start - MAX_AR : rows.stop - MAX_AR]
    products = table.T @ table
    for frequencies in sets:
        waves = [1 + 2 * every.index(f) + i for f in frequencies for i in (0, 1)]
        columns = waves if base.arma[1] else [0, *waves]
        found = [
            _regressed(regression, products, len(table), (p, q), frequencies, columns)
            for p in range(MAX_AR + 1)
            for q in range(MAX_MA + 1)
            if p + q
        ]
        best = min(found, key=lambda candidate: candidate.aic)
        if best.aic < math.inf:
            yield best


def _regressed(
    regression: _Regression,
    products: FloatArray,
    n: int,
    pq: tuple[int, int],
    frequencies: tuple[float, ...],
    columns: list[int],
) -> _Candidate:
    """Regress column 0 of ``products``; the AIC is infinite where the rows are too few."""
    (p, q), base = pq, regression.base
    picked = [*range(1, 1 + p), *range(1 + MAX_AR, 1 + MAX_AR + q)]
    picked += [1 + MAX_AR + MAX_MA + column for column in columns]
    own, mixed = products[np.ix_(picked, picked)], products[picked, 0]
    # A trace of ridge, as columns of short or of steady series depend on each other.
    ridge = 1e-10 * np.trace(own) / len(picked) + 1e-30
    weights = np.linalg.solve(own + ridge * np.eye(len(picked)), mixed)
    # Rounding may leave less than nothing of a perfect fit, which has no logarithm.
    left = max(products[0, 0] - weights @ mixed, 1e-12 * products[0, 0], 1e-30)
    # Parameters are those picked, phi (it was chosen as well) and the variance.
    room = n - len(picked) - (base.season > 0) - 2
    spent = 2 * (n - room - 1) * n / room if room > 0 else math.inf
    orders = Orders((p, base.arma[1], q), base.season, base.phi, frequencies)
    return _Candidate(orders, n * math.log(left / n) + spent, weights, columns, regression)


def _error(candidate: _Candidate, z: FloatArray, origins: IntArray, steps: int) -> float:
    """Return the mean absolute error from ``origins`` on; infinite where it explodes."""
    orders = candidate.orders
    with np.errstate(over="ignore", invalid="ignore"):
        ahead = _ahead(candidate, origins, steps)
        if orders.arma[1]:
            last = orders.without_season(z)[origins - orders.season - 1]
            ahead = last[:, None] + np.cumsum(ahead, axis=1)
        forecasts = orders.with_season(ahead, z, origins)
        wrong = float(np.abs(forecasts - z[origins[:, None] + np.arange(steps)]).mean())
    return wrong if math.isfinite(wrong) else math.inf


def _ahead(candidate: _Candidate, origins: IntArray, steps: int) -> FloatArray:
    """Return the forecast of ``x`` from ``origins`` on, shape (origins, steps)."""
    (p, _, q), regression = candidate.orders.arma, candidate.regression
    ar, ma, shared = np.split(candidate.weights, [p, p + q])
    level = regression.terms[:, candidate.columns] @ shared
    at = origins - regression.begin
    # Rows of p known values, then those forecast; innovations to come are expected to be 0.
    values = np.empty((p + steps, len(at)))
    for lag in range(p):
        values[lag] = regression.x[at - p + lag]
    for step in range(steps):
        ahead = level[at + step]
        for lag, weight in enumerate(ar, start=1):
            ahead = ahead + weight * values[p + step - lag]
        for lag in range(step + 1, q + 1):
            ahead = ahead + ma[lag - 1] * regression.innovations[at + step - lag]
        values[p + step] = ahead
    return values[p:].T


_TRIES = 5
"""Number of best orders that are tried, as the likelihood of some has no maximum."""
_ROUNDS = 2
"""Of generalised least squares: parameters of the errors, then of the regression."""
_SEARCH = {"minimize_kwargs": {"options": {"gtol": 0.1, "maxiter": 50}}}
"""Ends where a log-likelihood in the hundreds no longer changes before its third decimal."""


@dataclass(frozen=True, slots=True)
class ArimaModel:
    """Orders with their parameters.

    Attributes:
        orders: What is fitted.
        terms: Weights of the constant and the Fourier terms.
        errors: Parameters of the ARIMA errors: autoregressive, moving average, variance.
        most: The largest value fitted.
    """

    orders: Orders
    terms: FloatArray
    errors: FloatArray
    most: float

    def at(self, values: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        orders = self.orders
        require_origins(origins, values, orders.season + orders.arma[1] + 1)
        z = np.log1p(values)
        mean = terms(orders.season, len(z) + steps, orders.frequencies) @ self.terms
        u = orders.without_season(z) - mean[: len(z) - orders.season]
        since = origins - orders.season
        ahead = self._errors_ahead(u, since, steps) + mean[since[:, None] + np.arange(steps)]
        return from_logs(orders.with_season(ahead, z, origins), self.most)

    def _errors_ahead(self, u: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        """Return the ARIMA errors from ``origins`` on, shape (origins, steps)."""
        model = SARIMAX(
            u, order=self.orders.arma, enforce_stationarity=False, enforce_invertibility=False
        )
        states = model.filter(self.errors).predicted_state[:, origins]
        ahead: FloatArray = np.empty((steps, len(origins)))
        design, transition = model.ssm["design"][0], model.ssm["transition"]
        for step in range(steps):
            ahead[step] = design @ states
            states = transition @ states
        return ahead.T


class Arima:
    """The ARIMA that did best ``steps`` ahead on the last quarter, or has the least AIC."""

    name = "arima"

    def __init__(self, steps: int = 1) -> None:
        self._steps = steps

    def fit(self, series: Series) -> ArimaModel:
        """TooShortError for about 20 values or fewer, ForecastError where all are the same."""
        z = np.log1p(series.values)
        if np.ptp(z) == 0:
            raise ForecastError(
                "arima: all values are the same; persistence says all there is to say"
            )
        ranked = ranked_orders(z, series.periods, self._steps)
        if not ranked:
            raise TooShortError(
                f"arima: {len(z)} values are too few for the smallest of its orders"
            )
        faults = []
        for orders in ranked[:_TRIES]:
            try:
                return ArimaModel(orders, *_fitted(z, orders), float(series.values.max()))
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                faults.append(f"{orders.arma}: {' '.join(str(error).split())}")
        raise ForecastError(f"arima: none of the best orders can be fitted; {'; '.join(faults)}")


def _fitted(z: FloatArray, orders: Orders) -> tuple[FloatArray, FloatArray]:
    """Return weights of the terms and parameters of the errors, by exact likelihood.

    ValueError, ArithmeticError or LinAlgError where no maximum can be found.
    """
    p, d, q = orders.arma
    u = orders.without_season(z)
    shared = terms(orders.season, len(z), orders.frequencies)
    # A difference leaves nothing of the constant, and no column to regress on without waves.
    u, shared = (np.diff(u), np.diff(shared[:, 1:], axis=0)) if d else (u, shared)
    with warnings.catch_warnings():
        # They are about the search for the maximum; the back-test evaluates its result.
        for kind in (ConvergenceWarning, UserWarning, RuntimeWarning):
            warnings.simplefilter("ignore", kind)
        if shared.shape[1]:
            found, _ = gls(
                u,
                exog=shared,
                order=(p, 0, q),
                include_constant=False,
                n_iter=_ROUNDS,
                arma_estimator_kwargs=_SEARCH,
            )
        else:
            found, _ = innovations_mle(u, order=(p, 0, q), demean=False, **_SEARCH)
    errors = np.concatenate([found.ar_params, found.ma_params, [found.sigma2]])
    weights = np.concatenate([np.zeros(d), found.exog_params]) if shared.shape[1] else np.zeros(1)
    if not np.isfinite(errors).all():
        raise ValueError(f"parameters {errors} are no numbers")
    return weights, errors
