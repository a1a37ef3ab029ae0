"""ARIMA with Fourier terms and a seasonal lag, on logs: orders by AIC, parameters by likelihood.

:mod:`bireme.forecasting.arima_search` ranks a grid cheaply; the best is fitted by generalised least
squares with exact likelihood (statsmodels). ``log1p`` makes errors relative, as those of load
are, and lets it be 0. A forecast is the expectation of the log turned back, which is the median.

Many origins cost one pass: the Kalman filter gives the state after every value, and what lies
``j`` steps ahead of state ``a`` is ``Z T^j a`` (Durbin and Koopman, Time Series Analysis by State
Space Methods, 2012, section 4.11).
"""

import warnings
from dataclasses import dataclass

import numpy as np
from statsmodels.tools.sm_exceptions import ConvergenceWarning
from statsmodels.tsa.arima.estimators.gls import gls
from statsmodels.tsa.arima.estimators.innovations import innovations_mle
from statsmodels.tsa.statespace.sarimax import SARIMAX

from bireme.core.resources import FloatArray, IntArray
from bireme.forecasting.arima_orders import Orders, terms
from bireme.forecasting.arima_search import ranked_orders
from bireme.forecasting.errors import FitError, TooShort
from bireme.forecasting.series import Series, from_logs, require_origins

_TRIES = 5
"""How many of the best orders are tried, as the likelihood of some has no maximum."""
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
        """See :class:`~bireme.forecasting.forecasters.Model`."""
        orders = self.orders
        require_origins(origins, values, orders.season + orders.arma[1] + 1)
        z = np.log1p(values)
        mean = terms(orders.season, len(z) + steps, orders.frequencies) @ self.terms
        u = orders.without_season(z) - mean[: len(z) - orders.season]
        since = origins - orders.season
        ahead = self._errors_ahead(u, since, steps) + mean[since[:, None] + np.arange(steps)]
        return from_logs(orders.with_season(ahead, z, origins), self.most)

    def _errors_ahead(self, u: FloatArray, origins: IntArray, steps: int) -> FloatArray:
        """The ARIMA errors from ``origins`` on, shape (origins, steps)."""
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
    """The ARIMA that did best on the last quarter of the values, or has the least AIC.

    Args:
        steps: How far ahead the forecasts matter.
    """

    name = "arima"

    def __init__(self, steps: int = 1) -> None:
        self._steps = steps

    def fit(self, series: Series) -> ArimaModel:
        """Raises TooShort for about 20 values or fewer, FitError where all are the same."""
        z = np.log1p(series.values)
        if np.ptp(z) == 0:
            raise FitError("arima: all values are the same; persistence says all there is to say")
        ranked = ranked_orders(z, series.periods, self._steps)
        if not ranked:
            raise TooShort(f"arima: {len(z)} values are too few for the smallest of its orders")
        faults = []
        for orders in ranked[:_TRIES]:
            try:
                return ArimaModel(orders, *_fitted(z, orders), float(series.values.max()))
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                faults.append(f"{orders.arma}: {' '.join(str(error).split())}")
        raise FitError(f"arima: none of the best orders can be fitted; {'; '.join(faults)}")


def _fitted(z: FloatArray, orders: Orders) -> tuple[FloatArray, FloatArray]:
    """Weights of the terms and parameters of the errors, by exact likelihood.

    Raises:
        ValueError, ArithmeticError, LinAlgError: no maximum can be found.
    """
    p, d, q = orders.arma
    u = orders.without_season(z)
    shared = terms(orders.season, len(z), orders.frequencies)
    # A difference leaves nothing of the constant, and no column to regress on without waves.
    u, shared = (np.diff(u), np.diff(shared[:, 1:], axis=0)) if d else (u, shared)
    with warnings.catch_warnings():
        # They tell how the search for the maximum went; the back-test judges what it found.
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
