"""Numbers of succeeded pods that workloads count themselves, also of pods that no operator saw.

If a pod ended and vanished while no operator watched, only the count of its controller shows it.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field

import msgspec
import structlog

from bireme.core.gangs import Key
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.integrations import integration_of
from bireme.kube.integrations.integration import Integration, controller_of
from bireme.kube.pod_groups import GroupFacts
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
# The first pause between two reads for one group, doubled each time, and the longest.
_PAUSES_SECONDS = (1.0, 300.0)
# Limit of workloads read for one group: most groups have one, others one for each task.
_MAX_OWNERS = 16


@dataclass(slots=True)
class SuccessCounts:
    """Reads the owners of pods of groups that lack members; ``clock`` is monotonic seconds."""

    state: ClusterState
    work: WorkQueue
    writes: Writes
    clock: Callable[[], float]
    _reads: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By uid of the group: the number of reads in a row, and the time of the next."""

    def read(self, group: GroupFacts) -> bool:
        """Start to read the owners of gated pods that lack other members; return False if none."""
        owners = self._incomplete_owners(group)
        if not owners:
            self._reads.pop(group.uid, None)
            return False
        count, due = self._reads.get(group.uid, (0, 0.0))
        if self.clock() < due:
            return False
        first, limit = _PAUSES_SECONDS
        pause = min(first * 2.0 ** min(count, 30), limit)
        self._reads[group.uid] = count + 1, self.clock() + pause
        self.work.start(group.key, self._read(group.key, owners))
        return True

    def _incomplete_owners(self, group: GroupFacts) -> dict[str, tuple[Integration, str]]:
        """Return kind and name, by uid, of the owners whose other members may have ended."""
        newcomers = self.state.waiting.newcomers(group)
        if group.is_leaving or group.spec is None or not newcomers:
            return {}
        places, needed = self.state.waiting.placement_of(group, newcomers), group.spec.min_member
        is_whole = not places.lost and places.count + len(newcomers) >= needed
        if places.count >= needed or is_whole:
            return {}
        owners: dict[str, tuple[Integration, str]] = {}
        for pod in newcomers:
            gated_pod = self.state.objects.gated.manifests.get(pod.key)
            owner = controller_of(gated_pod.metadata) if gated_pod is not None else None
            kind = integration_of(owner.api_version, owner.kind) if owner is not None else None
            if owner is not None and kind is not None and kind.counts_succeeded:
                owners[owner.uid] = kind, owner.name
        return dict(list(owners.items())[:_MAX_OWNERS])

    async def _read(self, group: Key, owners: dict[str, tuple[Integration, str]]) -> None:
        counts: dict[str, int] = {}
        for uid, (kind, name) in owners.items():
            try:
                workload = kind.read(await self.writes.get(kind.path((group[0], name))))
            except (ApiError, msgspec.DecodeError) as error:
                # The gang is not at fault: it waits as before, and its owner is read again.
                _log.info("owner not read", gang=group, kind=kind.kind, name=name, error=str(error))
                continue
            if workload.meta.uid == uid:
                counts[uid] = workload.succeeded
        self.state.objects.put_job_counts(group, counts)

    def forget(self, uids: Container[str]) -> None:
        """Drop the records of deleted groups; ``uids`` are those of the existing ones."""
        self._reads = {uid: read for uid, read in self._reads.items() if uid in uids}
