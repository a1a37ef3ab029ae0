"""One night over all NodePoolScalers: read what was asked for so far, forecast, write it down.

One pool that fails stops no other. Where the history of one cannot be had tonight, the forecast of
last night stays (the operator follows it until it is 26 hours old), and the condition Forecast
says why.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from bireme.core.errors import BiremeError, told
from bireme.core.reasons import Reason
from bireme.core.times import DAY, HOUR
from bireme.forecasting.forecasters import Forecaster
from bireme.forecasting.nightly import NightlySettings, PoolForecast, forecast_pool
from bireme.forecasting.prometheus import PrometheusError, hourly
from bireme.kube import envelope, names, timestamps, wire
from bireme.kube.api.node_pool_scaler import NodePoolScalerSpec
from bireme.kube.client import ApiClient, ApiError
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.node_pool_scalers import PoolFacts, from_manifest
from bireme.kube.pool_history import HISTORY_DAYS, PoolHistory, history_of, placed

CONDITION: Final = "Forecast"
_PAGE: Final = 100
_TRIES: Final = 5
_CUSTOM: Final = msgspec.json.Decoder(wire.Custom)
_LEFT_AS_IT_WAS: Final = {Reason.HISTORY_UNAVAILABLE, Reason.FORECAST_FAILED}


class PoolsError(BiremeError):
    """The pools cannot be listed, or one that was named does not exist; the text says which."""


class Night:
    """One run over the pools; ``now`` is POSIX seconds, ``tell`` gets a line for each."""

    def __init__(
        self,
        client: ApiClient,
        now: float,
        candidates: Sequence[Forecaster],
        tell: Callable[[str], None],
        *,
        dry_run: bool = False,
    ) -> None:
        self._client = client
        self._now = now
        self._candidates = candidates
        self._tell = tell
        self._dry_run = dry_run

    async def forecast(self, wanted: Sequence[str] = ()) -> int:
        """All pools, or those ``wanted``; how many failed.

        Raises:
            PoolsError: they cannot be listed, or one that is wanted is not there.
        """
        pools = await self._pools()
        if missing := set(wanted) - {pool.name for pool in pools}:
            raise PoolsError(f"there is no NodePoolScaler {', '.join(sorted(missing))}")
        chosen = [pool for pool in pools if not wanted or pool.name in wanted]
        failed = [pool.name for pool in chosen if not await self._is_done(pool)]
        which = f": {', '.join(failed)}" if failed else ""
        self._tell(f"{len(failed)} of {len(chosen)} pools failed{which}")
        return len(failed)

    async def _pools(self) -> list[PoolFacts]:
        found: list[PoolFacts] = []
        params: dict[str, str | int] = {"limit": _PAGE}
        try:
            while True:
                path = names.path("nodepoolscalers")
                page = envelope.page(await self._client.get(path, params=params))
                found += map(_facts, page.items or ())
                if not page.metadata.next:
                    return found
                params["continue"] = page.metadata.next
        except ApiError as error:
            raise PoolsError(f"NodePoolScalers cannot be listed: {error}") from error

    async def _is_done(self, pool: PoolFacts) -> bool:
        """Whether ``pool`` got what there is to say about it."""
        forecast = await self._made(pool)
        shown = f"{forecast.tomorrow}; " if forecast.is_made else ""
        self._tell(f"{pool.name}: {forecast.reason}: {shown}{cleaned(forecast.said)}")
        try:
            if not self._dry_run:
                await self._write(pool, forecast)
        except ApiError as error:
            if error.is_not_found:
                self._tell(f"{pool.name}: it is gone")
                return True
            self._tell(f"{pool.name}: not written: {cleaned(str(error))}")
            return False
        return forecast.reason not in _LEFT_AS_IT_WAS

    async def _made(self, pool: PoolFacts) -> PoolForecast:
        """A forecast, or why there is none; whatever goes wrong is this pool's alone."""
        if pool.spec is None:
            return PoolForecast((), Reason.FORECAST_FAILED, pool.fault)
        try:
            history = await self._history(pool, pool.spec)
            return forecast_pool(history, self._now, _settings(pool.spec), self._candidates)
        except PrometheusError as error:
            return PoolForecast((), Reason.HISTORY_UNAVAILABLE, str(error))
        except Exception as error:  # noqa: BLE001  # the other pools have a right to theirs
            return PoolForecast((), Reason.FORECAST_FAILED, told(error))

    async def _history(self, pool: PoolFacts, spec: NodePoolScalerSpec) -> PoolHistory:
        recorded = history_of(pool.status)
        asked = spec.history.prometheus
        if asked is None:
            return recorded
        hours = HISTORY_DAYS * DAY // HOUR
        start = self._now - self._now % HOUR - HOUR * hours
        values, notes = await hourly(asked.url, asked.query, start, hours)
        if spec.history.measure == "Demand":
            return PoolHistory(start, values, np.full(hours, np.nan), notes)
        demand = placed([(recorded.start, recorded.demand)], start, hours)
        return PoolHistory(start, demand, values, (*recorded.notes, *notes))

    async def _write(self, pool: PoolFacts, forecast: PoolForecast) -> None:
        """Merge into the status what is the job's own, over the version that was read."""
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
    """The merge patch of ``status``; None takes a field away."""
    said = {"conditions": list(pool.status.get("conditions") or ())}
    words = cleaned(forecast.said)
    with_condition(said, CONDITION, forecast.is_made, forecast.reason, words, now)
    if forecast.reason in _LEFT_AS_IT_WAS:
        return said
    if not forecast.is_made:
        gone = dict.fromkeys(("forecast", "forecastTime", "model"))
        return {**said, **gone, "tomorrow": forecast.tomorrow}
    return {
        **said,
        "forecast": [
            {"hour": timestamps.format(h.start), "p50": round(h.p50, 2), "upper": round(h.upper, 2)}
            for h in forecast.hours
        ],
        "forecastTime": timestamps.format(now),
        "tomorrow": forecast.tomorrow,
        "model": {
            "name": forecast.model,
            "skill": _rounded(forecast.skill),
            "accuracy": _rounded(forecast.accuracy),
            "why": cleaned(forecast.why),
        },
    }


def _facts(raw: msgspec.Raw) -> PoolFacts:
    return from_manifest(envelope.decode(raw, _CUSTOM))


def _settings(spec: NodePoolScalerSpec) -> NightlySettings:
    return NightlySettings(
        spec.quantile_percent / 100, spec.min, spec.max, spec.history.measure, spec.time_zone
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
