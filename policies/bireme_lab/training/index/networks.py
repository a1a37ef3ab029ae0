"""The network of the learned index: the expected remaining service of a gang, in steps.

Run times are heavy-tailed: a gang that has run for long will run for long. So the rest of a gang is
estimated by the smooth maximum of its service and its estimate, times a power of its size:

    whole = w0 + w1 * (log2 estimate - w0) + w2        w0 where it is unknown
    whole = whole - w3                                 in the first five minutes
    left  = smooth max(log2 attained + w4, whole, w5) + w6 * log2 devices
    score = -floor(left / step)

With w1 = 0 and w6 = 1 it is least attained service in many queues (Tiresias, NSDI'19); with w4 of
minus infinity it is the shortest estimate first. It is an index in Gittins' sense: it depends only
on the gang's own state. The floors are the queues of Tiresias: gangs of one step never preempt each
other.
"""

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor

from bireme.core.resources import FloatArray
from bireme.rl.encoders.index import ATTAINED, DEVICES, IS_KNOWN, WHOLE

_SHARPNESS: Final = 2.0
_MIN_STEP: Final = 0.25


START: Final = np.array([12.5, 0.6, -2.0, 2.0, 0.0, 8.5, 0.8, 1.5])
"""The first w0 to w6 and step: a mix of least attained service and the estimate."""
START_SCALES: Final = np.array([1.0, 0.15, 0.7, 1.0, 0.7, 0.7, 0.18, 0.5])
"""Standard deviations of the first draws of the search."""
FIRST_SECONDS: Final = 300.0
"""The trial period of a gang, in which it is not preempted by default."""


class IndexNetwork(torch.nn.Module):
    """Scores, (gangs,), from the inputs of :class:`~bireme.rl.encoders.index.IndexGangs`."""

    values: Tensor

    def __init__(self, values: FloatArray = START) -> None:
        super().__init__()
        self.register_buffer("values", torch.tensor(values, dtype=torch.float32))

    def forward(self, gangs: Tensor) -> Tensor:
        unknown, trust, margin, fresh, tail, minimum, size, step = self.values.unbind()
        stated = unknown + trust.clamp(0.0, 1.0) * (gangs[:, WHOLE] - unknown)
        whole = torch.where(gangs[:, IS_KNOWN] > 0, stated, unknown) + margin
        is_fresh = gangs[:, ATTAINED] < math.log2(FIRST_SECONDS)
        whole = torch.where(is_fresh, whole - fresh.clamp(min=0.0), whole)
        rest = _longer(
            torch.maximum(gangs[:, ATTAINED] + tail, minimum), torch.maximum(whole, minimum)
        )
        cost = rest + size.clamp(min=0.0) * gangs[:, DEVICES]
        return -torch.floor(cost / (_MIN_STEP + torch.nn.functional.softplus(step)))


def _longer(one: Tensor, other: Tensor) -> Tensor:
    """Return the smooth maximum of two logarithms."""
    distance = _SHARPNESS * (one - other).abs()
    return torch.maximum(one, other) + torch.log2(1.0 + torch.exp2(-distance)) / _SHARPNESS
