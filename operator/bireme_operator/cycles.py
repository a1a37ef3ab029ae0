"""Runs scheduling cycles with the policy that decides now; counts, records and compares them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.snapshot import ClusterSnapshot
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.policies import Policies, Shadows
from bireme_operator.recording import Recording

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CycleRunner:
    """Makes decisions; ``fence`` raises NotLeader in a process that may not act on them."""

    policies: Policies
    shadows: Shadows
    recording: Recording
    metrics: OperatorMetrics
    fence: Callable[[], None]

    async def decide(self, snapshot: ClusterSnapshot) -> Decision:
        """Return the decision on ``snapshot``, worked out in a thread."""
        decider = self.policies.deciding
        with self.metrics.cycles.time():
            decision = await asyncio.to_thread(run_cycle, snapshot, decider.policy)
        self.fence()
        self.recording.submit(snapshot, decision, decider.source)
        decider.stats.add(decision)
        if decision.fallback:
            self.metrics.fallbacks.inc()
            _log.warning("policy overruled", why=decision.fallback)
        return decision

    def skip(self, snapshot: ClusterSnapshot) -> Decision:
        """Return the empty decision on ``snapshot``, in which there is nothing to decide."""
        self.recording.submit(snapshot, Decision())
        return Decision()

    def compare(self, snapshot: ClusterSnapshot, decision: Decision) -> None:
        """Have the shadows decide on ``snapshot`` too."""
        self.shadows.submit(snapshot, decision)
