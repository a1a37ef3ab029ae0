"""The simulation loop: a workload on a cluster under a policy, event by event.

The scheduling cycle is :func:`bireme.core.cycle.run_cycle`, the code of the operator; nothing here
decides. At every moment at which there is an event:

    1. Handle all events of that moment: jobs finish, nodes fail or return, jobs arrive.
    2. Run the cycle and carry out its decision. If it stopped a gang or started an elastic one, run
       it again at the same moment, until it changes nothing.
    3. Record the use of the cluster, and set the time of the next cycle.

The simulation is deterministic. Time is exact, and events of one moment have one order
(:mod:`bireme_lab.simulator.events`). Random numbers depend only on the seed and the names of jobs
and nodes.
"""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from bireme.core.accelerators import DEFAULT
from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Decision, Hold, Preempt, Vacate
from bireme.core.gangs import Gang
from bireme.core.nodes import Node
from bireme.core.policy import Policy, can_move, is_asked
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme_lab.simulator.equivalence import FIRST_DEPTH, may_thin
from bireme_lab.simulator.errors import SimulationError
from bireme_lab.simulator.events import EventKind
from bireme_lab.simulator.node_pools import NodePool
from bireme_lab.simulator.outcome import JobRecord, Outcome, Recorder
from bireme_lab.simulator.physics.model import Physics
from bireme_lab.simulator.state import SimulationState
from bireme_lab.simulator.workload import Estimator, Trace

Decide: TypeAlias = Callable[[ClusterSnapshot, Policy], Decision]
CYCLE: Final[Decide] = partial(run_cycle, explain=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """Options of a run; nothing about the cluster or the policy.

    Attributes:
        heartbeat_seconds: Pause after an event until the next cycle, while time alone may change a
            decision: a waiting gang may preempt, or a sizer controls elastic gangs. The pause
            doubles each time until the next event. The operator runs every few seconds. A cycle
            also runs when the orderer says that a gang may stop more.
        round_seconds: Decisions fall on multiples of it, as in schedulers with rounds of a minute,
            and on every multiple while time alone may change them; 0 for at once.
        until_seconds: The simulation ends after this moment.
        takes_shortcuts: Whether to skip cycles that cannot change anything, and gangs that cannot
            change a cycle (:mod:`bireme_lab.simulator.equivalence`).
        settles: Whether the cycle runs again after every start, as in the operator, so that it
            sees every gang running.
        verifies: Whether to recompute and compare usage after every moment; for tests.
        decide: The scheduling cycle, or its replacement in a comparison.
    """

    heartbeat_seconds: float = 60.0
    round_seconds: float = 0.0
    until_seconds: float = math.inf
    takes_shortcuts: bool = True
    settles: bool = False
    verifies: bool = False
    decide: Decide = CYCLE


_CONFIG: Final = SimulationConfig()

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Called now and then with the number of finished jobs and of all jobs."""

_COUNTED: Final = (
    *("cycles", "admissions", "backfills", "preemptions", "moves", "shrinks", "growths"),
    *("reservations", "reservations_honoured", "fallbacks"),
)
_MAX_CYCLES: Final = 1000
"""Cycles at one moment. All but the last stop, shrink or start a gang, so more are a loop."""
_RESERVATION_TOLERANCE_SECONDS: Final = 1e-6
_ENDED_BY: Final = {
    Reason.PREEMPTED: "preempted",
    Reason.FASTER_GPUS: "moved",
    Reason.NODE_MAINTENANCE: "maintenance",
}
_NEWS: Final = (EventKind.ARRIVAL, EventKind.NODE, EventKind.MAINTENANCE)
_SETTINGS: Final = SchedulingSettings()
_PHYSICS: Final = Physics()


def simulate(
    trace: Trace,
    nodes: Sequence[Node],
    policy: Policy,
    settings: SchedulingSettings = _SETTINGS,
    *,
    physics: Physics = _PHYSICS,
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
    estimator: Estimator | None = None,
    config: SimulationConfig = _CONFIG,
    pools: Sequence[NodePool] = (),
) -> Outcome:
    """Run ``trace`` on ``nodes`` under ``policy`` and return the outcome.

    Nodes of ``pools`` come and go; all others are always present. The outcome names the policy by
    its classes; a caller with a better name replaces it.

    Raises TraceError for an invalid job. Raises SimulationError without nodes, or when a decision
    over-commits a node, splits a gang or repeats without end.
    """
    state = SimulationState(trace, nodes, settings, physics, seed, estimator, pools)
    simulation = Simulation(state, policy, config, on_progress)
    simulation.run()
    return Outcome(
        policy="/".join(type(part).__name__ for part in (policy.orderer, policy.placer)),
        trace=trace.name,
        seed=seed,
        nodes=len(nodes),
        total_gpus=sum(DEFAULT.count(node.allocatable) for node in nodes),
        jobs=simulation.records(),
        series=simulation.recorder.series(),
        counts=simulation.counts,
        decision_seconds=simulation.decision_seconds,
        pools=state.pools.series(),
    )


class Simulation:
    """One run over a :class:`~bireme_lab.simulator.state.SimulationState`: :meth:`run`.

    A caller may also drive it step by step. While :meth:`advance` returns True, it calls
    :meth:`decide_on` any number of times, then :meth:`finish_step`.
    """

    def __init__(
        self,
        state: SimulationState,
        policy: Policy,
        config: SimulationConfig = _CONFIG,
        on_progress: ProgressCallback | None = None,
    ) -> None:
        self.state = state
        self.counts = dict.fromkeys(_COUNTED, 0)
        self.decision_seconds = 0.0
        self.recorder = Recorder(3)
        self._policy = policy if state.machines_differ else replace(policy, may_move=False)
        self._moves = can_move(self._policy)
        self._config = config
        self._on_progress = on_progress
        self._last = Decision()
        # The time of the next cycle without an event, and the pause before it.
        self._next_look = math.inf
        self._pause = config.heartbeat_seconds
        # True while only an arrival or a node can change the faults that hold all waiting gangs.
        self._is_stuck = False
        # Whether an event of this step can change a decision; cluster.changes before the step.
        self._is_news = False
        self._changes_before = 0
        self._changes_recorded = -1
        self._finished_reported = 0
        # Maintenance excludes nodes by a gang's run time, so equal gangs may differ.
        has_windows = bool(state.cluster.table.windows)
        is_thin = config.takes_shortcuts and not has_windows
        speeds = [job.speed for job in state.jobs.values() if job.is_elastic]
        sizers = [policy.sizer, *(canary.policy.sizer for canary in policy.canaries)]
        self._asks_sizer = any(is_asked(sizer, speeds) for sizer in sizers)
        self._thins = is_thin and may_thin(policy, state.cluster.queues, self._asks_sizer)
        self._has_windows = has_windows

    def run(self) -> None:
        """Simulate from the first event until every job is finished or nothing can happen."""
        while self.advance():  # 1. Handle all events of the next moment.
            self.decide()  # 2. Run the cycle and carry it out, until it changes nothing.
            self.finish_step()  # 3. Record the use of the cluster; set the next cycle.

    # --- 1. Events ----------------------------------------------------------------------------

    def advance(self) -> bool:
        """Let time pass until a decision is due; return False at the end of the simulation."""
        state, events = self.state, self.state.events
        self._is_news = False
        while (events or self._is_news) and len(state.records) < len(state.jobs):
            moment = min(events.next_time, self._next_look)
            if moment > self._config.until_seconds:
                state.now = self._config.until_seconds
                return False
            state.now = moment
            self._changes_before = state.cluster.changes
            # Accumulate over moments: a decision at a round's end covers earlier events.
            self._is_news |= self._handle_events(moment)
            if self._is_news:
                seconds = self._config.round_seconds
                due = math.ceil(moment / seconds) * seconds if seconds else moment
                self._next_look = min(self._next_look, due)
            if moment == self._next_look:
                return True
        return False

    def _handle_events(self, moment: float) -> bool:
        """Apply all events of ``moment``; return whether any of them can change a decision."""
        matters = False
        while self.state.events.next_time == moment:
            event = self.state.events.pop()
            if self.state.handle(event):
                matters = True
                self._is_stuck &= event.kind not in _NEWS
        return matters

    # --- 2. Decisions -------------------------------------------------------------------------

    def decide_on(self, waiting: tuple[Gang, ...]) -> None:
        """Run and carry out one cycle that sees only the waiting gangs in ``waiting``."""
        self._carry_out(self._run_cycle(waiting))

    def decide(self) -> None:
        """Run cycles at this moment and carry them out, until one changes nothing."""
        for _ in range(_MAX_CYCLES):
            if self._config.takes_shortcuts and self._nothing_can_change():
                return
            if not self._carry_out(self._decision()):
                return
        raise SimulationError(
            f"at {self.state.now} s the policy made room {_MAX_CYCLES} times and did not stop"
        )

    def _nothing_can_change(self) -> bool:
        # A cycle admits, and preempts for, waiting gangs only, and a gang that never fits the
        # present nodes stays held. Only elastic gangs change their size. Apart from preemption,
        # a gang stops only for the maintenance of nodes and for faster GPUs.
        if self.state.elastic or self._has_windows:
            return False
        if self._moves and self.state.cluster.table.differ_in_gpu_speed:
            return False
        return not self.state.waiting or self._is_stuck

    def _decision(self) -> Decision:
        """Return one decision over all waiting gangs."""
        waiting = self.state.waiting
        # A cycle considers a limited number of gangs of a namespace, so equal gangs may differ.
        if not (self._thins and waiting.are_in_line(self.state.settings)):
            return self._run_cycle(waiting.all_gangs())
        # The cycle sees the first gangs of every class, more while the last of them is not held.
        depths: dict[Hashable, int] = {}
        decision = self._run_cycle(waiting.first_of_each(depths))
        while open_classes := waiting.classes_to_extend(decision, depths, self.state.is_overdue):
            for equivalence_class in open_classes:
                depths[equivalence_class] = depths.get(equivalence_class, FIRST_DEPTH) * 4
            decision = self._run_cycle(waiting.first_of_each(depths))
        return decision

    def _run_cycle(self, waiting: tuple[Gang, ...]) -> Decision:
        snapshot = self.state.snapshot(waiting)
        began = time.perf_counter()
        decision = self._config.decide(snapshot, self._policy)
        self.decision_seconds += time.perf_counter() - began
        return decision

    def _carry_out(self, decision: Decision) -> bool:
        """Apply ``decision``; return whether the cycle must run again at the same moment."""
        self.counts["cycles"] += 1
        self.counts["fallbacks"] += bool(decision.overruled)
        self._last = decision
        look_again = False
        self._is_stuck = True  # until a gang is held for a reason that may pass
        for action in decision.actions:
            if isinstance(action, Hold):
                self._is_stuck &= action.reason.is_configuration_fault
                self.state.set_parked(action.gang.uid, is_parked=action.is_parked)
                if action.reservation is not None:
                    self._record_reservation(action, action.reservation.start)
            elif isinstance(action, Admit):
                look_again |= self._admit(action) or self._config.settles
            elif isinstance(action, Preempt | Vacate):
                self.counts["preemptions"] += isinstance(action, Preempt)
                self.counts["moves"] += action.reason is Reason.FASTER_GPUS
                self.state.stop(action.gang.uid, _ENDED_BY[action.reason])
                self._is_stuck, look_again = False, True
            else:
                is_smaller = action.reason is Reason.SHRUNK
                self.counts["shrinks" if is_smaller else "growths"] += 1
                self.state.resize(action)
                look_again |= is_smaller
        return look_again

    def _admit(self, action: Admit) -> bool:
        """Start a gang; return whether it is elastic and may grow at once."""
        job, now = self.state.start(action), self.state.now
        self.counts["admissions"] += 1
        self.counts["backfills"] += action.passed is not None
        reserved = job.reserved_start if job.is_reservation_binding else None
        job.is_reservation_binding = False
        if reserved is not None and now <= reserved + _RESERVATION_TOLERANCE_SECONDS:
            self.counts["reservations_honoured"] += 1
        return job.gang.is_elastic

    def _record_reservation(self, hold: Hold, start: float) -> None:
        """Record a gang's first reservation, which binds unless some run times are unknown."""
        job = self.state.active[hold.gang.uid]
        # A reservation that waits for victims to stop is no forecast.
        is_forecast = hold.reason is not Reason.WAITING_FOR_PREEMPTION
        if is_forecast and job.reserved_start is None:
            job.reserved_start = start
            job.is_reservation_binding = not self.state.running_without_estimate
            self.counts["reservations"] += job.is_reservation_binding

    # --- 3. After a moment --------------------------------------------------------------------

    def finish_step(self) -> None:
        """Record the use of the cluster, and set the time of the next cycle."""
        self._record()
        self._set_next_look(self._is_news or self.state.cluster.changes != self._changes_before)

    def records(self) -> tuple[JobRecord, ...]:
        """Return the record of every job so far, in order of submission."""
        return self.state.all_records(self.state.waiting.verdicts(self._last))

    def _record(self) -> None:
        state, cluster = self.state, self.state.cluster
        if cluster.changes != self._changes_recorded:  # a sum over all nodes
            self._changes_recorded = cluster.changes
            self._gpus = cluster.gpu_use()
        self.recorder.record(state.now, self._gpus[0], len(state.waiting), self._gpus[1])
        if state.pools:
            snapshot = cluster.snapshot(state.now, state.waiting.all_gangs())
            state.pools.scale_all(snapshot, self._last)
        if self._config.verifies:
            cluster.verify()
        finished = len(state.records)
        is_due = finished - self._finished_reported >= len(state.jobs) / 200  # each half per cent
        if self._on_progress is not None and is_due:
            self._finished_reported = finished
            self._on_progress(finished, len(state.jobs))

    def _set_next_look(self, is_news: bool) -> None:
        """Set the next cycle without an event; the pause doubles while nothing changes."""
        config = self._config
        self._pause = config.heartbeat_seconds if is_news else 2 * self._pause
        pause = config.round_seconds or self._pause
        if not self._time_may_decide():
            self._next_look = math.inf
            return
        self._next_look = self.state.now + pause
        if not config.round_seconds:
            # The cycle surely sees the first gang of a class, and no equal gang comes before it.
            heads = self.state.waiting.heads()
            self._next_look = min(self._next_look, self._last.next_stop(self.state.now, heads))

    def _time_may_decide(self) -> bool:
        """Return whether time alone may change a decision about preemption or sizes."""
        state = self.state
        if state.elastic and self._asks_sizer:
            return True
        if not (state.settings.preemption and state.waiting and state.cluster.running):
            return False
        # Many orderers never preempt: their waiting gangs have no preemption priority.
        holds = (action for action in self._last.actions if isinstance(action, Hold))
        ranked = next((hold.ranked for hold in holds if hold.ranked is not None), None)
        return ranked is not None and ranked.preemption_priority is not None
