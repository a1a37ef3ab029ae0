"""Token bucket per key, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable

# Keys beyond that are forgotten, the oldest first; their buckets are full again. Senders choose the
# keys, so without a bound they could fill the memory.
_MOST_KEYS = 8192


class RateLimiter:
    """Lets ``burst`` requests of each key pass at once and ``per_second`` afterwards.

    ``clock`` is monotonic seconds.
    """

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._tokens: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable) -> float:
        """Take one token of ``key`` and return 0, or return the seconds until there is one."""
        now = self._clock()
        # Taken out and put back, so that the keys are in the order of their last use.
        tokens, at = self._tokens.pop(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._per_second)
        wait = max(0.0, (1 - tokens) / self._per_second)
        self._tokens[key] = (tokens if wait else tokens - 1, now)
        while len(self._tokens) > _MOST_KEYS:
            self._tokens.popitem(last=False)
        return wait

    def give_back(self, key: Hashable) -> None:
        """Return the token taken last, because the request was not carried out."""
        tokens, at = self._tokens.get(key, (self._burst, self._clock()))
        self._tokens[key] = (min(self._burst, tokens + 1), at)
