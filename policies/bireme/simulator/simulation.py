"""The simulation: events move the clock, the scheduling cycle decides, and this carries it out.

The cycle is :func:`bireme.core.cycle.run_cycle`, the very code of the operator; nothing here
decides. At every moment at which something happens:

    1. Hear all events of that moment: gangs finish, nodes go and come, jobs arrive.
    2. Run the cycle and do what it says. Where gangs made room, or an elastic one started, run it
       again at the same moment, until it changes nothing more.
    3. Write down what the cluster holds, and when to look again.

Deterministic: time is exact, ties have one order (:mod:`bireme.simulator.events`), and chance
comes from the seed and the names of jobs and nodes alone.
"""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Hold, Preempt, Resize
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.simulator.arrivals import Estimator
from bireme.simulator.equivalence import FIRST_DEPTH, may_thin
from bireme.simulator.errors import SimulationError
from bireme.simulator.events import Kind
from bireme.simulator.node_pools import NodePool
from bireme.simulator.outcome import JobRecord, Outcome, Recorder
from bireme.simulator.physics import Physics
from bireme.simulator.state import World
from bireme.simulator.workload import Trace

# How a simulation goes about its work: when it looks, when it ends, what it may leave out.

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
            cannot change a cycle are left out of it (:mod:`bireme.simulator.equivalence`).
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


Progress = Callable[[int, int], None]
"""Told now and then how many jobs are finished, and how many there are."""

MOST_ROUNDS = 1000
"""Cycles at one moment: all but the last stop, shrink or start somebody, so more are a loop."""

PROMISE_TOLERANCE_SECONDS = 1e-6

COUNTED = (
    "cycles",
    "admissions",
    "backfills",
    "preemptions",
    "shrinks",
    "growths",
    "reservations",
    "reservations_honoured",
    "fallbacks",
)
"""Everything that is counted, in the order in which an outcome lists it."""


class Simulation:
    """One run of :mod:`bireme.simulator.simulation`; or, to decide from outside, step by step.

    While ``advance()``: ``decide_on(some)``, as often as one likes, then ``settle()``.
    """

    def __init__(
        self,
        world: World,
        policy: Policy,
        conduct: Conduct = CONDUCT,
        on_progress: Progress | None = None,
    ) -> None:
        self.world = world
        self.counts = dict.fromkeys(COUNTED, 0)
        self.decision_seconds = 0.0
        self.recorder = Recorder(3)
        self._policy = policy
        self._conduct = conduct
        self._on_progress = on_progress
        self._last = Decision()
        self._beat = math.inf
        self._pause = conduct.heartbeat_seconds
        self._told = 0
        self._recorded = -1
        self._is_stuck = self._is_news = False
        self._before = 0
        self._thins = conduct.takes_shortcuts and may_thin(policy, world.cluster.queues)

    def run(self) -> None:
        """From the first event to the last, or until every job is finished."""
        while self.advance():
            self._decide()
            self.settle()

    def advance(self) -> bool:
        """Let time pass until a decision is due; False when none will be."""
        world, events = self.world, self.world.events
        self._is_news = False
        while (events or self._is_news) and len(world.records) < len(world.jobs):
            moment = min(events.next_time, self._beat)
            if moment > self._conduct.until_seconds:
                world.now = self._conduct.until_seconds
                return False
            world.now = moment
            self._before = world.cluster.changes
            self._is_news |= self._hear_all(moment)
            if self._is_news:
                self._beat = min(self._beat, self._round_from(moment))
            if moment == self._beat:
                return True
        return False

    def decide_on(self, waiting: tuple[Gang, ...]) -> None:
        """One cycle that sees only ``waiting`` of those that wait, carried out."""
        self._carry_out(self._ask(waiting))

    def settle(self) -> None:
        """What was due is decided: write down what the cluster holds, and when to look again."""
        self._take_stock()
        self._set_beat(self._is_news or self.world.cluster.changes != self._before)

    def _round_from(self, moment: float) -> float:
        """When what is heard at ``moment`` is decided on."""
        seconds = self._conduct.round_seconds
        return math.ceil(moment / seconds) * seconds if seconds else moment

    def _hear_all(self, moment: float) -> bool:
        """Let everything happen that happens at ``moment``; whether any of it can matter."""
        something = False
        while self.world.events.next_time == moment:
            event = self.world.events.pop()
            if self.world.hear(event):
                something = True
                self._is_stuck &= event.kind not in (Kind.ARRIVAL, Kind.NODE)
        return something

    def records(self) -> tuple[JobRecord, ...]:
        """The life of every job, in order of submission; of unfinished ones until now."""
        return self.world.all_records(self.world.waiting.verdicts(self._last))

    def _decide(self) -> None:
        for _ in range(MOST_ROUNDS):
            if self._conduct.takes_shortcuts and self._is_quiet():
                return
            decision = self._cycle()
            if not self._carry_out(decision):
                return
        raise SimulationError(
            f"at {self.world.now} s the policy made room {MOST_ROUNDS} times and did not stop"
        )

    def _is_quiet(self) -> bool:
        """Whether no cycle could do anything.

        Room is made and admissions are granted only to those who wait, and what never fits the
        present nodes will not, whatever else happens. Sizes change only of elastic gangs.
        """
        return not self.world.elastic and (not self.world.waiting or self._is_stuck)

    def _cycle(self) -> Decision:
        """One decision over all that wait."""
        lines = self.world.waiting
        depths: dict[Hashable, int] = {}
        decision = self._ask(lines.fronts(depths) if self._thins else lines.everyone())
        while self._thins and (open_lines := lines.open_lines(decision, depths)):
            for kin in open_lines:
                depths[kin] = depths.get(kin, FIRST_DEPTH) * 4
            decision = self._ask(lines.fronts(depths))
        return decision

    def _ask(self, waiting: tuple[Gang, ...]) -> Decision:
        snapshot = self.world.snapshot(waiting)
        began = self._conduct.clock()
        decision = self._conduct.decide(snapshot, self._policy)
        self.decision_seconds += self._conduct.clock() - began
        return decision

    def _carry_out(self, decision: Decision) -> bool:
        """Do what was decided; whether the cycle has to look again at the same moment."""
        self.counts["cycles"] += 1
        self.counts["fallbacks"] += bool(decision.fallback)
        self._last = decision
        look_again = False
        self._is_stuck = True
        for action in decision.actions:
            if isinstance(action, Hold):
                self._is_stuck &= action.reason.is_configuration_fault
                if action.reservation is not None:
                    self._promise(action, action.reservation.start)
            elif isinstance(action, Admit):
                look_again |= self._admit(action)
            elif isinstance(action, Preempt):
                self.counts["preemptions"] += 1
                self.world.stop(action.running.gang.uid, "preempted")
                self._is_stuck, look_again = False, True
            else:
                look_again |= self._resize(action)
        return look_again

    def _admit(self, action: Admit) -> bool:
        """Start a gang; whether it is elastic and may grow at once."""
        life, now = self.world.start(action), self.world.now
        self.counts["admissions"] += 1
        self.counts["backfills"] += action.passed is not None
        promised = life.reserved_start if life.is_promised else None
        life.is_promised = False
        if promised is not None and now <= promised + PROMISE_TOLERANCE_SECONDS:
            self.counts["reservations_honoured"] += 1
        return life.gang.is_elastic

    def _resize(self, action: Resize) -> bool:
        """Change a gang's size; whether that made room."""
        is_smaller = action.reason is Reason.SHRUNK
        self.counts["shrinks" if is_smaller else "growths"] += 1
        self.world.resize(action)
        return is_smaller

    def _promise(self, hold: Hold, start: float) -> None:
        """A gang's first reservation is a promise, unless it hangs on run times nobody knows.

        Places that others are about to be stopped for are no forecast, and not counted.
        """
        life = self.world.lives[hold.gang.uid]
        is_forecast = hold.reason is not Reason.WAITING_FOR_PREEMPTION
        if is_forecast and life.reserved_start is None:
            life.reserved_start = start
            life.is_promised = not self.world.unforeseen
            self.counts["reservations"] += life.is_promised

    # --- after a moment -------------------------------------------------------------------

    def _take_stock(self) -> None:
        world, cluster = self.world, self.world.cluster
        if cluster.changes != self._recorded:
            self._recorded = cluster.changes
            self._gpus = cluster.gpu_use()
        self.recorder.record(world.now, self._gpus[0], len(world.waiting), self._gpus[1])
        if world.pools:
            world.pools.settle(cluster.snapshot(world.now, world.waiting.everyone()), self._last)
        if self._conduct.verifies:
            cluster.verify()
        done = len(world.records)
        if self._on_progress is not None and done - self._told >= len(world.jobs) / 200:
            self._told = done
            self._on_progress(done, len(world.jobs))

    def _set_beat(self, is_news: bool) -> None:
        """When to look again though nothing happens: ever later while that changes nothing."""
        conduct = self._conduct
        self._pause = conduct.heartbeat_seconds if is_news else 2 * self._pause
        pause = conduct.round_seconds or self._pause
        self._beat = self.world.now + pause if self._is_restless() else math.inf

    def _is_restless(self) -> bool:
        """Whether time alone may change a decision: who may stop whom, or what a sizer wants."""
        world = self.world
        if world.elastic and self._policy.sizer is not None:
            return True
        may_stop = world.settings.preemption and world.waiting and world.cluster.running
        return bool(may_stop) and self._may_stop_others()

    def _may_stop_others(self) -> bool:
        """Whether those that wait have a claim at all; many orderers never stop anybody."""
        holds = (action for action in self._last.actions if isinstance(action, Hold))
        ranked = next((hold.ranked for hold in holds if hold.ranked is not None), None)
        return ranked is not None and ranked.claim is not None


# A workload on a cluster under a policy, from the first event to the last: one call.
#
# How that goes is :mod:`bireme.simulator.simulation`.

_SETTINGS = SchedulingSettings()
_PHYSICS = Physics()


def simulate(
    trace: Trace,
    nodes: Sequence[Node],
    policy: Policy,
    settings: SchedulingSettings = _SETTINGS,
    *,
    physics: Physics = _PHYSICS,
    seed: int = 0,
    on_progress: Progress | None = None,
    estimator: Estimator | None = None,
    conduct: Conduct = CONDUCT,
    pools: Sequence[NodePool] = (),
) -> Outcome:
    """What becomes of ``trace`` on ``nodes`` under ``policy``.

    Nodes of ``pools`` come and go; all others are always there.

    The outcome names the policy by its classes; whoever knows a better name may replace it.
    Raises TraceError for a job that makes no sense, and SimulationError without nodes or when a
    decision over-commits a node, splits a gang or never comes to an end.
    """
    world = World(trace, nodes, settings, physics, seed, estimator, pools)
    simulation = Simulation(world, policy, conduct, on_progress)
    simulation.run()
    return Outcome(
        policy="/".join(type(part).__name__ for part in (policy.orderer, policy.placer)),
        trace=trace.name,
        seed=seed,
        nodes=len(nodes),
        total_gpus=sum(node.allocatable.get(GPU, 0) for node in nodes),
        jobs=simulation.records(),
        series=simulation.recorder.series(),
        counts=simulation.counts,
        decision_seconds=simulation.decision_seconds,
        pools=world.pools.series(),
    )
