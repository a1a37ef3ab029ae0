"""Questions to the operator that leads: sent through the API server, with the caller's own token.

The API server's proxy takes the header Authorization for itself, so the caller's token goes in a
header of its own; the leader asks the API server whose it is. A certificate cannot be passed on
like that: who has one alone names a file with a token.
"""

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from bireme.cli.arguments import Json, UsageError, naming
from bireme.cli.cluster import ConsoleError, Reader, refused
from bireme.kube.client import ApiError
from bireme.kube.credentials import CredentialsError

_SERVICE: Final = "bireme-system/bireme-outlook"
_TOKEN_HEADER: Final = "Bireme-Token"  # noqa: S105  # the name of a header
# A Service answers by any replica, and those that do not lead know nothing.
_TRIES: Final = 8
_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0
"""A longer Retry-After is told to the caller instead."""


@dataclass(frozen=True, slots=True)
class _Place:
    namespace: str
    service: str

    def path(self, end: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{self.service}:outlook/proxy/{end}"


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the leader.

    Attributes:
        path: Of its endpoint, without a slash in front.
        what: What the caller wants to do, in words after "may not".
        otherwise: What else they can do where there is no leader to ask.
        body: Sent by POST as JSON; None for a GET.
        timeout_seconds: None for that of the client.
    """

    path: str
    what: str
    otherwise: str
    body: object = None
    timeout_seconds: float | None = None


def add_leader(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how the leader is reached."""
    parser.add_argument(
        "--outlook-service",
        type=_place,
        default=_place(_SERVICE),
        metavar="NAMESPACE/NAME",
        help=f"the Service of the chart by which the leader is asked; default: {_SERVICE}",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a token that says to the leader who asks; default: that of the kubeconfig",
    )


def _place(text: str) -> _Place:
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name and "/" not in name):
        raise argparse.ArgumentTypeError(f"{text!r} is no Service; write NAMESPACE/NAME")
    return _Place(namespace, name)


async def fetch(reader: Reader, options: argparse.Namespace, request: Request) -> bytes:
    """Return the leader's answer; ConsoleError where there is none, or not for the caller."""
    headers = {_TOKEN_HEADER: await _token(reader, options)}
    place, body = options.outlook_service, None
    if request.body is not None:
        body = msgspec.json.encode(request.body)
    for left in reversed(range(_TRIES)):
        try:
            return await reader.client.request(
                "GET" if body is None else "POST",
                place.path(request.path),
                body=body,
                headers=headers,
                timeout_seconds=request.timeout_seconds,
            )
        except ApiError as error:
            if left and (pause := _pause(error)) is not None:
                await asyncio.sleep(pause)
            elif error.is_not_found:
                raise ConsoleError(
                    f"cannot {request.what}: there is no Service {place.namespace}/{place.service}"
                    " that leads there; have operator.settings.outlook set to true, name another by"
                    f" --outlook-service, or {request.otherwise}"
                ) from error
            elif error.status == 422:
                raise ConsoleError(error.message) from error
            else:
                raise refused(error, request.what) from error
    raise AssertionError("the last try returns or raises")


def _pause(error: ApiError) -> float | None:
    """Return after how many seconds the leader may be asked again; None where that is no use."""
    if error.status == 503 and "does not lead" in error.message:
        return _PAUSE_SECONDS
    wait = error.retry_after_seconds
    if error.status == 429 and wait is not None and wait <= _LONGEST_PAUSE_SECONDS:
        return wait
    return None


class _Versioned(Protocol):
    @property
    def api_version(self) -> str: ...


_T = TypeVar("_T", bound=_Versioned)


def decoded(text: bytes, kind: type[_T], version: str) -> _T:
    """Return the answer ``text``; ConsoleError where it is not of that kind and version."""
    try:
        head: Json = msgspec.json.decode(text, type=dict)
        if (given := head.get("apiVersion")) not in (version, None):
            raise ConsoleError(
                f"the answer is of version {given!r}, and this bireme reads {version}; use that of"
                " the operator"
            )
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise ConsoleError(
            f"the answer cannot be read: {error}; check --outlook-service"
        ) from error


async def _token(reader: Reader, options: argparse.Namespace) -> str:
    if options.user:
        raise UsageError("argument --as: the leader is asked by your own token; leave it out")
    if options.token_file is not None:
        with naming("--token-file"):
            token = str(options.token_file.read_text()).strip()
        if not (token and token.isascii() and token.isprintable()):
            raise UsageError(f"argument --token-file: {options.token_file} holds no token")
        return token
    try:
        given = (await reader.client.credentials.current()).authorization() or ""
    except CredentialsError as error:
        raise ConsoleError(str(error)) from error
    kind, _, token = given.partition(" ")
    if kind != "Bearer":
        raise ConsoleError(
            "the credentials have no token to say to the leader who asks; name a file with one by"
            " --token-file, such as what kubectl create token writes"
        )
    return token
