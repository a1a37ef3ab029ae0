"""Where reports arrive in a term of leadership: who may report what, and what becomes of it.

A report counts if its token is one that the API server vouches for, for this endpoint, and if the
pod it was made for is, by its uid, a live member of the job's current plan. The latest one of every
job is kept until it is due in the job's status, which is where decisions read it; so a new leader
knows what was known, and no job costs more writes than the settings say.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from bireme.core.gangs import Key
from bireme.kube.cluster_state import ClusterState
from bireme.kube.gang_views import GangView
from bireme.kube.pods import PodFacts
from bireme.kube.progress import Report, Run, with_report
from bireme.kube.training_jobs import JobFacts
from bireme_operator.progress_tokens import Refused, Sender, Tokens, claimed
from bireme_operator.rations import Rations

_PER_SECOND: Final = 1.0
_BURST: Final = 5


@dataclass(frozen=True, slots=True)
class _Pending:
    """What a job has reported since its status was written, and when it last did.

    ``received`` is in whole milliseconds, as the status will have it, and tells reports apart.
    """

    report: Report
    received: float


class ProgressDesk:
    """Reports of all jobs in one term; ``clock`` gives monotonic seconds, ``now`` POSIX ones."""

    def __init__(
        self,
        state: ClusterState,
        tokens: Tokens,
        write_seconds: float,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._tokens = tokens
        self._write_seconds = write_seconds
        self._now = now
        self._senders = Rations(_PER_SECOND, _BURST, clock)
        self._pending: dict[str, _Pending] = {}

    async def admit(self, key: Key, token: str, address: str) -> str:
        """The uid of the job ``key``, for which the bearer of ``token`` may report.

        Raises:
            Refused: with status 401, 403, 404, 429 or 503.
        """
        claim = claimed(token)
        if self._pod(claim) is None:
            raise Refused(403, f"pod {claim.pod!r} is no member of any gang")
        if wait := self._senders.take((claim.uid, address)):
            raise Refused(429, "this pod reports too often; once in a few seconds is enough", wait)
        sender = await self._tokens.sender(token, claim, address)
        job = self._state.jobs.get(key) if sender.namespace == key[0] else None
        if job is None:
            raise Refused(404, f"no TrainingJob {key[1]!r} in the namespace of this pod")
        if not self._is_member(job, sender):
            raise Refused(403, f"pod {sender.pod!r} is no live member of TrainingJob {key[1]!r}")
        return job.uid

    def _pod(self, sender: Sender) -> PodFacts | None:
        pod = self._state.members.get((sender.namespace, sender.pod))
        return pod if pod is not None and pod.uid == sender.uid else None

    def _is_member(self, job: JobFacts, sender: Sender) -> bool:
        view, group = self._state.view(job.key), self._state.groups.get(job.key)
        if view is None or group is None or group.job_uid != job.uid or job.is_finished:
            return False
        return view.plan.attempt == job.attempt and any(
            pod is not None and pod.uid == sender.uid and not (pod.is_leaving or pod.is_terminal)
            for _, pod in view.members
        )

    def accept(self, uid: str, report: Report) -> None:
        """Keep the report of the job ``uid``; what it leaves out stays as it was reported."""
        before, received = self._pending.get(uid), self._now()
        if before is not None:
            received = max(received, before.received + 0.001)
            said = {name: value for name, value in asdict(report).items() if value is not None}
            report = replace(before.report, **{"remaining_seconds": None, **said})
        self._pending[uid] = _Pending(report, round(received, 3))

    def told(
        self, job: JobFacts, view: GangView | None, *, at_once: bool = False
    ) -> dict[str, Any]:
        """``progress`` for the status of ``job`` if it is due, or ``at_once``; else nothing."""
        pending = self._pending.get(job.uid)
        if pending is None or view is None or view.plan.attempt != job.attempt:
            return {}
        last = job.told.progress.reported if job.told is not None else None
        if last is not None and last >= pending.received:
            del self._pending[job.uid]  # it has been written
            return {}
        if last is not None and not at_once and self._now() - last < self._write_seconds:
            return {}
        plan = view.plan
        run = Run(len(plan.members), plan.planned, max(plan.planned, plan.resized), job.attained)
        return {"progress": with_report(job.told, pending.report, pending.received, run)}

    def forget(self, uids: set[str]) -> None:
        """Drop what jobs reported that are gone; ``uids`` are those that exist."""
        self._pending = {uid: kept for uid, kept in self._pending.items() if uid in uids}
