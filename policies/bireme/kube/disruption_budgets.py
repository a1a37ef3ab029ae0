"""PodDisruptionBudgets: check whether a whole gang may be evicted, before the first eviction.

The Eviction API checks budgets pod by pod, so it could evict half of a gang and then refuse. This
module counts all pods of a gang first, by the API server's rules (Kubernetes documentation,
"API-initiated Eviction"). Only running pods count. A pod under two budgets cannot be evicted. A
budget with a status older than its spec allows nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bireme.kube import wire
from bireme.kube.api.queues import LabelSelector
from bireme.kube.pods import PodFacts


class _Spec(wire.Wire, frozen=True):
    selector: dict[str, Any] | None = None


class _Status(wire.Wire, frozen=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0


class _V1Budget(wire.MetadataOnly, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget; with an unreadable selector (None) it covers every pod."""

    name: str
    allowed: int
    """Number of pods that may be evicted now."""
    selects_nothing: bool
    selector: LabelSelector | None

    def covers(self, pod: PodFacts) -> bool:
        """Return whether ``pod``, of the same namespace, counts against the budget."""
        if self.selects_nothing or pod.phase != "Running" or pod.is_leaving:
            return False
        return self.selector is None or self.selector.selects(pod.labels)


def read(manifests: Iterable[bytes | msgspec.Raw]) -> tuple[Budget, ...]:
    """Return the budgets of objects of the API server, each in JSON.

    Raises:
        one of envelopes.UNDECODABLE: an object is no budget.
    """
    return tuple(_budget(msgspec.json.decode(manifest, type=_V1Budget)) for manifest in manifests)


def _budget(manifest: _V1Budget) -> Budget:
    selector, status = manifest.spec.selector, manifest.status
    # An older observed generation means that the number is for an older spec.
    is_current = status.observed_generation >= manifest.metadata.generation
    return Budget(
        name=manifest.metadata.name,
        allowed=max(0, status.disruptions_allowed) if is_current else 0,
        selects_nothing=selector is None,
        selector=None if selector is None else LabelSelector.read(selector)[0],
    )


def refusal(
    budgets: Iterable[Budget], pods: Sequence[PodFacts], earlier: Sequence[PodFacts] = ()
) -> str:
    """Return the reason why the budgets forbid to evict all of ``pods``; empty if they allow it.

    ``earlier`` are pods of the same namespace that will be evicted first.
    """
    covering: dict[str, str] = {}
    for budget in budgets:
        covered_pods = [pod for pod in pods if budget.covers(pod)]
        for pod in covered_pods:
            other = covering.setdefault(pod.uid, budget.name)
            # The Eviction API refuses a pod under two budgets, whatever these allow.
            if other != budget.name:
                return f"budgets {other} and {budget.name} both cover pod {pod.key[1]}"
        going = len(covered_pods) + sum(budget.covers(pod) for pod in earlier)
        if covered_pods and going > budget.allowed:
            return f"budget {budget.name} allows {budget.allowed} evictions, {going} are needed"
    return ""
