"""Callers that mean no good, for tests of what listens: fuzzed calls, floods, bombs.

Fuzzed calls are Schemathesis' own program against a served OpenAPI document, positive and negative,
with a fixed seed and few enough calls that a run takes seconds.
"""

import asyncio
import gzip
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

_CALLS: Final = "10"
_SECONDS: Final = 300.0


async def fuzzed(
    url: str, folder: Path, *arguments: str, parameters: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and report of Schemathesis on the service at ``url``: 0 where every answer was one
    that its document promises.

    Args:
        url: Where the service is; its document is at ``/openapi.json`` there.
        folder: Where the program may leave files.
        arguments: Further ones, such as ``--header``.
        parameters: Values of path parameters, where others would lead nowhere.

    Raises:
        TimeoutError: it did not end within five minutes.
    """
    fixed = [
        f"{json.dumps(key)} = {json.dumps(value)}" for key, value in (parameters or {}).items()
    ]
    (folder / "schemathesis.toml").write_text("\n".join(["[parameters]", *fixed]))
    program = Path(sys.executable).parent / "schemathesis"
    bounds = ("--max-examples", _CALLS, "--seed", "1", "--workers", "1", "--request-timeout", "10")
    running = await asyncio.create_subprocess_exec(
        str(program),
        *("run", f"{url}/openapi.json", *bounds, "--no-color", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder)},
    )
    try:
        output, _ = await asyncio.wait_for(running.communicate(), _SECONDS)
    except TimeoutError:
        running.kill()
        await running.wait()
        raise
    assert running.returncode is not None  # it has ended
    return running.returncode, output.decode()


@asynccontextmanager
async def crowd(port: int, number: int, says: bytes = b"") -> AsyncIterator[Sequence[bool]]:
    """``number`` connections to ``port`` that stay open and say no more than ``says``.

    Yields for each, oldest first, whether it has been hung up on; the list follows.
    """
    pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(number)]
    ended = [False] * number

    async def watch(at: int) -> None:
        while await pairs[at][0].read(1024):
            pass
        ended[at] = True

    for _, writer in pairs:
        writer.write(says)
    watching = [asyncio.create_task(watch(at)) for at in range(number)]
    try:
        yield ended
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        for _, writer in pairs:
            writer.close()


def bomb(size_bytes: int) -> bytes:
    """A gzip stream of ``size_bytes`` spaces, a thousandth as long."""
    return gzip.compress(b" " * size_bytes)
