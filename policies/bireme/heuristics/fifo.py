"""First in, first out: the reference every other order is measured against."""

from collections.abc import Sequence

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot


class Fifo:
    """Order by arrival, ties by uid. The score is the wait in seconds."""

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """First to arrive first."""
        return [
            Ranked(gang, snapshot.wait_seconds(gang))
            for gang in sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))
        ]
