"""Who acts on plans at the moment they are written: between plan and bind."""

from collections.abc import Callable

from testbed.fakeapi.store import Change, Object, Store
from testbed.history.observed import planned_nodes
from testbed.simcluster.objects import GROUPS, JOBS


def on_new_plan(store: Store, call: Callable[[list[str]], None]) -> None:
    """Call with the names of its nodes, sorted, whenever a gang gets a plan."""

    def changed(change: Change) -> None:
        plan = _plan(change.after)
        if plan and plan.get("plannedTime") != _plan(change.before).get("plannedTime"):
            call(sorted(set(planned_nodes(plan).values())))

    for resource in (JOBS, GROUPS):
        store.collection(resource).subscribers.append(changed)


def _plan(owner: Object | None) -> Object:
    return ((owner or {}).get("status") or {}).get("plan") or {}
