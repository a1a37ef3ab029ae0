"""Rejected starts: the API server's verdicts on a gang's objects, remembered for a while."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog

from bireme.core.reasons import Reason
from bireme.kube.client import ApiError
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import ACTIVE

_REMEMBERED_SECONDS = 3600.0
# First and longest pause before the next start. A quota may soon have room again, and a policy or a
# webhook may be corrected. Pauses for an invalid template are longer: only its admission may change
# without an edit, and an edit ends the rejection at once.
_PAUSES_SECONDS: Final = {Reason.TEMPLATE_INVALID: (60.0, 600.0)}
_PAUSE_SECONDS: Final = 30.0, 60.0
# A dry run starts this long before the end of a pause.
_LEAD_SECONDS = 10.0
# Text of denials by webhooks and policies. Both may deny with any status, and policies use 422.
_DENIED: Final = re.compile(r"denied (?:the )?request")
Rejection = tuple[Reason, str]
_log = structlog.get_logger(__name__)


class AdmissionRejected(Exception):  # noqa: N818  # a verdict about the gang, not a malfunction
    """The API server rejects an object of the gang; an immediate retry is pointless."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def denial_of(error: ApiError) -> AdmissionRejected | None:
    """Return the denial by a policy or a webhook in an API error of any status."""
    if _DENIED.search(error.message):
        return AdmissionRejected(Reason.PODS_REFUSED, error.message)
    return None


def rejection_of(error: ApiError) -> AdmissionRejected | None:
    """Return the rejection of an invalid or forbidden object in an API error; else None."""
    if (denial := denial_of(error)) is not None:
        return denial
    if error.is_invalid or "request is too large" in error.message:
        return AdmissionRejected(Reason.TEMPLATE_INVALID, error.message)
    if error.is_forbidden:
        return AdmissionRejected(Reason.PODS_REFUSED, error.message)
    return None


@dataclass(frozen=True, slots=True)
class _Rejected:
    version: str
    time: float
    pause: float
    rejection: Rejection
    is_dry_run: bool


@dataclass(slots=True)
class AdmissionRejections:
    """Gangs whose objects the API server rejects, by uid; ``clock`` is monotonic seconds.

    A rejection holds for a pause that doubles each time up to a limit. It ends earlier if the
    gang's spec changes, or if a dry run shows that its cause is gone. Then the gang may start again
    if there is room.
    """

    clock: Callable[[], float]
    _records: dict[str, _Rejected] = field(default_factory=dict)

    def add(
        self,
        gang: JobFacts | GroupFacts,
        rejected: AdmissionRejected,
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Remember a rejection of the gang's present spec, for twice as long as the previous one.

        With ``is_dry_run`` a dry run was rejected; then a successful one ends the rejection.
        """
        reason, message = rejected.reason, str(rejected)
        _log.info("gang rejected", gang=gang.key, reason=reason.value, error=message)
        first, max_pause = _PAUSES_SECONDS.get(reason, _PAUSE_SECONDS)
        previous = self._records.get(gang.uid)
        is_repeat = previous is not None and previous.version == _version(gang)
        pause = min(2 * previous.pause, max_pause) if previous is not None and is_repeat else first
        self._records[gang.uid] = _Rejected(
            _version(gang), self.clock(), pause, (reason, message), is_dry_run
        )

    def current(self, gangs: Iterable[JobFacts | GroupFacts]) -> dict[str, Rejection]:
        """Return the rejections in force, by uid; forget those of other gangs."""
        if not self._records:
            return {}
        now = self.clock()
        self._records = {
            gang.uid: record
            for gang in gangs
            if (record := self._records.get(gang.uid)) and _is_worth_keeping(record, gang, now)
        }
        return {uid: r.rejection for uid, r in self._records.items() if now < r.time + r.pause}

    def is_due(self, uid: str) -> bool:
        """Return whether it is time for a dry run that checks the cause of a rejection."""
        record = self._records.get(uid)
        if record is None:
            return False
        end = record.time + record.pause
        return end - _LEAD_SECONDS <= self.clock() < end

    def lift(self, uid: str) -> None:
        """End the rejection of a gang whose dry run succeeded."""
        record = self._records.pop(uid, None)
        # A rejection that only real pods meet may persist: the gang may start, but not preempt.
        if record is not None and not record.is_dry_run:
            time = min(record.time, self.clock() - record.pause)
            self._records[uid] = _Rejected(
                record.version, time, record.pause, record.rejection, is_dry_run=False
            )

    def is_remembered(self, uid: str) -> bool:
        """Return whether the gang was rejected within an hour."""
        return uid in self._records

    def may_preempt(self, uid: str) -> bool:
        """Return whether the gang may preempt others: it was not rejected within an hour."""
        # Otherwise running gangs would be stopped in vain again and again.
        return uid not in self._records


def _version(gang: JobFacts | GroupFacts) -> str:
    """Return a value that changes with the parts of a gang's spec that define its objects."""
    return gang.spec_hash if isinstance(gang, JobFacts) else str(gang.generation)


def _is_worth_keeping(record: _Rejected, gang: JobFacts | GroupFacts, now: float) -> bool:
    if _version(gang) != record.version:
        return False
    if now < record.time + record.pause:
        return True
    is_active = gang.phase in ACTIVE if isinstance(gang, JobFacts) else gang.plan is not None
    return not is_active and now < record.time + _REMEMBERED_SECONDS
