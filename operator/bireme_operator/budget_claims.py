"""Claims on PodDisruptionBudgets: pods that stops under way will evict, which no budget shows yet.

A budget says how many pods may go now. Between the decision to stop a gang and the eviction of its
last pod it still counts that gang's pods as staying. Without a claim a second stop, of another
decision or of a guest, would find room in the budget that the first one needs, and both would end
halfway. What is recorded claims by itself: a new leader finds the stops of the last one.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from bireme.kube.cluster_state import ClusterState
from bireme.kube.pods import PodFacts
from bireme_operator.lifecycle import EVICTING_SECONDS

# A stop that has not ended by then was given up: pods that stay are deleted before.
_MAX_SECONDS = EVICTING_SECONDS + 60.0


@dataclass(frozen=True, slots=True)
class _Claim:
    pods: tuple[PodFacts, ...]
    until: float


@dataclass(slots=True)
class BudgetClaims:
    """The claims of one leader term; ``clock`` is monotonic seconds.

    Attributes:
        lock: Held from the moment budgets are read until the stops that they allow are claimed.
    """

    state: ClusterState
    clock: Callable[[], float]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _claims: dict[str, _Claim] = field(default_factory=dict)

    def add(self, uid: str, pods: Iterable[PodFacts]) -> None:
        """Claim the eviction of ``pods`` for the gang ``uid``."""
        self._claims[uid] = _Claim(tuple(pods), self.clock() + _MAX_SECONDS)

    def drop(self, uid: str) -> None:
        """Give up the claim of the gang ``uid``, which does not stop."""
        self._claims.pop(uid, None)

    def pending(self, namespace: str, without: Container[str] = ()) -> list[PodFacts]:
        """Return pods of ``namespace`` that are to go and are not leaving yet, each once.

        Those of gangs with a uid in ``without`` are left out.
        """
        now = self.clock()
        self._claims = {
            uid: claim
            for uid, claim in self._claims.items()
            if now < claim.until and any(map(self._current, claim.pods))
        }
        found: dict[str, PodFacts] = {}
        for uid, claim in self._claims.items():
            if uid not in without:
                found.update(self._staying(namespace, claim.pods))
        for key, job in self.state.jobs.items():
            if key[0] != namespace or job.uid in without:
                continue
            if job.plan is not None and job.plan.attempt != job.attempt:
                found.update(self._staying(namespace, self.state.pods_of(job)))
        return list(found.values())

    def _staying(self, namespace: str, pods: Sequence[PodFacts]) -> dict[str, PodFacts]:
        current = (self._current(pod) for pod in pods if pod.key[0] == namespace)
        return {pod.uid: pod for pod in current if pod is not None}

    def _current(self, pod: PodFacts) -> PodFacts | None:
        """Return the pod as it is now; None if it is gone, ends or has ended."""
        known = self.state.members.get(pod.key)
        if known is None or known.uid != pod.uid or known.is_leaving or known.is_terminal:
            return None
        return known
