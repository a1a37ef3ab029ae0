"""The fastest Python server there is for this protocol: it parses HTTP and answers fixed bytes.

``python -m benchmarks.timings.bare_server PORT REPLY_FILE``. uvloop, httptools, no framework: what
is left of a
round trip when nothing is decided. The extender is compared with it at equal bytes.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import cast

import httptools
import uvloop


class BareServer(asyncio.Protocol):
    """Connection that gets ``reply`` after every complete request."""

    def __init__(self, reply: bytes) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"
        self._answer = head.format(len(reply)).encode() + reply
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own, not a subclass

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._body.clear()
        self._transport.write(self._answer)


async def serve(port: int, reply: bytes) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    server = await loop.create_server(lambda: BareServer(reply), "127.0.0.1", port)
    async with server:
        await stopped.wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes()))
