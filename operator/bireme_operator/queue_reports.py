"""What a Queue says about itself: who holds what, who waits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import holdings, quantity
from bireme.kube.cluster_state import ClusterState
from bireme_operator.gang_metrics import GangMetrics
from bireme_operator.status import Status
from bireme_operator.status_reports import Reporting, StatusReports


@dataclass(frozen=True, slots=True)
class _QueueFacts:
    name: str
    uid: str
    resource_version: str
    status: dict[str, Any]


class QueueReports(StatusReports):
    """Writes ``Queue.status`` when it differs, at most once per sweep."""

    kind = "Queue"
    news = ("admitted", "pending", "usage")

    def __init__(self, state: ClusterState, metrics: GangMetrics, to: Reporting) -> None:
        super().__init__(to)
        self._state = state
        self._metrics = metrics
        self._counted: dict[str, dict[str, Any]] = {}

    def report(self, snapshot: ClusterSnapshot) -> None:
        """Count what ``snapshot`` says, and report it unless the last report is still written."""
        self._counted = self._statuses(snapshot)
        self.offer()

    def show(self) -> None:
        """See :class:`StatusReports`."""
        counts = {
            name: {s: each[s] for s in ("admitted", "pending")}
            for name, each in self._counted.items()
        }
        self._metrics.show_queues(counts)

    def said(self) -> Iterator[tuple[_QueueFacts, Status]]:
        """See :class:`StatusReports`."""
        for name, counted in self._counted.items():
            queue = self._state.standing.queue_manifests.get(name)
            if queue is not None:
                meta, before = queue.metadata, queue.status
                facts = _QueueFacts(name, meta.uid, meta.resource_version, before)
                yield facts, {**before, **counted}

    def _statuses(self, snapshot: ClusterSnapshot) -> dict[str, dict[str, Any]]:
        said: dict[str, dict[str, Any]] = {
            name: {"admitted": 0, "pending": 0, "usage": {}} for name in snapshot.queues
        }
        for key, group in self._state.groups.items():
            view = self._state.view(key)
            if view is None:
                continue
            queue = holdings.queue_of(group, view.plan)
            if queue in said:
                said[queue]["admitted"] += 1
        for gang in snapshot.waiting:
            if gang.queue in said:
                said[gang.queue]["pending"] += 1
        for name, used in snapshot.queue_usage.items():
            if name in said:
                said[name]["usage"] = {
                    resource: quantity.format(resource, min(amount, quantity.LARGEST))
                    for resource, amount in sorted(used.items())
                    if amount
                }
        return said
