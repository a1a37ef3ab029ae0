"""What chance leaves open: means over seeds with their 95 % intervals, and paired ratios.

Everything that is compared runs with the same seeds, so a comparison is paired: what one seed makes
hard is hard for all. Intervals are percentile bootstraps over seeds (Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, chapter 13): seeds are drawn anew, with replacement, the same
ones for everything that is compared, and the interval holds 95 % of the resulting means. A ratio is
one of means, so that it exists where single values are 0. One seed gives no interval, and few seeds
give one too narrow.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray

RESAMPLES: Final = 10_000
_BOUNDS: Final = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, with its 95 % interval; the bounds are None when there is one seed."""

    mean: float
    low: float | None = None
    high: float | None = None


def draws(seeds: int) -> FloatArray:
    """How much each seed counts in each bootstrap sample, shape (RESAMPLES, seeds); none for one.

    Every row sums to 1, so that ``draws @ values`` are the means of the samples.
    """
    if seeds == 1:
        return np.empty((0, 1))
    generator = np.random.default_rng(0)
    return np.asarray(generator.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds)


def means(values: FloatArray, drawn: FloatArray) -> list[Estimate | None]:
    """By column of ``values``, shape (seeds, columns); None where a seed has no value (nan).

    ``drawn`` are the :func:`draws`.
    """
    return _estimates(values.mean(axis=0), drawn @ values)


def ratios(values: FloatArray, base: FloatArray, drawn: FloatArray) -> list[Estimate | None]:
    """The means of ``values`` over those of ``base``, both as in :func:`means`.

    None also where the base's mean is 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = values.mean(axis=0) / base.mean(axis=0)
        return _estimates(mean, (drawn @ values) / (drawn @ base))


def _estimates(mean: FloatArray, samples: FloatArray) -> list[Estimate | None]:
    """From means, shape (columns,), and those of the samples, shape (RESAMPLES, columns)."""
    if len(samples):
        low, high = np.percentile(samples, _BOUNDS, axis=0)
        # Where all seeds agree, the samples differ from their mean by rounding only.
        agree = np.isclose(low, high, rtol=1e-12, atol=0.0)
        low, high = np.where(agree, mean, low), np.where(agree, mean, high)
    else:
        low = high = np.full_like(mean, np.nan)
    return [
        Estimate(float(m), _finite(a), _finite(b)) if np.isfinite(m) else None
        for m, a, b in zip(mean, low, high, strict=True)
    ]


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
