"""Counts of Jobs: numbers of their succeeded pods, also of pods that no operator saw.

A Job counts a pod before the API server deletes the pod, and never creates that pod again. If a pod
ended and vanished while no operator watched, only this count shows it.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field

import msgspec
import structlog

from bireme.core.gangs import Key
from bireme.kube import wire
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_groups import GroupFacts
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
# The first pause between two reads for one group, doubled each time, and the longest.
_PAUSES_SECONDS = (1.0, 300.0)
# Limit of Jobs read for one group: most groups have one, and a JobSet has one for each task.
_MAX_JOBS = 16


class _Meta(wire.Wire, frozen=True):
    uid: str = ""


class _Status(wire.Wire, frozen=True):
    succeeded: int | None = None


class _Job(wire.Wire, frozen=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()


@dataclass(slots=True)
class JobCounts:
    """Reads the Jobs of groups that lack members; ``clock`` is monotonic seconds."""

    state: ClusterState
    work: WorkQueue
    writes: Writes
    clock: Callable[[], float]
    _reads: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By uid of the group: the number of reads in a row, and the time of the next."""

    def read(self, group: GroupFacts) -> bool:
        """Start to read the Jobs of gated pods that lack other members; return False if none."""
        jobs = self._incomplete_jobs(group)
        if not jobs:
            self._reads.pop(group.uid, None)
            return False
        count, due = self._reads.get(group.uid, (0, 0.0))
        if self.clock() < due:
            return False
        first, limit = _PAUSES_SECONDS
        pause = min(first * 2.0 ** min(count, 30), limit)
        self._reads[group.uid] = count + 1, self.clock() + pause
        self.work.start(group.key, self._read(group.key, jobs))
        return True

    def _incomplete_jobs(self, group: GroupFacts) -> dict[str, str]:
        """Return uid and name of the Jobs of waiting pods whose other members may have ended."""
        newcomers = self.state.waiting.newcomers(group)
        if group.is_leaving or group.spec is None or not newcomers:
            return {}
        places, needed = self.state.waiting.placement_of(group, newcomers), group.spec.min_member
        is_whole = not places.lost and places.count + len(newcomers) >= needed
        if places.count >= needed or is_whole:
            return {}
        jobs = {
            owner.uid: owner.name
            for pod in newcomers
            if (gated_pod := self.state.objects.gated.manifests.get(pod.key)) is not None
            for owner in gated_pod.metadata.owner_references or ()
            if owner.controller and (owner.api_version, owner.kind) == ("batch/v1", "Job")
        }
        return dict(list(jobs.items())[:_MAX_JOBS])

    async def _read(self, group: Key, jobs: dict[str, str]) -> None:
        counts: dict[str, int] = {}
        for uid, name in jobs.items():
            try:
                answer = await self.writes.get(f"/apis/batch/v1/namespaces/{group[0]}/jobs/{name}")
                job = msgspec.json.decode(answer, type=_Job)
            except (ApiError, msgspec.DecodeError) as error:
                # The gang is not at fault: it waits as before, and the Job is read again.
                _log.info("job not read", gang=group, job=name, error=str(error))
                continue
            if job.metadata.uid == uid:
                counts[uid] = job.status.succeeded or 0
        self.state.objects.put_job_counts(group, counts)

    def forget(self, uids: Container[str]) -> None:
        """Drop the records of deleted groups; ``uids`` are those of the existing ones."""
        self._reads = {uid: read for uid, read in self._reads.items() if uid in uids}
