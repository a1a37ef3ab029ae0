"""The times at which no operator can do anything: for what is promised, they do not count.

Those are the times of a cause, not of what follows from it: back-offs and new lists that come
after an API server is back are the operator's own, and count.
"""

import asyncio
from dataclasses import dataclass, field

from testbed.simcluster.network import WORLD, ApiServer
from testbed.simcluster.processes import OperatorProcess

_STEP_SECONDS = 0.25


@dataclass(eq=False)
class Standstills:
    """Looks at the cluster four times a second."""

    server: ApiServer
    operators: list[OperatorProcess]
    _spans: list[tuple[float, float]] = field(default_factory=list)

    def start(self) -> None:
        self.server.loop.create_task(self._look(), context=WORLD.copy())

    def seconds(self, begin: float, end: float) -> float:
        """Return how much of the time from ``begin`` to ``end`` nothing could be done in."""
        return sum(max(0.0, min(until, end) - max(since, begin)) for since, until in self._spans)

    async def _look(self) -> None:
        loop = self.server.loop
        while True:
            since = loop.time()
            stands_still = self._refuses or not any(map(self._can_act, self.operators))
            await asyncio.sleep(_STEP_SECONDS)
            if not stands_still:
                continue
            if self._spans and self._spans[-1][1] == since:
                since = self._spans.pop()[0]
            self._spans.append((since, loop.time()))

    @property
    def _refuses(self) -> bool:
        """Return whether the API server is down, or refuses or delays a share of all requests."""
        now = self.server.conditions
        return now.is_down or bool(now.errors or now.conflicts or now.late_errors or now.slow)

    def _can_act(self, operator: OperatorProcess) -> bool:
        """Return whether a process leads, runs, and sees what happens."""
        if operator.term is None or self.server.loop.is_paused(operator.name):
            return False
        own = [stream for stream in self.server.streams if stream.process == operator.name]
        is_late = operator.name in self.server.conditions.lag_seconds
        return not is_late and not any(stream.is_deaf for stream in own)
