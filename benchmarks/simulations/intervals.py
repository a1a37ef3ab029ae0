"""Ratios of means over seeds or workloads, and estimates with their 95 % intervals as text."""

from collections.abc import Callable

from bireme.core.resources import FloatArray
from bireme_lab.simulator import comparison
from bireme_lab.simulator.comparison import Estimate


def paired_ratio(values: FloatArray, base: FloatArray) -> Estimate:
    """Return the ratio of two means over the same seeds or workloads, both of shape (seeds,)."""
    drawn = comparison.draws(len(values))
    (estimate,) = comparison.ratios(values[:, None], base[:, None], drawn)
    if estimate is None:
        raise ValueError(f"no ratio of {values} to {base}: a value is missing, or their mean is 0")
    return estimate


def mean_of(values: FloatArray) -> Estimate:
    (estimate,) = comparison.means(values[:, None], comparison.draws(len(values)))
    if estimate is None:
        raise ValueError(f"no mean of {values}: a seed has no value")
    return estimate


def shown(estimate: Estimate, write: Callable[[float], str]) -> str:
    """Return ``mean [low, high]``, or the mean alone where there is one seed."""
    if estimate.low is None or estimate.high is None:
        return write(estimate.mean)
    return f"{write(estimate.mean)} [{write(estimate.low)}, {write(estimate.high)}]"
