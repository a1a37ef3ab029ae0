"""The world of TapFinger, batched: each pool chooses a waiting job and what it gives to it.

All pools choose at once; who wins where several chose the same job is settled before
(:mod:`bireme.rl.encoders.tapfinger_choice`), and told with the actions, because the density of what
a loser did has no part for the allocation. In single mode a step of the world is a step of time. In
multi mode time passes when no pool starts anything; all that starts before that starts at the same
time. Where no pool can start anything time passes by itself.

The reward of a step of time is minus the number of jobs in the system, so that an episode's sum is
minus the sum of all completion times. The paper's counts a waiting job once for every pool that it
waits at, which is not what it is judged by.

While nothing runs in any pool somebody has to start, or a policy could wait for ever.

Shapes: worlds W, pools N, waiting jobs P in sight of each, running jobs K at most in each. The last
axis of amounts is CPUs, GPUs.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.training.tapfinger.pools import NONE, Pools
from bireme.training.tapfinger.settings import Setting
from bireme.training.tapfinger.views import observe
from bireme.training.worlds import Actions, Array, Observation, Step


class TapWorld:
    """A batch of systems of pools; a World of :mod:`bireme.training.worlds`.

    Observations; -1 is none, and padding is 0 elsewhere:

    * ``job`` int64 (W, N, P), equal numbers are the same job; ``kind`` int64, ``waited`` int64 in
      steps, ``pending_mask`` bool, ``fits`` bool, whether the smallest allocation fits, all
      (W, N, P); ``connects`` bool (W, N, P, N), whether another pool sees it too; ``least`` int64
      (W, N, P, 2), the smallest allocation.
    * ``run_left`` int64 (W, N, K), steps to the end as the law has it; ``run_amount`` int64
      (W, N, K, 2).
    * ``free`` and ``most``, the largest allocation to one job, int64 (W, N, 2);
      ``waiting`` int64 (W, N), jobs in line; ``can_start`` bool (W, N).
    * ``may_wait`` bool (W,): whether all pools may start nothing.

    Actions are a mapping: ``slot`` int64 (W, N), the place of the chosen job among those in sight;
    ``won`` bool (W, N); ``amount`` int64 (W, N, 2), what winners give to it, 0 for nothing.

    Attributes:
        pools: The state, for rules and metrics; agents see the observation alone.
    """

    def __init__(self, count: int, setting: Setting, *, retries: bool = False) -> None:
        """``retries``: pools that lost a job choose again in the same step, also in single mode."""
        self.count, self.setting, self.retries = count, setting, retries
        self.reset(range(count))

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start all systems anew, one seed each."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} worlds; give one for each")
        self.pools = Pools(self.setting, seeds)
        self._has_started = np.zeros(self.pools.free.shape[:2], dtype=np.bool_)
        self._look()
        self._run_on()
        return self._seen

    def step(self, actions: Actions) -> Step:
        """Start what winners chose in every world that is not over."""
        if not isinstance(actions, Mapping):
            raise TypeError("actions of TapFinger are a mapping with slot, won and amount")
        live = ~self.pools.is_over
        amount = np.asarray(actions["amount"])
        starts = live[:, None] & actions["won"] & (amount > 0).any(axis=2)
        worlds, pools = np.nonzero(starts)
        slot = np.clip(np.asarray(actions["slot"]), 0, self._seen["job"].shape[2] - 1)
        jobs = self._seen["job"][worlds, pools, slot[worlds, pools]]
        self._check(worlds, pools, jobs, amount[worlds, pools])
        acts = starts.any(axis=1)
        if (stuck := live & ~acts & ~self._seen["may_wait"]).any():
            raise ValueError(f"world {int(stuck.argmax())} starts nothing while nothing runs")
        self.pools.start(worlds, pools, jobs, amount[worlds, pools])
        self._has_started[worlds, pools] = not self.setting.is_multi
        goes_on = self.setting.is_multi or self.retries
        rewards = self._pass(np.flatnonzero(live & ~acts if goes_on else live))
        self._look()
        rewards += self._run_on()
        times = self.pools.now.astype(np.float64)
        return Step(self._seen, rewards, self.pools.is_over, times)

    def _pass(self, worlds: IntArray) -> FloatArray:
        """A step of time in ``worlds``; the rewards, shape (W,)."""
        rewards = np.zeros(self.count)
        rewards[worlds] = -self.pools.present.sum(axis=1)[worlds]
        self.pools.advance(worlds)
        self._has_started[worlds] = False
        return rewards

    def _run_on(self) -> FloatArray:
        """Let time pass until some pool can start something, or all is over; the rewards."""
        rewards = np.zeros(self.count)
        while (idle := ~self._seen["can_start"].any(axis=1) & ~self.pools.is_over).any():
            rewards += self._pass(np.flatnonzero(idle))
            self._look()
        return rewards

    def _look(self) -> None:
        self._seen: dict[str, Array] = observe(self.pools, self._has_started)

    def _check(self, worlds: IntArray, pools: IntArray, jobs: IntArray, amount: IntArray) -> None:
        law, free = self.setting.law, self.pools.free[worlds, pools]
        fine = (jobs != NONE) & (amount >= law.least).all(axis=1)
        fine &= (amount <= np.minimum(free, law.most)).all(axis=1)
        fine &= _is_first(worlds, jobs)
        if not fine.all():
            at = int(fine.argmin())
            raise ValueError(
                f"pool {int(pools[at])} of world {int(worlds[at])} cannot give "
                f"{amount[at].tolist()} of its free {free[at].tolist()} to what it chose; choose "
                "a job that is there, that no other pool starts, and a possible amount"
            )


def _is_first(worlds: IntArray, jobs: IntArray) -> BoolArray:
    """Whether no earlier entry has the same world and job, shape of both."""
    first = np.zeros(len(jobs), dtype=np.bool_)
    pairs = np.stack([worlds, jobs], axis=1)
    first[np.unique(pairs, axis=0, return_index=True)[1]] = True
    return first
