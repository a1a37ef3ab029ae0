"""How far a collection has been followed, and who waits until it has been followed further."""

import asyncio


class Versions:
    """The newest resource version passed, bookmarks included; 0 before the first."""

    def __init__(self) -> None:
        self.newest = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def advance(self, version: int) -> None:
        """``version`` has been passed; whoever waited for it, or an older one, goes on."""
        self.newest = version
        for wanted, seen in self._waiting:
            if wanted <= version and not seen.done():
                seen.set_result(None)

    async def wait_past(self, version: int, timeout_seconds: float) -> None:
        """Return once ``version`` has been passed.

        Raises:
            TimeoutError: it was not passed within ``timeout_seconds``.
        """
        if self.newest >= version:
            return
        seen = asyncio.get_running_loop().create_future()
        waiting = (version, seen)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_seconds):
                await seen
        finally:
            self._waiting.remove(waiting)
