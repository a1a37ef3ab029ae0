"""The one level-triggered loop: reconcile what changed, decide, carry out, repeat.

A change only marks the loop dirty. Without any, time alone may call for a step: gangs are looked at
some at a time, and now and then everything is decided anew. Nothing is kept from turn to turn that
could not be worked out again, except rejections and back-offs, which expire or end with an edit.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from bireme.core.decision import Decision
from bireme.core.snapshot import ClusterSnapshot
from bireme_operator.cluster_reports import ClusterReports
from bireme_operator.executor import DecisionExecutor
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.node_pools import ManagedPools
from bireme_operator.policies import CycleRunner
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.reconcile import GangReconciler
from bireme_operator.settings import OperatorSettings

# After a turn of t seconds the loop rests at least _REST * t: deciding more often than that takes
# processor time from the writes that carry decisions out.
_REST = 3.0
# But no longer than that: somebody waits for the next decision.
_MAX_REST_SECONDS = 10.0
# And for a gang that is new only _SHORT_REST * t, once in the longest rest for each namespace: a
# tenant whose thousands of jobs make turns long does not keep another's first job waiting for them.
_SHORT_REST = 0.1
# After a sweep of t seconds the next one comes in _SWEEP_REST * t at the earliest: while nothing
# changes, a large cluster is not decided on more often for the sake of the time alone.
_SWEEP_REST = 20.0
# So many gangs that have not changed are looked at in an idle turn, the longest unseen first: an
# idle turn costs the same in a cluster of any size.
_LOOKS = 512


@dataclass(slots=True)
class Heartbeat:
    """Sign of life of the loop, which the liveness probe watches; ``clock`` is monotonic.

    It beats at the end of each turn, and each time a gang has its turn in a cycle, from a thread:
    a long cycle is alive, and one that hangs is not.
    """

    clock: Callable[[], float]
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self.beat()

    def beat(self) -> None:
        self._last = self.clock()

    @property
    def age_seconds(self) -> float:
        """Seconds since the last beat."""
        return self.clock() - self._last


@dataclass(slots=True)
class Pacing:
    """Times of the next turn, and of the next sweep, a turn that decides without any change."""

    dirty: asyncio.Event
    """Set by every change that can matter to a decision."""
    settings: OperatorSettings
    metrics: OperatorMetrics
    clock: Callable[[], float]
    """Monotonic seconds."""
    heartbeat: Heartbeat
    finished_at: float = field(init=False)
    """End of the last turn."""
    _newcomer: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a gang for which a rest is cut short waits for its first turn."""
    _cuts: RateLimiter = field(init=False)
    _looked_at: float = float("-inf")
    _swept_at: float = float("-inf")
    _sweep_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.finished_at = self.clock()
        self._cuts = RateLimiter(1 / _MAX_REST_SECONDS, 1, self.clock)

    def notice(self, namespace: str) -> None:
        """Take note that a gang of ``namespace`` is new, or was edited, and has no places."""
        if not self._newcomer.is_set() and self._cuts.take(namespace) == 0:
            self._newcomer.set()

    async def next_turn(self) -> bool:
        """Return when something has changed, or it is time for a look; return whether it has."""
        try:
            async with asyncio.timeout(self.settings.sweep_interval_seconds):
                await self.dirty.wait()
            # A burst of changes becomes one turn.
            await asyncio.sleep(self.settings.cycle_debounce_seconds)
        except TimeoutError:
            pass
        has_changed = self.dirty.is_set()
        # Cleared before the turn, so that what changes during it makes another one.
        self.dirty.clear()
        self._newcomer.clear()
        return has_changed

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a turn, for the metrics and the liveness probe."""
        with self.metrics.turns.time():
            yield
        self.finished_at = self.clock()
        self.heartbeat.beat()

    async def rest(self, began: float) -> None:
        """Rest after the turn that ``began`` then."""
        lasted = self.finished_at - began
        least = min(_SHORT_REST * lasted, _MAX_REST_SECONDS)
        await asyncio.sleep(least)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_REST * lasted, _MAX_REST_SECONDS) - least):
                await self._newcomer.wait()

    def looks(self) -> int:
        """Return how many gangs that have not changed are to be looked at now."""
        now = self.clock()
        if now - self._looked_at < self.settings.sweep_interval_seconds:
            return 0
        self._looked_at = now
        return _LOOKS

    def is_sweep_due(self) -> bool:
        """Return whether to decide, changed or not, and to bring reports up to date."""
        pause = max(self.settings.sweep_interval_seconds, _SWEEP_REST * self._sweep_seconds)
        return self.clock() - self._swept_at >= pause

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Measure a sweep: the longer it takes, the later comes the next."""
        began = self._swept_at = self.clock()
        yield
        self._sweep_seconds = self.clock() - began


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the garbage collector from running: what a decision makes is freed with it.

    A full collection beside 20,000 gangs takes 0.4 s and more; in the rest after a turn it delays
    nobody.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
            has_changed = await self.pacing.next_turn()
            began = self.pacing.clock()
            with self.pacing.measured(), _without_collections():
                await self._turn(has_changed)
            await self.pacing.rest(began)

    async def _turn(self, has_changed: bool) -> None:
        """Reconcile, and decide where something has changed or a sweep is due."""
        # 1. A process that does not lead does nothing.
        self.fence()
        now = self.now()

        # 2. Reconcile gangs: record phases, create and delete pods, take rejected gangs back.
        self.gangs.reconcile(now, self.pacing.looks())

        # 3. A sweep decides for the sake of the time alone. Most turns end before a decision: they
        #    only followed gangs that run.
        if self.pacing.is_sweep_due():
            with self.pacing.sweeping():
                await self._cycle(now, is_sweep=True)
        elif has_changed:
            await self._cycle(now, is_sweep=False)

    async def _cycle(self, now: float, *, is_sweep: bool) -> None:
        # 1. Collect the gangs that wait.
        waiting = self.gangs.waiting(now)
        if not (waiting or is_sweep):
            return

        # 2. Take the snapshot to decide on.
        snapshot = self.gangs.snapshot(now, waiting)
        if is_sweep:
            self.gangs.forget()
            self.reports.sweep(snapshot)

        # 3. Decide and carry out.
        decision = await self._decide(snapshot)

        # 4. Grow and shrink node pools.
        self.pools.observe(snapshot, decision)

    async def _decide(self, snapshot: ClusterSnapshot) -> Decision:
        """Return the decision on ``snapshot``, once everything in it is under way."""
        # What is being written already is not decided again.
        known = self.pools.applied_to(self.executor.preemptions.applied_to(snapshot))
        if not known.may_change:
            return self.cycles.skip(known)
        basis = self.executor.basis(known)
        decision = await self.cycles.decide(known)
        if decision.unreached:
            self.pacing.dirty.set()  # the next cycle is due, whether or not something changes
        self.executor.carry_out(decision, basis)
        self.cycles.shadows.submit(known, decision)
        return decision
