"""The simulation as a game: at every moment somebody from outside says which waiting gang is next.

Choices of one moment make one order, and the cycle runs over it once, when time goes on. Until then
it is run as a preview after every choice, on the cluster as the moment began: who comes later in
the order changes nothing for who came before, so what is seen after a choice is what will be.
"""

from collections.abc import Sequence

import numpy as np

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.policy import Placer, Policy, Ranked
from bireme.core.running import usage_of
from bireme.core.snapshot import ClusterSnapshot
from bireme.simulator.simulation import Simulation
from bireme.simulator.world import World


class Game:
    """One simulation from the first moment at which somebody waits to the last.

    Attributes:
        candidates: Gangs that may still be chosen at this moment, in order of arrival.
        used: What nodes hold once those chosen so far have started, shape (nodes, resources).
        running: How many gangs run then.
        is_over: Whether all jobs are finished, or nothing that waits will ever start.
    """

    def __init__(self, world: World, placer: Placer) -> None:
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
        jobs = len(self.world.lives)
        self.simulation.settle()
        self._begin_moment()
        return jobs * (self.world.now - began) / 3600

    def _begin_moment(self) -> None:
        self.is_over = not self.simulation.advance()
        self._turns.by_uid.clear()
        now = self._snapshot = self.world.snapshot(())
        self.used, self.running = now.used, len(now.running)
        self.candidates = []
        if not self.is_over:
            waiting = self.world.waiting.everyone()
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
        waiting, turns = self.world.waiting.everyone(), self._turns.by_uid
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
