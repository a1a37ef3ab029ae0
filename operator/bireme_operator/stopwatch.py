"""How long something has lasted, by the wall clock and by our own watch, whichever says more.

Times in objects are of the wall clock, which somebody may set back; what was to end in a minute
would then end an hour later. A monotonic clock cannot be set, but begins anew with every leader.
"""

from collections.abc import Callable

from bireme.core.gangs import Key


class Stopwatch:
    """Of gangs; ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first_asked: dict[tuple[Key, float], float] = {}
        self._asked: set[tuple[Key, float]] = set()

    def seconds(self, key: Key, since: float, now: float) -> float:
        """Since ``since``, POSIX seconds as ``now``; at least since this was first asked."""
        self._asked.add((key, since))
        first = self._first_asked.setdefault((key, since), self._clock())
        return max(now - since, self._clock() - first)

    def forget(self) -> None:
        """Drop what nobody has asked for since this was called last."""
        self._first_asked = {asked: self._first_asked[asked] for asked in self._asked}
        self._asked.clear()
