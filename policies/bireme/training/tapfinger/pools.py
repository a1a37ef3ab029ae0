"""Many systems of node pools at once: jobs that wait, run and end. Nothing here decides.

A job waits at all pools that it reaches, runs in one, and progresses by the law of its setting.
A pool can choose from WINDOW of the jobs that wait there. Who is in sight stays in sight; places
that get free go to jobs that have just arrived, then to those that came first [authors' program].

Only the jobs between the first that has not ended and the last that has arrived are looked at, so
that long episodes cost no more per step than short ones.

Shapes: worlds W, pools N, jobs J; resources are CPUs and GPUs.
"""

from collections.abc import Sequence

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.training.tapfinger.arrivals import draw
from bireme.training.tapfinger.settings import WINDOW, Setting

NONE = -1
"""In place of a job, a pool, or a step that has not come."""


class Pools:
    """The state of W systems of pools.

    Attributes:
        now: The step that comes next, int64, shape (W,).
        free: Int64, shape (W, N, 2).
        pool: Where each job runs or ran, shape (W, J); NONE before.
        amount: What each was given, shape (W, J, 2); 0 before and after.
        started: The step in which each started, shape (W, J); NONE before.
        ended: The step before which each was over, shape (W, J); NONE before.
        progress: Shape (W, J).
        window: The jobs that are in any of the systems, as a slice of the J.
    """

    def __init__(self, setting: Setting, seeds: Sequence[int]) -> None:
        self.setting, self.jobs = setting, draw(setting, seeds)
        shape = self.jobs.arrival.shape
        self.now = np.zeros(shape[0], dtype=np.int64)
        self.capacity = np.array(setting.capacity, dtype=np.int64)
        self.free = np.repeat(self.capacity[None], shape[0], axis=0)
        self.pool, self.started, self.ended = (np.full(shape, NONE) for _ in range(3))
        self.amount = np.zeros((*shape, 2), dtype=np.int64)
        self.progress = np.zeros(shape)
        self._changed = np.zeros(shape, dtype=np.bool_)
        self.window = slice(0, 0)
        self._sees = np.zeros_like(self.jobs.reaches)
        self._move_window()
        self._let_in(np.arange(shape[0]))

    @property
    def is_over(self) -> BoolArray:
        """Which systems have no job left, shape (W,)."""
        return np.asarray((self.ended >= 0).all(axis=1))

    @property
    def present(self) -> BoolArray:
        """Which jobs of the window have arrived and not ended, shape (W, window)."""
        here = self.jobs.arrival[:, self.window] <= self.now[:, None]
        return np.asarray(here & (self.ended[:, self.window] < 0))

    @property
    def running(self) -> BoolArray:
        """Which jobs of the window run, shape (W, window)."""
        return np.asarray((self.pool[:, self.window] >= 0) & (self.ended[:, self.window] < 0))

    @property
    def waiting(self) -> BoolArray:
        """Which jobs of the window wait, at each pool, shape (W, N, window)."""
        waits = self.present & (self.pool[:, self.window] < 0)
        return waits[:, None, :] & self.jobs.reaches[:, :, self.window]

    @property
    def in_sight(self) -> BoolArray:
        """Which of them each pool can choose, at most WINDOW, shape (W, N, window)."""
        return np.asarray(self.waiting & self._sees[:, :, self.window])

    def running_in(self) -> BoolArray:
        """Which jobs of the window run, in each pool, shape (W, N, window)."""
        pools = np.arange(len(self.capacity))[None, :, None]
        return np.asarray(self.running[:, None, :] & (self.pool[:, None, self.window] == pools))

    def first(self, which: BoolArray, slots: int) -> IntArray:
        """The first ``slots`` jobs of ``which``, shape (W, N, slots), NONE where there are fewer.

        Args:
            which: Jobs of the window, shape (W, N, window).
        """
        place = which.cumsum(axis=2) - 1
        worlds, pools, columns = np.nonzero(which & (place < slots))
        found = np.full((*which.shape[:2], slots), NONE)
        found[worlds, pools, place[worlds, pools, columns]] = columns + self.window.start
        return found

    def start(self, worlds: IntArray, pools: IntArray, jobs: IntArray, amount: IntArray) -> None:
        """Job ``jobs[i]`` of ``worlds[i]`` starts in ``pools[i]`` with ``amount[i]``."""
        self.pool[worlds, jobs], self.started[worlds, jobs] = pools, self.now[worlds]
        self.amount[worlds, jobs] = amount
        np.subtract.at(self.free, (worlds, pools), amount)

    def allocate(self, worlds: IntArray, jobs: IntArray, amount: IntArray) -> None:
        """Running jobs get another ``amount``, shape (i, 2); it costs where it changes."""
        more = amount - self.amount[worlds, jobs]
        self._changed[worlds, jobs] = (more != 0).any(axis=1)
        self.amount[worlds, jobs] = amount
        np.subtract.at(self.free, (worlds, self.pool[worlds, jobs]), more)

    def advance(self, worlds: IntArray) -> None:
        """One step passes in ``worlds``: what runs progresses, what is done ends, jobs arrive."""
        rows, columns = np.nonzero(self.running[worlds])
        rows, jobs = worlds[rows], columns + self.window.start
        at = rows, jobs
        law, state = self.setting.law, (self.jobs.kind[at], self.amount[at], self.progress[at])
        gained = law.gains(*state, self._luck(rows, jobs))
        self.progress[at] += np.where(self._changed[at], self.setting.change_share, 1.0) * gained
        self._changed[at] = False
        self.now[worlds] += 1
        done = self.progress[at] >= 1
        self._end(rows[done], jobs[done])
        self._move_window()
        self._let_in(worlds)

    def _luck(self, worlds: IntArray, jobs: IntArray) -> FloatArray | float:
        """Of the step that passes, shape of both."""
        steps = self.jobs.luck.shape[2]
        if not steps:
            return 0.0
        age = self.now[worlds] - self.started[worlds, jobs]
        return np.asarray(self.jobs.luck[worlds, jobs, age % steps])

    def _end(self, worlds: IntArray, jobs: IntArray) -> None:
        self.ended[worlds, jobs] = self.now[worlds]
        np.add.at(self.free, (worlds, self.pool[worlds, jobs]), self.amount[worlds, jobs])
        self.amount[worlds, jobs] = 0

    def _let_in(self, worlds: IntArray) -> None:
        """Fill the places that are free in sight of each pool."""
        waits = self.waiting[worlds]
        sees = self.in_sight[worlds]
        is_new = (self.jobs.arrival[:, self.window] == self.now[:, None])[worlds][:, None]
        for group in (waits & ~sees & is_new, waits & ~sees & ~is_new):
            places = WINDOW - sees.sum(axis=2, keepdims=True)
            sees = sees | group & (group.cumsum(axis=2) <= places)
        self._sees[worlds, :, self.window] = sees

    def _move_window(self) -> None:
        going = np.flatnonzero((self.ended[:, self.window] < 0).any(axis=0))
        start = self.window.start + int(going[0]) if len(going) else self.window.stop
        stop = self.window.stop
        while stop < self.jobs.arrival.shape[1] and (self.jobs.arrival[:, stop] <= self.now).any():
            stop += 1
        self.window = slice(start, stop)
