"""The search: constants on the training worlds, the choice of policy on the validation worlds.

1. Of every rule the constants with the least loss on the training worlds.
2. The learned index by evolution on the training worlds.
3. Of these, and of what is shipped, the one with the least loss on the validation worlds.
4. With a rule, the placer with the least loss on the validation worlds.

The worlds for the test take no part in it: :func:`judge` plays them, with two candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bireme.contest import tuning
from bireme.contest.candidates import DEFAULT_RULE, PLACERS, Candidate
from bireme.contest.candidates import RULES as PUBLISHED
from bireme.contest.tuning import PlayAll, Tuned, tune
from bireme.contest.verdicts import Verdict, verdict
from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray
from bireme.rl.index_weights import NAME as INDEX
from bireme.simulator.metrics import SimulationMetrics
from bireme.tuning import index_search
from bireme.tuning.index_search import candidate_of, evolve
from bireme.tuning.past import Past
from bireme.tuning.policy_spec import needs_checkpoint_beside

RULES: Final = (DEFAULT_RULE, *PUBLISHED)
"""Whose constants are searched."""
_HALVED: Final = 8
"""With so many training worlds or more, constants are halved in three rungs."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the search found.

    Attributes:
        losses: On the validation worlds, of every finalist; the least is the best.
        best: The best of them but for the baseline.
        weights: Those of the fitted index, shape (weights,); None where it was not fitted.
        index: The candidate with ``weights``.
        index_runs: Simulations by which they were fitted.
    """

    losses: tuple[tuple[Candidate, float], ...]
    best: Candidate
    weights: FloatArray | None = None
    index: Candidate | None = None
    index_runs: int = 0

    def loss_of(self, candidate: Candidate) -> float:
        """Return the loss of a finalist."""
        return dict(self.losses)[candidate]


def search(past: Past, players: PlayAll, folder: Path, generations: int) -> Found:
    """Return what the training and validation worlds of ``past`` say.

    ``folder`` takes the checkpoints of the index; with 0 ``generations``, and beside a checkpoint
    that places or sizes, it is not fitted.
    """
    training, validation = past.worlds["training"], past.worlds["validation"]
    base = past.baseline
    # 1. Constants.
    rungs = _rungs(len(training))
    tuned = [tune(each, training, players, rungs=rungs).best for each in _grids(base)]
    finalists = [base, *tuned, Candidate(INDEX, base.placer, base.sizer)]
    # 2. The index.
    weights, index = None, None
    if generations and is_fitted(past):
        weights = evolve(base, training, players, folder, generations)
        index = candidate_of(weights, base, folder)
        finalists.append(index)
    # 3. The choice.
    finalists = list(dict.fromkeys(finalists))
    losses = dict(_losses(tune(finalists, validation, players)))
    best = min((one for one in finalists if one != base), key=losses.__getitem__)
    # 4. The placer.
    if best != index:
        placed = [best, *(replace(best, placer=name) for name in PLACERS if name != best.placer)]
        losses |= dict(_losses(tune(placed, validation, players)))
        best = min((one for one in placed if one != base), key=losses.__getitem__)
    steps = index_search.runs_of(generations, len(training)) if index else 0
    ranked = sorted(losses.items(), key=lambda pair: pair[1])
    return Found(tuple(ranked), best, weights, index, steps)


def is_fitted(past: Past) -> bool:
    """Return whether a fitted index could be served: a SchedulingPolicy names one checkpoint."""
    return not needs_checkpoint_beside(past.baseline, past.settings)


def runs_expected(past: Past, generations: int) -> int:
    """Return about how many runs :func:`search` and :func:`judge` ask for."""
    generations = generations if is_fitted(past) else 0
    training, validation, test = (len(worlds) for worlds in past.worlds.values())
    grids = [len(grid) for grid in _grids(past.baseline)]
    runs = sum(tuning.runs_of(size, training, _rungs(training)) for size in grids)
    runs += index_search.runs_of(generations, training)
    finalists = len(grids) + 2 + bool(generations)
    return runs + (finalists + len(PLACERS) - 1) * validation + 2 * test


def judge(past: Past, best: Candidate, players: PlayAll) -> Verdict:
    """Return the verdict on ``best`` beside the baseline, on the worlds for the test.

    A world in which one of them ended no gang, or started none that came, has no ratio: all of its
    gangs count as unfinished.

    Raises:
        SettingError: there is no other world.
    """
    worlds = past.worlds["test"]
    pairs = [(each, world) for each in (best, past.baseline) for world in worlds]
    runs = players(pairs)
    rows = list(zip(worlds, runs[: len(worlds)], runs[len(worlds) :], strict=True))
    kept = [row for row in rows if _has_means(row[1]) and _has_means(row[2])]
    if not kept:
        raise SettingError(
            f"in none of the {len(worlds)} windows of the test did both {best.name} and "
            f"{past.baseline.name} end a gang; record for longer, and name another --out"
        )
    found = verdict([row[0] for row in kept], [row[1] for row in kept], [row[2] for row in kept])
    lost = sum(row[1].jobs for row in rows if row not in kept)
    return replace(found, unfinished=found.unfinished + lost)


def _has_means(run: SimulationMetrics) -> bool:
    return run.jct_seconds.mean is not None and run.wait_seconds.p99 is not None


def _rungs(training: int) -> int:
    return 3 if training >= _HALVED else 1


def _grids(base: Candidate) -> list[list[Candidate]]:
    """Return the candidates of each rule, with the placer and sizer of ``base``."""
    return [
        [replace(each, placer=base.placer, sizer=base.sizer) for each in rule.candidates()]
        for rule in RULES
    ]


def _losses(tuned: Tuned) -> Sequence[tuple[Candidate, float]]:
    return tuned.rungs[-1].losses
