"""Shadows decide on what the active policy saw, after it has decided, and are only compared.

They run in a thread, in time that is left over: while they think, and for several times as long
afterwards, further cycles are skipped and counted.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.policy import Policy
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl import shadow
from bireme.rl.shadow import Difference
from bireme.tasks import Tasks
from bireme_operator.metrics import PolicyMetrics
from bireme_operator.policies import Policies

_log = structlog.get_logger(__name__)
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
