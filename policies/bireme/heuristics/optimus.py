"""Optimus: replicas go where they shorten what is left most, per resource they take.

    gain of one more replica of task t = (R(sizes) - R(sizes + t)) / D(t)
    R(sizes) = steps left / steps per second,  D(t) = dominant share of one replica of t

Every job first gets its minimum (one parameter server and one worker in the paper); then the
largest gain is taken, again and again, until capacity is used up or no gain is positive.
The paper takes D as an amount of the dominant resource; ours is that amount as a share of the
cluster, so that gains in different resources compare.

Where an extra server or worker alone does not help and both together would, growth ends: the
paper's rule looks one replica ahead.
"""

from collections.abc import Mapping, Sequence

from bireme.core.gangs import Gang
from bireme.core.policy import Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import Allotment, Pool, Sizes, hand_out, seconds_for, steps_left


class Optimus:
    """Largest cut of the remaining time per resource first.

    Source: Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning
    Clusters", EuroSys 2018, section 4.1.
    """

    def sizes(
        self, ranked: Sequence[Ranked], snapshot: ClusterSnapshot
    ) -> Mapping[str, Mapping[str, int]]:
        """Gangs of unknown speed or length get what they ask for before the gains are divided."""
        pool = Pool(ranked, snapshot)
        measured = pool.measured(_is_measured)
        left = {entry.gang.uid: steps_left(entry.gang, snapshot) for entry in measured}

        def value(allotment: Allotment, sizes: Sizes) -> float:
            gang = allotment.gang
            return -seconds_for(left[gang.uid], pool.steps_per_second(gang, sizes))

        hand_out(pool, measured, value)
        return pool.proposal()


def _is_measured(gang: Gang) -> bool:
    return gang.speed is not None and gang.remaining_steps is not None
