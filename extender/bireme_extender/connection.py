"""Connections of the verbs' port: a fast path that answers verbs at once.

kube-scheduler calls for one pod at a time and waits, so every microsecond here delays every pod.
The fast path needs the head that kube-scheduler sends, a complete body and a known answer. It then
answers in the callback that received the bytes: no task, no ASGI messages, one write. uvicorn takes
everything else, byte for byte: other paths, errors, pods that wait for their plan, long or slow
bodies. Both paths give the same answers.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from bireme_extender.verbs import Verb, Verbs

# The head of Go's HTTP client. Any other header may have a meaning that only uvicorn handles.
_PLAIN: Final = rb"(?:(?:Host|User-Agent|Content-Type|Accept-Encoding): [^\r\n]*\r\n)*"
_HEAD: Final = re.compile(
    rb"POST /(filter|prioritize) HTTP/1\.1\r\n"
    + _PLAIN
    + rb"Content-Length: ([0-9]{1,9})\r\n"
    + _PLAIN
    + rb"\r\n"
)
_REPLY: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
# Go's client sends more than 4 kB in several pieces, one right after the other.
_PIECES_SECONDS: Final = 0.05
# Room for a pod and 20000 names. uvicorn reads longer bodies at the pace of the application.
_HELD_BYTES: Final = 2**20


@dataclass(slots=True)
class Front:
    """State of the connections of one port; at most one of them ``holds`` an unfinished body."""

    verbs: Verbs
    limit_bytes: int
    """Longer bodies go to uvicorn, which refuses them."""
    holds: asyncio.Protocol | None = None


class VerbsProtocol(HttpToolsProtocol):
    """One connection; between requests it tries the fast path."""

    def __init__(
        self,
        front: Front,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._front = front
        self._in_message = False  # uvicorn's parser has seen a part of a request
        self._pieces: list[bytes] = []  # of a verb's request
        self._missing_bytes = 0
        self._patience: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client: the start of a request, a part, or several requests."""
        if self._pieces:
            self._pieces.append(data)
            self._missing_bytes -= len(data)
            if self._missing_bytes <= 0:
                self._complete(self._release())
        elif self._is_between_requests():
            self._complete(data)
        else:
            super().data_received(data)

    def _is_between_requests(self) -> bool:
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and not self._in_message and not self.flow.write_paused

    def _complete(self, data: bytes) -> None:
        """Answer the request in ``data``, hold it until it is complete, or pass it to uvicorn."""
        head = _HEAD.match(data)
        if head is not None and (length := int(head[2])) <= self._front.limit_bytes:
            missing_bytes = head.end() + length - len(data)
            if missing_bytes > 0 and self._hold(data, missing_bytes):
                return
            if missing_bytes == 0:
                verb = cast(Verb, head[1].decode())
                reply = self._front.verbs.at_once(verb, memoryview(data)[head.end() :])
                if reply is not None:
                    self.transport.write(_REPLY % (len(reply), reply))
                    self.on_response_complete()
                    return
        super().data_received(data)

    def _hold(self, data: bytes, missing_bytes: int) -> bool:
        """Hold ``data`` until the rest arrives; return False if uvicorn must read the request."""
        if self._front.holds is not None or len(data) + missing_bytes > _HELD_BYTES:
            return False
        self._front.holds, self._pieces, self._missing_bytes = self, [data], missing_bytes
        self._patience = self.loop.call_later(_PIECES_SECONDS, self._give_up)
        return True

    def _release(self) -> bytes:
        """Stop holding; return the held bytes."""
        if self._patience is not None:
            self._patience.cancel()
        data, self._pieces, self._front.holds = b"".join(self._pieces), [], None
        return data

    def _give_up(self) -> None:
        super().data_received(self._release())

    def on_message_begin(self) -> None:
        self._in_message = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_message = False

    def shutdown(self) -> None:
        """Close the connection, after the answer if a request is being received."""
        if self._pieces:
            self._give_up()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pieces:
            self._release()
        super().connection_lost(exc)
