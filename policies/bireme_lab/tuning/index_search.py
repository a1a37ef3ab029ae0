"""The learned index fitted to a cluster: evolution of its eight weights on the training worlds.

It begins at the shipped weights, and stays within the bounds of :mod:`bireme.rl.index_weights`.
Every draw is a checkpoint of its own, so that the simulated policy is the one that would be served.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from bireme.contender import Contender
from bireme.core.resources import FloatArray
from bireme.registry import CHECKPOINT
from bireme.rl.index_weights import (
    WEIGHTS,
    clip_weights,
    shipped_card,
    shipped_weights,
    write_checkpoint,
)
from bireme_lab.contest.tuning import PlayAll, loss
from bireme_lab.contest.worlds import World
from bireme_lab.training.evolution import Evolution, mean_over_cases

POPULATION: Final = 8
WORLDS: Final = 4
"""Number of worlds on which a generation's draws are compared; other worlds in each generation."""
_CAUTION: Final = 0.5
"""Share of the scales of a search from scratch: the shipped weights are a good start."""


def runs_of(generations: int, worlds: int) -> int:
    """Return the number of runs that :func:`evolve` requests."""
    return generations * POPULATION * min(WORLDS, worlds)


def evolve(
    start: Contender,
    worlds: Sequence[World],
    players: PlayAll,
    folder: Path,
    generations: int,
    seed: int = 0,
) -> FloatArray:
    """Return the weights after so many ``generations``, shape (weights,).

    ``start`` names the placer and the sizer. Checkpoints are written into ``folder``.
    """
    generator = np.random.default_rng(seed)
    scales = _CAUTION * np.array([weight.scale for weight in WEIGHTS.values()])
    evolution = Evolution(shipped_weights(), scales, POPULATION, generator)
    for _ in range(generations):
        picked = generator.choice(len(worlds), min(WORLDS, len(worlds)), replace=False)
        generation_worlds = [worlds[index] for index in sorted(picked.tolist())]
        candidates = [candidate_of(clip_weights(row), start, folder) for row in evolution.ask()]
        runs = players(
            [(candidate, world) for candidate in candidates for world in generation_worlds]
        )
        losses = np.array([loss(run) for run in runs]).reshape(
            len(candidates), len(generation_worlds)
        )
        evolution.tell(mean_over_cases(losses))
    return clip_weights(evolution.mean)


def candidate_of(weights: FloatArray, start: Contender, folder: Path) -> Contender:
    """Return the index with ``weights``, and the other parts of ``start``."""
    name = hashlib.blake2b(weights.tobytes(), digest_size=8).hexdigest()
    card = msgspec.structs.replace(shipped_card(), results=(), notes=())
    write_checkpoint(weights, card, folder / name)
    return Contender(f"{CHECKPOINT}{folder / name}", start.placer, start.sizer)
