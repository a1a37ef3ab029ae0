"""Elastic sizes on the workloads of Pollux: mean completion times over the workloads of a load.

A ratio is one of means, with the 95 % interval of a paired bootstrap over the workloads.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from benchmarks.report import Table
from bireme.core.resources import FloatArray
from bireme.simulator import comparison
from bireme.simulator.comparison import Estimate

STRETCH: Final = 1.15
"""Over what Pollux' authors published, at most; what we aimed at."""

Means = Mapping[str, Mapping[str, FloatArray]]
"""By row and load, the mean completion seconds of each workload, shape (workloads,)."""


def overview(rows: Means, loads: Sequence[str]) -> Table:
    drawn = {load: comparison.draws(len(next(iter(rows.values()))[load])) for load in loads}
    body = []
    for name, by_load in rows.items():
        found = [comparison.means(by_load[load][:, None], drawn[load])[0] for load in loads]
        body.append((name, *(_shown(estimate, ".0f") for estimate in found)))
    return Table(
        title="Elastic: mean JCT over eight workloads, s",
        columns=("", *(f"load {load}" for load in loads)),
        rows=tuple(body),
    )


def against(ours: str, rows: Means, loads: Sequence[str]) -> Table:
    """Return ratios of the mean seconds of ``ours`` to those of every other row, by load."""
    body = []
    for name in rows:
        if name != ours:
            found = [ratio(rows[ours][load], rows[name][load]) for load in loads]
            body.append((name, *(_shown(estimate, ".3f") for estimate in found)))
    return Table(
        title=f"Elastic: mean JCT of {ours} over that of others",
        columns=("", *(f"load {load}" for load in loads)),
        rows=tuple(body),
    )


def ratio(values: FloatArray, base: FloatArray) -> Estimate:
    """Return the ratio of two means over workloads, both of shape (workloads,)."""
    drawn = comparison.draws(len(values))
    (estimate,) = comparison.ratios(values[:, None], base[:, None], drawn)
    if estimate is None:
        raise ValueError(f"base is {base}, of which the mean must be above 0")
    return estimate


def finding(ours: str, rivals: Sequence[str], goal: str, rows: Means, loads: Sequence[str]) -> str:
    """Count the loads at which ``ours`` is below all ``rivals`` and near ``goal``."""
    below = [
        load
        for load in loads
        if all(rows[ours][load].mean() < rows[rival][load].mean() for rival in rivals)
    ]
    far = {load: float(np.mean(rows[ours][load]) / np.mean(rows[goal][load])) for load in loads}
    within = [load for load in loads if far[load] <= STRETCH]
    return (
        f"Elastic: `{ours}` finishes jobs sooner than our {' and '.join(rivals)} at "
        f"{len(below)} of {len(loads)} loads, and within {STRETCH - 1:.0%} of what Pollux' authors "
        f"published at {len(within)} ("
        + ", ".join(f"{value:.3f} of it at load {load}" for load, value in far.items())
        + ")."
    )


def _shown(estimate: Estimate | None, form: str) -> str:
    if estimate is None or estimate.low is None or estimate.high is None:
        raise ValueError("an interval needs at least two workloads; simulate all eight")
    return f"{estimate.mean:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"
