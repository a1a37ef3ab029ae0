"""The policy that decides, its cycles, and the shadows that are compared with it.

The active SchedulingPolicy decides, or the settings where there is none. Another policy is loaded
beside the loop and takes over between two cycles; while it cannot be loaded, the one before goes on
deciding. Policies of stage Shadow are loaded likewise and decide on what the active policy saw.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

import structlog

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.policy import Policy
from bireme.core.regret import Sample
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.turns import Turns
from bireme.core.usage import UsageMeter, devices_held
from bireme.kube.policy_source import LoadOutcome, PolicyFacts, PolicyLoads, SchedulingPolicies
from bireme.rl import shadow
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme.rl.shadow import Difference, Outcome, outcome_of
from bireme.tasks import Tasks
from bireme_operator.debug_dump import LastCycles
from bireme_operator.metrics import OperatorMetrics, PolicyMetrics
from bireme_operator.outlooks import Outlooks
from bireme_operator.recording import Recording
from bireme_operator.regrets import Contestant, Regrets

# A policy that was overruled counts as degraded until so many of its cycles went well.
GOOD_CYCLES: Final = 20
# Cycles that agreement is the mean of, and moments that regret is.
_WINDOW: Final = 200
# After t seconds of thought shadows rest _REST * t: they get a twentieth of a core, and as much
# again for playing moments forward.
_REST: Final = 19.0
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ShadowStats:
    """Likeness of a shadow to the policy that decides, lately; ``cycles`` since it was loaded."""

    cycles: int = 0
    _latest: deque[Difference] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _sizes: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _against: PolicySource = SETTINGS_SOURCE

    def add(self, found: Difference) -> None:
        """Count a cycle in which either of them started a gang."""
        self.cycles += 1
        self._latest.append(found)

    def add_sizes(self, found: Difference) -> None:
        """Count a cycle in which both gave elastic gangs a size; ignore any other."""
        if found.same_sizes is not None:
            self._sizes.append(found.same_sizes)

    def add_sample(self, found: Sample, active: PolicySource) -> None:
        """Count a moment played forward beside ``active``; forget those beside another policy."""
        if active != self._against:
            self._samples.clear()
            self._against = active
        self._samples.append(found)

    @property
    def outcome(self) -> Outcome | None:
        """What it would have saved; None before the first moment was played forward."""
        return outcome_of(self._samples)

    @property
    def agreement(self) -> float:
        """Mean share of starts in common, from 0 to 1."""
        return fmean(each.agreement for each in self._latest)

    @property
    def size_agreement(self) -> float | None:
        """Mean share of elastic gangs with the same size; None before there were any."""
        return fmean(self._sizes) if self._sizes else None


@dataclass(slots=True)
class PolicyStats:
    """Counts of a policy's cycles since it was loaded.

    Attributes:
        decisions: Cycles in which it started, stopped or resized a gang, or would have.
        fallbacks: Cycles in which its rules answered in its place.
        why: What was wrong at the latest fallback.
        good_cycles: Cycles since then.
    """

    decisions: int = 0
    fallbacks: int = 0
    why: str = ""
    good_cycles: int = 0
    shadow: ShadowStats = field(default_factory=ShadowStats)

    def add(self, decision: Decision) -> None:
        """Count a cycle."""
        if decision.admitted or decision.preempted or decision.resized:
            self.decisions += 1
        if decision.fallback:
            self.fallbacks += 1
            self.why, self.good_cycles = decision.fallback, 0
        else:
            self.good_cycles += 1

    @property
    def is_degraded(self) -> bool:
        """True if it was overruled in one of its latest cycles."""
        return self.fallbacks > 0 and self.good_cycles < GOOD_CYCLES


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy ready to decide, and where it comes from.

    Attributes:
        uid: Of the SchedulingPolicy; empty for the policy of the settings.
        source: The SchedulingPolicy, as records name it.
    """

    policy: Policy
    uid: str = ""
    source: PolicySource = SETTINGS_SOURCE
    stats: PolicyStats = field(default_factory=PolicyStats, compare=False)

    @property
    def name(self) -> str:
        """The name of the SchedulingPolicy; empty for the policy of the settings."""
        return self.source.name


class Policies:
    """The policy that decides and those that are compared with it.

    Args:
        settings: Decides where no SchedulingPolicy is active.
        load: Called in a thread; may raise anything.
        on_change: Called after every swap.

    Attributes:
        known: The SchedulingPolicies, to be fed by a watch.
        deciding: The policy that decides now.
    """

    def __init__(
        self,
        settings: Policy,
        load: Callable[[PolicyFacts], LoadedPolicy],
        metrics: PolicyMetrics,
        on_change: Callable[[], None],
    ) -> None:
        self.known = SchedulingPolicies(self._observe)
        self._settings = LoadedPolicy(settings)
        self.deciding = self._settings
        self._loads = PolicyLoads(load, self._loaded)
        self._metrics = metrics
        self._on_change = on_change
        self._loaded_one = asyncio.Event()

    def _observe(self) -> None:
        active = self.known.active
        self._loads.want(([active] if active is not None else []) + self.known.shadows)
        self._choose()

    def outcome(self, policy: PolicyFacts) -> LoadOutcome[LoadedPolicy] | None:
        """Return the outcome of loading it; None while it is loading, or not to be loaded."""
        return self._loads.outcome(policy)

    @property
    def shadows(self) -> Sequence[LoadedPolicy]:
        """The shadows that are loaded."""
        found = (self._loads.outcome(policy) for policy in self.known.shadows)
        return [each.value for each in found if each is not None and each.value is not None]

    def decider(self, policy: PolicyFacts) -> LoadedPolicy | None:
        """Return the policy loaded for it, be it of an earlier spec; None without one."""
        if self.deciding.uid == policy.uid:
            return self.deciding
        outcome = self._loads.outcome(policy)
        return outcome.value if outcome is not None else None

    async def first_loaded(self, limit_seconds: float) -> None:
        """Return once the active policy is loaded or has failed to load, or after the time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                while (active := self.known.active) and self.outcome(active) is None:
                    self._loaded_one.clear()
                    await self._loaded_one.wait()

    async def close(self) -> None:
        await self._loads.close()

    def _loaded(self, policy: PolicyFacts, outcome: LoadOutcome[LoadedPolicy]) -> None:
        self._loaded_one.set()
        self._metrics.loads.labels("failed" if outcome.fault else "loaded").inc()
        if outcome.fault:
            _log.warning("policy not loaded", policy=policy.name, why=outcome.fault)
        self._choose()

    def _choose(self) -> None:
        """Let the active policy decide as it was loaded last; without one, the settings."""
        active, chosen = self.known.active, self.deciding
        if active is None:
            chosen = self._settings
        elif (outcome := self._loads.outcome(active)) is not None and outcome.value is not None:
            chosen = outcome.value
        if chosen is not self.deciding:
            _log.info("another policy decides", policy=chosen.name, sha256=chosen.source.sha256)
            self.deciding = chosen
            self._on_change()


@dataclass(slots=True)
class Shadows:
    """Compares the shadows of ``policies``, in a thread; ``clock`` gives monotonic seconds."""

    policies: Policies
    metrics: PolicyMetrics
    clock: Callable[[], float]
    regrets: Regrets | None = None
    _tasks: Tasks = field(default_factory=Tasks)
    _rest_until: float = float("-inf")

    def submit(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Have the shadows decide on ``snapshot`` too; skip it while they still think or rest."""
        shadows = self.policies.shadows
        if self.regrets is not None:
            contestants = [self._contestant(each) for each in shadows]
            self.regrets.submit(snapshot, decision, self.policies.deciding.source, contestants)
        if not shadows:
            return
        if self._tasks or self.clock() < self._rest_until:
            self.metrics.shadow_cycles.labels("skipped").inc()
            return
        self._tasks.start(self._compare(snapshot, decision))

    async def close(self) -> None:
        await self._tasks.close()
        if self.regrets is not None:
            await self.regrets.close()

    def _contestant(self, shadow: LoadedPolicy) -> Contestant:
        def count(sample: Sample, active: PolicySource) -> None:
            # Another policy may decide by now, and what the shadow would save it is unknown.
            if active == self.policies.deciding.source:
                shadow.stats.shadow.add_sample(sample, active)

        return Contestant(shadow.uid, shadow.source, count)

    async def _compare(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        began = self.clock()
        for decider in self.policies.shadows:
            try:
                theirs, found = await asyncio.to_thread(
                    _compared, snapshot, decision, decider.policy
                )
            except Exception:  # noqa: BLE001  # whatever it is, deciding goes on
                _log.exception("shadow not compared", policy=decider.name)
                self.metrics.shadow_cycles.labels("failed").inc()
                continue
            decider.stats.add(theirs)
            if decision.admitted or theirs.admitted:  # else no gang could start
                decider.stats.shadow.add(found)
            decider.stats.shadow.add_sizes(found)
            self.metrics.shadow_cycles.labels("compared").inc()
        self._rest_until = self.clock() + _REST * (self.clock() - began)


def _compared(
    snapshot: ClusterSnapshot, decision: Decision, policy: Policy
) -> tuple[Decision, Difference]:
    theirs = run_cycle(snapshot, policy, explain=False)
    return theirs, shadow.compare(decision, theirs)


@dataclass(slots=True)
class CycleRunner:
    """Runs cycles with the policy that decides; counts, records and compares them.

    Attributes:
        fence: Raises NotLeader in a process that does not lead.
        limit_seconds: A cycle that has taken so long reaches no more gangs.
        beat: Called from the thread of the cycle before each gang's turn.
        clock: Monotonic seconds.
        last: Keeps the last cycles for the debug dump; None where none is served.
        outlooks: Renews the outlook; None where there is none.
    """

    policies: Policies
    shadows: Shadows
    recording: Recording | None
    metrics: OperatorMetrics
    fence: Callable[[], None]
    limit_seconds: float
    beat: Callable[[], None]
    clock: Callable[[], float]
    last: LastCycles | None = None
    outlooks: Outlooks | None = None
    _turns: Turns = field(default_factory=Turns)
    _meter: UsageMeter = field(default_factory=UsageMeter)

    async def decide(self, snapshot: ClusterSnapshot) -> Decision:
        decider, began = self.policies.deciding, self.clock()

        def is_time_left() -> bool:
            self.beat()
            return self.clock() - began < self.limit_seconds

        turns = replace(self._turns, is_time_left=is_time_left)
        with self.metrics.cycles.time():
            # In a thread, because this loop also renews the lease, and a cycle may take seconds.
            decision = await asyncio.to_thread(run_cycle, snapshot, decider.policy, turns=turns)
        self._turns = turns.after(decision, snapshot.now)
        self.fence()  # the lease may have been lost in the meantime
        self._observe(snapshot, decision, decider.source)
        if self.last is not None:
            self.last.keep(snapshot, decision, decider.source, self.clock() - began)
        decider.stats.add(decision)
        if decision.fallback:
            self.metrics.fallbacks.inc()
            _log.warning("policy overruled", why=decision.fallback)
        return decision

    def skip(self, snapshot: ClusterSnapshot) -> Decision:
        """Return the empty decision on ``snapshot``, in which there is nothing to decide."""
        decision = Decision()
        self._observe(snapshot, decision, SETTINGS_SOURCE)
        return decision

    def _observe(self, snapshot: ClusterSnapshot, decision: Decision, source: PolicySource) -> None:
        if self.recording is not None:
            self.recording.submit(snapshot, decision, source)
        if self.outlooks is not None:
            self.outlooks.submit(snapshot, decision, source)
        if decision.unreached:
            self.metrics.cycles_cut.inc()
        else:
            self.metrics.gangs.show_waiting(decision.held, snapshot)
        self.metrics.gangs.show_devices(decision.held, snapshot)
        held = devices_held(snapshot, decision.held)
        self.metrics.usage.count(self._meter.look(self.clock(), held), held)
