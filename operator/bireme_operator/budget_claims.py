"""Claims on PodDisruptionBudgets: pods that stops under way will evict, which no budget shows yet.

A budget states how many pods may be evicted now. Between the decision to stop a gang and the
eviction of its last pod it still counts that gang's pods as staying. Without a claim, a second stop
would use room in the budget that the first one needs, and both would end halfway. Recorded stops
count without a claim, so a new leader respects the stops of the previous one.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from bireme.kube.cluster_state import ClusterState
from bireme.kube.pods import PodFacts
from bireme_operator.lifecycle import EVICTING_SECONDS

# Lifetime of a claim. A longer stop was abandoned, as remaining pods are deleted before.
_MAX_SECONDS = EVICTING_SECONDS + 60.0


@dataclass(frozen=True, slots=True)
class _Claim:
    pods: tuple[PodFacts, ...]
    until: float


@dataclass(slots=True)
class BudgetClaims:
    """The claims of one leader term; ``clock`` is monotonic seconds.

    Attributes:
        lock: Held from the read of budgets until the allowed stops are claimed.
    """

    state: ClusterState
    clock: Callable[[], float]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _claims: dict[str, _Claim] = field(default_factory=dict)

    def add(self, uid: str, pods: Iterable[PodFacts]) -> None:
        """Claim the eviction of ``pods`` for the gang ``uid``."""
        self._claims[uid] = _Claim(tuple(pods), self.clock() + _MAX_SECONDS)

    def drop(self, uid: str) -> None:
        """Drop the claim of the gang ``uid``, which does not stop."""
        self._claims.pop(uid, None)

    def pending(self, namespace: str, without: Container[str] = ()) -> list[PodFacts]:
        """Return the pods of ``namespace`` that will be evicted and are not leaving yet, each once.

        The result omits the pods of gangs with a uid in ``without``.
        """
        now = self.clock()
        self._claims = {
            uid: claim
            for uid, claim in self._claims.items()
            if now < claim.until and any(map(self._current, claim.pods))
        }
        pods_by_uid: dict[str, PodFacts] = {}
        for uid, claim in self._claims.items():
            if uid not in without:
                pods_by_uid.update(self._staying(namespace, claim.pods))
        for key, job in self.state.objects.jobs.items():
            if key[0] != namespace or job.uid in without:
                continue
            if job.plan is not None and job.plan.attempt != job.attempt:
                pods_by_uid.update(self._staying(namespace, self.state.objects.pods_of(job)))
        return list(pods_by_uid.values())

    def _staying(self, namespace: str, pods: Sequence[PodFacts]) -> dict[str, PodFacts]:
        current = (self._current(pod) for pod in pods if pod.key[0] == namespace)
        return {pod.uid: pod for pod in current if pod is not None}

    def _current(self, pod: PodFacts) -> PodFacts | None:
        """Return the present state of the pod; None if it is deleted, ending or ended."""
        current = self.state.objects.members.get(pod.key)
        if current is None or current.uid != pod.uid or current.is_leaving or current.is_terminal:
            return None
        return current
