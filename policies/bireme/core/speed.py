"""Laws of training speed and loss, measured or fitted; policies may use them where known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import Protocol, runtime_checkable

import numpy as np

from bireme.core.errors import BiremeError, SettingError, require
from bireme.core.resources import FloatArray


@runtime_checkable
class SpeedLaw(Protocol):
    """Training speed as a function of size and spread."""

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """Speed with ``sizes[task name]`` replicas on ``nodes`` nodes; 0 if it cannot run."""
        ...


@runtime_checkable
class EfficiencyLaw(Protocol):
    """A speed law that also knows the worth of a step (Pollux, OSDI'21, section 3.1)."""

    def statistical_efficiency(self, sizes: Mapping[str, int]) -> float:
        """Progress per step at ``sizes``, relative to a step at the requested size; above 0."""
        ...


@runtime_checkable
class LossCurve(Protocol):
    """Training loss over time, fitted to the reports of a job."""

    def loss(self, steps: float) -> float:
        """Loss after ``steps`` steps since training began: falling, and ever more slowly."""
        ...


@dataclass(frozen=True, slots=True)
class LinearSpeed:
    """Speed proportional to the replicas, except for a serial share of every step.

    ``n`` replicas take ``serial_share + (1 - serial_share) / n`` of the time one takes (Amdahl,
    AFIPS 1967).

    Attributes:
        per_second: Steps a second of one replica.
        serial_share: From 0 (linear) to 1 (more replicas gain nothing).
        tasks: The tasks whose replicas count; all if empty.
    """

    per_second: float
    serial_share: float = 0.0
    tasks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive("per_second", self.per_second)
        require("serial_share", self.serial_share, 0, 1)

    def steps_per_second(self, sizes: Mapping[str, int], nodes: int) -> float:
        """See :class:`SpeedLaw`; 0 without replicas that count."""
        replicas = sum(sizes.get(task, 0) for task in self.tasks or sizes)
        if not replicas:
            return 0.0
        return self.per_second / (self.serial_share + (1 - self.serial_share) / replicas)


def require_positive(name: str, value: float) -> None:
    """Raise SettingError unless ``value`` is a finite number above 0."""
    if not 0 < value < inf:
        raise SettingError(f"{name} is {value}; it must be a number above 0")


# --- loss curves ---
#
# The sublinear family of SLAQ (Zhang et al., SoCC 2017, section 4): loss after ``k`` steps is
# 1 / (a k^2 + b k + c) + d. That of Optimus (Peng et al., EuroSys 2018, section 3.1) has a = 0.


@dataclass(frozen=True, slots=True)
class InverseQuadratic:
    """``1 / (a k^2 + b k + c) + d`` with ``a, b, c`` >= 0."""

    a: float
    b: float
    c: float
    d: float = 0.0

    def __post_init__(self) -> None:
        if min(self.a, self.b, self.c) < 0 or max(self.a, self.b, self.c) == 0:
            raise SettingError(
                f"a, b, c are {self.a}, {self.b}, {self.c}; none may be below 0, one must be above"
            )

    def loss(self, steps: float) -> float:
        """See :class:`LossCurve`."""
        denominator = (self.a * steps + self.b) * steps + self.c
        return (
            1 / denominator if denominator else inf
        ) + self.d  # before the first step c may be 0


# --- fitting, by least squares in numpy alone ---

_TRIALS = 32
_ROUNDS = 4
_MIN_POINTS = 4
"""One more than Optimus' curve has coefficients."""
SLOWEST, FASTEST = 1e-9, 1e15
"""Steps a second; outside these limits there is no training, and the fourth power overflows."""
SERIAL_SHARE = 0.1
"""Assumed part of a step that more replicas do not shorten, for a job known at one size."""


class CurveFitError(BiremeError, ValueError):
    """No curve can be fitted to these losses; the text says why, and the remedy."""


def fit_loss(steps: Sequence[float], losses: Sequence[float]) -> InverseQuadratic:
    """Return the curve of Optimus, ``1 / (b k + c) + d``, nearest to ``losses`` after ``k`` steps.

    Args:
        steps: Shape (points,), ascending.
        losses: Shape (points,), at least 0.

    Raises:
        CurveFitError: Fewer than four points, or losses that do not fall.
    """
    points, values = _check_points(steps, losses)
    scale = points[-1]
    line = np.stack([np.ones_like(points), points / scale], axis=1)
    low = 1e-3 * float(np.ptp(values))
    # A loss is never negative, nor is its limit: only a last loss near 0 allows a little.
    high = max(float(values.min()), 2 * low)
    # Once the asymptote d is known, 1 / (loss - d) is linear in the steps. So many asymptotes are
    # tried, ever closer to the best, and the squared error in the loss itself decides.
    for _ in range(_ROUNDS):
        gaps = np.geomspace(low, high, _TRIALS)
        asymptotes = values.min() - gaps
        rest = values - asymptotes[:, None]
        # The weights undo the effect of the transformation on small errors.
        coefficients = nonnegative_least_squares(line, 1 / rest, rest**4)
        with np.errstate(divide="ignore"):
            fitted = 1 / (coefficients @ line.T) + asymptotes[:, None]
        best = int(np.nanargmin(((fitted - values) ** 2).sum(axis=1)))
        low, high = gaps[max(best - 1, 0)], gaps[min(best + 1, _TRIALS - 1)]
    c, b = coefficients[best]
    return InverseQuadratic(0.0, float(b / scale), float(c), float(asymptotes[best]))


def fit_speed(speeds: Mapping[int, float]) -> LinearSpeed:
    """Return the law ``1 / speed = a + b / replicas`` with ``a, b`` >= 0 nearest to ``speeds``.

    That is Amdahl's (AFIPS 1967): ``a / (a + b)`` is the serial share, and :data:`SERIAL_SHARE`
    if speeds of only one size are known.

    Args:
        speeds: Steps a second, ``SLOWEST`` to ``FASTEST``, by number of replicas; at least one.

    Raises:
        CurveFitError: ``speeds`` are empty, or a speed or number of replicas is out of range.
    """
    sizes = np.array(list(speeds), dtype=np.float64)
    paces = np.array(list(speeds.values()), dtype=np.float64)
    is_sound = (sizes >= 1).all() and (paces >= SLOWEST).all() and (paces <= FASTEST).all()
    if not (len(speeds) and is_sound):
        raise CurveFitError(
            f"speeds are {dict(speeds)}; give at least one, from {SLOWEST} to {FASTEST} steps a"
            " second, each by a number of replicas"
        )
    if len(speeds) == 1:  # one size tells nothing about the serial share
        share = SERIAL_SHARE
        return LinearSpeed(float(paces[0] * (share + (1 - share) / sizes[0])), share)
    columns = np.stack([np.ones_like(sizes), 1 / sizes], axis=1)
    # An error of 1 / speed gets the weight of an error of the speed itself.
    coefficients = nonnegative_least_squares(columns, 1 / paces[None], paces[None] ** 4)[0]
    serial, parallel = coefficients.tolist()
    return LinearSpeed(1 / (serial + parallel), serial / (serial + parallel))


def nonnegative_least_squares(
    columns: FloatArray, targets: FloatArray, weights: FloatArray
) -> FloatArray:
    """Return coefficients >= 0 that bring ``columns @ coefficients`` nearest to ``targets``.

    Args:
        columns: Shape (points, columns); a handful of columns.
        targets, weights: Shape (fits, points); weights of the squared errors.

    Returns:
        Shape (fits, columns).
    """
    count = columns.shape[1]
    moments = np.einsum("fp,pi,pj->fij", weights, columns, columns)
    products = np.einsum("fp,fp,pi->fi", weights, targets, columns)
    best = np.zeros((len(targets), count))
    gains = np.zeros(len(targets))
    # The best non-negative fit is the free fit on its own columns, so all sets are tried.
    for used in (list(s) for n in range(1, count + 1) for s in combinations(range(count), n)):
        inverse = np.linalg.pinv(moments[:, used][:, :, used], hermitian=True)
        coefficients = np.einsum("fij,fj->fi", inverse, products[:, used])
        # The reduction of the squared error, for the solution of the normal equations.
        gain = np.where(
            (coefficients >= 0).all(axis=1), (coefficients * products[:, used]).sum(axis=1), -1.0
        )
        better = np.flatnonzero(gain > gains)
        gains[better] = gain[better]
        best[better] = 0.0
        best[better[:, None], used] = coefficients[better]
    return best


def _check_points(steps: Sequence[float], losses: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    points, values = np.array(steps, dtype=np.float64), np.array(losses, dtype=np.float64)
    if len(points) != len(values) or len(points) < _MIN_POINTS:
        raise CurveFitError(
            f"there are {len(points)} steps and {len(values)} losses; "
            f"give equally many, at least {_MIN_POINTS}"
        )
    if not (np.diff(points) > 0).all() or points[0] < 0:
        raise CurveFitError("steps must ascend from 0 or more; sort them, each once")
    if not (np.isfinite(values).all() and values.min() >= 0):
        raise CurveFitError(
            "losses must be finite numbers from 0 on; fit 1 - accuracy for accuracies"
        )
    if values[-1] >= values[0]:
        raise CurveFitError("losses do not fall; fit again once they do")
    return points, values
