"""The rule that DAS starts from, as a policy for the simulator: what remains if nothing is learned.

It sees what the networks see in service, through the same encoders.
"""

from collections.abc import Sequence

import numpy as np

from bireme.core.capacity import FreeCapacity
from bireme.core.gangs import Gang, Task
from bireme.core.placement import Placement
from bireme.core.policy import Ranked
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.greedy import fill, place_by
from bireme.heuristics.ranking import Standing, ranked
from bireme.rl.encoders.das import DasJobs, DasMachines, Finished
from bireme.training.das import rules


class BestSite:
    """What lasts least on its best site first, on that site; nobody is stopped.

    A site is a machine, a rack or the cluster, without the machines slower than some speed. Where
    ``finished`` tells of past runs, speeds are what the Gaussian process makes of them.
    """

    def __init__(self, finished: Finished | None = None) -> None:
        self._machines = DasMachines()
        self._machines.finished = finished

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """By falling score."""
        if not gangs:
            return []
        values = rules.scores(DasJobs().encode(gangs, snapshot)["jobs"]).tolist()
        scores = {gang.uid: score for gang, score in zip(gangs, values, strict=True)}
        return ranked(gangs, lambda gang: Standing((-scores[gang.uid],), scores[gang.uid]))

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Nodes for all replicas, or None."""

        def divide(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
            seen = self._machines.encode(gang, task, capacity, {})
            order = np.argsort(-rules.affinities(seen["machines"]), kind="stable")
            return fill(room, task.replicas, order)

        return place_by(gang, capacity, divide)
