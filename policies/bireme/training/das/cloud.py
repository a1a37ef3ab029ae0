"""Many clouds at once: jobs that run on machines, events that move each cloud's clock.

The physics of the simulator as arrays: what :class:`~bireme.simulator.lives.Life` and
:class:`~bireme.simulator.physics.Physics` do for one job, in the same order of operations, so that
both agree to the last bit (tests/parity). Nothing here decides. Shapes: worlds W, jobs J in order
of arrival, machines M; smaller clouds are padded with machines that have no GPU.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.times import HOUR
from bireme.kube.gpu_models import GPU_MODELS
from bireme.simulator.physics.disturbances import OVER_NODES, OVER_RACKS, interference
from bireme.training.das.generator import GPUS_PER_MACHINE, Sample

_CROWDS: Final = np.array([1.0, *(interference(others) for others in range(GPUS_PER_MACHINE))])
"""Factor on speed by the number of gangs on a machine, one's own included."""
_SPEEDS: Final = np.array([model.speed for model in GPU_MODELS])
_DOLLARS: Final = np.array([model.dollars_per_hour for model in GPU_MODELS])
_Number = TypeVar("_Number", np.int64, np.float64)


class Clouds:
    """The state of W clouds.

    Attributes:
        now: Seconds since the start, shape (W,).
        free, gangs: GPUs free and gangs present, int64, shape (W, M).
        waiting, running: Shape (W, J).
        started, finished: Seconds; NaN before, shape (W, J).
        dollars: Rent paid so far, shape (W,).
        job_seconds: Time that jobs have spent in the system so far, summed, shape (W,).
        ended: World and job of every run that ended in the last :meth:`advance`, shapes (runs,).
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        machines = max(len(sample.capacity) for sample in samples)
        self.submitted = np.stack([sample.submitted for sample in samples])
        self.gpus = np.stack([sample.gpus for sample in samples])
        self.run_seconds = np.stack([sample.run_seconds for sample in samples])
        self.estimated_seconds = np.stack([sample.estimated_seconds for sample in samples])
        self.capacity = _padded([sample.capacity for sample in samples], machines, 0)
        self.rack = _padded([sample.rack for sample in samples], machines, -1)
        self.model = _padded([sample.model for sample in samples], machines, -1)
        self.model_speed = np.where(self.model < 0, 0.0, _SPEEDS[self.model])
        self.dollars_per_hour = np.where(self.model < 0, 0.0, _DOLLARS[self.model])
        self._speed = _padded([sample.speed for sample in samples], machines, 0.0)
        self.now = np.zeros(len(samples))
        self.free = self.capacity.copy()
        self.gangs = np.zeros_like(self.capacity)
        self.waiting = np.zeros(self.submitted.shape, dtype=np.bool_)
        self.running = self.waiting.copy()
        self.started = np.full(self.submitted.shape, np.nan)
        self.finished = self.started.copy()
        self.rent = np.zeros(self.submitted.shape)
        self.dollars = np.zeros(len(samples))
        self.job_seconds = np.zeros(len(samples))
        self.ended: tuple[IntArray, IntArray] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.places = np.zeros((*self.submitted.shape, machines), dtype=np.int8)
        self.rate = np.zeros(self.submitted.shape)
        self._locality = np.ones(self.submitted.shape)
        self._left_seconds = self.run_seconds.copy()
        self._since = np.zeros(self.submitted.shape)
        self._finish = np.full(self.submitted.shape, np.inf)
        self._arrived = np.zeros(len(samples), dtype=np.int64)
        self._unfinished = np.full(len(samples), self.submitted.shape[1])

    def start(self, worlds: IntArray, jobs: IntArray, counts: IntArray) -> None:
        """``jobs[i]`` of ``worlds[i]`` takes ``counts[i]`` GPUs of each machine, shape (i, M)."""
        there = counts > 0
        self.free[worlds] -= counts
        self.gangs[worlds] += there
        self.places[worlds, jobs] = counts
        self.waiting[worlds, jobs] = False
        self.running[worlds, jobs] = True
        self.started[worlds, jobs] = self._since[worlds, jobs] = self.now[worlds]
        self.rent[worlds, jobs] = (counts * self.dollars_per_hour[worlds]).sum(axis=1)
        self._locality[worlds, jobs] = _locality(there, self.rack[worlds])
        self._set_pace(worlds)

    def advance(self, worlds: IntArray) -> None:
        """The next thing happens in each of ``worlds`` (each once): runs end, jobs arrive."""
        finish = self._finish[worlds]
        times = np.minimum(finish.min(axis=1), self._next_arrival(worlds))
        self._count(worlds, times - self.now[worlds])
        self.now[worlds] = times
        rows, jobs = np.nonzero(finish <= times[:, None])
        self.ended = (worlds[rows], jobs)
        self._end(*self.ended)
        here = (self.submitted[worlds] <= times[:, None]).sum(axis=1)
        number = np.arange(self.submitted.shape[1])
        fresh = (number >= self._arrived[worlds, None]) & (number < here[:, None])
        self.waiting[worlds] |= fresh
        self._arrived[worlds] = here
        self._set_pace(np.unique(self.ended[0]))

    @property
    def is_done(self) -> BoolArray:
        """Whether every job has finished, shape (W,)."""
        return np.asarray(self._unfinished == 0)

    @property
    def fees(self) -> FloatArray:
        """Dollars of each job, NaN before it has finished, shape (W, J)."""
        return np.asarray(self.rent * (self.finished - self.started) / HOUR)

    def _next_arrival(self, worlds: IntArray) -> FloatArray:
        arrived, jobs = self._arrived[worlds], self.submitted.shape[1]
        times = self.submitted[worlds, np.minimum(arrived, jobs - 1)]
        return np.where(arrived < jobs, times, np.inf)

    def _count(self, worlds: IntArray, seconds: FloatArray) -> None:
        present = self.waiting[worlds].sum(axis=1) + self.running[worlds].sum(axis=1)
        rent = np.where(self.running[worlds], self.rent[worlds], 0.0).sum(axis=1)
        self.job_seconds[worlds] += seconds * present
        self.dollars[worlds] += seconds * rent / HOUR

    def _end(self, worlds: IntArray, jobs: IntArray) -> None:
        places = self.places[worlds, jobs].astype(np.int64)
        np.add.at(self.free, worlds, places)
        np.subtract.at(self.gangs, worlds, (places > 0).astype(np.int64))
        self.running[worlds, jobs] = False
        self.finished[worlds, jobs] = self.now[worlds]
        self._finish[worlds, jobs] = np.inf
        np.subtract.at(self._unfinished, worlds, 1)

    def _set_pace(self, worlds: IntArray) -> None:
        """Whoever runs in ``worlds`` goes as fast as the slowest of its machines."""
        rows, jobs = np.nonzero(self.running[worlds])
        of = worlds[rows]
        machine = self._speed[worlds] * _CROWDS[self.gangs[worlds]]
        slowest = np.where(self.places[of, jobs] > 0, machine[rows], np.inf).min(axis=1)
        rate = self._locality[of, jobs] * slowest
        is_new = rate != self.rate[of, jobs]
        of, jobs, rate = of[is_new], jobs[is_new], rate[is_new]
        done = (self.now[of] - self._since[of, jobs]) * self.rate[of, jobs]
        left = np.maximum(0.0, self._left_seconds[of, jobs] - done)
        self._left_seconds[of, jobs] = left
        self._since[of, jobs] = self.now[of]
        self.rate[of, jobs] = rate
        self._finish[of, jobs] = self.now[of] + left / rate


def _locality(there: BoolArray, racks: IntArray) -> FloatArray:
    """Factor of gangs on the machines ``there``, shape (gangs, M)."""
    last = np.where(there, racks, -1).max(axis=1)
    is_apart = (there & (racks != last[:, None])).any(axis=1)
    is_spread = there.sum(axis=1) > 1
    return np.where(is_apart, OVER_RACKS, np.where(is_spread, OVER_NODES, 1.0))


def _padded(rows: Sequence[NDArray[_Number]], width: int, value: float) -> NDArray[_Number]:
    """The rows as one array, filled up with ``value``; shape (W, width), of their type."""
    padded = np.full((len(rows), width), value, dtype=rows[0].dtype)
    for row, there in zip(padded, rows, strict=True):
        row[: len(there)] = there
    return padded
