"""The outlook of a leading operator over HTTP, with its answers to questions."""

import hashlib
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bireme.kube import names, quantities
from bireme.kube.client import ApiClient
from bireme.replay.outlook_reply import PATH
from bireme.testing import ManualClock
from bireme_operator.http_callers import AccessReviews, HttpCallers
from bireme_operator.leader import LeaderTerm
from bireme_operator.outlook_endpoint import Leading, OutlookEndpoint
from bireme_operator.term import wall_clock
from bireme_operator.tickets import TICKET_HEADER, Tickets
from testbed.fakeapi import FakeApi
from testbed.scenario.manifests import Manifest, task, training_job

SYSTEM = "bireme-system"


def whole(name: str, namespace: str = "default", **spec: Any) -> Manifest:
    """A job that fills the node, and says it runs for an hour."""
    job = training_job(name, task("worker", 8), estimatedDuration="1h", **spec)
    return {**job, "metadata": {**job["metadata"], "namespace": namespace}}


class Endpoint:
    """The endpoint of ``term``, None for a standby, and requests to it."""

    def __init__(self, api: FakeApi, client: ApiClient, term: LeaderTerm | None) -> None:
        self.api, self.term, self.clock = api, term, ManualClock()
        self.tickets = Tickets(client, SYSTEM, self.clock, self.now)
        who = HttpCallers(self.tickets, AccessReviews(client), self.clock)
        self._sent: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._made = OutlookEndpoint(who, self._leading, wall_clock, self.clock)
        self.asking = self._made._asking
        self._session = aiohttp.ClientSession()
        self._url = ""

    def now(self) -> float:
        """Return the time of the API server, which stands still."""
        found = quantities.parse_timestamp(self.api.store.now())
        assert found is not None
        return found

    def _leading(self) -> Leading | None:
        if self.term is None or self.term.outlooks is None:
            return None
        return Leading(self.term.outlooks, self.term.state.tenancy)

    @asynccontextmanager
    async def served(self) -> AsyncIterator["Endpoint"]:
        app = web.Application()
        self._made.add_to(app)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        self._url = f"http://{host}:{port}{PATH}"
        try:
            yield self
        finally:
            await self._session.close()
            await runner.cleanup()

    def headers(self, who: str) -> dict[str, str]:
        """Return headers by which ``who`` says who they are; none for nobody."""
        if not who:
            return {}
        if who not in self._sent:
            self._sent[who] = self.new_ticket(who)
        return {TICKET_HEADER: self._sent[who]}

    def new_ticket(self, who: str, **changes: Any) -> str:
        """Create a ticket of ``who``, as the API server admits it; return the header."""
        name, secret = f"ask-{next(self._numbers)}", f"secret-of-{who}"
        digest = hashlib.sha256(secret.encode()).hexdigest()
        spec = {"user": who, "groups": ["readers"], "secretDigest": digest, **changes}
        ticket = {"apiVersion": names.API_VERSION, "kind": "Ticket", "spec": spec}
        self.api.put(names.path("tickets", SYSTEM, name), ticket)
        return f"{name}.{secret}"

    async def ask(self, who: str, *namespaces: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of the outlook for ``who``."""
        return await self._get(self.headers(who), namespaces)

    async def present(self, header: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of the outlook for the sender of ``header``."""
        return await self._get({TICKET_HEADER: header}, ())

    async def _get(
        self, sent: dict[str, str], namespaces: Sequence[str]
    ) -> tuple[int, dict[str, Any]]:
        self.clock.advance(1.0)  # one in a second
        params = [("namespace", name) for name in namespaces]
        async with self._session.get(self._url, params=params, headers=sent) as answer:
            return answer.status, await answer.json()

    async def gangs(self, who: str, *namespaces: str) -> list[str]:
        code, body = await self.ask(who, *namespaces)
        assert code == 200, body
        return [f"{gang['namespace']}/{gang['name']}" for gang in body["gangs"]]

    async def post(self, who: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return status and body of the answer to a what-if question of ``who``."""
        self.clock.advance(1.0)
        async with self._session.post(self._url, data=body, headers=self.headers(who)) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def serving(api: FakeApi, folder: Path, term: LeaderTerm | None) -> AsyncIterator[Endpoint]:
    client = await ApiClient.connect(api.kubeconfig(folder))
    try:
        async with Endpoint(api, client, term).served() as endpoint:
            yield endpoint
    finally:
        await client.close()
