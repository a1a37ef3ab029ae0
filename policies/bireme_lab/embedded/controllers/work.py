"""A queue of keys and the task that works on them, one after the other."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class KeyQueue(Generic[T]):
    """Calls ``sync`` for every key that was added; a key waits in the queue at most once.

    Subscribers of the store add keys here and write nothing themselves: the store still hands the
    change to others.
    """

    sync: Callable[[T], None]
    _keys: dict[T, None] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: T) -> None:
        """Have a key worked on soon."""
        self._keys[key] = None
        self._woken.set()

    def add_later(self, seconds: float, key: T) -> None:
        """Have a key worked on after ``seconds``."""
        asyncio.get_running_loop().call_later(max(seconds, 0.0), self.add, key)

    async def run(self) -> None:
        """Work until it is cancelled; an error costs one key its turn."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._keys:
                key = next(iter(self._keys))
                del self._keys[key]
                try:
                    self.sync(key)
                except Exception:  # noqa: BLE001  # as a controller, which tries the other keys
                    _log.exception("work on %s failed", key)
                await asyncio.sleep(0)
