"""How a simulation goes about its work: when it looks, when it ends, what it may leave out."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot

Decide: TypeAlias = Callable[[ClusterSnapshot, Policy], Decision]
CYCLE: Final[Decide] = partial(run_cycle, explain=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a simulation goes about its work; nothing about the cluster or the policy.

    Attributes:
        heartbeat_seconds: While time alone may change a decision (a gang waits that may stop
            others, or a sizer looks after elastic ones), the cycle runs so long after the last
            event, and then after twice as long each time, until something happens again. The
            operator looks every few seconds.
        round_seconds: Decisions fall on multiples of it, as in schedulers that look at the cluster
            once a minute, and on every one while time alone may change them; 0 for at once.
        until_seconds: The simulation is cut off after this moment.
        takes_shortcuts: Whether cycles that cannot change anything are left out, and gangs that
            cannot change a cycle are left out of it (:mod:`bireme.simulator.lines`).
        verifies: Whether usage is recomputed and compared after every moment; for tests.
        decide: The scheduling cycle, or what a comparison puts in its place.
        clock: Where processor seconds are read; for ``decision_seconds`` alone.
    """

    heartbeat_seconds: float = 60.0
    round_seconds: float = 0.0
    until_seconds: float = math.inf
    takes_shortcuts: bool = True
    verifies: bool = False
    decide: Decide = CYCLE
    clock: Callable[[], float] = time.perf_counter


CONDUCT: Final = Conduct()
"""A simulation that looks when something happens, and leaves out what changes nothing."""
