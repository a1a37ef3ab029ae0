"""Token bucket per key, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

# Limit of keys; the oldest are forgotten first, and their buckets are full again. Senders choose
# the keys, so without a bound they could fill the memory.
_MAX_KEYS = 8192


@dataclass(slots=True)
class RateLimiter:
    """Lets ``burst`` requests of each key pass at once and ``per_second`` afterwards.

    ``clock`` is monotonic seconds.
    """

    per_second: float
    burst: float
    clock: Callable[[], float]
    _tokens: OrderedDict[Hashable, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, key: Hashable) -> float:
        """Take one token of ``key`` and return 0, or return the seconds until there is one."""
        now = self.clock()
        # Pop and insert again, so that the keys are in the order of their last use.
        tokens, updated_at = self._tokens.pop(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - updated_at) * self.per_second)
        wait = max(0.0, (1 - tokens) / self.per_second)
        self._tokens[key] = (tokens if wait else tokens - 1, now)
        while len(self._tokens) > _MAX_KEYS:
            self._tokens.popitem(last=False)
        return wait

    def wait(self, key: Hashable) -> float:
        """Return the seconds until there is a token of ``key``; 0 if there is one."""
        now = self.clock()
        tokens, updated_at = self._tokens.get(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - updated_at) * self.per_second)
        return max(0.0, (1 - tokens) / self.per_second)

    def give_back(self, key: Hashable) -> None:
        """Return the token taken last, because the request failed."""
        tokens, updated_at = self._tokens.get(key, (self.burst, self.clock()))
        self._tokens[key] = (min(self.burst, tokens + 1), updated_at)
