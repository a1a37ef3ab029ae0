"""How often somebody may do something: a token bucket for each of many, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable


class Rations:
    """``burst`` at once, ``per_second`` afterwards, for each key; ``clock`` is monotonic seconds.

    Of more than ``most`` keys, those not seen for longest are forgotten: they start anew.
    """

    def __init__(
        self, per_second: float, burst: int, clock: Callable[[], float], most: int = 8192
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._most = most
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable) -> float:
        """Take one of the ration of ``key``: 0, or the seconds until there is one."""
        now = self._clock()
        left, at = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        wait = max(0.0, (1 - left) / self._per_second)
        self._left[key] = (left if wait else left - 1, now)
        while len(self._left) > self._most:
            self._left.popitem(last=False)
        return wait

    def give_back(self, key: Hashable) -> None:
        """What was taken last came to nothing."""
        left, at = self._left.get(key, (self._burst, self._clock()))
        self._left[key] = (min(self._burst, left + 1), at)
