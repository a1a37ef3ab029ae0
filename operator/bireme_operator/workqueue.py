"""One task at a time for each gang; back-off after failures.

While a task works on a gang, the gang is *busy*: it is neither reconciled nor decided on, and the
plan that is assumed for it keeps its places reserved. A task ends only when the caches have seen
its writes, so nothing is done from a state older than the operator's own writes. A task that fails
is not repeated here: the gang is reconciled again, from what is recorded, after a pause.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from bireme.core.gangs import Key
from bireme.kube.allocations import AssumedPlan
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.tasks import Tasks
from bireme_operator.rejections import AdmissionRejected, AdmissionRejections
from bireme_operator.writes import PrioritySemaphore

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# First pause after a conflict: another client wrote, and the cache is about to have it.
_CONFLICT_SECONDS = 0.05
# From there on the pause after a conflict is that after any other failure.
_MAX_DOUBLINGS = 10
# After so many failures in a row, other gangs need not wait for this one any more.
_PATIENCE = 3
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Failure:
    until: float
    in_a_row: int
    state: object


@dataclass(slots=True)
class BackOffs:
    """Pauses of gangs after failures, ever longer while the gang does not move.

    ``clock`` is monotonic seconds.
    """

    clock: Callable[[], float]
    _last: dict[Key, _Failure] = field(default_factory=dict)

    def are_over(self, key: Key) -> bool:
        """Return whether work on the gang may be started now."""
        return key not in self._last or self.clock() >= self._last[key].until

    def exhausted(self) -> list[Key]:
        """Return the gangs in a pause that have failed too often for others to wait for them.

        Until then a gang keeps its place in the order: one failed request must not cost it its
        turn.
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
        # Where something of the gang has changed since, this counts as the first failure: a gang
        # of many writes gets through an API server that fails now and then.
        before = last.in_a_row if last is not None and last.state == state else 0
        pause = _PAUSES_SECONDS[min(before, len(_PAUSES_SECONDS) - 1)]
        if isinstance(error, ApiError):
            if error.is_conflict:
                pause = min(pause, _CONFLICT_SECONDS * 2 ** min(before, _MAX_DOUBLINGS))
            pause = max(pause, error.retry_after_seconds or 0.0)
        self._last[key] = _Failure(self.clock() + pause, before + 1, state)
        return pause

    def end(self, key: Key) -> None:
        """Forget the failures of a gang whose work succeeded."""
        self._last.pop(key, None)

    def forget(self, keys: set[Key]) -> None:
        """Drop what is remembered of gangs that are gone; ``keys`` are those that exist."""
        self._last = {key: last for key, last in self._last.items() if key in keys}


class WorkQueue:
    """Runs tasks on gangs.

    Args:
        slots: Gives every task its place in the order in which writes are sent.
        clock: Monotonic seconds.

    Attributes:
        busy: Gangs with a task under way, and the plan assumed for each, if any.
        rejections: The jobs whose pods the API server rejects.
    """

    def __init__(
        self, state: ClusterState, slots: PrioritySemaphore, clock: Callable[[], float]
    ) -> None:
        self.busy: dict[Key, AssumedPlan | None] = {}
        self.rejections = AdmissionRejections(clock)
        self._state = state
        self._slots = slots
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

    def undecided(self) -> set[Key]:
        """Return the gangs to leave out of a cycle."""
        # Not all that are busy: one that is left out loses its place in the order.
        return {*self.assumed_plans(), *self._back_offs.exhausted()}

    def start(
        self, key: Key, work: Coroutine[Any, Any, None], assumed: AssumedPlan | None = None
    ) -> None:
        self.busy[key] = assumed
        self._tasks.start(self._run(key, work))

    async def _run(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        # All writes of this task, and of tasks that it starts, go in the order of admissions.
        self._slots.take_number()
        try:
            await work
            self._back_offs.end(key)
        except AdmissionRejected as rejected:
            job = self._state.jobs.get(key)
            if job is not None:
                self.rejections.add(job, rejected)
        except NotLeader:
            _log.info("write stopped: not the leader any more", gang=key)
        except ApiError as error:
            self.back_off(key, error)
        except Exception as error:  # noqa: BLE001  # a bug met at one gang stops no other
            _log.exception("work on a gang failed", gang=key)
            self.back_off(key, error)
        finally:
            del self.busy[key]
            # Changes seen while it was busy were passed over: it is looked at again in any case.
            self._state.requeue(key)

    def back_off(self, key: Key, error: Exception) -> None:
        """Leave the gang alone for a while after ``error``."""
        state = self._state
        job, group = state.jobs.get(key), state.groups.get(key)
        versions = tuple(facts.resource_version for facts in (job, group) if facts is not None)
        pause = self._back_offs.add(key, error, (versions, len(state.members_of(key))))
        asyncio.get_running_loop().call_later(pause, state.requeue, key)
        _log.info("will try again", gang=key, seconds=pause, error=str(error))

    def forget(self, keys: set[Key]) -> None:
        """Drop what is remembered of gangs that are gone; ``keys`` are those that exist."""
        self._back_offs.forget(keys)

    async def close(self) -> None:
        await self._tasks.close()
