"""Which policy decides: that of the SchedulingPolicy that counts, or that of the settings.

Another policy is loaded beside the loop and takes over between two cycles. What cannot be loaded
takes over nothing: what decided before goes on, and nobody waits. Policies of stage Shadow are
loaded likewise and never decide.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from bireme.core.policy import Policy
from bireme.kube.policy_loads import Outcome, PolicyLoads
from bireme.kube.scheduling_policies import PolicyFacts, SchedulingPolicies
from bireme.records.lines import SETTINGS, Source
from bireme_operator.metrics import PolicyMetrics
from bireme_operator.tallies import Tally

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Decider:
    """A policy ready to decide, and whose it is.

    Attributes:
        uid: Of the SchedulingPolicy; empty for the policy of the settings.
        source: Whose it is, for records.
        tally: How it has done.
    """

    policy: Policy
    uid: str = ""
    source: Source = SETTINGS
    tally: Tally = field(default_factory=Tally, compare=False)

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
        load: Callable[[PolicyFacts], Decider],
        metrics: PolicyMetrics,
        on_change: Callable[[], None],
    ) -> None:
        self.known = known
        self._settings = Decider(settings)
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

    def outcome(self, policy: PolicyFacts) -> Outcome[Decider] | None:
        """What came of loading it; None while it is under way, or where it is not to be."""
        return self._loads.outcome(policy)

    @property
    def shadows(self) -> Sequence[Decider]:
        """The shadows that are loaded."""
        found = (self._loads.outcome(policy) for policy in self.known.shadows)
        return [each.value for each in found if each is not None and each.value is not None]

    def decider(self, policy: PolicyFacts) -> Decider | None:
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

    def _loaded(self, policy: PolicyFacts, outcome: Outcome[Decider]) -> None:
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
