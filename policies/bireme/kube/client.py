"""HTTP client of the API server: bytes in, bytes out.

Callers decode the bytes into the structs they need (:mod:`bireme.kube.wire`). Every failure, from a
refused connection to a 422, is one :class:`ApiError` with predicates. Callers are level-triggered
and only need to know whether to try again later. The client retries nothing, with one exception:
after a 401 or an unknown CA it reloads its credentials and tries once more.

Every write passes ``fence`` after a connection has been obtained and before its first byte is
sent. So a leader that lost its lease while it waited for a connection writes nothing.
"""

import random
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final, Self, TypedDict, Unpack
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from bireme.kube.credentials import Credentials, CredentialsError, CredentialSource

Params = Mapping[str, str | int | Sequence[str]]


class _Options(TypedDict, total=False):
    """Options of :meth:`ApiClient.request` that the methods for one verb pass on."""

    params: Params
    accept: str
    timeout_seconds: float
    max_bytes: int


JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Media type of lists that hold only the metadata of objects."""
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9:@_~+-][A-Za-z0-9:@_~.+-]*)+/?")
"""A path without escapes; no segment begins with a dot."""
_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_RESOURCE_PATH: Final = re.compile(
    r"/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/(?=.))?([^/]+)(?:/[^/]+)?(/[^/]+)?$"
)
_CONNECTIONS: Final = 64
_CONNECT_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_TIMEOUT_SECONDS: Final = 30.0
_READ_BUFFER_BYTES: Final = 256 * 1024
# Larger bodies are passed to aiohttp as a file: otherwise it warns that it sends them in one piece.
_BIG_BODY_BYTES: Final = 1024 * 1024
# Bound of any answer: an unpaged list may hold any number of tenants' objects.
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class NotLeader(Exception):  # noqa: N818  # a state, like StopIteration
    """A write was stopped because this process does not hold the lease (any more).

    It is no ApiError: the server works, and this process must stop.
    """


class ApiError(Exception):
    """The API server refused, or could not be reached (``status`` 0).

    ``reason`` is the Status object's machine-readable word (``AlreadyExists``, ``Expired``, ...)
    or ``ConnectionFailed``, ``Timeout``, ``BadCertificate``, ``CredentialsUnusable``.

    Attributes:
        is_lasting: The same request has met such an error again and again.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.is_lasting = False

    @property
    def status_class(self) -> str:
        """The class of the status, such as ``5xx``; 404, 409, 410 and 429 stand for themselves.

        ``none`` without an answer, ``other`` for a status that HTTP does not define.
        """
        if self.status in {404, 409, 410, 429}:
            return str(self.status)
        if self.status == 0:
            return "none"
        return f"{self.status // 100}xx" if 300 <= self.status < 600 else "other"

    @property
    def is_conflict(self) -> bool:
        """True if a precondition (resourceVersion, uid, field manager) did not hold."""
        return self.status == 409 and not self.is_already_exists

    @property
    def is_already_exists(self) -> bool:
        """True if the object exists, perhaps by our own request whose answer was lost."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_not_found(self) -> bool:
        """True if there is no such object, or no such resource (its CRD is missing)."""
        return self.status == 404

    @property
    def is_gone(self) -> bool:
        """True if the resource version or continue token is too old: a new list is needed."""
        return self.status == 410

    @property
    def is_invalid(self) -> bool:
        """True if the object itself is invalid: to send it again is pointless."""
        return self.status in {400, 413, 422}

    @property
    def is_forbidden(self) -> bool:
        """True if RBAC, a quota or admission control refused the request."""
        return self.status == 403

    @property
    def has_no_answer(self) -> bool:
        """True if the server may have executed the request, or may still execute it."""
        return self.status == 0 or self.status >= 500

    @property
    def is_retryable(self) -> bool:
        """True if the same request may succeed later: overload, server error, no connection."""
        return self.status in {0, 429} or self.status >= 500


class AnswerTooLargeError(ApiError):
    """The answer was longer than the limit of the request; its content is unknown."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(0, "AnswerTooLarge", f"more than {max_bytes} bytes")


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


def error_of_answer(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """Return the error of an answer; proxies answer without a Status object."""
    try:
        parsed = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        parsed = _Status(message=body[:200].decode(errors="replace"))
    retry_after = parsed.details.retry_after_seconds if parsed.details else None
    if (header := headers.get("Retry-After", "")).isdigit():
        retry_after = float(header)
    return ApiError(status, parsed.reason or "Unknown", parsed.message, retry_after)


@contextmanager
def connection_errors() -> Iterator[None]:
    """Turn errors below HTTP into an ApiError of status 0."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise ApiError(0, "BadCertificate", str(error)) from error
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise ApiError(0, "Timeout", str(error) or "no answer in time") from error
    except CredentialsError as error:
        raise ApiError(0, "CredentialsUnusable", str(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise ApiError(0, "ConnectionFailed", str(error) or type(error).__name__) from error


def pause_with_jitter(
    failures: int,
    first_seconds: float,
    limit_seconds: float,
    draw: Callable[[], float] = random.random,
) -> float:
    """Return the seconds to wait before the next attempt; every failure doubles them."""
    # Clients that failed at the same time (the API server restarted) must not return together.
    ceiling: float = min(limit_seconds, first_seconds * 2 ** min(failures, 30))
    return ceiling * (0.5 + 0.5 * draw())


class ApiClient:
    """A session with one API server, from :meth:`connect` to :meth:`close`.

    ``fence`` is called before every write and raises NotLeader to stop it. Every request
    impersonates ``user`` and ``groups``. ``timeout_seconds`` is the default timeout of requests;
    0 means none.
    """

    def __init__(
        self,
        source: CredentialSource,
        *,
        fence: Callable[[], None] = lambda: None,
        user: str | None = None,
        groups: Sequence[str] = (),
        timeout_seconds: float = _ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        self.fence = fence
        self._timeout_seconds = timeout_seconds
        self.write_counts: Counter[tuple[str, str]] = Counter()
        """Writes sent so far by (verb, resource), as in ``("patch", "podgroups/status")``."""
        self.error_counts: Counter[tuple[str, str]] = Counter()
        """Failures so far by (verb, status class), as in ``("watch", "5xx")``."""
        self.credentials = source
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=[
                ("Accept", JSON),
                ("Accept-Encoding", "identity"),
                ("User-Agent", "bireme"),
                *([("Impersonate-User", user)] if user else []),
                *(("Impersonate-Group", group) for group in groups),
            ],
            middlewares=(_send_writes_once,),
            request_class=_fence_requests(self._before_write),
            skip_auto_headers=("Content-Type",),
        )

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None) -> Self:
        """Return a client for ``kubeconfig``, else ``$KUBECONFIG``, the pod's account, ``~/.kube``.

        Raises:
            CredentialsError: there are no usable credentials.
        """
        source = CredentialSource(kubeconfig)
        await source.current()
        return cls(source)

    async def close(self) -> None:
        """Close every connection, including open streams."""
        await self._session.close()

    async def get(self, path: str, **options: Unpack[_Options]) -> bytes:
        """Return one object, or one page of a collection."""
        return await self.request("GET", path, **options)

    async def create(self, path: str, body: object, **options: Unpack[_Options]) -> bytes:
        """POST ``body`` to a collection (or to a subresource such as ``binding``)."""
        return await self.request("POST", path, body=_encode(body), **options)

    async def replace(self, path: str, body: object) -> bytes:
        """PUT the whole object; conditional if it has a resourceVersion."""
        return await self.request("PUT", path, body=_encode(body))

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, object]]) -> bytes:
        """Apply all operations, or none if a ``test`` operation fails (422)."""
        return await self.request("PATCH", path, body=_encode(operations), content_type=_JSON_PATCH)

    async def merge_patch(self, path: str, body: object, **options: Unpack[_Options]) -> bytes:
        """Merge ``body`` into the object; conditional if it has a resourceVersion."""
        return await self.request(
            "PATCH", path, body=_encode(body), content_type=_MERGE_PATCH, **options
        )

    async def strategic_patch(self, path: str, body: object) -> bytes:
        """Merge ``body`` into an object of a built-in kind; lists are merged by their keys."""
        return await self.request("PATCH", path, body=_encode(body), content_type=_STRATEGIC_PATCH)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> bool:
        """Delete the object; return False if it did not exist.

        With ``uid``, an object of the same name but another uid is not deleted (conflict).
        """
        options: dict[str, object] = {}
        if uid is not None:
            # Without it, an object that was recreated in the meantime would be deleted.
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        try:
            await self.request("DELETE", path, body=_encode(options) if options else None)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        return True

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float | None = None,
        max_bytes: int = _MAX_ANSWER_BYTES,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send one request with additional ``headers``; return the body of a 2xx answer.

        Raises:
            AnswerTooLargeError: the answer is longer than ``max_bytes``.
            ApiError: any other answer, or none within ``timeout_seconds`` (default: the client's).
            NotLeader: it is a write and the fence is closed.
        """
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        timeout = aiohttp.ClientTimeout(total=seconds or None)
        request_headers = dict(headers or {}) | (
            {} if body is None else {"Content-Type": content_type}
        )
        if accept != JSON:
            request_headers["Accept"] = accept
        with self._count_errors(_VERBS.get(method, "get")):
            response = await self._respond(
                method, _target(path, params), body, request_headers, timeout
            )
            async with response:
                body = await body_within(response, max_bytes)
        if body is None:
            raise AnswerTooLargeError(max_bytes)
        return body

    async def stream(
        self,
        path: str,
        params: Params | None = None,
        *,
        read_timeout_seconds: float | None = 70,
        on_open: Callable[[], None] = lambda: None,
        with_last_part: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Yield the lines of a streamed answer (a watch, a log), without newlines, of any length.

        ``on_open`` is called once the server has accepted the request. A last line without newline
        is a cut event of a watch and is dropped. A log needs it: use ``with_last_part``. Close the
        iterator (``contextlib.aclosing``) to hang up.

        Raises:
            ApiError: refused, cut, or not one byte for ``read_timeout_seconds`` (None: no limit).
        """
        timeout = aiohttp.ClientTimeout(
            # A watch lasts for minutes: only silence is an error.
            total=None,
            connect=_CONNECT_TIMEOUT_SECONDS,
            sock_read=read_timeout_seconds,
        )
        with self._count_errors("watch"):
            response = await self._respond("GET", _target(path, params), None, {}, timeout)
            on_open()
            try:
                chunks = response.content.iter_any()
                async for line in whole_lines(chunks, with_last_part=with_last_part):
                    yield line
            finally:
                response.close()

    @contextmanager
    def _count_errors(self, verb: str) -> Iterator[None]:
        """Count the ApiError that ends this block."""
        try:
            with connection_errors():
                yield
        except ApiError as error:
            self.error_counts[verb, error.status_class] += 1
            raise

    async def _respond(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Return a 2xx answer with unread body; reload refused credentials once and try again."""
        # A rotated token or a new CA is refused like this. The server has executed nothing, so a
        # write may be sent again too.
        used = await self.credentials.current()
        try:
            return await self._send(used, method, target, body, headers, timeout)
        except aiohttp.ClientConnectorCertificateError:
            pass
        except ApiError as error:
            if error.status != 401:
                raise
        renewed = await self.credentials.after(used)
        return await self._send(renewed, method, target, body, headers, timeout)

    async def _send(
        self,
        credentials: Credentials,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        if authorization := credentials.authorization():
            headers = {**headers, "Authorization": authorization}
        response = await self._session.request(
            method,
            URL(credentials.server + target, encoded=True),
            data=BytesIO(body) if body and len(body) > _BIG_BODY_BYTES else body,
            headers=headers,
            timeout=timeout,
            ssl=credentials.tls,
            server_hostname=credentials.server_hostname,
            proxy=credentials.proxy,
            allow_redirects=False,
            read_bufsize=_READ_BUFFER_BYTES,
        )
        if response.status < 300:
            return response
        async with response:
            raise error_of_answer(response.status, await response.read(), response.headers)

    def _before_write(self, method: str, path: str) -> None:
        self.fence()
        self.write_counts[_VERBS[method], _resource(path)] += 1


async def _send_writes_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a PUT or DELETE after a broken connection: the caller decides."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method not in _VERBS:
            raise
        raise ApiError(0, "ConnectionFailed", f"write may be lost: {error}") from error


def _fence_requests(before_write: Callable[[str, str], None]) -> type[aiohttp.ClientRequest]:
    """Return a request class that calls ``before_write`` once a write has a connection."""

    class FencedRequest(aiohttp.ClientRequest):
        async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
            if self.method in _VERBS:
                before_write(self.method, self.url.raw_path)
            return await super().send(conn)

    return FencedRequest


async def body_within(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Return the body of an answer; hang up and return None if it is longer than ``max_bytes``."""
    parts: list[bytes] = []
    remaining = max_bytes
    async for part in response.content.iter_any():
        parts.append(part)
        remaining -= len(part)
        if remaining < 0:
            response.close()
            return None
    return b"".join(parts)


async def whole_lines(
    chunks: AsyncIterator[bytes], *, with_last_part: bool = False
) -> AsyncIterator[bytes]:
    """Yield whole lines from chunks of any size, in time linear in the bytes.

    The text after the last newline is a line only ``with_last_part``.
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            yield b"".join((*parts, line)) if parts else line
            parts.clear()
        if rest:
            parts.append(rest)
    if parts and with_last_part:
        yield b"".join(parts)


def _encode(body: object) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def _target(path: str, params: Params | None) -> str:
    # Names in the path may come from tenants, such as names of owners. They must not inject a query
    # or another path.
    if not _PATH.fullmatch(path):
        raise ApiError(404, "NotFound", f"no object has the path {path[:200]!r}")
    return f"{path}?{urlencode(params, doseq=True)}" if params else path


def _resource(path: str) -> str:
    """Return the resource of a path without namespace and name: ``pods``, ``pods/binding``."""
    match = _RESOURCE_PATH.search(path)
    return "".join(part or "" for part in match.groups()) if match else path
