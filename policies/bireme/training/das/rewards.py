"""What the agents of DAS are rewarded for, in one step in which one job starts.

The slides give r_t = sum_i (zeta_i / (fee_i jct_i) - (1 - zeta_i) alpha C_i n_i) / N'. Read: the
sum is over the N' jobs that are in line; zeta_i is 1 for the job that starts; its fee and
completion time are what they would be at its present speed; C_i is how long the others have
waited and n_i their GPUs. Filled in: fees count in 51 $ and times in hours (the slides' mean fee;
no unit is stated), alpha, and a ceiling, because 1 / (fee jct) is unbounded for tiny jobs.

It is no potential of the two metrics, so "direct" is offered beside it: minus the job-hours that
have passed, minus the rent that was paid; its undiscounted sum over an episode is exactly
-(mean completion hours + fee_weight * mean fee / 51 $).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme.core.times import HOUR
from bireme.training.das.cloud import Clouds

MEAN_FEE_DOLLARS: Final = 51.0


@dataclass(frozen=True, slots=True)
class Reward:
    """Which reward, and its weights.

    Attributes:
        kind: "direct" or "paper".
        fee_weight: Of the fee in "direct".
        alpha: Of GPU-hours in line in "paper".
        ceiling: The most that one start gives in "paper".
    """

    kind: str = "direct"
    fee_weight: float = 1.0
    alpha: float = 0.01
    ceiling: float = 10.0

    def __post_init__(self) -> None:
        if self.kind not in ("direct", "paper"):
            raise SettingError(f"reward kind is {self.kind!r}; write direct or paper")


def of_start(
    reward: Reward, clouds: Clouds, jobs: IntArray, in_line: BoolArray, running: BoolArray
) -> FloatArray:
    """The paper's reward right after ``jobs`` started, shape (W,); 0 for "direct".

    ``in_line`` are the jobs, shape (W, J), that were in line before; ``running`` are the worlds,
    shape (W,), in which a job started.
    """
    if reward.kind != "paper":
        return np.zeros(len(jobs))
    worlds = np.arange(len(jobs))
    waited = (clouds.now[:, None] - clouds.submitted) / HOUR
    run_hours = clouds.run_seconds[worlds, jobs] / HOUR
    run_hours = run_hours / np.where(running, clouds.rate[worlds, jobs], 1.0)
    fee = clouds.rent[worlds, jobs] * run_hours / MEAN_FEE_DOLLARS
    cost = np.where(running, fee * (waited[worlds, jobs] + run_hours), 1.0)
    others = np.where(in_line & clouds.waiting, waited * clouds.gpus, 0.0).sum(axis=1)
    gain = np.minimum(1 / np.maximum(cost, 1e-9), reward.ceiling) - reward.alpha * others
    return np.where(running, gain / np.maximum(in_line.sum(axis=1), 1), 0.0)


def of_time(
    reward: Reward, clouds: Clouds, job_seconds: FloatArray, dollars: FloatArray
) -> FloatArray:
    """The direct reward since the counters stood at ``job_seconds``, ``dollars``, shape (W,)."""
    if reward.kind != "direct":
        return np.zeros(len(job_seconds))
    hours = (clouds.job_seconds - job_seconds) / HOUR
    fees = (clouds.dollars - dollars) / MEAN_FEE_DOLLARS
    return np.asarray(-(hours + reward.fee_weight * fees) / clouds.gpus.shape[1])
