"""What a person sees while a policy is trained: a bar on a terminal, elsewhere a line at times."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

SECONDS_BETWEEN_LINES: Final = 15.0
_NUMBERS_SHOWN: Final = 4


class Watcher(Protocol):
    """Shows one stage, between entering and leaving it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...

    def show(self, stage: str, done: int, total: int, numbers: Mapping[str, float]) -> None:
        """``done`` of ``total`` steps of ``stage``, and what was measured."""
        ...


def watcher(stream: TextIO) -> Watcher:
    """The one that suits ``stream``."""
    return Bar(stream) if stream.isatty() else Lines(stream, time.monotonic)


def silent() -> Watcher:
    """One that shows nothing."""
    return Lines(None, time.monotonic)


class Lines:
    """A line at the first step, then every few seconds; none where there is no stream."""

    def __init__(self, stream: TextIO | None, clock: Callable[[], float]) -> None:
        self._stream, self._clock = stream, clock
        self._next = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        pass

    def show(self, stage: str, done: int, total: int, numbers: Mapping[str, float]) -> None:
        if self._stream is None or self._clock() < self._next:
            return
        self._next = self._clock() + SECONDS_BETWEEN_LINES
        self._stream.write(f"{stage}: {done:,} of {total:,} steps; {told(numbers)}\n")
        self._stream.flush()


class Bar:
    """A bar that fills while the stage goes on, with what was measured beside it."""

    def __init__(self, stream: TextIO) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[told]}"),
            console=Console(file=stream),
        )
        self._task = self._bars.add_task("starting", total=None, told="")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def show(self, stage: str, done: int, total: int, numbers: Mapping[str, float]) -> None:
        self._bars.update(
            self._task, description=stage, completed=done, total=total, told=told(numbers)
        )


def told(numbers: Mapping[str, float]) -> str:
    """The numbers told last, which are those of validation, come first."""
    last = list(numbers.items())[: -_NUMBERS_SHOWN - 1 : -1]
    return ", ".join(f"{name.replace('_', ' ')} {number:.4g}" for name, number in last)
