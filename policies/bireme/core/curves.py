"""How good a model is after so many steps: fitted curves and measured ones.

The sublinear family of SLAQ (Zhang et al., SoCC 2017, section 4), of which that of Optimus (Peng et
al., EuroSys 2018, section 3.1) is the one with ``a = 0``; loss after ``k`` steps:

    1 / (a k^2 + b k + c) + d

All answer :class:`~bireme.core.speed.LossCurve`.
"""

from dataclasses import dataclass
from math import inf

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
