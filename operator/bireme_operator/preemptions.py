"""Preemption carried out: gangs stop for another one, all of them or none, and each one whole.

Nothing is touched before the PodDisruptionBudgets have been asked about all gangs that are to make
room for one beneficiary. Then one status write per gang records it, and its life cycle does the
rest. A gang that a budget protects is kept from the core's choice for a minute. All of this is
memory: a new leader decides and asks again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog

from bireme.core.decision import Decision, Preempt
from bireme.core.gangs import Gang, Key
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import disruption_budgets
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator.actuator import Actuator
from bireme_operator.jobs import Jobs
from bireme_operator.metrics import OperatorMetrics

_log = structlog.get_logger(__name__)
_PROTECTED_SECONDS = 60.0
_UNKNOWN_SECONDS = 5.0
"""For so long a gang is left alone when the API server did not say whether it is protected."""


@dataclass(frozen=True, slots=True)
class _Victim:
    job: JobFacts
    message: str


class Preemptions:
    """Stops running gangs for others; ``clock`` is monotonic seconds, ``now`` POSIX ones."""

    def __init__(
        self,
        actuator: Actuator,
        jobs: Jobs,
        metrics: OperatorMetrics,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._actuator = actuator
        self._state = actuator.state
        self._jobs = jobs
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._stopping: set[str] = set()
        self._protected: dict[str, float] = {}
        self._tasks = Tasks()

    def as_known(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """``snapshot`` with what only this module knows: who is being stopped, who must not be."""
        now = self._clock()
        self._protected = {uid: end for uid, end in self._protected.items() if now < end}
        if not (self._stopping or self._protected):
            return snapshot
        return replace(snapshot, running=tuple(map(self._known, snapshot.running)))

    def _known(self, running: RunningGang) -> RunningGang:
        gang = running.gang
        if gang.uid in self._stopping:
            return replace(running, is_leaving=True)
        if gang.uid in self._protected:
            return replace(running, gang=replace(gang, is_preemptible=False))
        return running

    def carry_out(self, decision: Decision, jobs: Mapping[Key, JobFacts]) -> None:
        """Begin to stop those whom ``decision``, made of ``jobs``, stops."""
        by_beneficiary: dict[str, list[Preempt]] = {}
        for preempt in decision.preempted:
            by_beneficiary.setdefault(preempt.beneficiary.uid, []).append(preempt)
        for preempts in by_beneficiary.values():
            victims = [
                _Victim(jobs[key], preempt.message)
                for preempt in preempts
                if (key := preempt.gang.key) in jobs
            ]
            is_whole = len(victims) == len(preempts) and self._are_ready(victims)
            if is_whole and self._still_waits(preempts[0].beneficiary):
                self._start(victims)

    def _are_ready(self, victims: Iterable[_Victim]) -> bool:
        return all(
            self._unchanged(victim.job) and victim.job.uid not in self._stopping
            for victim in victims
        )

    def _unchanged(self, job: JobFacts) -> JobFacts | None:
        """The job as it is now, if it still holds the places it held and nothing is under way."""
        current = self._state.jobs.get(job.key)
        if current is None or (current.uid, current.attempt) != (job.uid, job.attempt):
            return None
        if current.is_leaving or current.is_finished or current.is_suspended:
            return None
        return current if self._jobs.is_free(current) else None

    def _still_waits(self, gang: Gang) -> bool:
        key, state = gang.key, self._state
        known = state.groups.get(key) if gang.kind == "PodGroup" else state.jobs.get(key)
        if known is None or known.uid != gang.uid or known.is_leaving:
            return False
        return self._actuator.is_free(key)  # or it has only kept its turn

    def _start(self, victims: Sequence[_Victim]) -> None:
        self._stopping |= {victim.job.uid for victim in victims}
        self._tasks.start(self._ask(victims))

    async def _ask(self, victims: Sequence[_Victim]) -> None:
        """Stop ``victims`` if every budget allows it and nothing has happened to any meanwhile."""
        stopped = False
        try:
            protected = await self._judge(victims)
            current = [job for v in victims if (job := self._unchanged(v.job)) is not None]
            stopped = not protected and len(current) == len(victims)
            if stopped:
                for job, victim in zip(current, victims, strict=True):
                    self._actuator.start(job.key, self._stop(job, victim.message))
        except NotLeader:
            pass  # the process is about to end
        except (ApiError, msgspec.DecodeError) as error:
            _log.info("budgets not read", error=str(error))
            self._leave_alone(victims, _UNKNOWN_SECONDS)
        finally:
            if not stopped:
                self._stopping -= {victim.job.uid for victim in victims}
            self._actuator.on_done()

    async def _judge(self, victims: Sequence[_Victim]) -> list[_Victim]:
        """Those of ``victims`` that a budget protects; they are left alone for a while."""
        spaces = sorted({victim.job.key[0] for victim in victims})
        writes, read = self._actuator.writes, disruption_budgets.read
        budgets = {space: read(await writes.list_budgets(space)) for space in spaces}
        going: dict[str, list[PodFacts]] = {space: [] for space in spaces}
        protected = []
        for victim in victims:
            key = victim.job.key
            pods = self._actuator.pods_of(victim.job)
            why = disruption_budgets.refusal(budgets[key[0]], pods, going[key[0]])
            going[key[0]] += pods
            if why:
                _log.info("gang is protected", gang=key, why=why)
                self._metrics.protected.inc()
                protected.append(victim)
        self._leave_alone(protected, _PROTECTED_SECONDS)
        return protected

    def _leave_alone(self, victims: Iterable[_Victim], seconds: float) -> None:
        end = self._clock() + seconds
        self._protected.update((victim.job.uid, end) for victim in victims)

    async def _stop(self, job: JobFacts, message: str) -> None:
        try:
            await self._jobs.preempt(job, message, self._now())
        finally:
            self._stopping.discard(job.uid)

    async def close(self) -> None:
        """Stop all questions under way."""
        await self._tasks.close()
