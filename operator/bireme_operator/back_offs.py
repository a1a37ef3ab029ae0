"""When work that failed may be tried again: ever later, for as long as the gang does not move.

A failure after which something of the gang has changed counts as the first again, so that a gang
of many writes gets through an API server that fails now and then.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from bireme.core.gangs import Key
from bireme.kube.client import ApiError

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_CONFLICT_SECONDS = 0.05
"""First pause after a conflict: somebody else wrote, and the cache is about to say what."""
_PATIENCE = 3
"""After so many failures in a row others need not wait for the gang any more."""


@dataclass(frozen=True, slots=True)
class _Failure:
    until: float
    in_a_row: int
    state: object


@dataclass(slots=True)
class BackOffs:
    """Pauses of gangs; ``clock`` is monotonic seconds."""

    clock: Callable[[], float]
    _last: dict[Key, _Failure] = field(default_factory=dict)

    def are_over(self, key: Key) -> bool:
        """Whether work on the gang may be started now."""
        return key not in self._last or self.clock() >= self._last[key].until

    def hopeless(self) -> list[Key]:
        """Gangs whose pause is not over and that have failed too often to be waited for.

        Until then a gang keeps its turn, or a hiccup of the API server would give it to others.
        """
        now = self.clock()
        return [
            key
            for key, last in self._last.items()
            if now < last.until and last.in_a_row > _PATIENCE
        ]

    def add(self, key: Key, error: Exception, state: object) -> float:
        """Note a failure while the gang was in ``state``; the pause in seconds."""
        last = self._last.get(key)
        before = last.in_a_row if last is not None and last.state == state else 0
        pause = _PAUSES_SECONDS[min(before, len(_PAUSES_SECONDS) - 1)]
        if isinstance(error, ApiError):
            if error.is_conflict:
                pause = min(pause, _CONFLICT_SECONDS * 2**before)
            pause = max(pause, error.retry_after_seconds or 0.0)
        self._last[key] = _Failure(self.clock() + pause, before + 1, state)
        return pause

    def end(self, key: Key) -> None:
        """Work on the gang succeeded."""
        self._last.pop(key, None)

    def forget(self, keys: set[Key]) -> None:
        """Drop what is remembered of gangs that are gone; ``keys`` are those that exist."""
        self._last = {key: last for key, last in self._last.items() if key in keys}
