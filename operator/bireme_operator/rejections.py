"""Rejected starts: verdicts of the API server on a gang's objects, remembered for a while."""

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
# First and longest pause before a gang is tried again. A quota may have room again soon, and a
# policy or a webhook be corrected. A template is the same until it is edited, which ends the
# rejection at once; only admission that writes into it may change.
_PAUSES_SECONDS: Final = {Reason.TEMPLATE_INVALID: (60.0, 600.0)}
_PAUSE_SECONDS: Final = 30.0, 60.0
# A dry run asks again so long before the end of a pause.
_LEAD_SECONDS = 10.0
# The words of webhooks and of policies; both may deny with any status, and policies do with 422.
_DENIED: Final = re.compile(r"denied (?:the )?request")
Rejection = tuple[Reason, str]
_log = structlog.get_logger(__name__)


class AdmissionRejected(Exception):  # noqa: N818  # a verdict about the gang, not a malfunction
    """The API server will not take an object of the gang, and trying again at once is pointless."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def denial_of(error: ApiError) -> AdmissionRejected | None:
    """Return the denial of a policy or a webhook in an API error, whatever its status."""
    if _DENIED.search(error.message):
        return AdmissionRejected(Reason.PODS_REFUSED, error.message)
    return None


def rejection_of(error: ApiError) -> AdmissionRejected | None:
    """Return the rejection in an API error, of what is invalid or forbidden; else None."""
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
    at: float
    pause: float
    rejection: Rejection
    is_dry_run: bool


@dataclass(slots=True)
class AdmissionRejections:
    """Gangs whose objects the API server rejects, by uid; ``clock`` is monotonic seconds.

    A rejection holds until the gang's spec changes, until a dry run shows that its cause is gone,
    or for a while that doubles each time up to a minute. Then the gang is tried again where there
    is room.
    """

    clock: Callable[[], float]
    _known: dict[str, _Rejected] = field(default_factory=dict)

    def add(
        self,
        gang: JobFacts | GroupFacts,
        rejected: AdmissionRejected,
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Remember a rejection of the gang as it is now, for twice as long as the one before.

        With ``is_dry_run`` it was a dry run that was rejected: one that is not will end it.
        """
        reason, message = rejected.reason, str(rejected)
        _log.info("gang rejected", gang=gang.key, reason=reason.value, error=message)
        first, longest = _PAUSES_SECONDS.get(reason, _PAUSE_SECONDS)
        before = self._known.get(gang.uid)
        again = before is not None and before.version == _version(gang)
        pause = min(2 * before.pause, longest) if before is not None and again else first
        self._known[gang.uid] = _Rejected(
            _version(gang), self.clock(), pause, (reason, message), is_dry_run
        )

    def current(self, gangs: Iterable[JobFacts | GroupFacts]) -> dict[str, Rejection]:
        """Return the rejections that still hold, by uid; forget those of other gangs."""
        if not self._known:
            return {}
        now = self.clock()
        self._known = {
            gang.uid: known
            for gang in gangs
            if (known := self._known.get(gang.uid)) and _is_worth_keeping(known, gang, now)
        }
        return {uid: of.rejection for uid, of in self._known.items() if now < of.at + of.pause}

    def is_due(self, uid: str) -> bool:
        """Return whether a dry run is to show now if the cause of a rejection is gone."""
        known = self._known.get(uid)
        if known is None:
            return False
        end = known.at + known.pause
        return end - _LEAD_SECONDS <= self.clock() < end

    def lift(self, uid: str) -> None:
        """End the rejection of a gang whose dry run was taken."""
        known = self._known.pop(uid, None)
        # What only its pods meet is not over: it is tried, and others are not stopped for it.
        if known is not None and not known.is_dry_run:
            ended = min(known.at, self.clock() - known.pause)
            self._known[uid] = _Rejected(
                known.version, ended, known.pause, known.rejection, is_dry_run=False
            )

    def is_remembered(self, uid: str) -> bool:
        """Return whether the gang was rejected within an hour."""
        return uid in self._known

    def may_preempt(self, uid: str) -> bool:
        """Return whether others may be stopped for the gang: it was not rejected within an hour."""
        # Else running gangs would be stopped in vain again and again.
        return uid not in self._known


def _version(gang: JobFacts | GroupFacts) -> str:
    """Return what changes with those parts of a gang's spec of which its objects are made."""
    return gang.spec_hash if isinstance(gang, JobFacts) else str(gang.generation)


def _is_worth_keeping(known: _Rejected, gang: JobFacts | GroupFacts, now: float) -> bool:
    if _version(gang) != known.version:
        return False
    if now < known.at + known.pause:
        return True
    is_active = gang.phase in ACTIVE if isinstance(gang, JobFacts) else gang.plan is not None
    return not is_active and now < known.at + _REMEMBERED_SECONDS
