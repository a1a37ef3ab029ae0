"""The disruption controller: how many pods each PodDisruptionBudget lets go."""

import math
from dataclasses import dataclass, field
from typing import Any

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.api.object_selectors import matches_labels
from bireme_lab.embedded.api.store import Key, StoreChange
from bireme_lab.embedded.client import Client
from bireme_lab.embedded.controllers.work import KeyQueue
from bireme_lab.embedded.objects import is_ended, is_leaving, is_ready, key_of


@dataclass(eq=False)
class Budgets:
    """Follows budgets and pods; runs as a task of the cluster's loop."""

    client: Client
    work: KeyQueue[Key] = field(init=False)

    def __post_init__(self) -> None:
        self.work = KeyQueue(self._sync)

    def start(self) -> None:
        self.client.follow(kinds.BUDGETS, self._changed)
        self.client.follow(kinds.PODS, self._pod_changed)

    def _changed(self, change: StoreChange) -> None:
        if change.new is not None:
            self.work.add(key_of(change.new))

    def _pod_changed(self, change: StoreChange) -> None:
        namespace = change.object["metadata"]["namespace"]
        for key in self.client.api.store.collection(kinds.BUDGETS).objects:
            if key[0] == namespace:
                self.work.add(key)

    def _sync(self, key: Key) -> None:
        budget = self.client.get(kinds.BUDGETS, key)
        if budget is None:
            return
        status = status_of(budget, covered(budget, self.client.objects(kinds.PODS)))
        old = budget.get("status") or {}
        self.client.set_status(kinds.BUDGETS, key, {**old, **status})


def covered(budget: Object, pods: list[Object]) -> list[Object]:
    """Return the pods that a budget counts."""
    selector = (budget.get("spec") or {}).get("selector")
    return [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == budget["metadata"]["namespace"]
        and not is_ended(pod)
        and matches_labels(selector, pod["metadata"].get("labels") or {})
    ]


def status_of(budget: Object, pods: list[Object]) -> Object:
    """Return the counts of a budget over its pods."""
    spec = budget.get("spec") or {}
    healthy = sum(is_ready(pod) and not is_leaving(pod) for pod in pods)
    expected = len(pods)
    if spec.get("maxUnavailable") is not None:
        desired = max(0, expected - _share(spec["maxUnavailable"], expected))
    else:
        desired = _share(spec.get("minAvailable", 0), expected)
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
        "observedGeneration": budget["metadata"].get("generation", 1),
    }


def _share(value: Any, whole: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(whole * int(value[:-1]) / 100)
    return int(value)
