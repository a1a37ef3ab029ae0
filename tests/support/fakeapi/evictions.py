"""Evictions as the API server grants them: a pod that runs goes only if its budget lets it.

A budget's ``status.disruptionsAllowed`` counts down with every pod; raising it again is the work of
a controller, and here of the test. Selectors know ``matchLabels`` alone.
"""

from tests.support.fakeapi.store import Key, Object, Refusal, Store

PODS = "/api/v1/pods"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def evict(store: Store, pod: Key, eviction: Object) -> Object:
    """Delete ``pod`` if its uid is the one asked for and no budget forbids it (429)."""
    found = store.get(PODS, pod)
    options = eviction.get("deleteOptions") or {}
    if found.get("status", {}).get("phase") == "Running":
        covering = [key for key in store.collection(BUDGETS).objects if _covers(store, key, found)]
        if len(covering) > 1:
            raise Refusal(500, "InternalError", "This pod has more than one PodDisruptionBudget")
        for budget in covering:
            _spend(store, budget)
    store.delete(PODS, pod, options.get("preconditions") or {}, options.get("gracePeriodSeconds"))
    return {"kind": "Status", "apiVersion": "v1", "status": "Success"}


def _covers(store: Store, budget: Key, pod: Object) -> bool:
    wanted: dict[str, str] = store.get(BUDGETS, budget)["spec"]["selector"]["matchLabels"]
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    is_beside = bool(budget[0] == pod["metadata"]["namespace"])
    return is_beside and wanted.items() <= labels.items()


def _spend(store: Store, budget: Key) -> None:
    status = store.get(BUDGETS, budget).get("status") or {}
    allowed = int(status.get("disruptionsAllowed") or 0)
    if allowed < 1:
        message = "Cannot evict pod as it would violate the pod's disruption budget."
        raise Refusal(429, "TooManyRequests", message)
    spent = {"status": {**status, "disruptionsAllowed": allowed - 1}}
    store.update(BUDGETS, budget, spent, "status")
