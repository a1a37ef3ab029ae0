"""Verdicts: a candidate compared with a baseline on the same worlds, with intervals.

The ratio is one of means, its interval a paired bootstrap over blocks of worlds (see
:mod:`bireme_lab.simulator.comparison`): days are drawn, and the loads of a drawn day come with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.comparison import Estimate, draws, means, ratios
from bireme_lab.simulator.metrics import SimulationMetrics

Finding: TypeAlias = Literal["better", "worse", "level", "too few", "unfinished"]
MIN_BLOCKS: Final = 5
"""With fewer blocks a bootstrap interval is too narrow to decide anything."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A candidate compared with a baseline.

    Attributes:
        worlds, blocks: Numbers of those that both played.
        jct: Mean completion time over the baseline's.
        p99_wait: Mean over worlds of the p99 wait, over the baseline's; None if the latter is 0.
        stops, baseline_stops: Runs stopped for others or for faster GPUs in a world, on average.
        unfinished: Jobs of the candidate that never finished, over all worlds.
        fallbacks: Its decisions that the rules replaced, over all worlds.
        p99_wait_seconds, baseline_p99_wait_seconds: The two terms of the ratio ``p99_wait``.
        p99_wait_change: The first less the second, in seconds: it has an interval even if hardly
            any job waits, when the ratio has none.
    """

    worlds: int
    blocks: int
    jct: Estimate
    p99_wait: Estimate | None
    stops: float
    baseline_stops: float
    unfinished: int
    fallbacks: int
    p99_wait_seconds: float = 0.0
    baseline_p99_wait_seconds: float = 0.0
    p99_wait_change: Estimate | None = None

    @property
    def finding(self) -> Finding:
        """Finding by the interval of the mean completion time.

        ``better`` or ``worse`` if it lies on one side of 1, else ``level``; ``too few`` if there
        are too few blocks, ``unfinished`` if jobs did not finish.
        """
        if self.unfinished:
            return "unfinished"
        low, high = self.jct.low, self.jct.high
        if self.blocks < MIN_BLOCKS or low is None or high is None:
            return "too few"
        if high < 1:
            return "better"
        return "worse" if low > 1 else "level"


def verdict(
    worlds: Sequence[World],
    runs: Sequence[SimulationMetrics],
    baseline: Sequence[SimulationMetrics],
) -> Verdict:
    """Return the verdict on ``runs``, one on each of ``worlds`` in their order.

    Raises:
        SettingError: there are no worlds, not as many runs as worlds, or no job of a world
            finished.
    """
    if not worlds or not len(worlds) == len(runs) == len(baseline):
        raise SettingError(
            f"{len(runs)} and {len(baseline)} runs on {len(worlds)} worlds; give one run of each "
            "policy for every world"
        )
    blocks = list(dict.fromkeys(world.block for world in worlds))
    of = np.array([blocks.index(world.block) for world in worlds])
    ours, theirs = (_block_means(player_runs, of, len(blocks)) for player_runs in (runs, baseline))
    samples = draws(len(blocks))
    jct, wait = ratios(ours, theirs, samples)
    if jct is None:
        raise SettingError("a world has no finished job to compare by; give longer worlds")
    return Verdict(
        worlds=len(worlds),
        blocks=len(blocks),
        jct=jct,
        p99_wait=wait,
        stops=float(np.mean([run.preemptions + run.moves for run in runs])),
        baseline_stops=float(np.mean([run.preemptions + run.moves for run in baseline])),
        unfinished=sum(run.jobs - run.finished for run in runs),
        fallbacks=sum(run.fallbacks for run in runs),
        p99_wait_seconds=float(ours[:, 1].mean()),
        baseline_p99_wait_seconds=float(theirs[:, 1].mean()),
        p99_wait_change=means(ours - theirs, samples)[1],
    )


def _block_means(runs: Sequence[SimulationMetrics], of: FloatArray, blocks: int) -> FloatArray:
    """Return mean completion time and p99 wait by block, seconds, shape (blocks, 2)."""
    rows = [(run.jct_seconds.mean, run.wait_seconds.p99) for run in runs]
    table = np.array([[np.nan if value is None else value for value in row] for row in rows])
    return np.array([table[of == block].mean(axis=0) for block in range(blocks)])
