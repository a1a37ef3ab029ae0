"""Comparison of policies: means over seeds with 95 % intervals, and ratios to the first policy.

All policies run with the same seeds, so a comparison is paired: a hard seed is hard for all.
Intervals are percentile bootstraps over seeds (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, chapter 13). Seeds are drawn with replacement, the same ones for all policies. The
interval holds 95 % of the resulting means. A ratio divides two means, so it exists where single
values are 0. Few seeds give an interval that is too narrow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray
from bireme_lab.simulator.metrics import KEYS, SimulationMetrics

RESAMPLES: Final = 10_000
_BOUNDS: Final = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, with its 95 % interval; the bounds are None when there is one seed."""

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the bounds; None where there are none or they are equal."""
        if self.low is None or self.high is None or self.low == self.high:
            return None
        return self.low, self.high


def draws(seeds: int) -> FloatArray:
    """Return the weight of each seed in each bootstrap sample, shape (RESAMPLES, seeds).

    Every row sums to 1, so that ``draws @ values`` are the means of the samples.
    """
    if seeds == 1:
        return np.empty((0, 1))
    generator = np.random.default_rng(0)  # the same numbers have the same interval
    return np.asarray(generator.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds)


def means(values: FloatArray, weights: FloatArray) -> list[Estimate | None]:
    """Return the mean of each column of ``values``, shape (seeds, columns); None for nan."""
    return _estimates(values.mean(axis=0), weights @ values)


def ratios(values: FloatArray, base: FloatArray, weights: FloatArray) -> list[Estimate | None]:
    """Return the means of ``values`` over those of ``base``; None also where the latter is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = values.mean(axis=0) / base.mean(axis=0)
        return _estimates(mean, (weights @ values) / (weights @ base))


def _estimates(mean: FloatArray, samples: FloatArray) -> list[Estimate | None]:
    """Make estimates of means, shape (columns,), and samples, shape (RESAMPLES, columns)."""
    if len(samples):
        low, high = np.percentile(samples, _BOUNDS, axis=0)
        # If all seeds agree, the samples differ from their mean by rounding only.
        agree = np.isclose(low, high, rtol=1e-12, atol=0.0)
        low, high = np.where(agree, mean, low), np.where(agree, mean, high)
    else:
        low = high = np.full_like(mean, np.nan)
    return [
        Estimate(float(m), _finite(a), _finite(b)) if np.isfinite(m) else None
        for m, a, b in zip(mean, low, high, strict=True)
    ]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


NUMBERS: Final = tuple(key for key in KEYS if key not in ("policy", "trace", "seed"))
"""The keys of metrics that are compared."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The runs of one policy, in order of seed, and their means.

    Attributes:
        means: By metric key, without keys that lack a value in some run (no job finished).
        ratios: The means over those of the first policy, without keys whose first mean is 0.
    """

    policy: str
    runs: tuple[SimulationMetrics, ...]
    means: Mapping[str, Estimate]
    ratios: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All policies, in the order of the request.

    Attributes:
        is_settled: Several seeds gave the same numbers, so nothing depends on chance.
    """

    trace: str
    seeds: tuple[int, ...]
    results: tuple[PolicyResult, ...]
    is_settled: bool

    def to_json(self) -> dict[str, object]:
        """Return means and ratios; :meth:`SimulationMetrics.to_json` writes the single runs."""
        return {
            "trace": self.trace,
            "seeds": list(self.seeds),
            "policies": [
                {
                    "policy": line.policy,
                    "means": {key: asdict(mean) for key, mean in line.means.items()},
                    "ratios_to_first": {key: asdict(ratio) for key, ratio in line.ratios.items()},
                }
                for line in self.results
            ],
        }


def compare(runs: Sequence[SimulationMetrics]) -> Comparison:
    """Compare ``runs`` by policy; ratios are to the first one named.

    Raises SettingError when there are no runs, or a policy lacks a seed that another has.
    """
    by_policy: dict[str, dict[int, SimulationMetrics]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, {})[run.seed] = run
    if not by_policy:
        raise SettingError("there are no runs to compare; simulate at least one policy")
    seeds = tuple(sorted({run.seed for run in runs}))
    for policy, by_seed in by_policy.items():
        if missing := sorted(set(seeds) - set(by_seed)):
            raise SettingError(
                f"policy {policy!r} has no run with seed {missing[0]}; run all with the same seeds"
            )
    ordered = {policy: tuple(by_seed[s] for s in seeds) for policy, by_seed in by_policy.items()}
    tables = {policy: _table(policy_runs) for policy, policy_runs in ordered.items()}
    weights, baseline = draws(len(seeds)), tables[runs[0].policy]
    results = tuple(
        PolicyResult(
            policy,
            ordered[policy],
            _by_key(means(table, weights)),
            _by_key(ratios(table, baseline, weights)),
        )
        for policy, table in tables.items()
    )
    return Comparison(runs[0].trace, seeds, results, _is_settled(tables.values()))


def _table(runs: Sequence[SimulationMetrics]) -> FloatArray:
    """Return the numbers of ``runs``, shape (seeds, keys), nan where a run has no value."""
    flat = [run.to_json() for run in runs]
    rows = [[np.nan if one[key] is None else one[key] for key in NUMBERS] for one in flat]
    return np.array(rows, dtype=float)


def _by_key(estimates: Sequence[Estimate | None]) -> dict[str, Estimate]:
    return {
        key: estimate
        for key, estimate in zip(NUMBERS, estimates, strict=True)
        if estimate is not None
    }


def _is_settled(tables: Iterable[FloatArray]) -> bool:
    timed = NUMBERS.index("decision_seconds")  # differs from run to run
    outcomes = [np.delete(table, timed, axis=1) for table in tables]
    return len(outcomes[0]) > 1 and all(
        np.array_equal(table, np.broadcast_to(table[0], table.shape), equal_nan=True)
        for table in outcomes
    )
