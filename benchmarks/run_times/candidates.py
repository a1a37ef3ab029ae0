"""Ways to foretell a run time: what the history tells as it is, and regressions on it.

All foretell natural logarithms of seconds, at a quantile of 0.5 (a typical run) or 0.9 (a bound).

**Regression.** A linear quantile regression (Koenker and Bassett, Econometrica 46(1), 1978) of the
logarithm of the run time on what the history knows: median, 90 % quantile, mean of the latest eight
and spread of all runs, and how far those of the user differ from them, and those of its template
from the user's, each shrunk by the number of runs as in :mod:`bireme.core.estimates`; the numbers
of runs; the logarithm of the GPUs; the hour of the day. It is fitted on the earlier part alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from statsmodels.regression.quantile_regression import QuantReg

from benchmarks.run_times.playing import Played, shrunk
from bireme.core.estimates import PRIOR_RUNS
from bireme.core.resources import FloatArray

BOUND: Final = "history, 90 % quantile"
MEDIAN: Final = "history, median"
LATEST: Final = "history, mean log of the latest eight"
OWN: Final = "regression, fitted on the trace itself"
FOREIGN: Final = "regression, fitted on the other origin"

Foretell = Callable[[Played, Sequence[Played]], FloatArray]
"""Foretells one trace; the others, and its own earlier part, may be fitted on."""

_MAX_ROWS: Final = 20_000
"""Rows that a regression is fitted on, drawn by lot."""


def candidates(quantile: float) -> Mapping[str, Foretell]:
    """Return what is tried at a quantile, today's first."""
    known: dict[str, Foretell] = {BOUND: lambda trace, _: trace.log_bound}
    if quantile == 0.5:
        known[MEDIAN] = lambda trace, _: shrunk(trace.medians, trace.runs)
        known[LATEST] = lambda trace, _: shrunk(trace.latest, trace.runs)
    known[OWN] = lambda trace, _: _fitted(trace, [trace], quantile)
    known[FOREIGN] = lambda trace, others: _fitted(
        trace, [other for other in others if other.origin != trace.origin], quantile
    )
    return known


def _fitted(trace: Played, on: Sequence[Played], quantile: float) -> FloatArray:
    facts = np.concatenate([_facts(each)[~each.is_later] for each in on])
    truths = np.concatenate([each.log_seconds[~each.is_later] for each in on])
    drawn = np.random.default_rng(0).permutation(len(truths))[:_MAX_ROWS]
    found = QuantReg(truths[drawn], facts[drawn]).fit(q=quantile, max_iter=5000)
    return np.asarray(_facts(trace) @ found.params)


def _facts(trace: Played) -> FloatArray:
    """Return what a regression knows of each job, shape (jobs, facts)."""
    hour = 2 * np.pi * (trace.submitted % 1)
    every = [np.ones_like(hour), trace.log_gpus, np.sin(hour), np.cos(hour)]
    every += [1 / (1 + runs) for runs in trace.runs.T[1:]]
    for values in (trace.medians, trace.uppers, trace.latest, trace.spreads):
        wider = values[:, 0]
        every.append(wider)
        for own, runs in zip(values.T[1:], trace.runs.T[1:], strict=True):
            differs = np.where(runs > 0, runs / (runs + PRIOR_RUNS) * (own - wider), 0.0)
            every.append(differs)
            wider = wider + differs
    return np.column_stack(every)
