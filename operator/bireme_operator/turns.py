"""Slots for writes, given in the order in which work began: gangs finish one after another.

A task takes its turn number once; whatever it and its children write is served by that number,
not by when it asked. So a gang admitted first has its plan *and* its pods written before the plan
of the next one, however many are admitted at once, and a report about a gang that runs comes
after the gangs admitted before it and ahead of those admitted later.
"""

import asyncio
import heapq
import itertools
from contextvars import ContextVar
from types import TracebackType

_turn: ContextVar[int] = ContextVar("turn", default=0)
"""Work that took no turn goes first: nobody forgets it behind a long queue."""


class Turns:
    """``limit`` slots at once, as an async context manager; the lowest turn waiting goes next."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._numbers = itertools.count(1)
        self._asked = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def take(self) -> None:
        """Give the running task, and those it starts from now on, the next turn."""
        _turn.set(next(self._numbers))

    async def __aenter__(self) -> None:
        if self._free > 0:
            self._free -= 1
            return
        ready = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (_turn.get(), next(self._asked), ready))
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():
                self._release()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._release()

    def _release(self) -> None:
        while self._waiting:
            _, _, ready = heapq.heappop(self._waiting)
            if not ready.done():
                ready.set_result(None)
                return
        self._free += 1
