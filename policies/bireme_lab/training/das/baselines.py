"""DAS' baselines: the first rule of training, and the expert of DL2.

``best site`` first starts the job with the shortest time on its best site, on that site. It is the
expert of the warm start and the rule that a learned policy must beat. Its scores and affinities are
functions of the observation, so agents can imitate them. Their scale is such that a deviation of
0.3 changes little. :class:`BestSite` is the same rule as a policy for the simulator.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from bireme.core.finished_runs import NO_RUNS, FinishedRuns
from bireme.core.gangs import Gang, Task
from bireme.core.placement import FreeCapacity, Placement
from bireme.core.policy import Placer, Ranked
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import fill, place_by
from bireme.heuristics.ranking import SortKey, rank_by
from bireme_lab.encoders.das import DasJobs, DasMachines
from bireme_lab.encoders.das_inputs import FEE_WEIGHTS
from bireme_lab.training.das.environment import ORDERING, PLACEMENT
from bireme_lab.training.vec_env import Array, Observation

_MIDDLE: Final = 1
"""Index into FEE_WEIGHTS: time and dollars count."""


def best_site(observation: Observation) -> dict[str, Array]:
    """Return scores of jobs (W, J) and affinities of machines (W, M)."""
    return {ORDERING: scores(observation["jobs"]), PLACEMENT: affinities(observation["places"])}


def scores(jobs: Array) -> Array:
    """Return scores of jobs, (...), from features (..., JOB_FEATURES): highest starts first."""
    minutes = np.expm1(jobs[..., 1] * 8.0)  # the feature is log1p(minutes) / 8
    worth = jobs[..., -len(FEE_WEIGHTS) + _MIDDLE]
    return np.asarray(worth - np.log(np.maximum(minutes, 0.1)))


def affinities(places: Array) -> Array:
    """Return affinities of machines, (...), from (..., PLACE_FEATURES): highest is filled first."""
    # the best site before all others, then machines with little remaining room
    remaining, own_share = places[..., 1], places[..., 4]
    worth_of_own, is_in_best = (places[..., 7 + 2 * _MIDDLE + offset] for offset in (0, 1))
    return np.asarray(2.0 * is_in_best + worth_of_own + own_share - 0.5 * remaining)


class BestSite:
    """The rule as orderer and placer, without preemption.

    If it ``is_told`` of finished runs, the Gaussian process estimates speeds from them.
    """

    def __init__(self, finished: FinishedRuns = NO_RUNS, *, is_told: bool = False) -> None:
        self._machines = DasMachines()
        self._finished, self._is_told = finished, is_told

    def on(self, snapshot: ClusterSnapshot) -> Placer:
        """Return the placer for a cycle on ``snapshot``."""
        return BestSite(snapshot.finished_runs) if self._is_told else self

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        if not gangs:
            return []
        values = scores(DasJobs().encode(gangs, snapshot)["jobs"]).tolist()
        by_uid = {gang.uid: score for gang, score in zip(gangs, values, strict=True)}
        return rank_by(gangs, lambda gang: SortKey((-by_uid[gang.uid],), by_uid[gang.uid]))

    def place(self, gang: Gang, capacity: FreeCapacity) -> Placement | None:
        """Return nodes for all replicas, or None."""

        def divide(task: Task, room: IntArray, capacity: FreeCapacity) -> IntArray:
            inputs = self._machines.encode(gang, task, capacity, {}, self._finished)
            order = np.argsort(-affinities(inputs["machines"]), kind="stable")
            return fill(room, task.replicas, order)

        return place_by(gang, capacity, divide)


def shortest_job(observation: Observation) -> Array:
    """Return the slot of the fitting job with the shortest estimate, shape (W,)."""
    return np.asarray(
        np.where(observation["fits"], -observation["jobs"][:, :, 1], -np.inf).argmax(axis=1)
    )
