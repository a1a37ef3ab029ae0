"""Queries about the last decisions: ``GET /outlook`` and ``GET /reservations``.

The outlook has the forecast starts of waiting gangs. The reservations have the places that the last
cycle reserved for waiting gangs, with the devices on each node. The answers omit namespaces that
the reader may not read (:mod:`bireme_operator.http_callers`). Each ``?namespace=NAME`` selects one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from bireme.core.decision import Hold, Reservation
from bireme.core.nodes import NodeTable
from bireme.core.outlook import Prospect
from bireme.core.placement import usage_of
from bireme.core.times import clock_time
from bireme.kube import quantities
from bireme_operator.http_callers import HttpCallers, Reader
from bireme_operator.http_server import RequestRefused
from bireme_operator.outlooks import Outlooks, StartForecast

OUTLOOK_PATH: Final = "/outlook"
OUTLOOK_VERSION: Final = "outlook.bireme.dev/v1"
RESERVATIONS_PATH: Final = "/reservations"
RESERVATIONS_VERSION: Final = "reservations.bireme.dev/v1"


def _of_leader(outlooks: Callable[[], Outlooks | None]) -> Outlooks:
    """Return the outlooks of this process; raise RequestRefused if it does not lead."""
    if (of_leader := outlooks()) is None:
        raise RequestRefused(503, "this replica does not lead; ask another one")
    return of_leader


@dataclass(slots=True)
class OutlookEndpoint:
    """Serves the forecast; ``outlooks`` gives that of this process, None if it does not lead.

    ``now`` gives POSIX seconds.
    """

    readers: HttpCallers
    outlooks: Callable[[], Outlooks | None]
    now: Callable[[], float]

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(OUTLOOK_PATH, partial(self.readers.serve, answer=self._answer))

    async def _answer(self, reader: Reader, namespaces: Sequence[str]) -> bytes:
        forecast = _of_leader(self.outlooks).latest
        if forecast is None:
            raise RequestRefused(503, "no outlook has been made yet; try again in a minute")
        present = {prospect.gang.namespace for prospect in forecast.outlook.prospects}
        may_read = await self.readers.scope(reader, namespaces, present)
        return await asyncio.to_thread(self._encode, forecast, may_read)

    def _encode(self, forecast: StartForecast, may_read: frozenset[str] | None) -> bytes:
        outlook = forecast.outlook
        body = {
            "apiVersion": OUTLOOK_VERSION,
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


@dataclass(slots=True)
class ReservationsEndpoint:
    """Serves reservations; ``outlooks`` has the last cycle, None if this process does not lead."""

    readers: HttpCallers
    outlooks: Callable[[], Outlooks | None]

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(RESERVATIONS_PATH, partial(self.readers.serve, answer=self._answer))

    async def _answer(self, reader: Reader, namespaces: Sequence[str]) -> bytes:
        current = _of_leader(self.outlooks).current
        if current is None:
            raise RequestRefused(503, "nothing has been decided yet; try again in a minute")
        reservations = [
            (hold, hold.reservation)
            for hold in current.decision.held
            if hold.reservation is not None
        ]
        present = {hold.gang.namespace for hold, _ in reservations}
        may_read = await self.readers.scope(reader, namespaces, present)
        body = {
            "apiVersion": RESERVATIONS_VERSION,
            "kind": "Reservations",
            "time": clock_time(current.snapshot.now),
            "namespaces": None if may_read is None else sorted(may_read),
            "reservations": [
                _reservation_entry(hold, reservation, current.snapshot.nodes)
                for hold, reservation in reservations
                if may_read is None or hold.gang.namespace in may_read
            ],
        }
        return msgspec.json.encode(body)


def _reservation_entry(hold: Hold, reservation: Reservation, nodes: NodeTable) -> dict[str, Any]:
    gang, names, is_accelerator = hold.gang, nodes.axis.names, nodes.accelerators.is_accelerator
    devices = [column for column, name in enumerate(names) if is_accelerator(name)]
    by_node: dict[str, Counter[str]] = {}
    rows, usage = usage_of(gang, reservation.placement, nodes.axis)
    for row, used in zip(rows.tolist(), usage[:, devices].tolist(), strict=True):
        # A gang may have several tasks on a node.
        amounts = by_node.setdefault(nodes.names[row], Counter())
        amounts.update(
            {names[c]: amount for c, amount in zip(devices, used, strict=True) if amount}
        )
    return {
        "kind": gang.kind,
        "namespace": gang.namespace,
        "name": gang.name,
        "start": quantities.format_timestamp(reservation.expected),
        "nodes": by_node,
    }
