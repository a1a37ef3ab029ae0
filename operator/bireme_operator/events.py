"""Kubernetes Events, aggregated: one per object and reason in five minutes, then a count.

Only ``kubectl describe`` reads Events. A lost event is harmless, but a flood in etcd is not. So
events are not retried, and a namespace with too many at once loses some: tenants choose the number
of objects, and all share the write slots.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube import names, quantities
from bireme.kube.client import ApiError
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
_QUIET_SECONDS = 300.0
_REMEMBERED = 10_000
# Limits of one namespace. The burst exceeds the number of gangs in most clusters.
_PER_SECOND, _BURST = 10.0, 500.0


@dataclass(slots=True)
class _Series:
    first: float
    posted: float
    count: int


@dataclass(slots=True)
class Events:
    """Posts events; ``now`` gives POSIX seconds, ``clock`` monotonic ones.

    ``count_left_out`` is called for each event above the limit of its namespace.
    """

    writes: Writes
    instance: str
    now: Callable[[], float]
    clock: Callable[[], float]
    count_left_out: Callable[[], None] = lambda: None
    _limiter: RateLimiter = field(init=False)
    _series: dict[tuple[str, str], _Series] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._limiter = RateLimiter(_PER_SECOND, _BURST, self.clock)

    async def post(self, kind: str, key: Key, uid: str, reason: Reason, message: str) -> None:
        """Post ``reason`` about an object, at most once in five minutes."""
        if reason.event is None:
            return
        now = self.now()
        series = self._series.get((uid, reason))
        if series is not None and now - series.posted < _QUIET_SECONDS:
            series.count += 1
            return
        if self._limiter.take(key[0]):
            self.count_left_out()
            return
        while len(self._series) >= _REMEMBERED:
            del self._series[next(iter(self._series))]
        if series is None:
            series = self._series[(uid, reason)] = _Series(now, now, 0)
        series.count += 1
        series.posted = now
        try:
            await self._write(self._event(kind, key, uid, reason, message, series))
        except ApiError as error:
            _log.info("event not posted", object=key, reason=reason.value, error=str(error))

    async def _write(self, event: dict[str, Any]) -> None:
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        try:
            await self.writes.post_event(namespace, event)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            change = {part: event[part] for part in ("lastTimestamp", "message", "count")}
            await self.writes.patch_event(namespace, name, change)

    def _event(
        self, kind: str, key: Key, uid: str, reason: Reason, message: str, series: _Series
    ) -> dict[str, Any]:
        # The same name for the same object and reason: after a restart or a change of leader the
        # existing event counts on, and no second one appears.
        digest = hashlib.sha256(f"{uid}/{reason}".encode()).hexdigest()[:12]
        name = f"{key[1][:200].rstrip('-.')}.{digest}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            # Events of cluster-scoped objects belong into the namespace default.
            "metadata": {"name": name, "namespace": key[0] or "default"},
            "involvedObject": {
                "apiVersion": "v1" if kind in ("Node", "Pod") else names.API_VERSION,
                "kind": kind,
                "namespace": key[0],
                "name": key[1],
                "uid": uid,
            },
            "reason": reason.value,
            "message": message,
            "type": reason.event,
            "source": {"component": names.FIELD_MANAGER},
            "reportingComponent": names.FIELD_MANAGER,
            "reportingInstance": self.instance,
            "firstTimestamp": quantities.format_timestamp(series.first),
            "lastTimestamp": quantities.format_timestamp(series.posted),
            "count": series.count,
        }
