"""First in, first out: the reference every other order is measured against."""

from collections.abc import Sequence

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot


class Fifo:
    """First to arrive first, ties by uid; running gangs are never stopped.

    The score is the wait in seconds.
    Source: the plain queue; FIFO in the paper on DAS, FCFS in that on RLPTO.
    """

    keeps_kin_in_line = True

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """First to arrive first."""
        return [
            Ranked(gang, snapshot.wait_seconds(gang))
            for gang in sorted(gangs, key=lambda gang: (gang.arrived, gang.uid))
        ]
