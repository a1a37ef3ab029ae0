"""The one order of a cycle: gangs that wait and gangs that run, from the first to the last.

Who starts before whom and who makes room for whom are answered by one call of the orderer, made
when the first of these questions is asked.
"""

import math
from collections.abc import Sequence
from functools import cached_property

from bireme.core.gangs import Gang
from bireme.core.policy import Orderer, Ranked
from bireme.core.snapshot import ClusterSnapshot


class TotalOrder:
    """``waiting`` and the running gangs of ``snapshot``, in the order of ``orderer``."""

    def __init__(
        self, orderer: Orderer, snapshot: ClusterSnapshot, waiting: Sequence[Gang]
    ) -> None:
        self._orderer = orderer
        self._snapshot = snapshot
        self._waiting = waiting

    @cached_property
    def lowest_running_claim(self) -> float:
        """No running gang has a lower claim; -infinity where the orderer does not tell."""
        tell = getattr(self._orderer, "lowest_claim", None)
        running = [held.gang for held in self._snapshot.running_table.gangs]
        return -math.inf if tell is None else tell(running, self._snapshot)

    @cached_property
    def ranked(self) -> list[Ranked]:
        """All of them, first in order first."""
        running = (held.gang for held in self._snapshot.running_table.gangs)
        return self._orderer.order([*self._waiting, *running], self._snapshot)

    @cached_property
    def places(self) -> dict[str, tuple[int, Ranked]]:
        """Place in the order, the first is 0, and the numbers behind it, by uid."""
        return {entry.gang.uid: (place, entry) for place, entry in enumerate(self.ranked)}
