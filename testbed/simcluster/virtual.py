"""An event loop without a clock, sockets or threads: time jumps to the next timer.

Every callback belongs to the process whose context it was scheduled in; those of a paused process
are held back, as by SIGSTOP, and run when it goes on, late.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar
from typing import Any, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

PROCESS: ContextVar[str] = ContextVar("process", default="")
"""The simulated process that the running code belongs to; empty for the world around them."""


class DeadlockError(Exception):
    """All tasks wait, and no timer will ever wake one."""


class _Jump:
    """Stands for the selector: instead of waiting for I/O, it lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is scheduled and nothing is ready")
        self.now += timeout
        return []


class _Ready(deque[asyncio.Handle]):
    """Callbacks that are due, without those of paused processes."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, list[asyncio.Handle]] = {}

    def append(self, handle: asyncio.Handle) -> None:
        if self.held and (name := handle._context.get(PROCESS, "")) in self.held:  # type: ignore[attr-defined]  # the loop's own field
            self.held[name].append(handle)
        else:
            super().append(handle)


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module; ``time()`` starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Jump()
        self._ready = _Ready()
        self._clock_resolution = 1e-6  # far above the rounding of long times
        self.faults: list[str] = []
        """Exceptions that nobody took."""
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._selector.now

    def pause(self, process: str) -> None:
        self._ready.held.setdefault(process, [])

    def is_paused(self, process: str) -> bool:
        return process in self._ready.held

    def resume(self, process: str) -> None:
        """Let it go on with everything that came up meanwhile."""
        for handle in self._ready.held.pop(process, ()):
            self._ready.append(handle)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Args], _T], *args: *_Args
    ) -> asyncio.Future[_T]:
        """Run ``func`` now; its result is there when the loop turns next."""
        done: asyncio.Future[_T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # it is the caller's, as from a thread
            done.set_exception(error)
        return done

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no I/O."""

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")
