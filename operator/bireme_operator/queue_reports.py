"""What a Queue says about itself: who holds what, who waits."""

import asyncio
from typing import Any

import structlog

from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import quantity
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme_operator.gang_metrics import GangMetrics
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)


class QueueReports:
    """Writes ``Queue.status`` when it differs, at most once per sweep."""

    def __init__(self, state: ClusterState, writes: Writes, metrics: GangMetrics) -> None:
        self._state = state
        self._writes = writes
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None

    def offer(self, snapshot: ClusterSnapshot) -> None:
        """Count what ``snapshot`` says, and report it unless the last report is still written."""
        said = self._statuses(snapshot)
        counts = {
            name: {s: each[s] for s in ("admitted", "pending")} for name, each in said.items()
        }
        self._metrics.show_queues(counts)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all(said))

    async def _write_all(self, said: dict[str, dict[str, Any]]) -> None:
        for name, wanted in said.items():
            queue = self._state.standing.queue_manifests.get(name)
            if queue is None or {**queue.status, **wanted} == queue.status:
                continue
            version = queue.metadata.resource_version
            try:
                status = {**queue.status, **wanted}
                await self._writes.write_status("Queue", name, version, status)
            except ApiError as error:
                if not (error.is_conflict or error.is_not_found):
                    _log.info("queue status not written", queue=name, error=str(error))
            except NotLeader:
                return

    async def close(self) -> None:
        """Stop the report under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _statuses(self, snapshot: ClusterSnapshot) -> dict[str, dict[str, Any]]:
        said: dict[str, dict[str, Any]] = {
            name: {"admitted": 0, "pending": 0, "usage": {}} for name in snapshot.queues
        }
        for key, group in self._state.groups.items():
            queue = group.spec.queue if group.spec is not None else ""
            if queue in said and self._state.view(key) is not None:
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
