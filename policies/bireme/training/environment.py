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
from typing import Any, Final, TypeAlias, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from bireme import registry
from bireme.core.cycle import run_cycle
from bireme.core.estimates import RuntimeHistory
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Placer, Policy, Ranked
from bireme.core.resources import ResourceAxis
from bireme.core.running import usage_of
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.simulator.errors import SimulationError
from bireme.simulator.outcome import JobRecord
from bireme.simulator.physics import Physics
from bireme.simulator.simulation import Simulation
from bireme.simulator.state import SimulationState
from bireme.simulator.workload import Trace

# The simulation as a game: at every moment somebody from outside says which waiting gang is next.
#
# Choices of one moment make one order, and the cycle runs over it once, when time goes on. Until
# then
# it is run as a preview after every choice, on the cluster as the moment began: who comes later in
# the order changes nothing for who came before, so what is seen after a choice is what will be.


class Game:
    """One simulation from the first moment at which somebody waits to the last.

    Attributes:
        candidates: Gangs that may still be chosen at this moment, in order of arrival.
        used: What nodes hold once those chosen so far have started, shape (nodes, resources).
        running: How many gangs run then.
        is_over: Whether all jobs are finished, or nothing that waits will ever start.
    """

    def __init__(self, world: SimulationState, placer: Placer) -> None:
        self.world = world
        self._turns = _Turns()
        self._policy = Policy(self._turns, placer)
        self.simulation = Simulation(world, self._policy)
        self._begin_moment()
        self._skip()

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster as this moment began, without those that wait."""
        return self._snapshot

    def choose(self, slot: int) -> float:
        """Let that candidate be next; the hours that jobs then spent until the next choice."""
        self._choose([self.candidates[slot]])
        return self._skip()

    def pass_time(self) -> float:
        """Choose nobody else now; hours as of :meth:`choose`."""
        return self._end_moment() + self._skip()

    def _skip(self) -> float:
        """Let time pass until there is somebody to choose."""
        hours = 0.0
        while not self.candidates and not self.is_over:
            hours += self._end_moment()
        return hours

    def _end_moment(self) -> float:
        began = self.world.now
        if chosen := self._chosen():
            self.simulation.decide_on(chosen)
        jobs = len(self.world.active)
        self.simulation.finish_step()
        self._begin_moment()
        return jobs * (self.world.now - began) / 3600

    def _begin_moment(self) -> None:
        self.is_over = not self.simulation.advance()
        self._turns.by_uid.clear()
        now = self._snapshot = self.world.snapshot(())
        self.used, self.running = now.used, len(now.running)
        self.candidates = []
        if not self.is_over:
            waiting = self.world.waiting.all_gangs()
            self.candidates = sorted(waiting, key=lambda gang: (gang.arrived, gang.uid))
            self._choose([g for g in self.candidates if g.displaced or now.overdue_seconds(g) > 0])

    def _choose(self, gangs: Sequence[Gang]) -> None:
        if not gangs:
            return
        turns = self._turns.by_uid
        turns |= {gang.uid: at for at, gang in enumerate(gangs, len(turns))}
        self.candidates = [gang for gang in self.candidates if gang.uid not in turns]
        self._preview()

    def _preview(self) -> None:
        seen = self.world.snapshot(self._chosen())
        admitted = run_cycle(seen, self._policy, explain=False).admitted
        self.used = self._snapshot.used.copy()
        for action in admitted:
            rows, usage = usage_of(action.gang, action.placement, self._snapshot.nodes.axis)
            np.add.at(self.used, rows, usage)
        self.running = len(self._snapshot.running) + len(admitted)

    def _chosen(self) -> tuple[Gang, ...]:
        waiting, turns = self.world.waiting.all_gangs(), self._turns.by_uid
        return tuple(gang for gang in waiting if gang.uid in turns)


class _Turns:
    """Gangs in the order in which they were chosen; nobody is ever stopped."""

    def __init__(self) -> None:
        self.by_uid: dict[str, int] = {}

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """First chosen first; those that run, of which none was chosen now, last."""
        last = len(self.by_uid)
        turns = [(self.by_uid.get(gang.uid, last), gang.arrived, gang.uid) for gang in gangs]
        order = sorted(range(len(gangs)), key=turns.__getitem__)
        return [Ranked(gangs[at], -float(turns[at][0])) for at in order]


Observation: TypeAlias = dict[str, NDArray[np.float32]]
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
        learns: Whether run times that nobody stated are judged by those of finished jobs.
    """

    def __init__(
        self,
        episodes: Trace | Callable[[int], Trace],
        nodes: Sequence[Node],
        *,
        slots: int = 16,
        placer: str = "packing",
        settings: SchedulingSettings = _SETTINGS,
        physics: Physics = _PHYSICS,
        learns: bool = True,
    ) -> None:
        self._episodes, self._nodes, self._slots = episodes, nodes, slots
        self._placer = registry.make_placer(placer)
        self._settings, self._physics, self._learns = settings, physics, learns
        self._axis = ResourceAxis.of(node.allocatable for node in nodes)
        resources = len(self._axis)
        self._shapes = {
            "demand": (1.0, (slots, resources)),
            "times": (MOST_HOURS, (slots, len(TIMES))),
            "free": (1.0, (len(nodes), resources)),
            "crowd": (1.0, (2,)),
        }
        boxes = {name: spaces.Box(0.0, *limits) for name, limits in self._shapes.items()}
        self.action_space = spaces.Discrete(slots + 1)
        self.observation_space = cast("spaces.Space[Observation]", spaces.Dict({**boxes}))
        self._game: Game | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next trace.

        Raises:
            SimulationError: it has no jobs, or elastic ones, which this environment cannot size.
        """
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31))
        trace = self._episodes if isinstance(self._episodes, Trace) else self._episodes(drawn)
        _check(trace)
        history = RuntimeHistory() if self._learns else None
        world = SimulationState(trace, self._nodes, self._settings, self._physics, drawn, history)
        self._game = Game(world, self._placer)
        return self._seen(self._game), {"action_mask": self._mask(self._game)}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Let the chosen gang be next, or time pass."""
        game = self._playing
        if game.is_over:
            raise ResetNeeded("the episode is over; call reset()")
        mask = self._mask(game)
        slot = int(action) if mask[action] else 0 if not mask[-1] else self._slots
        hours = game.pass_time() if slot == self._slots else game.choose(slot)
        info = {"action_mask": self._mask(game)}
        return self._seen(game), -hours, game.is_over, False, info

    @property
    def records(self) -> tuple[JobRecord, ...]:
        """The life of every job of the episode, in order of submission."""
        return self._playing.simulation.records()

    @property
    def _playing(self) -> Game:
        if self._game is None:
            raise ResetNeeded("there is no episode; call reset()")
        return self._game

    def _mask(self, game: Game) -> NDArray[np.int8]:
        mask = np.zeros(self._slots + 1, np.int8)
        mask[: min(len(game.candidates), self._slots)] = 1
        mask[-1] = not game.candidates or game.running > 0
        return mask

    def _seen(self, game: Game) -> Observation:
        seen = {name: np.zeros(shape, np.float32) for name, (_, shape) in self._shapes.items()}
        snapshot = game.snapshot
        for slot, gang in enumerate(game.candidates[: self._slots]):
            asked = (gang.demand.get(n, 0) / max(snapshot.total[n], 1) for n in self._axis.names)
            seen["demand"][slot] = [min(1.0, share) for share in asked]
            known, wait = gang.estimated_seconds, snapshot.wait_seconds(gang)
            hours = [(known or 0.0) / 3600, known is not None, wait / 3600]
            seen["times"][slot] = np.minimum(hours, MOST_HOURS)
        offered = snapshot.nodes.allocatable
        free = (offered - game.used) / np.maximum(offered, 1)
        seen["free"][:] = np.where(snapshot.nodes.is_ready[:, None], np.clip(free, 0, 1), 0)
        counts = np.array([len(game.candidates), game.running])
        seen["crowd"][:] = counts / len(game.world.jobs)
        return seen


def _check(trace: Trace) -> None:
    if not trace.jobs:
        raise SimulationError(f"trace {trace.name} has no jobs; give the episode at least one")
    for job in trace.jobs:
        if job.is_elastic:
            raise SimulationError(
                f"trace {trace.name}: job {job.name!r} is elastic, but the agent chooses an order "
                "alone; set is_elastic to False"
            )
