"""``GET /outlook``: forecast starts of waiting gangs in the namespaces that the reader may read.

The answer omits all other namespaces (:mod:`bireme_operator.readers`). Each ``?namespace=NAME``
selects a namespace.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from bireme.core.outlook import Prospect
from bireme.core.times import clock_time
from bireme.kube import quantities
from bireme_operator.outlooks import Outlooks, StartForecast
from bireme_operator.progress_auth import RequestRefused
from bireme_operator.readers import HttpCallers, Reader

PATH: Final = "/outlook"
VERSION: Final = "outlook.bireme.dev/v1"


@dataclass(slots=True)
class OutlookEndpoint:
    """Serves the forecast; ``outlooks`` gives that of this process, None if it does not lead.

    ``now`` gives POSIX seconds.
    """

    readers: HttpCallers
    outlooks: Callable[[], Outlooks | None]
    now: Callable[[], float]

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(PATH, self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        return await self.readers.serve(request, self._answer)

    async def _answer(self, reader: Reader, namespaces: Sequence[str]) -> bytes:
        outlooks = self.outlooks()
        if outlooks is None:
            raise RequestRefused(503, "this replica does not lead; ask another one")
        forecast = outlooks.latest
        if forecast is None:
            raise RequestRefused(503, "no outlook has been made yet; try again in a minute")
        present = {prospect.gang.namespace for prospect in forecast.outlook.prospects}
        may_read = await self.readers.scope(reader, namespaces, present)
        return await asyncio.to_thread(self._encode, forecast, may_read)

    def _encode(self, forecast: StartForecast, may_read: frozenset[str] | None) -> bytes:
        outlook = forecast.outlook
        body = {
            "apiVersion": VERSION,
            "kind": "Outlook",
            "time": clock_time(outlook.now),
            "ageSeconds": round(max(0.0, self.now() - outlook.now)),
            "until": clock_time(outlook.until),
            "cut": outlook.cut.value,
            "policy": forecast.policy,
            "namespaces": None if may_read is None else sorted(may_read),
            "gangs": [
                _gang_entry(prospect, forecast)
                for prospect in outlook.prospects
                if may_read is None or prospect.gang.namespace in may_read
            ],
        }
        return msgspec.json.encode(body)


def _gang_entry(prospect: Prospect, forecast: StartForecast) -> dict[str, Any]:
    gang, ends = prospect.gang, forecast.ranges.get(prospect.gang.uid)
    estimate: dict[str, Any] = {}
    if ends is not None:
        estimate["earliest"] = quantities.format_timestamp(ends.earliest)
        if ends.latest is not None:
            estimate["latest"] = quantities.format_timestamp(ends.latest)
        if ends.coverage is not None:
            estimate["coveragePercent"] = round(100 * ends.coverage)
    return {
        "kind": gang.kind,
        "namespace": gang.namespace,
        "name": gang.name,
        "queue": gang.queue,
        "gpus": forecast.accelerators.units(gang.demand),
        "position": prospect.position,
        "reason": prospect.reason.value if prospect.reason is not None else None,
        "start": quantities.format_timestamp(prospect.start)
        if prospect.start is not None
        else None,
        "estimatedStart": estimate or None,
    }
