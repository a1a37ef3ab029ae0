"""Which policy decides: that of the SchedulingPolicy that counts, or that of the settings.

Another policy is loaded beside the loop and takes over between two cycles. What cannot be loaded
takes over nothing: what decided before goes on, and nobody waits. Policies of stage Shadow are
loaded likewise and never decide.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

import structlog

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.policy_source import LoadOutcome, PolicyFacts, PolicyLoads, SchedulingPolicies
from bireme.rl import shadow
from bireme.rl.lookup import SETTINGS_SOURCE, PolicySource
from bireme.rl.shadow import Difference
from bireme.tasks import Tasks
from bireme_operator.metrics import PolicyMetrics

# How a policy has done since it was loaded, in a few numbers.

GOOD_CYCLES: Final = 20
"""A policy that was overruled counts as degraded until so many of its cycles went well."""
LATELY: Final = 200
"""Comparisons that agreement and regret speak of."""


@dataclass(slots=True)
class ShadowStats:
    """How near a shadow is to the policy that decides.

    Attributes:
        cycles: Compared, since it was loaded.
    """

    cycles: int = 0
    _lately: deque[Difference] = field(default_factory=lambda: deque(maxlen=LATELY))
    _sizes: deque[float] = field(default_factory=lambda: deque(maxlen=LATELY))

    def add(self, found: Difference) -> None:
        """One more cycle in which either of them started a gang."""
        self.cycles += 1
        self._lately.append(found)

    def add_sizes(self, found: Difference) -> None:
        """One more cycle; it counts where both gave elastic gangs a size."""
        if found.same_sizes is not None:
            self._sizes.append(found.same_sizes)

    @property
    def agreement(self) -> float:
        """The share of starts in common, from 0 to 1; the mean over the latest cycles."""
        return fmean(each.agreement for each in self._lately)

    @property
    def regret_seconds(self) -> float:
        """The mean likewise; positive where the shadow would have done better."""
        return fmean(each.regret_seconds for each in self._lately)

    @property
    def size_agreement(self) -> float | None:
        """The share of elastic gangs with the same size, likewise; None before there were any."""
        return fmean(self._sizes) if self._sizes else None


@dataclass(slots=True)
class PolicyStats:
    """A policy's cycles.

    Attributes:
        decisions: Cycles in which it started, stopped or resized a gang, or would have.
        fallbacks: Cycles in which its rules answered in its place.
        why: What was wrong the last time.
        good_cycles: Since the last time.
    """

    decisions: int = 0
    fallbacks: int = 0
    why: str = ""
    good_cycles: int = 0
    likeness: ShadowStats = field(default_factory=ShadowStats)

    def add(self, decision: Decision) -> None:
        """One more cycle."""
        if decision.admitted or decision.preempted or decision.resized:
            self.decisions += 1
        if decision.fallback:
            self.fallbacks += 1
            self.why, self.good_cycles = decision.fallback, 0
        else:
            self.good_cycles += 1

    @property
    def is_degraded(self) -> bool:
        """Whether it was overruled lately."""
        return self.fallbacks > 0 and self.good_cycles < GOOD_CYCLES


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy ready to decide, and whose it is.

    Attributes:
        uid: Of the SchedulingPolicy; empty for the policy of the settings.
        source: Whose it is, for records.
        tally: How it has done.
    """

    policy: Policy
    uid: str = ""
    source: PolicySource = SETTINGS_SOURCE
    tally: PolicyStats = field(default_factory=PolicyStats, compare=False)

    @property
    def name(self) -> str:
        """That of the SchedulingPolicy; empty for the policy of the settings."""
        return self.source.name


class Policies:
    """Who decides and who watches.

    ``load`` is called in a thread and may raise anything; ``on_change`` follows every swap.
    """

    def __init__(
        self,
        known: SchedulingPolicies,
        settings: Policy,
        load: Callable[[PolicyFacts], LoadedPolicy],
        metrics: PolicyMetrics,
        on_change: Callable[[], None],
    ) -> None:
        self.known = known
        self._settings = LoadedPolicy(settings)
        self.deciding = self._settings
        self._loads = PolicyLoads(load, self._loaded)
        self._metrics = metrics
        self._on_change = on_change
        self._news = asyncio.Event()

    def look(self) -> None:
        """The SchedulingPolicies have changed."""
        active = self.known.active
        self._loads.want(([active] if active is not None else []) + self.known.shadows)
        self._choose()

    def outcome(self, policy: PolicyFacts) -> LoadOutcome[LoadedPolicy] | None:
        """What came of loading it; None while it is under way, or where it is not to be."""
        return self._loads.outcome(policy)

    @property
    def shadows(self) -> Sequence[LoadedPolicy]:
        """The shadows that are loaded."""
        found = (self._loads.outcome(policy) for policy in self.known.shadows)
        return [each.value for each in found if each is not None and each.value is not None]

    def decider(self, policy: PolicyFacts) -> LoadedPolicy | None:
        """What decides or is compared in its name, be it of an earlier spec."""
        if self.deciding.uid == policy.uid:
            return self.deciding
        outcome = self._loads.outcome(policy)
        return outcome.value if outcome is not None else None

    async def first(self, limit_seconds: float) -> None:
        """Return once the policy that counts is loaded or refused, or after the time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                while (active := self.known.active) and self.outcome(active) is None:
                    self._news.clear()
                    await self._news.wait()

    async def close(self) -> None:
        """Load nothing more."""
        await self._loads.close()

    def _loaded(self, policy: PolicyFacts, outcome: LoadOutcome[LoadedPolicy]) -> None:
        self._news.set()
        self._metrics.loads.labels("failed" if outcome.fault else "loaded").inc()
        if outcome.fault:
            _log.warning("policy not loaded", policy=policy.name, why=outcome.fault)
        self._choose()

    def _choose(self) -> None:
        """What was loaded last for the policy that counts; without such a policy, the settings."""
        active, chosen = self.known.active, self.deciding
        if active is None:
            chosen = self._settings
        elif (outcome := self._loads.outcome(active)) is not None and outcome.value is not None:
            chosen = outcome.value
        if chosen is not self.deciding:
            _log.info("another policy decides", policy=chosen.name, sha256=chosen.source.sha256)
            self.deciding = chosen
            self._on_change()


# Shadows decide on what the active policy saw, after it has decided, and are only compared.
#
# They run in a thread, in time that is left over: while they think, and for several times as long
# afterwards, further cycles are skipped and counted.

_REST: Final = 9.0
"""After t seconds of thought shadows rest ``_REST * t``: a tenth of a core is theirs."""


class Shadows:
    """Compares the shadows of ``policies``; ``clock`` gives monotonic seconds."""

    def __init__(
        self, policies: Policies, metrics: PolicyMetrics, clock: Callable[[], float]
    ) -> None:
        self._policies = policies
        self._metrics = metrics
        self._clock = clock
        self._tasks = Tasks()
        self._rest_until = float("-inf")

    def offer(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Have the shadows decide on ``snapshot`` too, unless they still think or rest."""
        if not self._policies.shadows:
            return
        if self._tasks or self._clock() < self._rest_until:
            self._metrics.shadow_cycles.labels("skipped").inc()
            return
        self._tasks.start(self._compare(snapshot, decision))

    async def close(self) -> None:
        """Compare nothing more."""
        await self._tasks.close()

    async def _compare(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        began = self._clock()
        for decider in self._policies.shadows:
            try:
                theirs, found = await asyncio.to_thread(
                    _compared, snapshot, decision, decider.policy
                )
            except Exception:  # noqa: BLE001  # whatever it is, deciding goes on
                _log.exception("shadow not compared", policy=decider.name)
                self._metrics.shadow_cycles.labels("failed").inc()
                continue
            decider.tally.add(theirs)
            if decision.admitted or theirs.admitted:  # else nobody could start anything
                decider.tally.likeness.add(found)
            decider.tally.likeness.add_sizes(found)
            self._metrics.shadow_cycles.labels("compared").inc()
        self._rest_until = self._clock() + _REST * (self._clock() - began)


def _compared(
    snapshot: ClusterSnapshot, decision: Decision, policy: Policy
) -> tuple[Decision, Difference]:
    theirs = run_cycle(snapshot, policy, explain=False)
    return theirs, shadow.compare(decision, theirs, snapshot)
