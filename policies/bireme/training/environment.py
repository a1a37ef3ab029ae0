"""The one simulator as a Gymnasium environment: an agent says which waiting gang is next.

An episode is a trace on nodes. Whenever something happened (a gang came, finished or passed its
wait bound) the agent chooses among the first ``slots`` waiting gangs in order of arrival, or void.
The chosen one goes through the operator's own cycle, with all rails: it starts, or is held. If it
is the first that is held, places are kept for it, and those chosen after it start only where they
do not delay it. Then the agent chooses among the others, until it has chosen all or says void;
then time goes on. Gangs past their wait bound, and those that lost a node, go before any choice.

The reward of a step is minus the hours that jobs spent in the system during it: the number of jobs
that wait or run, times the time that passed, in hours. Over an episode that is minus the sum of all
job completion times (the objective of Decima, Mao et al., SIGCOMM'19, section 5.3).

    action       0 to slots-1: that waiting gang; slots: void
    info         action_mask, int8, shape (slots + 1,): 1 for what may be chosen. Void may not while
                 nothing runs and somebody waits; it then means the first. An empty slot means void.
    terminated   all jobs are finished, or nothing that waits will ever start
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bireme import registry
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Policy, Ranked
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.simulator.engine import Simulation
from bireme.simulator.errors import SimulationError
from bireme.simulator.outcome import JobRecord
from bireme.simulator.physics import Physics
from bireme.simulator.workload import Trace
from bireme.simulator.world import World

Observation = dict[str, NDArray[np.float32]]
TIMES: Final = ("estimated_hours", "is_estimated", "waited_hours")
"""The columns of ``times``."""
MOST_HOURS: Final = 8760.0
_SETTINGS: Final = SchedulingSettings()
_PHYSICS: Final = Physics()


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """Which of the waiting gangs is next.

    Observations are float32; slots without a gang hold zeros:
        ``demand``, (slots, resources): what the gang asks, as shares of the whole cluster.
        ``times``, (slots, 3): see :data:`TIMES`; hours are cut off at a year.
        ``free``, (nodes, resources): shares of each node that nobody holds.
        ``crowd``, (2,): how many gangs wait that the agent may still choose, and how many run,
        each as a share of the jobs of the trace.

    Args:
        episodes: The trace of every episode, or a function that makes one from a seed.
        slots: How many gangs the agent sees.
        placer: Where gangs go; a name of the registry.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own spelling

    def __init__(
        self,
        episodes: Trace | Callable[[int], Trace],
        nodes: Sequence[Node],
        *,
        slots: int = 16,
        placer: str = "packing",
        settings: SchedulingSettings = _SETTINGS,
        physics: Physics = _PHYSICS,
    ) -> None:
        self._make = (lambda _: episodes) if isinstance(episodes, Trace) else episodes
        self._nodes, self._slots, self._placer = nodes, slots, placer
        self._settings, self._physics = settings, physics
        resources = len(World(Trace("", ()), nodes, settings, physics, 0, None).cluster.table.axis.names)
        self.action_space = spaces.Discrete(slots + 1)
        self.observation_space = spaces.Dict(
            {
                "demand": spaces.Box(0, 1, (slots, resources), np.float32),
                "times": spaces.Box(0, MOST_HOURS, (slots, len(TIMES)), np.float32),
                "free": spaces.Box(0, 1, (len(nodes), resources), np.float32),
                "crowd": spaces.Box(0, 1, (2,), np.float32),
            }
        )
