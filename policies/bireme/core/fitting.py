"""Curves fitted to the losses and speeds a job has reported, by least squares in numpy alone.

Once its asymptote ``d`` is known, a loss curve is a straight line in what remains:
``1 / (loss - d)`` is linear in the steps. So many asymptotes are tried, ever closer to the best;
for each, the coefficients come from one weighted linear fit (the weights undo what the
transformation does to small errors), and the squared error in the loss itself decides.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from bireme.core.curves import InverseQuadratic
from bireme.core.errors import BiremeError
from bireme.core.resources import FloatArray
from bireme.core.speed import LinearSpeed

_TRIALS = 32
_ROUNDS = 4
_LEAST_POINTS = 4
"""One more than Optimus' curve has coefficients."""


SLOWEST, FASTEST = 1e-9, 1e15
"""Steps a second: what is slower or faster is no training, and its fourth power no number."""
SERIAL_SHARE = 0.1
"""What part of a step more replicas do not shorten, for a job seen at one size: an assumption."""


class FitError(BiremeError, ValueError):
    """No curve can be fitted to these losses; the text says why, and the remedy."""


def fit_loss(steps: Sequence[float], losses: Sequence[float]) -> InverseQuadratic:
    """The curve of Optimus, ``1 / (b k + c) + d``, nearest to ``losses`` after so many steps ``k``.

    Args:
        steps: Shape (points,), ascending.
        losses: Shape (points,), at least 0.

    Raises:
        FitError: Fewer than four points, or losses that do not fall.
    """
    points, values = _checked(steps, losses)
    scale = points[-1]
    line = np.stack([np.ones_like(points), points / scale], axis=1)
    low = 1e-3 * float(np.ptp(values))
    # A loss is never negative, nor is what it tends to: only a last loss near 0 allows a little.
    high = max(float(values.min()), 2 * low)
    for _ in range(_ROUNDS):
        gaps = np.geomspace(low, high, _TRIALS)
        asymptotes = values.min() - gaps
        rest = values - asymptotes[:, None]
        found = nonnegative_least_squares(line, 1 / rest, rest**4)
        with np.errstate(divide="ignore"):
            fitted = 1 / (found @ line.T) + asymptotes[:, None]
        best = int(np.nanargmin(((fitted - values) ** 2).sum(axis=1)))
        low, high = gaps[max(best - 1, 0)], gaps[min(best + 1, _TRIALS - 1)]
    c, b = found[best]
    return InverseQuadratic(0.0, float(b / scale), float(c), float(asymptotes[best]))


def fit_speed(speeds: Mapping[int, float]) -> LinearSpeed:
    """The law ``1 / speed = a + b / replicas`` with ``a, b`` >= 0 nearest to measured speeds.

    That is Amdahl's (AFIPS 1967): ``a / (a + b)`` is the serial share. One size alone does not
    tell it; :data:`SERIAL_SHARE` is taken.

    Args:
        speeds: Steps a second, ``SLOWEST`` to ``FASTEST``, by number of replicas; at least one.

    Raises:
        FitError: None is given, or one that is slower or faster, or of no replicas.
    """
    sizes = np.array(list(speeds), dtype=np.float64)
    paces = np.array(list(speeds.values()), dtype=np.float64)
    is_sound = (sizes >= 1).all() and (paces >= SLOWEST).all() and (paces <= FASTEST).all()
    if not (len(speeds) and is_sound):
        raise FitError(
            f"speeds are {dict(speeds)}; give at least one, from {SLOWEST} to {FASTEST} steps a"
            " second, each by a number of replicas"
        )
    if len(speeds) == 1:
        share = SERIAL_SHARE
        return LinearSpeed(float(paces[0] * (share + (1 - share) / sizes[0])), share)
    columns = np.stack([np.ones_like(sizes), 1 / sizes], axis=1)
    # An error of 1 / speed weighs as much as the speed's own.
    found = nonnegative_least_squares(columns, 1 / paces[None], paces[None] ** 4)[0]
    serial, parallel = found.tolist()
    return LinearSpeed(1 / (serial + parallel), serial / (serial + parallel))


def nonnegative_least_squares(
    columns: FloatArray, targets: FloatArray, weights: FloatArray
) -> FloatArray:
    """Coefficients >= 0 that bring ``columns @ coefficients`` nearest to each row of ``targets``.

    Exact: the best non-negative fit is the free fit on the columns it uses, so that all sets of
    columns are tried. Meant for a handful of columns.

    Args:
        columns: Shape (points, columns).
        targets, weights: Shape (fits, points); weights of the squared errors.

    Returns:
        Shape (fits, columns).
    """
    count = columns.shape[1]
    moments = np.einsum("fp,pi,pj->fij", weights, columns, columns)
    products = np.einsum("fp,fp,pi->fi", weights, targets, columns)
    best = np.zeros((len(targets), count))
    gains = np.zeros(len(targets))
    for used in (list(s) for n in range(1, count + 1) for s in combinations(range(count), n)):
        inverse = np.linalg.pinv(moments[:, used][:, :, used], hermitian=True)
        found = np.einsum("fij,fj->fi", inverse, products[:, used])
        # What the fit takes off the squared error, for the solution of the normal equations.
        gain = np.where((found >= 0).all(axis=1), (found * products[:, used]).sum(axis=1), -1.0)
        better = np.flatnonzero(gain > gains)
        gains[better] = gain[better]
        best[better] = 0.0
        best[better[:, None], used] = found[better]
    return best


def _checked(steps: Sequence[float], losses: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    points, values = np.array(steps, dtype=np.float64), np.array(losses, dtype=np.float64)
    if len(points) != len(values) or len(points) < _LEAST_POINTS:
        raise FitError(
            f"there are {len(points)} steps and {len(values)} losses; "
            f"give equally many, at least {_LEAST_POINTS}"
        )
    if not (np.diff(points) > 0).all() or points[0] < 0:
        raise FitError("steps must ascend from 0 or more; sort them, each once")
    if not (np.isfinite(values).all() and values.min() >= 0):
        raise FitError("losses must be finite numbers from 0 on; fit 1 - accuracy for accuracies")
    if values[-1] >= values[0]:
        raise FitError("losses do not fall; fit again once they do")
    return points, values
