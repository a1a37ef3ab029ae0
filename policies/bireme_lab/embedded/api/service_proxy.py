"""Requests to programs behind Services, which the API server passes on."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web

from bireme_lab.embedded.api import routes
from bireme_lab.embedded.api.errors import ApiRefusal
from bireme_lab.embedded.api.requests import ApiRequest, RequestPath
from bireme_lab.embedded.api.server import ApiServer

_SERVICES: Final = "/api/v1/services"
_PATH: Final = re.compile(
    r"/api/v1/namespaces/(?P<namespace>[^/]+)/services/(?P<name>[^/]+)/proxy(?:/(?P<rest>.*))?"
)
_SECONDS: Final = 60.0
# Headers of one connection, and credentials, which are the API server's alone.
_OF_CONNECTION: Final = frozenset(
    {"authorization", "connection", "content-length", "host", "transfer-encoding"}
)


@dataclass(eq=False)
class ServiceProxy:
    """Passes requests on to the addresses of Services.

    Attributes:
        addresses: By namespace and name of a Service, the URL of the program behind it.
    """

    api: ApiServer
    addresses: dict[tuple[str, str], str] = field(default_factory=dict)

    async def answer(self, incoming: web.Request, request: ApiRequest) -> web.Response | None:
        """Return the answer of the program; None for a request that is not about one.

        Raises:
            ApiRefusal: the user may not ask it, or there is none.
        """
        match, resource = _PATH.fullmatch(request.path), self.api.resources.get(_SERVICES)
        if match is None or resource is None:
            return None
        namespace, name = match["namespace"], match["name"]
        target = RequestPath(_SERVICES, namespace, name, "proxy")
        verb = routes.verb_of(request, target)
        if not self.api.authorizer(request, verb, resource, target):
            raise routes.unauthorized(request.user, verb, resource, target)
        service = name.partition(":")[0]
        self.api.reader.find(resource, (namespace, service))
        address = self.addresses.get((namespace, service))
        if address is None:
            text = f'no endpoints available for service "{name}"'
            raise ApiRefusal(503, "ServiceUnavailable", text)
        return await _passed_on(incoming, request, f"{address}/{match['rest'] or ''}")


async def _passed_on(incoming: web.Request, request: ApiRequest, url: str) -> web.Response:
    headers = _without_own(incoming.headers)
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                request.method, url, params=request.query, data=request.body, headers=headers
            ) as reply,
        ):
            body = await reply.read()
            return web.Response(body=body, status=reply.status, headers=_without_own(reply.headers))
    except (aiohttp.ClientError, TimeoutError) as error:
        text = f"error trying to reach service: {error}"
        raise ApiRefusal(503, "ServiceUnavailable", text) from error


def _without_own(headers: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in headers.items() if k.lower() not in _OF_CONNECTION}
