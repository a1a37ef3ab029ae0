"""Requests to the leading operator, through the API server, with a ticket of the caller.

The caller's credentials never reach the operator. Before each request the caller creates a Ticket
in the operator's namespace, and the API server makes sure that it names its creator. The caller
sends the secret of the ticket, by which the leader learns the caller's name. That works with every
kind of credentials. The ticket is deleted after the answer.
"""

import argparse
import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bireme.cli.arguments import Json
from bireme.cli.cluster import ClusterReader, ConsoleError, refusal
from bireme.kube import names
from bireme.kube.client import ApiError

_SERVICE: Final = "bireme-system/bireme-outlook"
_TICKET_HEADER: Final = "Bireme-Ticket"
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_OTHER_USER: Final = "a ticket names its own creator"
# Any replica behind a Service may answer, and only the leader has the data.
_TRIES: Final = 8
_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 5.0
"""A longer Retry-After is reported to the caller."""
_OTHER_TICKET: Final = "create another one"
_TICKETS: Final = 4
_TICKET_PAUSE_SECONDS: Final = 1.1
"""Creation times are whole seconds, and a replica refuses tickets from before its first try."""


@dataclass(frozen=True, slots=True)
class _Place:
    namespace: str
    service: str

    def path(self, end: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{self.service}:outlook/proxy/{end}"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the leader.

    Attributes:
        path: Path of the endpoint, without a leading slash.
        what: The caller's action, as it follows "you may not".
        otherwise: The alternative if there is no leader to ask.
        body: Sent by POST as JSON; None for a GET.
        timeout_seconds: None for the client's own.
        setting: The operator's setting that enables the endpoint.
    """

    path: str
    what: str
    otherwise: str
    body: object = None
    timeout_seconds: float | None = None
    setting: str = "outlook"
    namespaces: Sequence[str] = ()
    """Namespaces of the request; all by default."""


def add_leader(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how the leader is reached."""
    parser.add_argument(
        "--outlook-service",
        type=_place,
        default=_place(_SERVICE),
        metavar="NAMESPACE/NAME",
        help=f"the chart's Service that reaches the leader; default: {_SERVICE}",
    )


def _place(text: str) -> _Place:
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name and "/" not in name):
        raise argparse.ArgumentTypeError(f"{text!r} is no Service; write NAMESPACE/NAME")
    return _Place(namespace, name)


async def fetch(reader: ClusterReader, options: argparse.Namespace, request: Request) -> bytes:
    """Return the leader's answer; ConsoleError if there is none, or if it is refused."""
    place: _Place = options.outlook_service
    for remaining in reversed(range(_TICKETS)):
        try:
            async with _ticket(reader, place, request) as header:
                return await _answer(reader, place, request, {_TICKET_HEADER: header})
        except ApiError as error:
            if not (error.status == 401 and _OTHER_TICKET in error.message):
                raise refusal(error, request.what) from error
            if not remaining:
                raise ConsoleError(f"cannot {request.what}: {error.message}") from error
        await asyncio.sleep(_TICKET_PAUSE_SECONDS)
    raise AssertionError("the last ticket returns or raises")


async def _answer(
    reader: ClusterReader, place: _Place, request: Request, headers: dict[str, str]
) -> bytes:
    body = None if request.body is None else msgspec.json.encode(request.body)
    for remaining in reversed(range(_TRIES)):
        try:
            return await reader.client.request(
                "GET" if body is None else "POST",
                place.path(request.path),
                params={"namespace": request.namespaces} if request.namespaces else None,
                body=body,
                headers=headers,
                timeout_seconds=request.timeout_seconds,
            )
        except ApiError as error:
            if remaining and (pause := _pause(error)) is not None:
                await asyncio.sleep(pause)
            elif error.is_not_found:
                raise _no_service(place, request) from error
            elif error.status == 422:
                raise ConsoleError(error.message) from error
            else:
                raise
    raise AssertionError("the last try returns or raises")


def _no_service(place: _Place, request: Request) -> ConsoleError:
    return ConsoleError(
        f"cannot {request.what}: there is no Service {place.namespace}/{place.service}; ask an "
        f"administrator to set operator.settings.{request.setting} to true, name another Service "
        f"by --outlook-service, or {request.otherwise}"
    )


def _pause(error: ApiError) -> float | None:
    """Return the seconds until a retry; None if a retry cannot help."""
    if error.status == 503 and "does not lead" in error.message:
        return _PAUSE_SECONDS
    wait = error.retry_after_seconds
    if error.status == 429 and wait is not None and wait <= _MAX_PAUSE_SECONDS:
        return wait
    return None


# --- tickets ------------------------------------------------------------------------------------


@asynccontextmanager
async def _ticket(reader: ClusterReader, place: _Place, request: Request) -> AsyncIterator[str]:
    """Create a ticket of the caller for the time of the block; yield its header."""
    secret, name = secrets.token_urlsafe(32), f"ask-{secrets.token_hex(8)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    path = names.path("tickets", place.namespace)
    try:
        await _create(reader, path, name, digest)
    except ApiError as error:
        raise _ticket_error(error, place, request) from error
    try:
        yield f"{name}.{secret}"
    finally:
        with suppress(ApiError):  # it ends by itself in some minutes
            await reader.client.delete(f"{path}/{name}")


async def _create(reader: ClusterReader, path: str, name: str, digest: str) -> None:
    ticket = {
        "apiVersion": names.API_VERSION,
        "kind": "Ticket",
        "metadata": {"name": name},
        "spec": {**await _caller(reader), "secretDigest": digest},
    }
    try:
        await reader.client.create(path, ticket)
    except ApiError as error:
        if not (error.is_forbidden and _OTHER_USER in error.message):
            raise
        # The credentials were renewed between the two requests.
        ticket["spec"] = {**await _caller(reader), "secretDigest": digest}
        await reader.client.create(path, ticket)


async def _caller(reader: ClusterReader) -> dict[str, Any]:
    """Return the caller's identity at the API server, as fields of a ticket."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    review: Json = msgspec.json.decode(await reader.client.create(_REVIEWS, body))
    user = review["status"]["userInfo"]
    identity = {name: user[name] for name in ("uid", "groups", "extra") if user.get(name)}
    return {"user": user["username"], **identity}


def _ticket_error(error: ApiError, place: _Place, request: Request) -> ConsoleError:
    cannot = f"cannot {request.what}"
    if error.is_forbidden and names.GROUP in error.message:
        return ConsoleError(
            f"{cannot}: you may not create tickets.{names.GROUP} in namespace {place.namespace}, "
            f"which prove your identity to the operator: {error.message}; ask for the Role "
            f"{place.service} there"
        )
    if error.is_not_found and error.message.startswith("namespaces"):
        return _no_service(place, request)
    if error.is_not_found:
        return ConsoleError(
            f"{cannot}: the cluster serves no tickets.{names.GROUP}, which prove your identity to "
            f"the operator; ask an administrator to upgrade the chart, or {request.otherwise}"
        )
    return refusal(error, f"create tickets.{names.GROUP} in namespace {place.namespace}")
