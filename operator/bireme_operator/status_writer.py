"""Writes statuses that report and never decide, at a bounded rate.

The operator submits a status as long as it differs from that of the object: a postponed status is
computed again in the next cycle. Namespaces write in parallel, so a tenant with thousands of new
jobs delays no other tenant's statuses. Within a namespace the newest status of each object waits.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator.events import Events
from bireme_operator.rate_limiter import RateLimiter
from bireme_operator.status import Status, Urgency, urgency
from bireme_operator.watches import Watches
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
REFRESH_SECONDS = 10.0
"""Time between two writes that change only the numbers of a waiting object: in every cycle those
of thousands may change."""
# Rate of such writes over all objects, so that they leave the API server to starts and stops.
_REFRESHES_PER_SECOND = 20.0
_ALL = "all"
_COUNTS_SECONDS = 1.0
# Limit of concurrent writes of one namespace; other namespaces wait behind no more than these.
_MAX_WRITING = 64
# Limit of waiting statuses of one namespace, about as many as are written until the next cycle.
# Statuses of all its jobs would take as much memory as the jobs.
_MAX_WAITING = 2048
_RETRY_SECONDS = 1.0
# Another client wrote first; the cache will soon have that version.
_CONFLICT_SECONDS = 0.1
# Post an event after this many failed writes of a status in a row. With retryable errors the limit
# is higher, since an API server in trouble takes no events either.
_MAX_ERRORS, _MAX_RETRYABLE_ERRORS = 3, 10


# Limit of remembered namespaces: at 20 writes a second more would get no turn within a minute.
_MAX_NAMESPACES = 1024


_T = TypeVar("_T")
_Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class _Refreshes:
    """Grants ``per_second`` refreshes of statuses, in turns between the namespaces that ask.

    Among namespaces refused within the last ``refused_seconds``, the one served longest ago goes
    first. So a tenant with thousands of jobs does not keep the numbers of others old.
    """

    per_second: float
    refused_seconds: float
    clock: Callable[[], float]
    _limiter: RateLimiter = field(init=False)
    _served: dict[str, int] = field(default_factory=dict)
    """Number of the latest refresh, by namespace."""
    _refused: dict[str, float] = field(default_factory=dict)
    _number: int = 0

    def __post_init__(self) -> None:
        self._limiter = RateLimiter(self.per_second, max(1.0, self.per_second), self.clock)

    def may(self, namespace: str) -> bool:
        """Return whether it is the namespace's turn; record a refusal otherwise."""
        now = self.clock()
        if not self._limiter.wait(_ALL):
            served = self._served.get(namespace, 0)
            if not any(
                now - since <= self.refused_seconds and self._served.get(other, 0) < served
                for other, since in self._refused.items()
                if other != namespace
            ):
                self._refused.pop(namespace, None)
                return True
        _remember(self._refused, namespace, now)
        return False

    def take(self, namespace: str) -> bool:
        """Take a turn of the namespace; return whether there was one."""
        if not self.may(namespace):
            return False
        self._number += 1
        _remember(self._served, namespace, self._number)
        return self._limiter.take(_ALL) == 0


def _remember(records: dict[str, _T], namespace: str, value: _T) -> None:
    """Set the value of a namespace; drop the oldest entries above the limit."""
    records.pop(namespace, None)
    records[namespace] = value
    while len(records) > _MAX_NAMESPACES:
        del records[next(iter(records))]


@dataclass(slots=True)
class StatusWriter:
    """Paced status writes of TrainingJobs and PodGroups.

    ``requeue`` is called with the key of an object after each write; ``clock`` is monotonic
    seconds.
    """

    writes: Writes
    watches: Watches
    events: Events
    clock: Callable[[], float]
    requeue: Callable[[Key], None]
    _refreshes: _Refreshes = field(init=False)
    _write_times: dict[str, float] = field(default_factory=dict)
    _up_to_date_times: dict[str, float] = field(default_factory=dict)
    """Time of the latest comparison in which a status needed no write, by uid."""
    _not_before: dict[str, float] = field(default_factory=dict)
    _writing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _writing_in: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, dict[str, tuple[Key, _Work]]] = field(default_factory=dict)
    _errors: Counter[str] = field(default_factory=Counter)
    """Errors in a row by uid; conflicts and the end of the object do not count."""
    _tasks: Tasks = field(default_factory=Tasks)

    def __post_init__(self) -> None:
        pause = max(1.0, REFRESH_SECONDS)
        self._refreshes = _Refreshes(_REFRESHES_PER_SECOND, pause, self.clock)

    def submit_job(self, job: JobFacts, new_status: Status) -> Urgency:
        """Write ``new_status`` to a job if it is due, with an event when the reason is new.

        Return the urgency of the write, even if it is not due.
        """
        how_urgent = self._urgency(job.uid, job.status, new_status)
        if self._is_due(job.uid, job.key, how_urgent):
            self._submit(job.uid, job.key, lambda: self._write_job(job, new_status))
        return how_urgent

    def submit_group(self, group: GroupFacts, new_status: Status) -> Urgency:
        """Write ``new_status`` to a PodGroup likewise."""
        how_urgent = self._urgency(group.uid, group.status, new_status)
        if self._is_due(group.uid, group.key, how_urgent):
            self._submit(group.uid, group.key, lambda: self._write_group(group, new_status))
        return how_urgent

    def _urgency(self, uid: str, status: Status, new_status: Status) -> Urgency:
        how_urgent = urgency(status, new_status)
        if how_urgent is Urgency.NONE:
            self._up_to_date_times[uid] = self.clock()
        return how_urgent

    def may_write(self, uid: str, namespace: str) -> bool:
        """Return whether a status of that object may be submitted: none is waiting or under way."""
        waiting = self._waiting.get(namespace, ())
        return uid not in self._writing and uid not in waiting and len(waiting) < _MAX_WAITING

    def may_refresh(self, uid: str, namespace: str) -> bool:
        """Return whether a status that differs only in numbers could be written now.

        A comparison without a difference counts like a write: the operator does not recompute
        thousands of up-to-date statuses in each cycle.
        """
        age = self.clock() - self._up_to_date_times.get(uid, float("-inf"))
        if age < REFRESH_SECONDS:
            return False
        return self._is_old(uid) and self._refreshes.may(namespace)

    def _is_old(self, uid: str) -> bool:
        age = self.clock() - self._write_times.get(uid, float("-inf"))
        return age >= REFRESH_SECONDS

    def post_event(self, kind: str, key: Key, uid: str, reason: Reason, message: str) -> None:
        """Post an event about an object whose status stays as it is."""
        # A skipped event comes again with the next turn, if it still applies.
        if uid not in self._writing and self._writing_in[key[0]] < _MAX_WRITING:
            self._spawn(uid, key, self.events.post(kind, key, uid, reason, message))

    def _is_due(self, uid: str, key: Key, how_urgent: Urgency) -> bool:
        if how_urgent is Urgency.NONE or uid in self._writing:
            return False
        if self.clock() < self._not_before.get(uid, 0.0):
            return False
        if how_urgent is Urgency.EVENT:
            return True
        if how_urgent is Urgency.COUNTS:
            return self.clock() - self._write_times.get(uid, float("-inf")) >= _COUNTS_SECONDS
        return self._is_old(uid) and self._refreshes is not None and self._refreshes.take(key[0])

    def is_writing(self, uid: str) -> bool:
        """Return whether a status write of that object is under way; another would conflict."""
        return uid in self._writing

    async def wait_for_write(self, uid: str) -> None:
        """Return once no status write of that object is under way and the cache has the latest."""
        while (writing := self._writing.get(uid)) is not None:
            await asyncio.wait([writing])

    def _submit(self, uid: str, key: Key, work: _Work) -> None:
        if self._writing_in[key[0]] < _MAX_WRITING:
            self._spawn(uid, key, work())
        elif len(waiting := self._waiting.get(key[0], ())) < _MAX_WAITING or uid in waiting:
            # On an outdated version of the object the write fails, and is submitted again.
            self._waiting.setdefault(key[0], {})[uid] = key, work

    def _start_next(self, namespace: str) -> None:
        waiting = self._waiting.get(namespace)
        if waiting:
            uid = next(iter(waiting))
            key, work = waiting.pop(uid)
            if uid not in self._writing:
                self._spawn(uid, key, work())
        else:
            self._waiting.pop(namespace, None)

    def _spawn(self, uid: str, key: Key, work: Coroutine[Any, Any, None]) -> None:
        self._writing_in[key[0]] += 1
        self._writing[uid] = self._tasks.start(self._run(uid, key, work))

    async def _run(self, uid: str, key: Key, work: Coroutine[Any, Any, None]) -> None:
        pause = 0.0
        try:
            await work
        except NotLeader:
            pass  # the process is about to end
        except ApiError as error:
            pause = _CONFLICT_SECONDS if error.is_conflict else _RETRY_SECONDS
            pause = max(pause, error.retry_after_seconds or 0.0)
            # These two are normal: another client wrote first, or the object is gone.
            if not (error.is_conflict or error.is_not_found):
                _log.info("status not written", uid=uid, error=str(error))
        except Exception:  # noqa: BLE001  # a bug in one status must not stop the others
            pause = _RETRY_SECONDS
            _log.exception("status not written", uid=uid)
        finally:
            self._write_times[uid] = self.clock()
            self._not_before[uid] = self._write_times[uid] + pause
            del self._writing[uid]
            self._writing_in[key[0]] -= 1
            if not self._writing_in[key[0]]:
                del self._writing_in[key[0]]
            self._start_next(key[0])
            # A job is not reconciled during a write of its status, so requeue it now.
            asyncio.get_running_loop().call_later(pause, self.requeue, key)

    @asynccontextmanager
    async def _telling_errors(self, kind: str, key: Key, uid: str) -> AsyncIterator[None]:
        """Post an event about a status that the API server repeatedly refuses."""
        try:
            yield
        except ApiError as error:
            if not (error.is_conflict or error.is_not_found):
                self._errors[uid] += 1
                limit = _MAX_RETRYABLE_ERRORS if error.is_retryable else _MAX_ERRORS
                if self._errors[uid] >= limit:
                    message = f"its status, which says why it waits, cannot be written: {error}"
                    await self.events.post(kind, key, uid, Reason.PODS_REFUSED, message)
            raise
        self._errors.pop(uid, None)

    async def _write_job(self, job: JobFacts, new_status: Status) -> None:
        async with self._telling_errors("TrainingJob", job.key, job.uid):
            version = await self.writes.write_job_status(job, new_status)
        await self.watches.wait_for(self.watches.jobs, job.key, version)
        await self._post_reason("TrainingJob", job.key, job.uid, job.status, new_status)

    async def _write_group(self, group: GroupFacts, new_status: Status) -> None:
        async with self._telling_errors("PodGroup", group.key, group.uid):
            version = await self.writes.write_group_status(
                group.key, group.resource_version, new_status, report=True
            )
        await self.watches.wait_for(self.watches.groups, group.key, version)
        await self._post_reason("PodGroup", group.key, group.uid, group.status, new_status)

    async def _post_reason(
        self, kind: str, key: Key, uid: str, previous: dict[str, Any], new_status: Status
    ) -> None:
        """Post an event when the reason is new; a reason without a message gets none."""
        if "message" in new_status and previous.get("reason") != new_status["reason"]:
            reason = Reason(new_status["reason"])
            await self.events.post(kind, key, uid, reason, new_status.get("message") or "")

    def forget(self, uids: set[str]) -> None:
        """Drop the records of deleted objects; ``uids`` are those of the existing ones."""
        self._write_times = {uid: time for uid, time in self._write_times.items() if uid in uids}
        self._up_to_date_times = {
            uid: time for uid, time in self._up_to_date_times.items() if uid in uids
        }
        self._errors = Counter({uid: n for uid, n in self._errors.items() if uid in uids})
        self._not_before = {uid: time for uid, time in self._not_before.items() if uid in uids}
        for waiting in self._waiting.values():
            for uid in [uid for uid in waiting if uid not in uids]:
                del waiting[uid]

    async def close(self) -> None:
        self._waiting.clear()
        await self._tasks.close()
