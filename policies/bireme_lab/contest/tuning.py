"""Tuning: the candidate with the least loss on training worlds, by halving or on all of them.

It is deterministic: the same candidates and worlds have the same winner, the first of equal ones.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from bireme.contender import Contender
from bireme.core.errors import SettingError
from bireme_lab.contest.worlds import World
from bireme_lab.simulator.metrics import SimulationMetrics

PlayAll: TypeAlias = Callable[[Sequence[tuple[Contender, World]]], Sequence[SimulationMetrics]]
"""Plays every pair, and returns the metrics in the same order."""

_WAIT_WEIGHT: Final = 0.08
_BOUND_WEIGHT: Final = 0.005


def play(candidate: Contender, world: World) -> SimulationMetrics:
    """Return the metrics of ``candidate`` in ``world``, under its name."""
    policy, settings = candidate.policy(world.settings)
    metrics = world.play(policy, settings, knows_run_times=candidate.knows_run_times)
    return replace(metrics, policy=candidate.name)


def play_all(pairs: Sequence[tuple[Contender, World]]) -> list[SimulationMetrics]:
    """Play ``pairs`` one after the other, in this process."""
    return [play(candidate, world) for candidate, world in pairs]


def loss(metrics: SimulationMetrics) -> float:
    """Return the loss of a run; infinite if a job never started, or did not finish.

        log mean JCT + 0.08 * log(1 h + p99 wait) + 0.005 * jobs past their wait bound

    A hundredth of completion time counts alike in every world, and waits count too.
    """
    mean, tail = metrics.jct_seconds.mean, metrics.wait_seconds.p99
    if mean is None or tail is None or metrics.finished < metrics.jobs:
        return math.inf
    bound_penalty = _BOUND_WEIGHT * metrics.wait_bound_violations
    return math.log(max(mean, 1.0)) + _WAIT_WEIGHT * math.log(3600.0 + tail) + bound_penalty


@dataclass(frozen=True, slots=True)
class Rung:
    """One round of a tuning: the mean loss of each candidate over the round's worlds."""

    worlds: int
    losses: tuple[tuple[Contender, float], ...]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best candidate, and the rounds that found it."""

    best: Contender
    rungs: tuple[Rung, ...]


def tune(
    candidates: Sequence[Contender],
    worlds: Sequence[World],
    players: PlayAll = play_all,
    *,
    rungs: int = 1,
) -> Tuned:
    """Return the candidate with the least mean loss.

    With one rung all candidates play all ``worlds``. With more, successive halving (Jamieson and
    Talwalkar, AISTATS 2016): the first rung plays a ``2^(rungs-1)``-th of the worlds, evenly spread
    over them, and every further one twice as many with the better half of the candidates.

    Raises:
        SettingError: there are no candidates or worlds, or one of ``worlds`` is for the test.
    """
    if not candidates or not worlds or rungs < 1:
        raise SettingError(
            f"{len(candidates)} candidates on {len(worlds)} worlds in {rungs} rungs leave nothing "
            "to tune; give at least one of each"
        )
    if test_names := [world.name for world in worlds if world.part == "test"]:
        raise SettingError(
            f"world {test_names[0]!r} is kept for the test; tune on worlds for training or "
            "validation"
        )
    survivors, history = list(candidates), []
    for rung, step in enumerate(_steps(rungs)):
        rung_worlds = worlds[::step]
        pairs = [(candidate, world) for candidate in survivors for world in rung_worlds]
        table = np.array([loss(metrics) for metrics in players(pairs)])
        means = table.reshape(len(survivors), len(rung_worlds)).mean(axis=1).tolist()
        history.append(Rung(len(rung_worlds), tuple(zip(survivors, means, strict=True))))
        order = sorted(
            range(len(survivors)), key=means.__getitem__
        )  # stable: ties by the order given
        keep = 1 if rung == rungs - 1 else math.ceil(len(survivors) / 2)
        survivors = [survivors[index] for index in sorted(order[:keep])]
    return Tuned(survivors[0], tuple(history))


def runs_of(candidates: int, worlds: int, rungs: int = 1) -> int:
    """Return the number of runs that :func:`tune` requests."""
    survivors, runs = candidates, 0
    for step in _steps(rungs):
        runs += survivors * math.ceil(worlds / step)
        survivors = math.ceil(survivors / 2)
    return runs


def _steps(rungs: int) -> list[int]:
    """Return the sampling step of each rung."""
    return [2 ** (rungs - 1 - rung) for rung in range(rungs)]
