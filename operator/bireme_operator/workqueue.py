"""One task at a time for each gang; back-off after failures.

While a task works on a gang, the gang is *busy*: it is neither reconciled nor decided on, and its
assumed plan keeps its places reserved. A task ends only when the caches have its writes, so the
operator never acts on a state older than its own writes. A failed task is not repeated: after a
pause the gang is reconciled again from its recorded state.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import structlog

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube.allocations import AssumedPlan
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator import lifecycle
from bireme_operator.rejections import AdmissionRejected, AdmissionRejections, denial_of
from bireme_operator.writes import PrioritySemaphore

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# First pause after a conflict: another client wrote, and the cache will soon have that version.
_CONFLICT_SECONDS = 0.05
# After this many doublings the pause after a conflict equals that after any other failure.
_MAX_DOUBLINGS = 10
# After this many failures in a row other gangs no longer wait for this one.
_PATIENCE = 3
# A gang reports an error of the API server after this many failed starts in a row.
_MAX_ERRORS = 3
# Conflicts and throttling are normal: they count once they have lasted this long.
_EVERYDAY_SECONDS = 10.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Failure:
    until: float
    in_a_row: int
    state: object
    first: float
    """Time of the first failure in the row."""


@dataclass(slots=True)
class BackOffs:
    """Pauses of gangs after failures, growing while the gang's state does not change.

    ``clock`` is monotonic seconds.
    """

    clock: Callable[[], float]
    _last: dict[Key, _Failure] = field(default_factory=dict)

    def are_over(self, key: Key) -> bool:
        """Return whether work on the gang may be started now."""
        return key not in self._last or self.clock() >= self._last[key].until

    def repeat_failures(self) -> list[Key]:
        """Return the pausing gangs that have failed too often for others to wait for them.

        A gang with fewer failures keeps its place in the order: one failed request must not cost
        its turn.
        """
        now = self.clock()
        return [
            key
            for key, last in self._last.items()
            if now < last.until and last.in_a_row > _PATIENCE
        ]

    def add(self, key: Key, error: Exception, state: object) -> float:
        """Record a failure while the gang was in ``state``; return the pause in seconds."""
        last = self._last.get(key)
        # If the gang has changed since, this counts as the first failure. So a gang with many
        # writes makes progress even if the API server sometimes fails.
        earlier_count = last.in_a_row if last is not None and last.state == state else 0
        pause = _PAUSES_SECONDS[min(earlier_count, len(_PAUSES_SECONDS) - 1)]
        if isinstance(error, ApiError):
            if error.is_conflict:
                pause = min(pause, _CONFLICT_SECONDS * 2 ** min(earlier_count, _MAX_DOUBLINGS))
            pause = max(pause, error.retry_after_seconds or 0.0)
        now = self.clock()
        first = last.first if last is not None and earlier_count else now
        self._last[key] = _Failure(now + pause, earlier_count + 1, state, first)
        return pause

    def is_lasting(self, key: Key, error: ApiError, max_errors: int = _MAX_ERRORS) -> bool:
        """Return whether ``error``, the latest of the gang, has come too often to be transient."""
        last = self._last.get(key)
        if last is None:
            return False
        if error.status in (0, 409, 429):
            is_old = self.clock() - last.first >= _EVERYDAY_SECONDS
            return is_old and last.in_a_row >= _MAX_ERRORS
        return last.in_a_row >= max_errors

    def end(self, key: Key) -> None:
        """Forget the failures of a gang whose work succeeded."""
        self._last.pop(key, None)

    def forget(self, keys: set[Key]) -> None:
        """Drop the records of deleted gangs; ``keys`` are those of the existing ones."""
        self._last = {key: last for key, last in self._last.items() if key in keys}


class WorkQueue:
    """Runs tasks on gangs.

    Args:
        slots: Gives every task its number in the order of writes.
        clock: Monotonic seconds.
        is_answering: Returns whether the API server answers a request that concerns no gang.

    Attributes:
        busy: Gangs with a task under way, and the assumed plan of each, if any.
        rejections: The gangs whose objects the API server rejects.
    """

    def __init__(
        self,
        state: ClusterState,
        slots: PrioritySemaphore,
        clock: Callable[[], float],
        is_answering: Callable[[], Awaitable[bool]],
    ) -> None:
        self.busy: dict[Key, AssumedPlan | None] = {}
        self.rejections = AdmissionRejections(clock)
        self._state = state
        self._slots = slots
        self._is_answering = is_answering
        self._back_offs = BackOffs(clock)
        self._tasks = Tasks()

    def is_free(self, key: Key) -> bool:
        """Return whether work on the gang may be started now."""
        return key not in self.busy and self._back_offs.are_over(key)

    def is_pausing(self, key: Key) -> bool:
        """Return whether the gang is in the pause after a failure."""
        return not self._back_offs.are_over(key)

    def assumed_plans(self) -> dict[Key, AssumedPlan]:
        """Return the plans that count as written although the cache does not have them yet."""
        return {key: plan for key, plan in self.busy.items() if plan is not None}

    def keys_to_skip(self) -> set[Key]:
        """Return the gangs to leave out of a cycle."""
        # Not all busy gangs: a gang that is left out loses its place in the order.
        return {*self.assumed_plans(), *self._back_offs.repeat_failures()}

    def start(
        self, key: Key, work: Coroutine[Any, Any, None], assumed: AssumedPlan | None = None
    ) -> None:
        self.busy[key] = assumed
        self._tasks.start(self._run(key, work))

    async def _run(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        # All writes of this task, and of its child tasks, follow the order of admissions.
        self._slots.take_number()
        try:
            await work
            self._back_offs.end(key)
        except AdmissionRejected as rejected:
            job = self._state.objects.jobs.get(key)
            if job is not None:
                self.reject(job, rejected, is_dry_run=job.plan is None)
        except NotLeader:
            _log.info("write stopped: not the leader any more", gang=key)
        except ApiError as error:
            await self.fail(key, error)
        except Exception as error:  # noqa: BLE001  # a bug in one gang's work must not stop the others
            _log.exception("work on a gang failed", gang=key)
            self.back_off(key, error)
        finally:
            del self.busy[key]
            # Changes during the task were skipped, so reconcile the gang again in any case.
            self._state.changes.requeue(key)

    def reject(
        self,
        gang: JobFacts | GroupFacts,
        rejected: AdmissionRejected,
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Remember that the API server rejects an object of ``gang``, perhaps in a dry run."""
        # Only a new dry run shows the end of the rejection.
        if isinstance(gang, JobFacts):
            self._state.mutations.forget(gang)
        self.rejections.add(gang, rejected, is_dry_run=is_dry_run)
        self._back_offs.end(gang.key)

    async def fail(self, key: Key, error: ApiError) -> None:
        """Pause the gang after ``error`` of the API server, or reject it if the error lasts."""
        self.back_off(key, error)
        gang = self._starting(key)
        if gang is None:
            return
        rejected = denial_of(error)
        if rejected is None and await self._is_of_gang(gang, error):
            message = f"the API server answers with an error again and again: {error}"
            rejected = AdmissionRejected(Reason.PODS_REFUSED, message)
        if rejected is not None:
            self.reject(gang, rejected, is_dry_run=gang.plan is None)
            self._state.changes.requeue(key)

    async def _is_of_gang(self, gang: JobFacts | GroupFacts, error: ApiError) -> bool:
        """Return whether an error lasts, and concerns this gang and not the API server itself."""
        max_errors = 1 if self.rejections.is_remembered(gang.uid) else _MAX_ERRORS
        if not (error.is_lasting or self._back_offs.is_lasting(gang.key, error, max_errors)):
            return False
        is_of_server = error.is_retryable or error.status == HTTPStatus.UNAUTHORIZED
        return not is_of_server or await self._is_answering()

    def _starting(self, key: Key) -> JobFacts | GroupFacts | None:
        """Return the gang if it waits, or if some of its pods are missing or gated."""
        job, view = self._state.objects.jobs.get(key), self._state.views.get(key)
        if job is not None:
            if job.is_finished or job.is_leaving:
                return None
            if job.plan is None:
                return job
            return job if lifecycle.is_incomplete(job, view) else None
        group = self._state.objects.groups.get(key)
        if group is None or group.is_leaving:
            return None
        is_held = view is None or any(pod is not None and pod.is_gated for _, pod in view.members)
        return group if is_held else None

    def back_off(self, key: Key, error: Exception) -> None:
        """Pause the gang after ``error``."""
        state = self._state
        job, group = state.objects.jobs.get(key), state.objects.groups.get(key)
        versions = tuple(facts.resource_version for facts in (job, group) if facts is not None)
        pause = self._back_offs.add(key, error, (versions, len(state.objects.members_of(key))))
        asyncio.get_running_loop().call_later(pause, state.changes.requeue, key)
        _log.info("will try again", gang=key, seconds=pause, error=str(error))

    def forget(self, keys: set[Key]) -> None:
        """Drop the records of deleted gangs; ``keys`` are those of the existing ones."""
        self._back_offs.forget(keys)

    async def close(self) -> None:
        await self._tasks.close()
