"""``GET /outlook``: when those who wait should start, each reader the namespaces they may read.

Nothing of others is told (:mod:`bireme_operator.readers`). ``?namespace=NAME``, once for each, asks
for less.
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
from bireme_operator.outlooks import Foreseen, Outlooks
from bireme_operator.progress_auth import RequestRefused
from bireme_operator.readers import Reader, Readers

PATH: Final = "/outlook"
VERSION: Final = "outlook.bireme.dev/v1"


@dataclass(slots=True)
class OutlookEndpoint:
    """Serves the outlook; ``outlooks`` gives that of this process, None where it does not lead.

    ``now`` gives POSIX seconds.
    """

    readers: Readers
    outlooks: Callable[[], Outlooks | None]
    now: Callable[[], float]

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(PATH, self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        return await self.readers.serve(request, self._answer)

    async def _answer(self, reader: Reader, wanted: Sequence[str]) -> bytes:
        outlooks = self.outlooks()
        if outlooks is None:
            raise RequestRefused(503, "this replica does not lead; ask another one")
        found = outlooks.latest
        if found is None:
            raise RequestRefused(503, "no outlook has been made yet; try again in a minute")
        present = {each.gang.namespace for each in found.outlook.prospects}
        may_read = await self.readers.scope(reader, wanted, present)
        return await asyncio.to_thread(self._encoded, found, may_read)

    def _encoded(self, found: Foreseen, may_read: frozenset[str] | None) -> bytes:
        outlook = found.outlook
        told = {
            "apiVersion": VERSION,
            "kind": "Outlook",
            "time": clock_time(outlook.now),
            "ageSeconds": round(max(0.0, self.now() - outlook.now)),
            "until": clock_time(outlook.until),
            "cut": outlook.cut.value,
            "policy": found.policy,
            "namespaces": None if may_read is None else sorted(may_read),
            "gangs": [
                _told(each, found)
                for each in outlook.prospects
                if may_read is None or each.gang.namespace in may_read
            ],
        }
        return msgspec.json.encode(told)


def _told(each: Prospect, found: Foreseen) -> dict[str, Any]:
    gang, ends = each.gang, found.ranges.get(each.gang.uid)
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
        "gpus": found.accelerators.units(gang.demand),
        "position": each.position,
        "reason": each.reason.value if each.reason is not None else None,
        "start": quantities.format_timestamp(each.start) if each.start is not None else None,
        "estimatedStart": estimate or None,
    }
