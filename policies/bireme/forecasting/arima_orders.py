"""What an ARIMA with Fourier terms and a seasonal lag is, apart from its parameters.

    (1 - phi B^s) z_t = m_t + u_t

with B the step back, ``m_t`` a constant and Fourier terms of the seasons, and ``u_t`` ARIMA(p, d,
q). The seasonal lag lets the shape of a day follow that of the last one, which terms of fixed
weight cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bireme.core.resources import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Orders:
    """One ARIMA with Fourier terms.

    Attributes:
        arma: p, d and q.
        season: Steps of the seasonal lag; 0 without one.
        phi: Its weight; 0 without one.
        frequencies: Of the Fourier terms, per step.
    """

    arma: tuple[int, int, int]
    season: int = 0
    phi: float = 0.0
    frequencies: tuple[float, ...] = ()

    def without_season(self, z: FloatArray) -> FloatArray:
        """``z_t - phi z_(t - season)``, ``season`` values shorter."""
        return z[self.season :] - self.phi * z[: len(z) - self.season]

    def with_season(self, ahead: FloatArray, z: FloatArray, origins: IntArray) -> FloatArray:
        """Forecasts of ``z`` from those of what :meth:`without_season` makes of it.

        Args:
            ahead: Those forecasts, shape (origins, steps).
            z: What is known, and perhaps more.
            origins: In ``z``.
        """
        if not self.season:
            return ahead
        whole = ahead.copy()
        for begin in range(0, ahead.shape[1], self.season):
            # A season at a time: each leans on the one before, known or just forecast.
            block = whole[:, begin : begin + self.season]
            if begin:
                before = whole[:, begin - self.season : begin][:, : block.shape[1]]
            else:
                before = z[origins[:, None] - self.season + np.arange(block.shape[1])]
            block += self.phi * before
        return whole


def terms(begin: int, end: int, frequencies: Sequence[float]) -> FloatArray:
    """1, then cosine and sine of each frequency, at steps ``begin`` to ``end`` (not included).

    Shape (end - begin, 1 + 2 * frequencies).
    """
    angles = 2 * np.pi * np.outer(np.arange(begin, end), frequencies)
    waves = np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(end - begin, -1)
    return np.column_stack([np.ones(end - begin), waves])
