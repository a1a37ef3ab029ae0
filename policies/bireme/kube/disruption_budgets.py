"""PodDisruptionBudgets: whether a whole gang may be stopped, judged before anything is touched.

The Eviction API asks the budgets pod by pod, so it would stop half of a gang and then refuse. Here
all pods of a gang are counted first. The rules are those of the API server (Kubernetes
documentation, "API-initiated Eviction"): only pods that run count, a pod under two budgets cannot
be evicted at all, and a budget whose status is older than its spec allows nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError

from bireme.kube import wire
from bireme.kube.api.queues import LabelSelector
from bireme.kube.pods import PodFacts


class _Spec(wire.Wire, frozen=True):
    selector: dict[str, Any] | None = None


class _Status(wire.Wire, frozen=True):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class _Manifest(wire.Wire, frozen=True):
    metadata: wire.V1ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _List(wire.Wire, frozen=True):
    items: tuple[_Manifest, ...] | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget. A ``selector`` that cannot be read covers every pod."""

    name: str
    allowed: int
    """How many pods it lets go at this moment."""
    selects_nothing: bool
    selector: LabelSelector | None

    def covers(self, pod: PodFacts) -> bool:
        """Whether ``pod``, of the same namespace, counts against it."""
        if self.selects_nothing or pod.phase != "Running" or pod.is_leaving:
            return False
        return self.selector is None or self.selector.selects(pod.labels)


def read(answer: bytes) -> tuple[Budget, ...]:
    """The budgets in a list of the API server.

    Raises:
        msgspec.DecodeError: it is no such list.
    """
    return tuple(map(_budget, msgspec.json.decode(answer, type=_List).items or ()))


def _budget(manifest: _Manifest) -> Budget:
    given, status = manifest.spec.selector, manifest.status
    is_current = status.observed_generation >= manifest.metadata.generation
    selector = None
    if given is not None:
        try:
            selector = LabelSelector.model_validate(given, extra="ignore")
        except ValidationError:
            selector = None
    return Budget(
        name=manifest.metadata.name,
        allowed=max(0, status.disruptions_allowed) if is_current else 0,
        selects_nothing=given is None,
        selector=selector,
    )


def refusal(
    budgets: Iterable[Budget], pods: Sequence[PodFacts], before: Sequence[PodFacts] = ()
) -> str:
    """Why the budgets of their namespace keep ``pods`` from being stopped; empty if they do not.

    ``before`` are pods of that namespace that are to be stopped first.
    """
    covering: dict[str, str] = {}
    for budget in budgets:
        own = [pod for pod in pods if budget.covers(pod)]
        for pod in own:
            other = covering.setdefault(pod.uid, budget.name)
            if other != budget.name:
                return f"budgets {other} and {budget.name} both cover pod {pod.key[1]}"
        going = len(own) + sum(budget.covers(pod) for pod in before)
        if own and going > budget.allowed:
            return f"budget {budget.name} lets {budget.allowed} pods go, {going} would have to"
    return ""
