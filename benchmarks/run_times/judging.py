"""Foretold run times held against the true ones of the later part of a trace.

Intervals hold 95 % of bootstrap samples that draw days anew, because jobs of one day are alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from benchmarks.report import Table
from benchmarks.run_times.candidates import BOUND, MEDIAN, candidates
from benchmarks.run_times.playing import SHARES, Played, shrunk
from benchmarks.simulations.intervals import paired_ratio, shown
from bireme.core.estimates import RUNS_PER_GROUP
from bireme.core.resources import BoolArray, FloatArray
from bireme_lab.simulator.comparison import Estimate, draws

TYPICAL: Final = 0.5
UPPER: Final = 0.9
_GROUPS: Final = (0, 1, 5, 20, RUNS_PER_GROUP)
"""Least numbers of remembered runs by which jobs are told apart."""
_INTERVAL: Final = (2.5, 97.5)

Foretold = Mapping[str, FloatArray]
"""Logarithms of seconds of the jobs that judge, by candidate."""


def foretold(trace: Played, every: Sequence[Played], quantile: float) -> Foretold:
    """Return what each candidate foretells of the later part of ``trace``."""
    return {
        name: foretell(trace, every)[trace.is_later]
        for name, foretell in candidates(quantile).items()
    }


def pinball(truths: FloatArray, found: FloatArray, quantile: float) -> FloatArray:
    """Return the loss by job: too low costs ``quantile`` of the error, too high the rest."""
    errors = truths - found
    return np.maximum(quantile * errors, (quantile - 1) * errors)


def loss_ratio(trace: Played, found: Foretold, name: str, base: str, quantile: float) -> Estimate:
    """Return the pinball loss of one candidate over that of another."""
    truths, days = trace.log_seconds[trace.is_later], _days(trace, trace.is_later)
    one, other = (_by_day(pinball(truths, found[each], quantile), days) for each in (name, base))
    return paired_ratio(one, other)


def coverage(trace: Played, bound: FloatArray, among: BoolArray) -> Estimate:
    """Return the share of the jobs ``among`` the later ones that ran no longer than foretold."""
    truths, days = trace.log_seconds[trace.is_later], _days(trace, trace.is_later)
    inside = _by_day((truths <= bound)[among].astype(float), days[among])
    return paired_ratio(inside, _by_day(np.ones(among.sum()), days[among]))


# --- tables --------------------------------------------------------------------------------------


def typical_table(traces: Sequence[Played], found: Mapping[str, Foretold]) -> Table:
    rows = []
    for trace in traces:
        every, truths = found[trace.name], trace.log_seconds[trace.is_later]
        for name, values in every.items():
            ratios = (loss_ratio(trace, every, name, base, TYPICAL) for base in (BOUND, MEDIAN))
            rows.append(
                (
                    *(trace.name, name, str(len(truths))),
                    f"{pinball(truths, values, TYPICAL).mean():.3f}",
                    *(shown(ratio, "{:.3f}".format) for ratio in ratios),
                    _correlation(truths, values, _days(trace, trace.is_later)),
                )
            )
    return Table(
        title="A typical run: the middle one of ten",
        columns=(
            *("trace", "foretold by", "jobs", "pinball loss at 0.5", "over today's"),
            *("over the median's", "correlation"),
        ),
        rows=tuple(rows),
    )


def bound_table(traces: Sequence[Played], found: Mapping[str, Foretold]) -> Table:
    rows = []
    for trace in traces:
        every, truths = found[trace.name], trace.log_seconds[trace.is_later]
        for name, values in every.items():
            inside = coverage(trace, values, np.ones(len(truths), dtype=bool))
            rows.append(
                (
                    *(trace.name, name, str(len(truths))),
                    f"{pinball(truths, values, UPPER).mean():.3f}",
                    shown(loss_ratio(trace, every, name, BOUND, UPPER), "{:.3f}".format),
                    shown(inside, "{:.1%}".format),
                )
            )
    return Table(
        title="A bound: what nine in ten should stay within",
        columns=(
            *("trace", "foretold by", "jobs", "pinball loss at 0.9", "over today's"),
            "stayed within",
        ),
        rows=tuple(rows),
    )


def calibration_tables(traces: Sequence[Played]) -> tuple[Table, Table]:
    """Return how often runs stay within today's bound, by its length and by what it knows."""
    deciles, groups = [], []
    for trace in traces:
        bound, runs = trace.log_bound[trace.is_later], trace.runs[trace.is_later, -1]
        tenth = np.minimum(9, 10 * np.argsort(np.argsort(bound, kind="stable")) // len(bound))
        among = [tenth == number for number in range(10)]
        deciles.append((trace.name, *(_inside(trace, bound, each) for each in among)))
        level = np.searchsorted(_GROUPS, runs, side="right") - 1
        among = [level == number for number in range(len(_GROUPS))]
        groups.append((trace.name, *(_inside(trace, bound, each) for each in among)))
    return (
        Table(
            title="Stayed within today's bound, by tenth of jobs, shortest bound first",
            columns=("trace", *map(str, range(1, 11))),
            rows=tuple(deciles),
        ),
        Table(
            title="Stayed within today's bound, by remembered runs of the template (jobs)",
            columns=(
                "trace",
                *(
                    f"{least} to {above - 1}" if above > least + 1 else str(least)
                    for least, above in pairwise(_GROUPS)
                ),
                str(_GROUPS[-1]),
            ),
            rows=tuple(groups),
        ),
    )


def remaining_table(traces: Sequence[Played]) -> Table:
    """Return how well the rest of a run is foretold once it has run for a part of the median."""
    rows = []
    for trace in traces:
        middle, truths = shrunk(trace.medians, trace.runs), trace.log_seconds
        for number, part in enumerate(SHARES):
            elapsed = middle + np.log(part)
            lasts = trace.is_later & (truths > elapsed)
            ran, days = elapsed[lasts], _days(trace, lasts)
            true = _left(truths[lasts], ran)
            longer = shrunk(trace.longer[:, number], trace.runs)
            ways = {
                "median less what it has run": _left(middle[lasts], ran),
                "today's bound less what it has run": _left(trace.log_bound[lasts], ran),
                # where no run remembered took longer, as long again
                "median of longer runs less what it has run": np.where(
                    np.isfinite(longer[lasts]), _left(longer[lasts], ran), ran
                ),
            }
            first = _by_day(pinball(true, next(iter(ways.values())), TYPICAL), days)
            for name, values in ways.items():
                loss = pinball(true, values, TYPICAL)
                rows.append(
                    (
                        *(trace.name, f"{part:.0%} of the median", name, str(len(true))),
                        f"{loss.mean():.3f}",
                        shown(paired_ratio(_by_day(loss, days), first), "{:.3f}".format),
                        _correlation(true, values, days),
                    )
                )
    return Table(
        title="What remains of a run that has begun",
        columns=(
            *("trace", "has run", "foretold by", "jobs", "pinball loss at 0.5"),
            *("over the median's", "correlation"),
        ),
        rows=tuple(rows),
    )


def outrun_table(traces: Sequence[Played]) -> Table:
    """Return how much longer runs last that have outrun what was foretold of them."""
    rows = []
    for trace in traces:
        middle = shrunk(trace.medians, trace.runs)
        for name, expected in (("the median", middle), ("today's bound", trace.log_bound)):
            lasts = trace.is_later & (trace.log_seconds > expected)
            ran, days = expected[lasts], _days(trace, lasts)
            true = _left(trace.log_seconds[lasts], ran)
            quartiles = np.percentile(np.exp(true - ran), (25, 50, 75))
            again = pinball(true, ran, TYPICAL)
            ended = pinball(true, np.zeros_like(ran), TYPICAL)
            rows.append(
                (
                    *(trace.name, name, str(len(true))),
                    " / ".join(f"{each:.2f}" for each in quartiles),
                    *(f"{loss.mean():.3f}" for loss in (ended, again)),
                    shown(
                        paired_ratio(_by_day(again, days), _by_day(ended, days)), "{:.3f}".format
                    ),
                )
            )
    return Table(
        title="What remains of a run that has outrun what was foretold, at that moment",
        columns=(
            *("trace", "has outrun", "jobs", "quartiles of the rest over the time run"),
            *("pinball loss at 0.5: ends now (1 s)", "lasts as long again", "ratio"),
        ),
        rows=tuple(rows),
    )


def _left(log_seconds: FloatArray, log_elapsed: FloatArray) -> FloatArray:
    """Return the logarithm of the seconds left, of at least one."""
    left = np.exp(np.nan_to_num(log_seconds)) - np.exp(log_elapsed)
    return np.asarray(np.log(np.maximum(1.0, left)))


def _inside(trace: Played, bound: FloatArray, among: BoolArray) -> str:
    truths = trace.log_seconds[trace.is_later]
    count = int(among.sum())
    return f"{(truths <= bound)[among].mean():.0%} ({count})" if count else "-"


def _correlation(truths: FloatArray, values: FloatArray, days: FloatArray) -> str:
    """Return Pearson's correlation of logarithms with its interval."""
    products = (np.ones_like(truths), truths, values, truths**2, values**2, truths * values)
    sums = np.column_stack([_by_day(each, days) for each in products])

    def of(weights: FloatArray) -> FloatArray:
        count, x, y, xx, yy, xy = (weights @ sums).T
        covariance = xy - x * y / count
        return np.asarray(covariance / np.sqrt((xx - x * x / count) * (yy - y * y / count)))

    low, high = np.percentile(of(draws(len(sums))), _INTERVAL)
    return f"{of(np.ones((1, len(sums))))[0]:.2f} [{low:.2f}, {high:.2f}]"


def _days(trace: Played, among: BoolArray) -> FloatArray:
    return np.floor(trace.submitted[among])


def _by_day(values: FloatArray, days: FloatArray) -> FloatArray:
    """Return the sum of ``values`` of each day, in order."""
    _, at = np.unique(days, return_inverse=True)
    return np.asarray(np.bincount(at, weights=values), dtype=np.float64)


def each_coverage(traces: Sequence[Played]) -> Iterator[tuple[str, Estimate]]:
    """Yield how often the runs of each trace stayed within today's bound."""
    for trace in traces:
        every = np.ones(int(trace.is_later.sum()), dtype=bool)
        yield trace.name, coverage(trace, trace.log_bound[trace.is_later], every)
