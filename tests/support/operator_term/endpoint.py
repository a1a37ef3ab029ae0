"""What a leading operator tells readers over HTTP: its outlook, and answers to what-if."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bireme.kube.client import ApiClient
from bireme.testing import ManualClock
from bireme_operator import outlook_endpoint, readers, reservations_endpoint, what_if_endpoint
from bireme_operator.leader import LeaderTerm, wall_clock
from bireme_operator.outlook_endpoint import OutlookEndpoint
from bireme_operator.reservations_endpoint import ReservationsEndpoint
from bireme_operator.what_if_endpoint import Leading, WhatIfEndpoint
from tests.support.fakeapi import FakeApi
from tests.support.scenario.manifests import Manifest, task, training_job


def whole(name: str, namespace: str = "default", **spec: Any) -> Manifest:
    """A job that fills the node, and says it runs for an hour."""
    job = training_job(name, task("worker", 8), estimatedDuration="1h", **spec)
    return {**job, "metadata": {**job["metadata"], "namespace": namespace}}


class Endpoint:
    """The endpoints of ``term``, None for a standby, and requests to them."""

    def __init__(self, api: FakeApi, client: ApiClient, term: LeaderTerm | None) -> None:
        self.api, self.term, self.clock = api, term, ManualClock()
        who = readers.make(client, self.clock)
        self._made = (
            OutlookEndpoint(who, self._outlooks, wall_clock),
            ReservationsEndpoint(who, self._outlooks),
            WhatIfEndpoint(who, self._leading, self.clock),
        )
        self._session = aiohttp.ClientSession()
        self._url = ""

    def _outlooks(self) -> Any:
        return None if self.term is None else self.term.outlooks

    def _leading(self) -> Leading | None:
        if self.term is None or self.term.outlooks is None:
            return None
        return Leading(self.term.outlooks, self.term.state.tenancy)

    @asynccontextmanager
    async def served(self) -> AsyncIterator["Endpoint"]:
        app = web.Application()
        for made in self._made:
            made.add_to(app)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        self._url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await self._session.close()
            await runner.cleanup()

    async def ask(
        self, who: str, *namespaces: str, header: str = readers.TOKEN_HEADER
    ) -> tuple[int, dict[str, Any]]:
        """Return status and body of the outlook for ``who``, as whom ``header`` is sent."""
        return await self._get(outlook_endpoint.PATH, {header: who} if who else {}, namespaces)

    async def reservations(self, who: str, *namespaces: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of the reservations for ``who``."""
        sent = {readers.TOKEN_HEADER: who}
        return await self._get(reservations_endpoint.PATH, sent, namespaces)

    async def _get(
        self, path: str, sent: dict[str, str], namespaces: Sequence[str]
    ) -> tuple[int, dict[str, Any]]:
        self.clock.advance(1.0)  # one in a second
        params = [("namespace", name) for name in namespaces]
        async with self._session.get(self._url + path, params=params, headers=sent) as answer:
            return answer.status, await answer.json()

    async def gangs(self, who: str, *namespaces: str) -> list[str]:
        code, body = await self.ask(who, *namespaces)
        assert code == 200, body
        return [f"{gang['namespace']}/{gang['name']}" for gang in body["gangs"]]

    async def post(self, who: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return status and body of the answer to a what-if question of ``who``."""
        self.clock.advance(1.0)
        sent = {readers.TOKEN_HEADER: who} if who else {}
        url = self._url + what_if_endpoint.PATH
        async with self._session.post(url, data=body, headers=sent) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def serving(api: FakeApi, folder: Path, term: LeaderTerm | None) -> AsyncIterator[Endpoint]:
    client = await ApiClient.connect(api.kubeconfig(folder))
    try:
        async with Endpoint(api, client, term).served() as endpoint:
            yield endpoint
    finally:
        await client.close()
