"""The extender's server without the extender: uvicorn, one fixed answer.

``python -m benchmarks.timings.bare_asgi PORT REPLY_FILE``. Bodies are read, as any server must.
"""

import sys
from pathlib import Path
from typing import Any

import uvicorn


class FixedReply:
    """ASGI application that answers ``reply`` to everything."""

    def __init__(self, reply: bytes) -> None:
        length = (b"content-length", b"%d" % len(reply))
        headers = [(b"content-type", b"application/json"), length]
        self._start = {"type": "http.response.start", "status": 200, "headers": headers}
        self._body = {"type": "http.response.body", "body": reply}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(self._start)
        await send(self._body)


if __name__ == "__main__":
    uvicorn.run(
        FixedReply(Path(sys.argv[2]).read_bytes()),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
    )
