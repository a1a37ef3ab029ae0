"""The simulator as a Gymnasium environment: an agent chooses the next waiting gang.

An episode is a trace on nodes. After every event (a gang came, finished or passed its wait bound)
the agent chooses among the first ``slots`` waiting gangs in order of arrival, or void. The chosen
gang goes through the operator's own cycle, with all guardrails: it starts, or is held. The first
held gang gets a reservation; gangs chosen after it start only if they do not delay it. Then the
agent chooses among the others, until it has chosen all or void. Then time passes. Gangs past their
wait bound, and gangs that lost a node, go before any choice.

The reward of a step is minus the hours that jobs spent in the system during it: the number of
waiting and running jobs times the elapsed hours. Over an episode that is minus the sum of all job
completion times (the objective of Decima, Mao et al., SIGCOMM'19, section 5.3).

    action       0 to slots-1: that waiting gang; slots: void
    info         action_mask, int8, shape (slots + 1,): 1 for an allowed choice. Void is forbidden
                 while no gang runs and a gang waits; it then means the first gang. An empty slot
                 means void.
    terminated   all jobs are finished, or no waiting gang will ever start
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from bireme import registry
from bireme.core.canary import PolicySet
from bireme.core.cycle import run_cycle
from bireme.core.estimates import RuntimeHistory
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.obstacles import start_obstacle
from bireme.core.overdue import OverdueLine
from bireme.core.placement import usage_of
from bireme.core.policy import Placer, Policy, Ranked
from bireme.core.queue_tree import QueueTree
from bireme.core.resources import ResourceAxis
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.outcome import JobRecord
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.simulation import Simulation
from bireme_lab.simulator.state import SimulationState
from bireme_lab.simulator.workload import Trace


class _TurnBasedSimulation:
    """One simulation, played choice by choice from the first moment with a waiting gang.

    The choices of one moment make one order. The cycle runs over it once, when time passes.

    Attributes:
        snapshot: The cluster at the begin of this moment, without waiting gangs.
        candidates: Gangs that may still be chosen at this moment, in order of arrival.
        used: Usage after the start of the gangs chosen so far, shape (nodes, resources).
        running: The number of running gangs after these starts.
        is_over: Whether all jobs are finished, or no waiting gang will ever start.
    """

    def __init__(self, state: SimulationState, placer: Placer) -> None:
        self.state = state
        self._order = _ChosenOrder()
        self._policy = Policy(self._order, placer)
        self.simulation = Simulation(state, self._policy)
        self._begin_moment()
        self._skip()

    def choose(self, slot: int) -> float:
        """Choose the candidate ``slot``; return the hours that jobs spent until the next choice."""
        self._choose([self.candidates[slot]])
        return self._skip()

    def pass_time(self) -> float:
        """End the choices of this moment; return hours as :meth:`choose` does."""
        return self._end_moment() + self._skip()

    def _skip(self) -> float:
        """Let time pass until a gang can be chosen."""
        hours = 0.0
        while not self.candidates and not self.is_over:
            hours += self._end_moment()
        return hours

    def _end_moment(self) -> float:
        began = self.state.now
        if gangs := self._selection():
            self.simulation.decide_on(gangs)
        jobs = len(self.state.active)
        self.simulation.finish_step()
        self._begin_moment()
        return jobs * (self.state.now - began) / 3600

    def _begin_moment(self) -> None:
        self.is_over = not self.simulation.advance()
        self._order.by_uid.clear()
        now = self.snapshot = self.state.snapshot(())
        self.used, self.running = now.used, len(now.running)
        self.candidates = []
        if not self.is_over:
            waiting = self.state.waiting.all_gangs()
            self.candidates = sorted(waiting, key=lambda gang: (gang.arrived, gang.uid))
            # The cycle takes these gangs first in any order, so the agent cannot choose them.
            queues = QueueTree(now.queues, now.queue_usage, now.total, now.nodes.accelerators)
            obstacle = partial(
                start_obstacle, snapshot=now, queues=queues, placer=PolicySet(self._policy, now)
            )
            overdue = OverdueLine(now, self.candidates, queues, obstacle).waiting
            self._choose([g for g in self.candidates if g.displaced or g.uid in overdue])

    def _choose(self, gangs: Sequence[Gang]) -> None:
        if not gangs:
            return
        turns = self._order.by_uid
        turns |= {gang.uid: index for index, gang in enumerate(gangs, len(turns))}
        self.candidates = [gang for gang in self.candidates if gang.uid not in turns]
        # A preview on the cluster at the begin of the moment. It is exact, because later choices
        # change nothing for earlier ones.
        snapshot = self.state.snapshot(self._selection())
        admitted = run_cycle(snapshot, self._policy, explain=False).admitted
        self.used = self.snapshot.used.copy()
        for action in admitted:
            rows, usage = usage_of(action.gang, action.placement, self.snapshot.nodes.axis)
            np.add.at(self.used, rows, usage)  # a gang may have several replicas on a node
        self.running = len(self.snapshot.running) + len(admitted)

    def _selection(self) -> tuple[Gang, ...]:
        waiting, turns = self.state.waiting.all_gangs(), self._order.by_uid
        return tuple(gang for gang in waiting if gang.uid in turns)


class _ChosenOrder:
    """Orderer of gangs in the order of their choice, without preemption."""

    def __init__(self) -> None:
        self.by_uid: dict[str, int] = {}

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        """Order chosen gangs first to last, then running gangs."""
        last = len(self.by_uid)
        turns = [(self.by_uid.get(gang.uid, last), gang.arrived, gang.uid) for gang in gangs]
        order = sorted(range(len(gangs)), key=turns.__getitem__)
        return [Ranked(gangs[index], -float(turns[index][0])) for index in order]


Observation: TypeAlias = dict[str, NDArray[np.float32]]
TIMES: Final = ("estimated_hours", "is_estimated", "waited_hours")
"""The columns of ``times``."""
MAX_HOURS: Final = 8760.0
_SETTINGS: Final = SchedulingSettings()
_PHYSICS: Final = Physics()


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """Gymnasium environment; the action is the next waiting gang.

    It is for users' agents; Bireme's recipes train in batches (:mod:`bireme_lab.training.vec_env`).

    Observations are float32; slots without a gang are zeros:
        ``demand``, (slots, resources): the gang's request, as shares of the whole cluster.
        ``times``, (slots, 3): see :data:`TIMES`; hours are capped at a year.
        ``free``, (nodes, resources): free shares of each node.
        ``crowd``, (2,): the number of gangs that the agent may still choose, and of running gangs,
        each as a share of the jobs of the trace.

    Args:
        episodes: The trace of every episode, or a function that makes one from a seed.
        slots: The number of gangs that the agent sees.
        placer: A placer's name in the registry.
        learns: Whether finished jobs give estimates for run times that no owner stated.
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
            "times": (MAX_HOURS, (slots, len(TIMES))),
            "free": (1.0, (len(nodes), resources)),
            "crowd": (1.0, (2,)),
        }
        boxes = {name: spaces.Box(0.0, *limits) for name, limits in self._shapes.items()}
        self.action_space = spaces.Discrete(slots + 1)
        self.observation_space = cast("spaces.Space[Observation]", spaces.Dict({**boxes}))
        self._simulation: _TurnBasedSimulation | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next trace.

        Raises:
            SimulationError: the trace has no jobs, or elastic jobs, which this environment cannot
                size.
        """
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(2**31))
        trace = (
            self._episodes if isinstance(self._episodes, Trace) else self._episodes(episode_seed)
        )
        _check(trace)
        history = RuntimeHistory() if self._learns else None
        state = SimulationState(
            trace, self._nodes, self._settings, self._physics, episode_seed, history
        )
        self._simulation = _TurnBasedSimulation(state, self._placer)
        return self._observe(self._simulation), {"action_mask": self._mask(self._simulation)}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Choose the next gang, or let time pass."""
        play = self._playing
        if play.is_over:
            raise ResetNeeded("the episode is over; call reset()")
        mask = self._mask(play)
        slot = int(action) if mask[action] else 0 if not mask[-1] else self._slots
        hours = play.pass_time() if slot == self._slots else play.choose(slot)
        info = {"action_mask": self._mask(play)}
        return self._observe(play), -hours, play.is_over, False, info

    @property
    def records(self) -> tuple[JobRecord, ...]:
        """The records of all jobs of the episode, in order of submission."""
        return self._playing.simulation.records()

    @property
    def _playing(self) -> _TurnBasedSimulation:
        if self._simulation is None:
            raise ResetNeeded("there is no episode; call reset()")
        return self._simulation

    def _mask(self, play: _TurnBasedSimulation) -> NDArray[np.int8]:
        mask = np.zeros(self._slots + 1, np.int8)
        mask[: min(len(play.candidates), self._slots)] = 1
        mask[-1] = not play.candidates or play.running > 0
        return mask

    def _observe(self, play: _TurnBasedSimulation) -> Observation:
        observation = {
            name: np.zeros(shape, np.float32) for name, (_, shape) in self._shapes.items()
        }
        snapshot = play.snapshot
        for slot, gang in enumerate(play.candidates[: self._slots]):
            shares = (gang.demand.get(n, 0) / max(snapshot.total[n], 1) for n in self._axis.names)
            observation["demand"][slot] = [min(1.0, share) for share in shares]
            estimate, wait = gang.estimated_seconds, snapshot.wait_seconds(gang)
            hours = [(estimate or 0.0) / 3600, estimate is not None, wait / 3600]
            observation["times"][slot] = np.minimum(hours, MAX_HOURS)
        offered = snapshot.nodes.allocatable
        free = (offered - play.used) / np.maximum(offered, 1)
        observation["free"][:] = np.where(snapshot.nodes.accepts[:, None], np.clip(free, 0, 1), 0)
        counts = np.array([len(play.candidates), play.running])
        observation["crowd"][:] = counts / len(play.state.jobs)
        return observation


def _check(trace: Trace) -> None:
    if not trace.jobs:
        raise SimulationError(f"trace {trace.name} has no jobs; give the episode at least one")
    for job in trace.jobs:
        if job.is_elastic:
            raise SimulationError(
                f"trace {trace.name}: job {job.name!r} is elastic, but the agent chooses an order "
                "alone; set is_elastic to False"
            )
