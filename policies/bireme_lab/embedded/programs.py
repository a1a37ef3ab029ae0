"""Programs beside the embedded cluster: their starts, restarts and ends."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

_READY_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_RESTART_SECONDS: Final = 0.5
_END_SECONDS: Final = 10.0


class ProgramStartError(Exception):
    """A program of the installation did not start; the message has the end of its log."""


@dataclass(eq=False)
class InstalledProgram:
    """One program of the installation, and its log."""

    name: str
    command: Sequence[str]
    """Module, then arguments."""
    environment: Mapping[str, str]
    log: Path
    ready_url: str = ""
    _process: asyncio.subprocess.Process | None = None
    _keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the program; it ends with this one."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bireme_lab.embedded.child",
                *self.command,
                env={**os.environ, **self.environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    async def wait_ready(self, session: aiohttp.ClientSession) -> None:
        """Wait until the program answers that it is ready.

        Raises:
            ProgramStartError: it has ended, or is not ready in time.
        """
        if not self.ready_url:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _READY_SECONDS
        while loop.time() < deadline:
            if self._process is not None and self._process.returncode is not None:
                break
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(self.ready_url) as reply:
                    if reply.status == 200:
                        return
            await asyncio.sleep(_POLL_SECONDS)
        tail = self.log.read_text(errors="replace")[-1500:]
        raise ProgramStartError(
            f"{self.name} is not ready; its log in {self.log} ends with:\n{tail}"
        )

    def keep_running(self) -> None:
        """Start the program again whenever it ends, as a kubelet does, until :meth:`stop`."""
        self._keeper = asyncio.create_task(self._restart())

    async def _restart(self) -> None:
        while self._process is not None:
            status = await self._process.wait()
            await asyncio.sleep(_RESTART_SECONDS)
            sys.stderr.write(f"{self.name} ended with status {status}; it starts again\n")
            await self.start()

    async def stop(self) -> None:
        """End the program, by force if it does not end by itself."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
