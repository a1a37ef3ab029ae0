"""The level-triggered loop: reconcile changed gangs, decide, carry out, repeat.

A change only marks the loop dirty. Without changes, an idle turn reconciles some gangs, and a sweep
decides anew at intervals. The loop keeps only state that it can recompute, except rejections and
back-offs, which expire or end with an edit.
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

MAX_SILENCE_SECONDS = 60.0
"""Age of the last heartbeat, or of the last contact with a kind, at which the process is stuck:
turns end every few seconds, and cycles beat before each gang."""
# Pause between the first change and its turn: the changes of one burst come milliseconds apart.
_DEBOUNCE_SECONDS = 0.01
# Pause before gangs are checked again without a change: deadlines and time limits count in seconds.
_SWEEP_SECONDS = 2.0
# After a turn of t seconds the loop rests _REST * t: more frequent decisions would take processor
# time from the writes that carry them out.
_REST = 3.0
# Upper bound of a rest, because gangs wait for the next decision.
_MAX_REST_SECONDS = 10.0
# A new gang cuts the rest to _SHORT_REST * t, once per namespace and _MAX_REST_SECONDS. So a tenant
# whose thousands of jobs make turns long does not delay another tenant's first job.
_SHORT_REST = 0.1
# After a sweep of t seconds the next one comes after _SWEEP_REST * t at the earliest: an unchanged
# large cluster needs no frequent cycles.
_SWEEP_REST = 20.0
# Number of unchanged gangs to reconcile in an idle turn, the longest unseen first: an idle turn
# costs the same in a cluster of any size.
_LOOKS = 512


@dataclass(slots=True)
class Heartbeat:
    """Sign of life of the loop, which the liveness probe watches; ``clock`` is monotonic.

    It beats at the end of each turn, and in the cycle's thread before each gang. So a long cycle
    counts as alive, and a stuck one does not.
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
    """Times of the next turn, and of the next sweep: a turn that decides without any change."""

    dirty: asyncio.Event
    """Set by every change that may affect a decision."""
    metrics: OperatorMetrics
    clock: Callable[[], float]
    """Monotonic seconds."""
    heartbeat: Heartbeat
    finished_at: float = field(init=False)
    """End of the last turn."""
    _newcomer: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a new gang that may cut the rest short waits for its first turn."""
    _cuts: RateLimiter = field(init=False)
    _looked_at: float = float("-inf")
    _swept_at: float = float("-inf")
    _sweep_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.finished_at = self.clock()
        self._cuts = RateLimiter(1 / _MAX_REST_SECONDS, 1, self.clock)

    def notice(self, namespace: str) -> None:
        """Record that a gang of ``namespace`` is new, or was edited, and has no places."""
        if not self._newcomer.is_set() and self._cuts.take(namespace) == 0:
            self._newcomer.set()

    async def next_turn(self) -> bool:
        """Wait for a change or for the sweep interval; return whether there was a change."""
        try:
            async with asyncio.timeout(_SWEEP_SECONDS):
                await self.dirty.wait()
            # A burst of changes becomes one turn.
            await asyncio.sleep(_DEBOUNCE_SECONDS)
        except TimeoutError:
            pass
        has_changed = self.dirty.is_set()
        # Clear it before the turn, so that a change during the turn causes another one.
        self.dirty.clear()
        self._newcomer.clear()
        return has_changed

    @contextmanager
    def measure_turn(self) -> Iterator[None]:
        """Measure a turn, for the metrics and the liveness probe."""
        with self.metrics.turns.time():
            yield
        self.finished_at = self.clock()
        self.heartbeat.beat()

    async def rest(self, began: float) -> None:
        """Rest after the turn that started at ``began``."""
        lasted = self.finished_at - began
        min_rest = min(_SHORT_REST * lasted, _MAX_REST_SECONDS)
        await asyncio.sleep(min_rest)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_REST * lasted, _MAX_REST_SECONDS) - min_rest):
                await self._newcomer.wait()

    def looks(self) -> int:
        """Return how many unchanged gangs to reconcile now."""
        now = self.clock()
        if now - self._looked_at < _SWEEP_SECONDS:
            return 0
        self._looked_at = now
        return _LOOKS

    def is_sweep_due(self) -> bool:
        """Return whether to decide even without a change, and to update the reports."""
        pause = max(_SWEEP_SECONDS, _SWEEP_REST * self._sweep_seconds)
        return self.clock() - self._swept_at >= pause

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Measure a sweep: the longer it takes, the later the next one comes."""
        began = self._swept_at = self.clock()
        yield
        self._sweep_seconds = self.clock() - began


@contextmanager
def _without_collections() -> Iterator[None]:
    """Disable the garbage collector: reference counts free the objects of a decision.

    A full collection beside 20,000 gangs takes 0.4 s and more. During the rest after a turn it
    delays no gang.
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
        """Run turn after turn until cancelled, at the latest every two seconds."""
        while True:
            has_changed = await self.pacing.next_turn()
            began = self.pacing.clock()
            with self.pacing.measure_turn(), _without_collections():
                await self._turn(has_changed)
            await self.pacing.rest(began)

    async def _turn(self, has_changed: bool) -> None:
        """Reconcile, and decide if there was a change or a sweep is due."""
        # 1. Only the leader may act.
        self.fence()
        now = self.now()

        # 2. Reconcile gangs: record phases, create and delete pods, undo rejected admissions.
        self.gangs.reconcile(now, self.pacing.looks())

        # 3. A sweep decides without a change. Most turns end before a decision, because they only
        #    follow running gangs.
        if self.pacing.is_sweep_due():
            with self.pacing.sweeping():
                await self._cycle(now, is_sweep=True)
        elif has_changed:
            await self._cycle(now, is_sweep=False)

    async def _cycle(self, now: float, *, is_sweep: bool) -> None:
        # 1. Collect the waiting gangs.
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
        """Return the decision on ``snapshot``, after starting all of its actions."""
        # Stops and scale-ins under way are not decided again.
        effective = self.pools.apply(self.executor.preemptions.apply(snapshot))
        if not effective.may_change:
            return self.cycles.skip(effective)
        basis = self.executor.basis(effective)
        decision = await self.cycles.decide(effective)
        if decision.unreached:
            self.pacing.dirty.set()  # the next cycle is due even without a change
        self.executor.carry_out(decision, basis)
        self.cycles.shadows.submit(effective, decision)
        return decision
