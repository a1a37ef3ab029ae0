"""Coroutines that run on while nobody awaits them, until they are done or told to stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Those of one owner, who closes them; ``len`` counts those that are not done.

    What one raises is its own affair: whoever must know of it catches it inside.
    """

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(not task.done() for task in self._open)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin ``work`` on the running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._open.add(task)  # or it could be collected as garbage while it waits
        task.add_done_callback(self._open.discard)

    def cancel(self) -> None:
        """Tell all to stop."""
        for task in self._open:
            task.cancel()

    async def close(self) -> None:
        """Tell all to stop, and return when they have."""
        self.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
