"""Gangs as TapFinger's tasks: the sizes each may have, and how long it takes at each.

A gang that nobody has measured is taken to use the replicas that it asks for in proportion, and
more to gain nothing. Sizes that are hardly faster than smaller ones are left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.sizing import Pool, Sizes, bounds, demand_of, seconds_for, steps_left

MOST_SIZES: Final = 8
_LEAST_GAIN: Final = 0.02
"""Sizes that save a smaller share of the time than this are left out."""
_UNKNOWN_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What one gang may be given.

    Attributes:
        sizes: Replicas by task name, the smallest first.
        seconds: How long it takes at each, (sizes,), falling.
        demand: What it takes, in the units of the nodes, int64 (sizes, resources).
    """

    gang: Gang
    sizes: tuple[Sizes, ...]
    seconds: FloatArray
    demand: IntArray


def offer_of(gang: Gang, pool: Pool, snapshot: ClusterSnapshot, typical: float) -> Offer:
    """The sizes of ``gang``; ``typical`` seconds stand for an estimate that nobody has made."""
    low, high = bounds(gang)
    asked = {task.name: task.replicas for task in gang.tasks}
    if gang.speed is None:
        high = {name: max(low[name], min(size, asked[name])) for name, size in high.items()}
    ladder = _ladder(low, high)
    seconds = [seconds_at(gang, sizes, pool, snapshot, typical) for sizes in ladder]
    sizes, kept = _worthwhile(ladder, seconds)
    axis = snapshot.nodes.axis
    demand = [axis.usage(tuple(demand_of(gang, each).items())) for each in sizes]
    return Offer(gang, sizes, np.array(kept), np.stack(demand))


def typical_seconds(gangs: tuple[Gang, ...]) -> float:
    """The middle estimate of those that have one, or an hour."""
    known = [gang.estimated_seconds for gang in gangs if gang.estimated_seconds]
    return float(np.median(known)) if known else _UNKNOWN_SECONDS


def seconds_at(
    gang: Gang, sizes: Sizes, pool: Pool, snapshot: ClusterSnapshot, typical: float
) -> float:
    """How much longer ``gang`` takes at ``sizes``; infinite where it cannot run."""
    asked = {task.name: task.replicas for task in gang.tasks}
    estimate = snapshot.remaining_seconds(gang) if gang.estimated_seconds else typical
    if gang.speed is None:
        return float(estimate or 1.0) * gang.replicas / max(1, sum(sizes.values()))
    speed, left = pool.steps_per_second(gang, sizes), steps_left(gang, snapshot)
    if math.isfinite(left):
        return seconds_for(left, speed)
    usual = pool.steps_per_second(gang, asked)
    return seconds_for(float(estimate or 1.0) * usual, speed) if usual else math.inf


def _ladder(low: Sizes, high: Sizes) -> list[dict[str, int]]:
    """Sizes from ``low`` to ``high``, every one of them or ever larger steps."""
    span = max((high[name] - low[name] for name in low), default=0)
    rungs = range(span + 1) if span < MOST_SIZES else _rungs(span)
    return [
        {name: low[name] + round((high[name] - low[name]) * rung / max(span, 1)) for name in low}
        for rung in rungs
    ]


@cache
def _rungs(span: int) -> tuple[int, ...]:
    """MOST_SIZES numbers at most, from 0 to ``span``."""
    found = {round((span + 1) ** (rung / (MOST_SIZES - 1))) - 1 for rung in range(MOST_SIZES)}
    return tuple(sorted(found))


def _worthwhile(
    ladder: list[dict[str, int]], seconds: list[float]
) -> tuple[tuple[Mapping[str, int], ...], list[float]]:
    """The smallest size, and those that are faster than all smaller ones."""
    first = seconds[0] if math.isfinite(seconds[0]) else _UNKNOWN_SECONDS
    sizes, kept = [ladder[0]], [max(first, 1.0)]
    for each, time in zip(ladder[1:], seconds[1:], strict=True):
        if time < (1 - _LEAST_GAIN) * kept[-1]:
            sizes.append(each)
            kept.append(max(time, 1e-3))
    return tuple(sizes), kept
