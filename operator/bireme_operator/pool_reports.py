"""What a NodePoolScaler says about itself: its floor, what becomes of it, and the hours counted.

The forecast in the status is the nightly job's; here it is only called stale when it is.
"""

from collections.abc import Iterator
from typing import Final

from bireme.core.pool_floor import STALE_AFTER_SECONDS
from bireme.core.reasons import Reason
from bireme.core.times import HOUR, duration
from bireme.kube import timestamps
from bireme.kube.conditions import cleaned, with_condition
from bireme.kube.node_pool_scalers import PoolFacts
from bireme.kube.pool_history import history_of
from bireme_operator.metrics import PoolMetrics, show
from bireme_operator.pool import Pool
from bireme_operator.pools import Pools
from bireme_operator.status import Status
from bireme_operator.status_reports import Facts, Reporting, StatusReports

FORECAST, SCALING = "Forecast", "Scaling"
_SCALES: Final = (
    Reason.AT_FLOOR,
    Reason.RAISED,
    Reason.LOWERED,
    Reason.AT_MAX,
)


def status_of(facts: PoolFacts, pool: Pool | None, now: float) -> Status | None:
    """What a scaler should say; None before there is anything. ``now`` is POSIX seconds."""
    said: Status = {**facts.status, "observedGeneration": facts.generation}
    if pool is None:
        with_condition(said, SCALING, False, Reason.SPEC_INVALID, cleaned(facts.fault), now)
        return {**said, "why": cleaned(facts.fault)}
    if pool.decided is None:
        return None
    reason, why = _verdict(pool, now)
    said |= {"nodes": pool.nodes.ready, "needed": pool.needed, "floor": pool.decided.floor}
    said["why"] = cleaned(why)
    said.pop("replicas", None)
    if pool.target is not None and pool.target.scale is not None:
        said["replicas"] = pool.target.scale.replicas
    if pool.meter.over:
        history = history_of(facts.status)
        for begin, (demand, tasks) in sorted(pool.meter.over.items()):
            history = history.with_hour(begin, demand, tasks)
        said["history"] = history.to_manifest()
    with_condition(said, SCALING, reason in _SCALES, reason, said["why"], now)
    _judge_forecast(said, now)
    return said


def _verdict(pool: Pool, now: float) -> tuple[Reason, str]:
    """The reason of condition Scaling, and why the pool has the floor it has."""
    assert pool.decided is not None  # noqa: S101  # the caller looked
    message = pool.decided.message
    fault = pool.fault or (pool.target.fault if pool.target is not None else None)
    if fault is not None:
        return fault.reason, f"{fault}; the floor is {pool.decided.floor}: {message}"
    if pool.spec.mode == "ForecastOnly":
        return Reason.FORECAST_ONLY, f"nothing is asked for in this mode; {message}"
    coming = pool.coming(now)
    if coming:
        return Reason.RAISED, f"{message}; {coming} are coming"
    if pool.is_shrinking(now):
        return Reason.LOWERED, f"{message}; empty nodes are going"
    is_more = pool.replicas is not None and pool.decided.floor < pool.replicas
    if pool.littered and is_more and pool.spec.scale_in.policy != "Never":
        lying = f"ended pods lie on {pool.littered} empty nodes, which stay until they are deleted"
        message = f"{message}; {lying} (see ttlSecondsAfterFinished)"
    return Reason(pool.decided.reason), message


def _judge_forecast(said: Status, now: float) -> None:
    made = timestamps.parse(said.get("forecastTime"))
    if made is not None and now - made > STALE_AFTER_SECONDS:
        words = f"made {duration(now - made)} ago and not used; see why no forecast came since"
        known = {c["type"]: c["reason"] for c in said["conditions"]}
        if known.get(FORECAST) != Reason.FORECAST_STALE:
            with_condition(said, FORECAST, False, Reason.FORECAST_STALE, words, now)


class PoolReports(StatusReports):
    """Writes ``NodePoolScaler.status``."""

    kind = "NodePoolScaler"
    news = ("observedGeneration", "floor", "replicas", "history")

    def __init__(self, pools: Pools, metrics: PoolMetrics, to: Reporting) -> None:
        super().__init__(to)
        self._pools = pools
        self._metrics = metrics

    def said(self) -> Iterator[tuple[PoolFacts, Status]]:
        """See :class:`StatusReports`."""
        for name, facts in sorted(self._pools.scalers.known.items()):
            pool = self._pools.known.get(name)
            if pool is None and facts.spec is not None:
                continue  # it has just come
            status = status_of(facts, pool if facts.spec is not None else None, self._now())
            if status is not None:
                yield facts, status

    async def write(self, facts: Facts, status: Status) -> None:
        """See :class:`StatusReports`; hours that are written need not be kept."""
        await super().write(facts, status)
        pool = self._pools.known.get(facts.name)
        if pool is not None and "history" in status:
            end = history_of(status).end
            for begin in [begin for begin in pool.meter.over if begin + HOUR <= end]:
                del pool.meter.over[begin]

    def show(self) -> None:
        """See :class:`StatusReports`."""
        metrics, pools = self._metrics, self._pools.known
        decided = {name: p.decided for name, p in pools.items() if p.decided is not None}
        made = {name: pool.forecast_made for name, pool in pools.items()}
        show(
            {
                metrics.nodes: {name: float(pool.nodes.ready) for name, pool in pools.items()},
                metrics.floor: {name: float(each.floor) for name, each in decided.items()},
                metrics.needed: {name: float(pool.needed) for name, pool in pools.items()},
                metrics.demand: {name: pool.demand for name, pool in pools.items()},
                metrics.forecast_made: {name: at for name, at in made.items() if at is not None},
            }
        )
        metrics.show_forecast({n: pool.expected(self._now()) for n, pool in pools.items()})
