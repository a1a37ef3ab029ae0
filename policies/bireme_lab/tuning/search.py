"""The search: constants on the training worlds, the choice of policy on the validation worlds.

1. For every rule: the constants with the least loss on the training worlds.
2. The learned index, by evolution on the training worlds.
3. From these and the shipped policies: the one with the least loss on the validation worlds.
4. For a rule: the placer with the least loss on the validation worlds.

The worlds for the test take no part in the search: :func:`judge` plays them, with two candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bireme.contender import Contender
from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray
from bireme.rl.index_weights import NAME as INDEX
from bireme_lab.contest import tuning
from bireme_lab.contest.candidates import DEFAULT_RULE, PLACERS
from bireme_lab.contest.candidates import RULES as PUBLISHED
from bireme_lab.contest.tuning import PlayAll, Tuned, tune
from bireme_lab.contest.verdicts import Verdict, verdict
from bireme_lab.simulator.metrics import SimulationMetrics
from bireme_lab.tuning import index_search
from bireme_lab.tuning.index_search import candidate_of, evolve
from bireme_lab.tuning.past import Past
from bireme_lab.tuning.policy_spec import needs_checkpoint_beside

RULES: Final = (DEFAULT_RULE, *PUBLISHED)
"""Rules whose constants are searched."""
_HALVED: Final = 8
"""Minimum number of training worlds at which constants are halved in three rungs."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of the search.

    Attributes:
        losses: Loss of every finalist on the validation worlds, the least first.
        best: The best of them except for the baseline.
        weights: Weights of the fitted index, shape (weights,); None if it was not fitted.
        index: The candidate with ``weights``.
        index_runs: Number of simulations that fitted them.
    """

    losses: tuple[tuple[Contender, float], ...]
    best: Contender
    weights: FloatArray | None = None
    index: Contender | None = None
    index_runs: int = 0

    def loss_of(self, candidate: Contender) -> float:
        """Return the loss of a finalist."""
        return dict(self.losses)[candidate]


def search(past: Past, players: PlayAll, folder: Path, generations: int) -> SearchResult:
    """Return the result of the training and validation worlds of ``past``.

    ``folder`` takes the checkpoints of the index. It is not fitted with 0 ``generations``, nor
    with a checkpoint that places or sizes.
    """
    training, validation = past.worlds["training"], past.worlds["validation"]
    base = past.baseline
    # 1. Constants.
    rungs = _rungs(len(training))
    tuned = [tune(grid, training, players, rungs=rungs).best for grid in _grids(base)]
    finalists = [base, *tuned, Contender(INDEX, base.placer, base.sizer)]
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
        with_placers = [
            best,
            *(replace(best, placer=name) for name in PLACERS if name != best.placer),
        ]
        losses |= dict(_losses(tune(with_placers, validation, players)))
        best = min((one for one in with_placers if one != base), key=losses.__getitem__)
    steps = index_search.runs_of(generations, len(training)) if index else 0
    ranked = sorted(losses.items(), key=lambda pair: pair[1])
    return SearchResult(tuple(ranked), best, weights, index, steps)


def is_fitted(past: Past) -> bool:
    """Return whether a fitted index could be served: a SchedulingPolicy names one checkpoint."""
    return not needs_checkpoint_beside(past.baseline, past.settings)


def runs_expected(past: Past, generations: int) -> int:
    """Return about how many runs :func:`search` and :func:`judge` request."""
    generations = generations if is_fitted(past) else 0
    training, validation, test = (len(worlds) for worlds in past.worlds.values())
    grids = [len(grid) for grid in _grids(past.baseline)]
    runs = sum(tuning.runs_of(size, training, _rungs(training)) for size in grids)
    runs += index_search.runs_of(generations, training)
    finalists = len(grids) + 2 + bool(generations)
    return runs + (finalists + len(PLACERS) - 1) * validation + 2 * test


def judge(past: Past, best: Contender, players: PlayAll) -> Verdict:
    """Return the verdict on ``best`` against the baseline, on the worlds for the test.

    A world in which one of them ended no gang, or started no new gang, has no ratio: all of its
    gangs count as unfinished.

    Raises:
        SettingError: no other world is left.
    """
    worlds = past.worlds["test"]
    pairs = [(candidate, world) for candidate in (best, past.baseline) for world in worlds]
    runs = players(pairs)
    rows = list(zip(worlds, runs[: len(worlds)], runs[len(worlds) :], strict=True))
    complete = [row for row in rows if _has_means(row[1]) and _has_means(row[2])]
    if not complete:
        raise SettingError(
            f"in none of the {len(worlds)} windows of the test did both {best.name} and "
            f"{past.baseline.name} end a gang; record for longer, and name another --out"
        )
    common = verdict(
        [row[0] for row in complete], [row[1] for row in complete], [row[2] for row in complete]
    )
    lost = sum(row[1].jobs for row in rows if row not in complete)
    return replace(common, unfinished=common.unfinished + lost)


def _has_means(run: SimulationMetrics) -> bool:
    return run.jct_seconds.mean is not None and run.wait_seconds.p99 is not None


def _rungs(training: int) -> int:
    return 3 if training >= _HALVED else 1


def _grids(base: Contender) -> list[list[Contender]]:
    """Return the candidates of each rule, with the placer and sizer of ``base``."""
    return [
        [
            replace(candidate, placer=base.placer, sizer=base.sizer)
            for candidate in rule.candidates()
        ]
        for rule in RULES
    ]


def _losses(tuned: Tuned) -> Sequence[tuple[Contender, float]]:
    return tuned.rungs[-1].losses
