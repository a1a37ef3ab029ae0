"""Servers without an extender, with which it is compared at equal bytes: both answer one reply.

``python -m benchmarks.timings.bare_servers KIND PORT REPLY_FILE``; KIND is ``uvicorn``, the server
that the extender runs on, or ``uvloop``: with httptools alone, the fastest that Python has.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any, Final, cast

import httptools
import uvicorn
import uvloop

UVICORN: Final = "uvicorn"
UVLOOP: Final = "uvloop"


class BareServer(asyncio.Protocol):
    """Connection that gets ``reply`` after every complete request."""

    def __init__(self, reply: bytes) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"
        self._answer = head.format(len(reply)).encode() + reply
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own, not a subclass

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(self._answer)


async def _serve(port: int, reply: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BareServer(reply), "127.0.0.1", port)
    await server.serve_forever()


def _serve_asgi(port: int, reply: bytes) -> None:
    length = (b"content-length", b"%d" % len(reply))
    headers = [(b"content-type", b"application/json"), length]
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    body = {"type": "http.response.body", "body": reply}

    async def answer(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001  # ASGI's
        while (await receive()).get("more_body"):
            pass
        await send(start)
        await send(body)

    uvicorn.run(
        answer, port=port, http="httptools", ws="none", lifespan="off", log_config=None,
        access_log=False, server_header=False, date_header=False,
    )  # fmt: skip


def main(arguments: list[str]) -> None:
    kind, port, path = arguments
    reply = Path(path).read_bytes()
    if kind == UVICORN:
        _serve_asgi(int(port), reply)
    else:
        uvloop.run(_serve(int(port), reply))


if __name__ == "__main__":
    main(sys.argv[1:])
