"""Rejected admissions: verdicts of the API server on a gang's objects, remembered for a while."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube.client import ApiError
from bireme.kube.training_jobs import JobFacts
from bireme_operator.lifecycle import ACTIVE

_REMEMBERED_SECONDS = 3600.0
Rejection = tuple[Reason, str]
_log = structlog.get_logger(__name__)


class AdmissionRejected(Exception):  # noqa: N818  # a verdict about the gang, not a malfunction
    """The API server will not take an object of the gang, and trying again at once is pointless."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def rejection_of(error: ApiError) -> AdmissionRejected | None:
    """Return the rejection in an API error, of what is invalid or forbidden; else None."""
    if error.is_invalid or "request is too large" in error.message:
        return AdmissionRejected(Reason.TEMPLATE_INVALID, error.message)
    if error.is_forbidden:
        return AdmissionRejected(Reason.PODS_REFUSED, error.message)
    return None


@dataclass(frozen=True, slots=True)
class _Rejected:
    spec_hash: str
    at: float
    pause: float
    rejection: Rejection


@dataclass(slots=True)
class AdmissionRejections:
    """Jobs whose objects the API server rejects, by uid; ``clock`` is monotonic seconds.

    A rejection holds until the job's spec changes, or for a while that doubles each time. It ends
    by itself because its cause may: a quota is raised, an admission policy corrected (whose denial
    looks like that of an invalid pod). The gang is then tried again where there is room.
    """

    clock: Callable[[], float]
    _known: dict[str, _Rejected] = field(default_factory=dict)

    def add(self, job: JobFacts, rejected: AdmissionRejected) -> None:
        """Remember a rejection of the job as it is now, for twice as long as the one before."""
        _log.info("gang rejected", gang=job.key, reason=rejected.reason.value, error=str(rejected))
        # A quota may have room again soon. A template is the same until it is edited, which ends
        # the rejection at once; only an admission policy may change its mind about it.
        first, most = (30.0, 300.0) if rejected.reason is Reason.PODS_REFUSED else (600.0, 1800.0)
        before = self._known.get(job.uid)
        again = before is not None and before.spec_hash == job.spec_hash
        pause = min(2 * before.pause, most) if before is not None and again else first
        rejection = (rejected.reason, str(rejected))
        self._known[job.uid] = _Rejected(job.spec_hash, self.clock(), pause, rejection)

    def current(self, jobs: Mapping[Key, JobFacts]) -> dict[str, Rejection]:
        """Return the rejections that still hold, by uid; forget those of other jobs."""
        if not self._known:
            return {}
        now = self.clock()
        self._known = {
            job.uid: known
            for job in jobs.values()
            if (known := self._known.get(job.uid)) and _is_worth_keeping(known, job, now)
        }
        return {uid: of.rejection for uid, of in self._known.items() if now < of.at + of.pause}

    def may_preempt(self, uid: str) -> bool:
        """Return whether others may be stopped for the job: it was not rejected within an hour."""
        # Else running gangs would be stopped in vain again and again.
        return uid not in self._known


def _is_worth_keeping(known: _Rejected, job: JobFacts, now: float) -> bool:
    if job.spec_hash != known.spec_hash:
        return False
    if now < known.at + known.pause:
        return True
    return job.phase not in ACTIVE and now < known.at + _REMEMBERED_SECONDS
