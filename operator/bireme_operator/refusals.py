"""What the API server would not take: until the spec changes, or for a while, ever longer.

A verdict ends by itself, because its cause may: a quota is raised, an admission policy corrected
(whose denial looks like that of an invalid pod). The gang is then tried again where there is room.
Nobody is stopped for it for an hour, or others would make room in vain again and again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube.training_jobs import JobFacts
from bireme_operator.actuator import GangRefused
from bireme_operator.lifecycle import ACTIVE

Verdict = tuple[Reason, str]
_REMEMBERED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _Known:
    spec_hash: str
    at: float
    pause: float
    verdict: Verdict


@dataclass(slots=True)
class Refusals:
    """Verdicts of the API server on jobs, by uid; ``clock`` is monotonic seconds."""

    clock: Callable[[], float]
    _known: dict[str, _Known] = field(default_factory=dict)

    def add(self, job: JobFacts, refused: GangRefused) -> None:
        """Remember a refusal of the job as it is now, for twice as long as the one before."""
        first, most = (30.0, 300.0) if refused.reason is Reason.PODS_REFUSED else (600.0, 1800.0)
        before = self._known.get(job.uid)
        again = before is not None and before.spec_hash == job.spec_hash
        pause = min(2 * before.pause, most) if before is not None and again else first
        verdict = (refused.reason, str(refused))
        self._known[job.uid] = _Known(job.spec_hash, self.clock(), pause, verdict)

    def current(self, jobs: Mapping[Key, JobFacts]) -> dict[str, Verdict]:
        """Verdicts that still hold."""
        now = self.clock()
        there = {job.uid: job for job in jobs.values() if job.uid in self._known}
        self._known = {
            uid: self._known[uid]
            for uid, job in there.items()
            if _is_worth_keeping(self._known[uid], job, now)
        }
        return {uid: of.verdict for uid, of in self._known.items() if now < of.at + of.pause}

    def may_preempt(self, uid: str) -> bool:
        """Whether others may be stopped for the job: it was not refused lately."""
        return uid not in self._known


def _is_worth_keeping(known: _Known, job: JobFacts, now: float) -> bool:
    if job.spec_hash != known.spec_hash:
        return False
    if now < known.at + known.pause:
        return True
    return job.phase not in ACTIVE and now < known.at + _REMEMBERED_SECONDS
