"""How good a model is after so many steps: fitted curves and measured ones.

The sublinear family of SLAQ (Zhang et al., SoCC 2017, section 4), of which that of Optimus (Peng et
al., EuroSys 2018, section 3.1) is the one with ``a = 0``; loss after ``k`` steps:

    1 / (a k^2 + b k + c) + d

All answer :class:`~bireme.core.speed.LossCurve`. :func:`steps_to` turns a curve round: the steps
until a target is met, which is what TRADL and Optimus ask.
"""

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from bireme.core.errors import SettingError


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
        """Loss after ``steps`` steps."""
        below = (self.a * steps + self.b) * steps + self.c
        return (1 / below if below else inf) + self.d

    def steps_to(self, loss: float) -> float:
        """Steps until ``loss`` is reached; infinite when it never is."""
        if loss <= self.d:
            return inf
        short = 1 / (loss - self.d) - self.c
        if short <= 0:
            return 0.0
        if self.a == 0:
            return short / self.b if self.b else inf
        # The form that does not cancel when a is small.
        return 2 * short / (self.b + sqrt(self.b**2 + 4 * self.a * short))


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """Values seen after ``steps``, ascending; straight lines between them, level outside.

    The values may rise (accuracy) or fall (loss, error rate), and need not do so smoothly.
    """

    steps: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.steps or len(self.steps) != len(self.values):
            raise SettingError(
                f"steps has {len(self.steps)} entries and values {len(self.values)}; "
                "give equally many, at least one"
            )
        if any(late <= early for early, late in zip(self.steps, self.steps[1:], strict=False)):
            raise SettingError(f"steps is {self.steps}; it must ascend")

    def loss(self, steps: float) -> float:
        """The value after ``steps`` steps."""
        return float(np.interp(steps, self.steps, self.values))

    def steps_to(self, value: float) -> float:
        """Steps until ``value`` is first met, from the first value on; infinite if never."""
        rest = np.array(self.values) - value
        if self.values[-1] > self.values[0]:
            rest = -rest
        met = int(np.argmax(rest <= 0))
        if rest[met] > 0:
            return inf
        if met == 0:
            return self.steps[0]
        share = rest[met - 1] / (rest[met - 1] - rest[met])
        return float(self.steps[met - 1] + share * (self.steps[met] - self.steps[met - 1]))
