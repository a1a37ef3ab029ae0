"""Background tasks of one owner, which run until they are done or cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Starts background tasks and cancels them on close; ``len`` counts those not done.

    The exception of a task is dropped: a task that can fail must catch and report it inside.
    """

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(not task.done() for task in self._open)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin ``work`` on the running loop, and return its task."""
        task = asyncio.get_running_loop().create_task(work)
        self._open.add(task)  # a strong reference: asyncio keeps only weak ones
        task.add_done_callback(self._open.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._open:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        self.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
