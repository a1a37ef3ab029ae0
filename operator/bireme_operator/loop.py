"""The one level-triggered loop: reconcile what changed, decide, carry out, repeat.

A change only marks the loop dirty. Nothing is kept from turn to turn that could not be worked out
again, except rejections and back-offs, which expire or end with an edit.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bireme.core.decision import Decision
from bireme.core.snapshot import ClusterSnapshot
from bireme_operator.cluster_reports import ClusterReports
from bireme_operator.executor import DecisionExecutor
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import ManagedPools
from bireme_operator.policies import CycleRunner
from bireme_operator.reconcile import GangReconciler
from bireme_operator.settings import OperatorSettings

# After a turn of t seconds the loop rests at least _REST * t: deciding more often than that takes
# processor time from the writes that carry decisions out.
_REST = 3.0


@dataclass(slots=True)
class Pacing:
    """Times of the next turn, and of the next sweep, a turn that looks at everything."""

    dirty: asyncio.Event
    """Set by every change that can matter to a decision."""
    settings: OperatorSettings
    metrics: OperatorMetrics
    clock: Callable[[], float]
    """Monotonic seconds."""
    finished_at: float = field(init=False)
    """End of the last turn; the liveness probe watches it."""
    swept_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.finished_at = self.clock()

    async def next_turn(self) -> None:
        """Return when something has changed, or a sweep is due."""
        try:
            async with asyncio.timeout(self.settings.sweep_interval_seconds):
                await self.dirty.wait()
            # A burst of changes becomes one turn.
            await asyncio.sleep(self.settings.cycle_debounce_seconds)
        except TimeoutError:
            pass
        # Cleared before the turn, so that what changes during it makes another one.
        self.dirty.clear()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a turn, for the metrics and the liveness probe."""
        with self.metrics.turns.time():
            yield
        self.finished_at = self.clock()

    def is_sweep_due(self) -> bool:
        """Return whether everything should be looked at, changed or not."""
        return self.clock() - self.swept_at >= self.settings.sweep_interval_seconds


@dataclass(slots=True)
class SchedulingLoop:
    """The scheduling loop; ``fence`` raises NotLeader in a standby, ``now`` is POSIX seconds."""

    fence: Callable[[], None]
    now: Callable[[], float]
    pacing: Pacing
    gangs: GangReconciler
    cycles: CycleRunner
    executor: DecisionExecutor
    pools: ManagedPools
    reports: ClusterReports

    async def run(self) -> None:
        """Run turn after turn until cancelled, at the latest every ``sweep_interval_seconds``."""
        while True:
            await self.pacing.next_turn()
            began = self.pacing.clock()
            with self.pacing.measured():
                await self.turn()
            await asyncio.sleep(_REST * (self.pacing.finished_at - began))

    async def turn(self) -> None:
        """Look at what changed, or at everything when a sweep is due, and decide."""
        # 1. A process that does not lead does nothing.
        self.fence()
        now, is_sweep = self.now(), self.pacing.is_sweep_due()

        # 2. Reconcile gangs: record phases, create and delete pods, take rejected gangs back.
        self.gangs.reconcile(now, everything=is_sweep)

        # 3. Collect the gangs that wait. Most turns end here: they only followed gangs that run.
        waiting = self.gangs.waiting()
        if not (waiting or is_sweep):
            return

        # 4. Take the snapshot to decide on.
        snapshot = self.gangs.snapshot(now, waiting)
        if is_sweep:
            self.pacing.swept_at = self.pacing.clock()
            self.gangs.forget()
            self.reports.sweep(snapshot)

        # 5. Decide and carry out.
        decision = await self._decide(snapshot)

        # 6. Grow and shrink node pools.
        self.pools.observe(snapshot, decision)

    async def _decide(self, snapshot: ClusterSnapshot) -> Decision:
        """Return the decision on ``snapshot``, once everything in it is under way."""
        # What is being written already is not decided again.
        known = self.pools.applied_to(self.executor.preemptions.applied_to(snapshot))
        if not (known.waiting or any(running.gang.is_elastic for running in known.running)):
            return self.cycles.skip(known)
        basis = self.executor.basis(known)
        decision = await self.cycles.decide(known)
        self.executor.carry_out(decision, basis)
        self.cycles.shadows.submit(known, decision)
        return decision
