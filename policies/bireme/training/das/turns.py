"""The world of DAS as its agents live it: they take turns, one starts where the other left off.

Every job that starts takes two steps. In the first the ordering agent chooses it, and no time
passes; in the second the placement agent, who sees which job it is, places it, and the world goes
on. So the density of what both do is the product of theirs. What they see is put together as in
serving (:mod:`bireme.rl.encoders.das_inputs`).

Every other seed tells nothing of finished runs, as clusters do that report none: a policy that is
to serve both must have met both.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.rl.encoders.das_inputs import (
    PLACE_FEATURES,
    PLACED_FEATURES,
    VARIANCE,
    Machines,
    believed,
    job_inputs,
    place_inputs,
    placed_inputs,
)
from bireme.training.das.environment import Clouds, DasWorld
from bireme.training.worlds import Actions, Array, Observation, Step

ORDERING: Final = "ordering"
PLACEMENT: Final = "placement"


class DasTurns:
    """A World around a :class:`~bireme.training.das.environment.DasWorld`.

    Observations, beside the world's "fits", "job_mask", "machine_mask" and "machines":
    "is_placing" bool (W,); "jobs" (W, J, JOB_FEATURES); and, zero while a job is chosen, "placed"
    (W, PLACED_FEATURES), "places" (W, M, PLACE_FEATURES), "has_room" bool (W, M) and "walks"
    (W, M, M), the Cholesky factor of what is not known of machines, 1 being the prior's deviation.

    Actions are those of DasWorld, of which only the agent's whose turn it is counts.
    """

    def __init__(self, world: DasWorld, *, reports: bool | None = None) -> None:
        """``reports``: whether finished runs are told of; None for every other seed."""
        self.world = world
        self._reports = reports
        self._every = np.arange(world.count)

    @property
    def count(self) -> int:
        """How many worlds there are."""
        return self.world.count

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all clouds anew; the ordering agent is first."""
        told = np.array(seeds) // 2 % 2 == 0
        self._told = told if self._reports is None else np.full_like(told, self._reports)
        self._is_over: BoolArray = np.zeros(self.count, dtype=np.bool_)
        self._scores: FloatArray | None = None
        return self._choosing(self.world.reset(seeds))

    def step(self, actions: Actions) -> Step:
        """The turn of one agent in every world; all worlds are in step."""
        if not isinstance(actions, Mapping):
            raise TypeError("actions of DAS are a mapping with ordering and placement")
        if self._scores is None:
            self._scores = np.asarray(actions[ORDERING], dtype=np.float64)
            placing = self._placing(self.world.chosen(self._scores))
            return Step(placing, np.zeros(self.count), self._is_over, self.world.clouds.now.copy())
        scores, self._scores = self._scores, None
        step = self.world.step({ORDERING: scores, PLACEMENT: np.asarray(actions[PLACEMENT])})
        self._is_over = step.is_over
        return Step(self._choosing(step.observation), step.rewards, step.is_over, step.times)

    def _choosing(self, seen: Observation) -> dict[str, Array]:
        self._seen = seen
        machines = seen["machine_mask"].shape[1]
        need = gpus(seen)
        jobs = job_inputs(seen["jobs"], machines_of(self.world.clouds), need)
        self._jobs = np.where(seen["job_mask"][:, :, None], jobs, np.float32(0.0))
        return self._shown(
            np.zeros((self.count, PLACED_FEATURES), np.float32),
            np.zeros((self.count, machines, PLACE_FEATURES), np.float32),
            np.zeros((self.count, machines), np.bool_),
            np.zeros((self.count, machines, machines), np.float32),
        )

    def _placing(self, chosen: IntArray) -> dict[str, Array]:
        seen, machines = self._seen, machines_of(self.world.clouds)
        need = gpus(seen)[self._every, chosen]
        seconds = np.expm1(seen["jobs"][self._every, chosen, 1] * 8.0) * 60.0
        is_run = seen["past_mask"] & self._told[:, None]
        shares = np.where(is_run[:, :, None], seen["past_shares"], 0.0)
        near = seen["adjacency"].astype(np.float64)
        belief = believed(machines, need, near, shares, seen["past_speeds"].astype(np.float64))
        has_room = machines.room > 0
        places = place_inputs(machines, need, belief.mean)
        return self._shown(
            placed_inputs(machines, need, seconds),
            np.where(seen["machine_mask"][:, :, None], places, np.float32(0.0)),
            has_room,
            (belief.factor / np.sqrt(VARIANCE)).astype(np.float32),
        )

    def _shown(self, placed: Array, places: Array, room: Array, walks: Array) -> dict[str, Array]:
        kept = {key: self._seen[key] for key in ("fits", "job_mask", "machine_mask", "machines")}
        return kept | {
            "is_placing": np.full(self.count, self._scores is not None),
            "jobs": self._jobs,
            "placed": placed,
            "places": places,
            "has_room": room,
            "walks": walks,
        }


def gpus(seen: Observation) -> IntArray:
    """GPUs of the jobs in sight, int64, shape (W, J), from the world's features."""
    return np.rint(seen["jobs"][:, :, 0] * 16.0).astype(np.int64)


def machines_of(clouds: Clouds) -> Machines:
    """Machines as places for replicas of one GPU."""
    return Machines(
        room=clouds.free,
        capacity=clouds.capacity,
        speed=clouds.model_speed,
        dollars=clouds.dollars_per_hour,
        rack=clouds.rack,
        held=np.zeros_like(clouds.free),
    )
