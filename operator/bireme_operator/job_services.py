"""Restores the Service of a running TrainingJob, through which its replicas find each other.

A user may delete the Service, or a GitOps tool may prune it. Only the next look-up fails then: that
of a joining elastic replica, or of a restarted process. This module leaves another owner's Service
of the name alone and reports it on the job, whose running replicas go on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from bireme.core.reasons import Reason
from bireme.kube.allocations import GangView
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.training_jobs import JobFacts
from bireme_operator.actuator import Actuator
from bireme_operator.events import Events
from bireme_operator.lifecycle import ACTIVE
from bireme_operator.rejections import AdmissionRejected
from bireme_operator.status import Status
from bireme_operator.workqueue import WorkQueue

# First and longest pause between two attempts; pauses double.
_PAUSES_SECONDS: Final = 5.0, 600.0
_MAX_ERRORS: Final = 3
_CONSEQUENCE: Final = "its replicas cannot find each other"


@dataclass(slots=True)
class ServiceRestorer:
    """Creates Services that are missing; ``clock`` is monotonic seconds."""

    state: ClusterState
    work: WorkQueue
    actuator: Actuator
    events: Events
    clock: Callable[[], float]
    _next_try: dict[str, float] = field(default_factory=dict)
    _obstacles: dict[str, str] = field(default_factory=dict)
    _errors: Counter[str] = field(default_factory=Counter)
    _hidden: Counter[str] = field(default_factory=Counter)
    """By uid of the job, how often in a row its Service existed although the watch lacks it."""

    def restore(self, job: JobFacts, view: GangView) -> bool:
        """Start to create the Service if a job has pods and lacks it; return whether it started."""
        has_pods = any(pod is not None for _, pod in view.members)
        is_current = job.phase in ACTIVE and view.plan.attempt == job.attempt
        is_named = job.spec is not None and job.spec.rendezvous != "none"
        if not (has_pods and is_current and is_named):
            return False
        if not self.state.services.is_missing(job.key, job.uid):
            self._obstacles.pop(job.uid, None)
            if self._hidden.pop(job.uid, 0):
                self._next_try.pop(job.uid, None)
            return False
        if self.clock() < self._next_try.get(job.uid, 0.0):
            return False
        # The watch may lag behind a creation, and another owner's Service may stay for long.
        first, max_pause = _PAUSES_SECONDS
        pause = min(first * 2.0 ** min(self._hidden[job.uid], 30), max_pause)
        self._next_try[job.uid] = self.clock() + pause
        asyncio.get_running_loop().call_later(pause, self.state.changes.requeue, job.key)
        self.work.start(job.key, self._create(job))
        return True

    async def _create(self, job: JobFacts) -> None:
        try:
            is_new = await self.actuator.create_service(job, may_exist=True)
        except AdmissionRejected as rejected:
            await self._report(job, str(rejected))
        except ApiError as error:
            self._errors[job.uid] += 1
            # Three errors in a row are not transient. A missing answer is not about this Service.
            if self._errors[job.uid] >= _MAX_ERRORS and error.status:
                await self._report(job, str(error))
            raise
        else:
            # The watch selects by label, which a user may have removed.
            self._hidden[job.uid] = 0 if is_new else self._hidden[job.uid] + 1
            self._obstacles.pop(job.uid, None)
            self._errors.pop(job.uid, None)

    async def _report(self, job: JobFacts, cause: str) -> None:
        message = f"its Service is gone, and {_CONSEQUENCE}: {cause}"
        if self._obstacles.get(job.uid) != message:
            self._obstacles[job.uid] = message
            await self.events.post("TrainingJob", job.key, job.uid, Reason.PODS_REFUSED, message)

    def add_obstacle(self, status: Status, job: JobFacts) -> Status:
        """Return ``status`` with the obstacle to the Service in its message, or without one."""
        message = str(status.get("message") or "").partition("; its Service is gone")[0]
        if obstacle := self._obstacles.get(job.uid):
            message = f"{message}; {obstacle}"
        return {**status, "message": message}

    def forget(self, uids: Collection[str]) -> None:
        """Drop the records of deleted jobs; ``uids`` are those of the existing ones."""
        self._next_try = {uid: time for uid, time in self._next_try.items() if uid in uids}
        self._hidden = Counter({uid: n for uid, n in self._hidden.items() if uid in uids})
        self._errors = Counter({uid: n for uid, n in self._errors.items() if uid in uids})
        self._obstacles = {
            uid: obstacle for uid, obstacle in self._obstacles.items() if uid in uids
        }
