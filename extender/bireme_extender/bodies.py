"""Request bodies, bounded before anything looks at them: in length, in time and all together.

An unbounded body is how a neighbour brings an extender down. What is too long is refused unread,
what trickles in is cut off, and bodies being read at once share a budget.
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope

_BODIES_AT_ONCE = 4
"""Bodies of the largest length that may be in memory, unfinished, at any time."""


class BodyRefused(Exception):  # noqa: N818  # it becomes an answer, not a traceback
    """The body is not taken: ``status`` and text of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Disconnected(Exception):  # noqa: N818  # nobody is there to answer
    """The client hung up before its body was complete."""


class BodyReader:
    """Reads whole bodies within ``limit_bytes`` each and ``timeout_seconds`` each."""

    def __init__(self, limit_bytes: int, timeout_seconds: float) -> None:
        self._limit_bytes = limit_bytes
        self._timeout_seconds = timeout_seconds
        self._budget_bytes = _BODIES_AT_ONCE * limit_bytes

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body.

        Raises:
            BodyRefused: it is too long, too slow, or too much is being read already.
            Disconnected: it ended early.
        """
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._limit_bytes:
                raise self._too_long()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body"):
                    return self._bounded(message["body"])
                return await self._rest(message, receive)
        except TimeoutError:
            raise BodyRefused(
                408, f"the body was not complete after {self._timeout_seconds:g} s; send it at once"
            ) from None

    async def _rest(self, message: Any, receive: Receive) -> bytes:
        body = bytearray()
        try:
            while True:
                if message["type"] != "http.request":
                    raise Disconnected
                self._take(body, message["body"])
                if not message.get("more_body"):
                    return bytes(body)
                message = await receive()
        finally:
            self._budget_bytes += len(body)

    def _take(self, body: bytearray, chunk: bytes) -> None:
        if len(chunk) > self._budget_bytes:
            raise BodyRefused(503, "too many large bodies at once; send fewer at a time")
        body += chunk
        self._budget_bytes -= len(chunk)
        if len(body) > self._limit_bytes:
            raise self._too_long()

    def _bounded(self, body: bytes) -> bytes:
        if len(body) > self._limit_bytes:
            raise self._too_long()
        return body

    def _too_long(self) -> BodyRefused:
        return BodyRefused(
            413,
            f"the body is longer than {self._limit_bytes} bytes; set nodeCacheCapable: true for "
            "this extender, or raise BIREME_BODY_LIMIT_BYTES",
        )
