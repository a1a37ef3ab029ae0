"""``GET /reservations``: the places that the last cycle reserved for waiting gangs.

The answer has the gangs in the namespaces that the reader may read, as for ``/outlook``, with the
devices on each node. Each ``?namespace=NAME`` selects a namespace.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from bireme.core.decision import Hold, Reservation
from bireme.core.nodes import NodeTable
from bireme.core.placement import usage_of
from bireme.core.times import clock_time
from bireme.kube import quantities
from bireme_operator.outlooks import Outlooks
from bireme_operator.progress_auth import RequestRefused
from bireme_operator.readers import HttpCallers, Reader

PATH: Final = "/reservations"
VERSION: Final = "reservations.bireme.dev/v1"


@dataclass(slots=True)
class ReservationsEndpoint:
    """Serves reservations; ``outlooks`` has the last cycle, None if this process does not lead."""

    readers: HttpCallers
    outlooks: Callable[[], Outlooks | None]

    def add_to(self, app: web.Application) -> None:
        app.router.add_get(PATH, self._serve)

    async def _serve(self, request: web.Request) -> web.Response:
        return await self.readers.serve(request, self._answer)

    async def _answer(self, reader: Reader, namespaces: Sequence[str]) -> bytes:
        outlooks = self.outlooks()
        if outlooks is None:
            raise RequestRefused(503, "this replica does not lead; ask another one")
        current = outlooks.current
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
            "apiVersion": VERSION,
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
