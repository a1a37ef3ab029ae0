"""Preemption by the scheduler: pods of lower priority go, so that one of higher has their node.

Source: ``pkg/scheduler/framework/preemption`` and the plugin ``DefaultPreemption`` of Kubernetes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.controllers.budgets import covered
from bireme_lab.embedded.objects import is_leaving
from bireme_lab.embedded.scheduler.cache import Cache

REASON: Final = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class Preemption:
    """A node, and the pods that would go from it.

    Attributes:
        victims: The most important one first.
        violations: How many of them a PodDisruptionBudget would keep.
    """

    node: str
    victims: tuple[Object, ...]
    violations: int


def find_preemption(
    pod: Object, names: Iterable[str], cache: Cache, budgets: Sequence[Object],
    fits: Callable[[str], bool],
) -> Preemption | None:  # fmt: skip
    """Return the node where preemption costs least; ``fits`` judges the cache as it is then."""
    candidates = [
        candidate
        for name in names
        if (candidate := _preemption_on(name, pod, cache, budgets, fits)) is not None
    ]
    return min(candidates, key=_cost) if candidates else None


def may_preempt(pod: Object, cache: Cache) -> str:
    """Return kube-scheduler's words against a preemption for a pod; empty for none."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never."
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    if nominated and any(
        is_leaving(other) and _is_preempted(other) and priority_of(other) < priority_of(pod)
        for other in cache.use(nominated).pods.values()
    ):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


def helps(name: str, cache: Cache, fits: Callable[[str], bool]) -> bool:
    """Return whether a pod fits on a node once all others are gone from there."""
    with cache.without(list(cache.use(name).pods.values())):
        return fits(name)


def priority_of(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


def _preemption_on(
    name: str, pod: Object, cache: Cache, budgets: Sequence[Object], fits: Callable[[str], bool]
) -> Preemption | None:
    lower = [
        other
        for other in cache.use(name).pods.values()
        if priority_of(other) < priority_of(pod) and not is_leaving(other)
    ]
    lower.sort(key=_importance)
    violating = _violating(lower, budgets)
    victims: list[Object] = []
    with cache.without(lower):
        if not fits(name):
            return None
        # Those that a budget keeps are spared first.
        for other in sorted(lower, key=lambda victim: victim["metadata"]["uid"] not in violating):
            uid = other["metadata"]["uid"]
            cache.put_pod(uid, other)
            if not fits(name):
                cache.put_pod(uid, None)
                victims.append(other)
    if not victims:
        return None
    violations = sum(victim["metadata"]["uid"] in violating for victim in victims)
    return Preemption(name, tuple(sorted(victims, key=_importance)), violations)


def _importance(pod: Object) -> tuple[int, str]:
    """Return a key by which the most important pod is first: high priority, early start."""
    return -priority_of(pod), _start_time(pod)


def _start_time(pod: Object) -> str:
    return str((pod.get("status") or {}).get("startTime") or "9")  # after every time


def _violating(pods: Sequence[Object], budgets: Sequence[Object]) -> set[str]:
    """Return the uids of pods whose end a budget does not allow, once those before it are gone."""
    uids: set[str] = set()
    for budget in budgets:
        allowed = int((budget.get("status") or {}).get("disruptionsAllowed") or 0)
        pods_of_budget = covered(budget, list(pods))
        uids.update(pod["metadata"]["uid"] for pod in pods_of_budget[allowed:])
    return uids


def _cost(candidate: Preemption) -> tuple[int, int, int, int, tuple[int, ...]]:
    """Return what decides: budgets, the highest priority, their sum, their number, late starts."""
    priorities = [priority_of(victim) for victim in candidate.victims]
    # Sums count from the lowest priority, so that more pods are never cheaper.
    return (
        candidate.violations,
        priorities[0],
        sum(priority + 2**31 for priority in priorities),
        len(priorities),
        tuple(-ord(letter) for letter in _start_time(candidate.victims[0])),
    )


def _is_preempted(pod: Object) -> bool:
    conditions: Sequence[Mapping[str, str]] = (pod.get("status") or {}).get("conditions") or ()
    return any(
        item["type"] == "DisruptionTarget" and item["reason"] == REASON for item in conditions
    )
