"""Short waits for a plan that is on its way: the watch may lag the pod by milliseconds.

The scheduler asks about one pod at a time, so every wait delays all others. A pod waits once in
its life, and all waits together may take a tenth of the time (after a burst): pods that were made
to stall the scheduler run out of this credit, and then are refused at once.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from bireme.core.gangs import Key

_REMEMBERED_PODS = 8192
_SHARE = 0.1
"""Seconds of credit earned per second."""
_BURST = 10
"""Full waits that fit into the credit at most."""


class PlanWaits:
    """Who may wait, for how long, and what wakes them.

    ``limit_seconds`` bounds one wait; 0 means that nobody waits.
    """

    def __init__(self, limit_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._credit_seconds = _BURST * limit_seconds
        self._credited_at = clock()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._waiting: dict[Key, set[asyncio.Future[None]]] = {}

    def may_wait(self, uid: str) -> bool:
        """Whether the pod may wait now; asking uses up its one chance."""
        if not uid or uid in self._seen or self._limit_seconds <= 0:
            return False
        self._seen[uid] = None
        if len(self._seen) > _REMEMBERED_PODS:
            self._seen.popitem(last=False)
        return self._credit() >= self._limit_seconds

    async def until(self, is_there: Callable[[], bool], key: Key) -> bool:
        """Wait until ``is_there()`` holds, asked after each change of ``key``; False if too late.

        Event-driven: nothing polls.
        """
        began = self._clock()
        try:
            async with asyncio.timeout(self._limit_seconds):
                while not is_there():
                    await self._next_change(key)
        except TimeoutError:
            return False
        finally:
            self._credit_seconds -= self._clock() - began
        return True

    def notify(self, key: Key) -> None:
        """Something about PodGroup ``key`` has changed."""
        for waiting in self._waiting.get(key, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def _next_change(self, key: Key) -> None:
        changed = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(changed)
        try:
            await changed
        finally:
            waiting.discard(changed)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def _credit(self) -> float:
        now = self._clock()
        earned = self._credit_seconds + _SHARE * (now - self._credited_at)
        self._credit_seconds = min(_BURST * self._limit_seconds, earned)
        self._credited_at = now
        return self._credit_seconds
