"""The nightly job: for every NodePoolScaler, read its history, forecast, and write its status.

This is the only module of forecasting that knows Kubernetes. Its decisions are those of the pure
function :func:`bireme.forecasting.pool_forecast.forecast_pool`.

    1. List the NodePoolScalers.
    2. Read the history of each: from its status, or from Prometheus (:mod:`bireme.prometheus`).
    3. Forecast, and merge the result into the status (:func:`status_of`).

A pool that fails stops no other. If its history cannot be read tonight, the forecast of last night
stays (the operator follows it until it is 26 hours old), and the condition Forecast says why.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from bireme.core.errors import BiremeError, error_text
from bireme.core.pool_history import HISTORY_DAYS, PoolHistory, hours_at
from bireme.core.reasons import Reason
from bireme.core.times import DAY, HOUR
from bireme.forecasting.forecasters import Forecaster
from bireme.forecasting.pool_forecast import NightlySettings, PoolForecast, forecast_pool
from bireme.kube import envelopes, names, quantities, wire
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec, history_of
from bireme.kube.client import ApiClient, ApiError
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.node_pool_scalers import PoolFacts, from_manifest
from bireme.prometheus import PrometheusError, hourly

CONDITION: Final = "Forecast"
_PAGE: Final = 100
_TRIES: Final = 5
_CUSTOM: Final = msgspec.json.Decoder(wire.CustomObject)
_STATUS_KEPT: Final = {Reason.HISTORY_UNAVAILABLE, Reason.FORECAST_FAILED}


class PoolsError(BiremeError):
    """The pools cannot be listed, or a named one does not exist; the text says which."""


class NightlyRun:
    """One run over the pools at ``now`` (POSIX seconds); ``write_line`` gets a line for each."""

    def __init__(
        self,
        client: ApiClient,
        now: float,
        candidates: Sequence[Forecaster],
        write_line: Callable[[str], None],
        *,
        dry_run: bool = False,
    ) -> None:
        self._client, self._now, self._candidates = client, now, candidates
        self._write_line, self._dry_run = write_line, dry_run

    async def forecast(self, pool_names: Sequence[str] = ()) -> int:
        """Forecast all pools, or those of ``pool_names``; return the number that failed.

        Raises:
            PoolsError: the pools cannot be listed, or a named one does not exist.
        """
        pools = await self._pools()
        if missing := set(pool_names) - {pool.name for pool in pools}:
            raise PoolsError(f"there is no NodePoolScaler {', '.join(sorted(missing))}")
        selected = [pool for pool in pools if not pool_names or pool.name in pool_names]
        failed = [pool.name for pool in selected if not await self._process(pool)]
        which = f": {', '.join(failed)}" if failed else ""
        self._write_line(f"{len(failed)} of {len(selected)} pools failed{which}")
        return len(failed)

    async def _pools(self) -> list[PoolFacts]:
        pools: list[PoolFacts] = []
        params: dict[str, str | int] = {"limit": _PAGE}
        try:
            while True:
                path = names.path("nodepoolscalers")
                page = envelopes.page(await self._client.get(path, params=params))
                pools += map(_facts, page.items or ())
                if not page.metadata.next:
                    return pools
                params["continue"] = page.metadata.next
        except ApiError as error:
            raise PoolsError(f"NodePoolScalers cannot be listed: {error}") from error

    async def _process(self, pool: PoolFacts) -> bool:
        """Forecast one pool and write its status; return whether both worked."""
        forecast = await self._forecast_of(pool)
        tomorrow = f"{forecast.tomorrow}; " if forecast.is_made else ""
        self._write_line(f"{pool.name}: {forecast.reason}: {tomorrow}{cleaned(forecast.message)}")
        try:
            if not self._dry_run:
                await self._write(pool, forecast)
        except ApiError as error:
            if error.is_not_found:
                self._write_line(f"{pool.name}: it is gone")
                return True
            self._write_line(f"{pool.name}: not written: {cleaned(str(error))}")
            return False
        return forecast.reason not in _STATUS_KEPT

    async def _forecast_of(self, pool: PoolFacts) -> PoolForecast:
        """Return a forecast, or the reason why there is none."""
        if pool.spec is None:
            return PoolForecast((), Reason.FORECAST_FAILED, pool.fault)
        try:
            spec = pool.spec
            history = await self._history(pool, spec)
            quantile, measure = spec.quantile_percent / 100, spec.history.measure
            settings = NightlySettings(quantile, spec.min, spec.max, measure, spec.time_zone)
            return forecast_pool(history, self._now, settings, self._candidates)
        except PrometheusError as error:
            return PoolForecast((), Reason.HISTORY_UNAVAILABLE, str(error))
        except Exception as error:  # noqa: BLE001  # isolates the other pools
            return PoolForecast((), Reason.FORECAST_FAILED, error_text(error))

    async def _history(self, pool: PoolFacts, spec: NodePoolScalerSpec) -> PoolHistory:
        recorded = history_of(pool.status)
        query = spec.history.prometheus
        if query is None:
            return recorded
        hours = HISTORY_DAYS * DAY // HOUR
        start = self._now - self._now % HOUR - HOUR * hours
        values, notes = await hourly(query.url, query.query, start, hours)
        if spec.history.measure == "Demand":
            return PoolHistory(start, values, np.full(hours, np.nan), notes)
        demand = hours_at([(recorded.start, recorded.demand)], start, hours)
        return PoolHistory(start, demand, values, (*recorded.notes, *notes))

    async def _write(self, pool: PoolFacts, forecast: PoolForecast) -> None:
        """Merge the job's own fields into the status, over the version that was read."""
        path = f"{names.path('nodepoolscalers', name=pool.name)}"
        for _ in range(_TRIES):
            body = {
                "metadata": {"resourceVersion": pool.resource_version},
                "status": status_of(pool, forecast, self._now),
            }
            try:
                await self._client.merge_patch(f"{path}/status", body)
                return
            except ApiError as error:
                if not error.is_conflict:
                    raise
            pool = _facts(msgspec.Raw(await self._client.get(path)))
        raise ApiError(409, "Conflict", f"its status changed {_TRIES} times meanwhile")


def status_of(pool: PoolFacts, forecast: PoolForecast, now: float) -> dict[str, Any]:
    """Return the merge patch of ``status``; None removes a field."""
    patch = {"conditions": list(pool.status.get("conditions") or ())}
    message = cleaned(forecast.message)
    with_condition(patch, CONDITION, forecast.is_made, forecast.reason, message, now)
    if forecast.reason in _STATUS_KEPT:
        return patch
    if not forecast.is_made:
        cleared = dict.fromkeys(("forecast", "forecastTime", "model"))
        return {**patch, **cleared, "tomorrow": forecast.tomorrow}
    return {
        **patch,
        "forecast": [
            {
                "hour": quantities.format_timestamp(h.start),
                "p50": round(h.p50, 2),
                "upper": round(h.upper, 2),
            }
            for h in forecast.hours
        ],
        "forecastTime": quantities.format_timestamp(now),
        "tomorrow": forecast.tomorrow,
        "model": {
            "name": forecast.model,
            "skill": _round_or_none(forecast.skill),
            "accuracy": _round_or_none(forecast.accuracy),
            "why": cleaned(forecast.explanation),
        },
    }


def _facts(raw: msgspec.Raw) -> PoolFacts:
    return from_manifest(_CUSTOM.decode(raw))


def _round_or_none(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
