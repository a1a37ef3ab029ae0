"""The world of DAS, batched: an ordering agent and a placement agent start one job per step.

A step happens when a job in sight fits. Of the jobs that fit, that of the highest score starts,
on the machines of the highest affinity with room. If another one still fits, the next step is at
the same moment, else time goes on to the next event at which one does. So an episode has as many
steps as jobs, in every world, and the placement agent always sees what is really free. That is
what :func:`bireme.training.das.conduct.start_now` does in the simulator, which therefore gives
the same starts, completion times and fees (tests/parity).

Shapes: worlds W, slots for waiting jobs J, machines M, runs remembered T.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.rl.encoders import das_features
from bireme.training.das import placements, rewards
from bireme.training.das.cloud import Clouds
from bireme.training.das.generator import draw
from bireme.training.das.memory import Memory
from bireme.training.das.rewards import Reward
from bireme.training.worlds import Actions, Array, Observation, Step

_DIRECT: Final = Reward()
AFFINITY: Final = "affinity"


class DasWorld:
    """A batch of clouds; a World of :mod:`bireme.training.worlds`.

    Actions are a mapping: "ordering", shape (W, J), scores of the slots, highest first; and
    "placement", shape (W, M), affinities of the machines for the job that starts, or (W, J, M)
    for every job; the latter only where ``placement`` is "affinity".

    Attributes:
        clouds: The state, for rules and metrics; agents see the observation alone.
    """

    def __init__(
        self,
        count: int,
        settings: Sequence[str] = ("small",),
        *,
        jobs: int = 200,
        slots: int = 64,
        history: int = 256,
        placement: str = AFFINITY,
        reward: Reward = _DIRECT,
    ) -> None:
        """``count`` worlds; that of seed ``s`` is ``settings[s % len(settings)]``.

        Args:
            jobs: Per episode.
            slots: Waiting jobs in sight, oldest first.
            history: Runs that are remembered.
            placement: "affinity", "first-fit" or "load-balance".
        """
        if placement != AFFINITY and placement not in placements.RULES:
            known = ", ".join([AFFINITY, *placements.RULES])
            raise SettingError(f"placement is {placement!r}; write one of {known}")
        self.count = count
        self._settings = tuple(settings)
        self._jobs, self._slots, self._history = jobs, slots, history
        self._placement, self._reward = placement, reward
        self._every = np.arange(count)

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all clouds anew, one seed each."""
        if len(seeds) != self.count:
            raise SettingError(f"{len(seeds)} seeds for {self.count} worlds; give one for each")
        names = [self._settings[seed % len(self._settings)] for seed in seeds]
        samples = {key: draw(key[0], self._jobs, key[1]) for key in zip(names, seeds, strict=True)}
        self.clouds = Clouds([samples[key] for key in zip(names, seeds, strict=True)])
        self._memory = Memory(self.clouds, self._history)
        self._same_rack = das_features.share_of_rack(self.clouds.rack)
        model = self.clouds.model
        self._same_model = self._same_rack & (model[:, :, None] == model[:, None, :])
        self._to_decision()
        return self._observe()

    def step(self, actions: Actions) -> Step:
        """Start one job in every world that is not over."""
        if not isinstance(actions, Mapping):
            raise SettingError(
                f"actions is of type {type(actions).__name__}; give a mapping with ordering and "
                "placement"
            )
        clouds = self.clouds
        before = clouds.job_seconds.copy(), clouds.dollars.copy()
        chosen = self.chosen(actions["ordering"])
        jobs, is_live = self._slot_jobs[self._every, chosen], np.asarray(self._fits.any(axis=1))
        worlds = np.flatnonzero(is_live)
        counts = self._divide(actions, chosen, jobs)
        in_line = clouds.waiting.copy()
        clouds.start(worlds, jobs[worlds], counts[worlds])
        gained = rewards.of_start(self._reward, clouds, jobs, in_line, is_live)
        self._to_decision()
        gained += rewards.of_time(self._reward, clouds, *before)
        return Step(self._observe(), gained, clouds.is_done, clouds.now.copy())

    def chosen(self, ordering: Array) -> IntArray:
        """The slot whose job starts under these scores, shape (W,); 0 where none fits."""
        scores = np.where(self._fits, ordering, -np.inf)
        return np.asarray(scores.argmax(axis=1))

    def summary(self) -> dict[str, FloatArray]:
        """Means over the jobs of worlds that are over, shape (W,) each."""
        clouds = self.clouds
        return {
            "mean_jct_minutes": (clouds.finished - clouds.submitted).mean(axis=1) / 60,
            "mean_fee_dollars": clouds.fees.mean(axis=1),
            "mean_wait_minutes": (clouds.started - clouds.submitted).mean(axis=1) / 60,
        }

    def _divide(self, actions: Mapping[str, Array], chosen: IntArray, jobs: IntArray) -> IntArray:
        clouds = self.clouds
        gpus = clouds.gpus[self._every, jobs]
        if self._placement != AFFINITY:
            used = clouds.capacity - clouds.free
            return placements.RULES[self._placement](gpus, clouds.free, used)
        affinity = np.asarray(actions["placement"])
        if affinity.ndim == 3:
            affinity = affinity[self._every, chosen]
        return placements.fill(gpus, clouds.free, affinity)

    def _to_decision(self) -> None:
        """Let time pass until a job in sight fits, or all is done."""
        clouds, idle = self.clouds, self._every
        while len(idle := idle[~(self._may_start(idle) | clouds.is_done[idle])]):
            clouds.advance(idle)
            self._memory.add(*clouds.ended)
        self._look()

    def _may_start(self, worlds: IntArray) -> BoolArray:
        """Whether a job in sight fits, shape of ``worlds``."""
        waiting, free = self.clouds.waiting[worlds], self.clouds.free[worlds].sum(axis=1)
        in_sight = waiting & (waiting.cumsum(axis=1) <= self._slots)
        return np.asarray((in_sight & (self.clouds.gpus[worlds] <= free[:, None])).any(axis=1))

    def _look(self) -> None:
        """Which jobs are in sight, oldest first, and which of them fit; shapes (W, J)."""
        waiting = self.clouds.waiting
        order = np.argsort(~waiting, axis=1, kind="stable")[:, : self._slots]
        self._slot_jobs = np.pad(order, ((0, 0), (0, self._slots - order.shape[1])))
        there = np.arange(self._slots) < waiting.sum(axis=1)[:, None]
        self._there: BoolArray = there
        gpus = self.clouds.gpus[self._every[:, None], self._slot_jobs]
        self._fits: BoolArray = there & (gpus <= self.clouds.free.sum(axis=1)[:, None])

    def _observe(self) -> dict[str, Array]:
        clouds = self.clouds
        rows = self._every[:, None], self._slot_jobs
        jobs = das_features.job_features(
            clouds.gpus[rows],
            clouds.estimated_seconds[rows],
            np.maximum(clouds.now[:, None] - clouds.submitted[rows], 0.0),
            clouds.free.sum(axis=1)[:, None],
            clouds.capacity.sum(axis=1)[:, None],
        )
        machines = das_features.machine_features(
            clouds.free,
            clouds.capacity,
            clouds.model_speed,
            clouds.dollars_per_hour,
            _sums(self._same_rack, clouds.free),
            _sums(self._same_rack, clouds.capacity),
            _sums(self._same_model, clouds.free),
        )
        mask = clouds.capacity > 0
        near = das_features.adjacency(self._same_rack) * (mask[:, :, None] & mask[:, None, :])
        return {
            "jobs": np.where(self._there[:, :, None], jobs, 0.0).astype(np.float32),
            "job_mask": self._there,
            "fits": self._fits,
            "machines": np.where(mask[:, :, None], machines, 0.0).astype(np.float32),
            "machine_mask": mask,
            "adjacency": near.astype(np.float32),
            "racks": clouds.rack,
            **self._memory.observation(),
        }


def _sums(same: BoolArray, amounts: IntArray) -> FloatArray:
    """Of every machine, the amounts of all that are the ``same``; shape (W, M)."""
    return np.asarray((same @ amounts[:, :, None])[:, :, 0], dtype=np.float64)
