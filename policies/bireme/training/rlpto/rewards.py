"""What a period is worth: the paper's reward, and the one that training goes by.

Equation (5), over all running tasks:

    gain + sign(gain - beta) * T * w * kw

gain: what the period added to the accuracy; T: its length, in minutes (in seconds the second term
dwarfs the first, and the paper states no unit); w: the workers; kw = 0.000625. The sign looks at
the gain per iteration, which is what beta bounds. While a task gains, this pays for every minute
of every worker, so that slow pays too, and a policy that maximises it is slow.

:func:`priced` is how good tasks have become, less what the time was worth, both in betas: who names
a larger beta means that time is worth more. It is paid when a task ends, beside what it had where
its gain fell to beta; paid as it comes, the great gains of early iterations, which every task
makes, would hide what a move did.

Lu et al., "RLPTO", IEEE TPDS 2023, section VI.B.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bireme.core.resources import FloatArray, IntArray

POWER: Final = 0.000625
"""kw: mean power of a worker in a period."""
RUN_PRICE: Final = 3.0
TASK_PRICE: Final = 0.5
"""What a minute costs, in betas: once for the whole run, and once for every task not yet done. From
one beta to the next the simple rule gives up 2.4 to 3.4 betas of accuracy, added up over the twelve
tasks, for every minute that it saves; with more than that, time is what is looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Period:
    """What happened in one.

    Attributes:
        added: To the accuracy of each task, shape (worlds, tasks).
        gain: The same per iteration, shape (worlds, tasks).
        nodes: Workers of each task, shape (worlds, tasks).
        minutes: Its length, shape (worlds,).
        left: Tasks that were not done when it began, shape (worlds,).
        results: Accuracy of each task that ended in it, over what it had where an iteration brought
            beta; 0 for others; shape (worlds, tasks).
        beta: The least gain, shape (worlds,).
    """

    added: FloatArray
    gain: FloatArray
    nodes: IntArray
    minutes: FloatArray
    left: IntArray
    results: FloatArray
    beta: FloatArray


Reward: TypeAlias = Callable[[Period], FloatArray]
"""Of a period, shape (worlds,)."""


def equation_5(period: Period) -> FloatArray:
    """The paper's, summed over tasks."""
    sign = np.sign(period.gain - period.beta[:, None])
    spent = sign * period.minutes[:, None] * period.nodes * POWER
    return np.asarray((period.added + spent).sum(axis=1))


def priced(period: Period) -> FloatArray:
    """What came of the tasks, less what the time was worth, in betas."""
    price = (RUN_PRICE + TASK_PRICE * period.left) * period.minutes
    return np.asarray(period.results.sum(axis=1) / period.beta - price)
