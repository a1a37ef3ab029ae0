"""Carries out preemptions: all victims of one preemptor stop, or none, and each gang whole.

The operator reads the PodDisruptionBudgets of all victims of one preemptor before it stops a pod.
All stops of a decision draw on the same budgets, in its order, after those of earlier decisions
that are still under way (:mod:`bireme_operator.budget_claims`). Then one status write per gang
records the preemption, and its life cycle stops the pods. For a minute the core knows which gangs a
budget protects: it chooses other victims, or these if it may override budgets. All of this is in
memory: a new leader decides and reads again.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from bireme.core import messages
from bireme.core.decision import Decision, Preempt, Vacate
from bireme.core.gangs import Gang, Key
from bireme.core.reasons import Reason
from bireme.core.running import RunningGang, stopping
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import disruption_budgets, envelopes
from bireme.kube.allocations import Orphans
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.disruption_budgets import Budget
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator import starts
from bireme_operator.budget_claims import BudgetClaims
from bireme_operator.jobs import JobReconciler
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.pod_groups import PodGroups
from bireme_operator.workqueue import WorkQueue
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
_KEPT_SECONDS = 60.0
# A gang counts as protected for this long if its budgets could not be read.
_UNKNOWN_SECONDS = 5.0


_Owner = JobFacts | GroupFacts | Orphans
"""The owner of a gang's places: its object, or pods without one."""


@dataclass(frozen=True, slots=True)
class _Victim:
    owner: _Owner
    stop: Preempt | Vacate

    @property
    def key(self) -> Key:
        return self.owner.key

    @property
    def uid(self) -> str:
        return self.owner.uid

    @property
    def was_lent(self) -> bool:
        """True if the stop returns places that are reserved for another gang."""
        return self.stop.running.is_opportunistic

    @property
    def overrides_budget(self) -> bool:
        return isinstance(self.stop, Preempt) and bool(self.stop.overrides_budget)


@dataclass(slots=True)
class _Budgets:
    """The budgets of one decision by namespace, each list read once, and the pods already going."""

    writes: Writes
    claims: BudgetClaims
    going: dict[str, list[PodFacts]] = field(default_factory=dict)
    """Pods that count against the budgets, as of their read."""
    _read: dict[str, Sequence[Budget]] = field(default_factory=dict)

    async def of(self, namespace: str) -> Sequence[Budget]:
        """Return the budgets of ``namespace``. Raises ApiError or envelopes.UNDECODABLE."""
        if namespace not in self._read:
            budgets = disruption_budgets.read(await self.writes.list_budgets(namespace))
            self._read[namespace] = budgets
            self.going[namespace] = self.claims.pending(namespace)
        return self._read[namespace]

    def claim(self, uid: str, namespace: str, pods: Sequence[PodFacts]) -> None:
        """Count ``pods`` of the gang ``uid`` as going from now on."""
        self.going[namespace] += pods
        self.claims.add(uid, pods)


@dataclass(slots=True)
class Preemptions:
    """Stops running gangs for others; ``clock`` is monotonic seconds, ``now`` POSIX ones."""

    state: ClusterState
    writes: Writes
    work: WorkQueue
    jobs: JobReconciler
    pod_groups: PodGroups
    metrics: OperatorMetrics
    claims: BudgetClaims
    clock: Callable[[], float]
    now: Callable[[], float]
    on_answer: Callable[[], None]
    """Called after the API server's answer about the victims of one preemptor."""
    _stopping: dict[str, Preempt | Vacate] = field(default_factory=dict)
    _protected_until: dict[str, float] = field(default_factory=dict)
    """End of the time in which each gang counts as protected by a budget."""
    _tasks: Tasks = field(default_factory=Tasks)

    def apply(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return ``snapshot`` with marks on gangs that are stopping or protected by a budget."""
        now = self.clock()
        self._protected_until = {
            uid: end for uid, end in self._protected_until.items() if now < end
        }
        if not (self._stopping or self._protected_until):
            return snapshot
        return replace(snapshot, running=tuple(map(self._with_marks, snapshot.running)))

    def _with_marks(self, running: RunningGang) -> RunningGang:
        gang = running.gang
        if (stop := self._stopping.get(gang.uid)) is not None:
            is_return = isinstance(stop, Vacate)
            return stopping(running) if is_return else replace(running, is_leaving=True)
        return (
            replace(running, kept_by_budget=True) if gang.uid in self._protected_until else running
        )

    def carry_out(
        self,
        decision: Decision,
        jobs: Mapping[Key, JobFacts],
        groups: Mapping[Key, GroupFacts],
    ) -> None:
        """Begin to stop the victims of ``decision``, which is based on ``jobs`` and ``groups``."""
        by_preemptor: dict[str, list[Preempt]] = {}
        for preempt in decision.preempted:
            by_preemptor.setdefault(preempt.beneficiary.uid, []).append(preempt)
        stops: list[list[_Victim]] = []
        for preempts in by_preemptor.values():
            victims = self._victims(preempts, jobs, groups)
            if victims and self._still_waits(preempts[0].beneficiary):
                stops.append(self._begin(victims))
        # Each gang stops by itself: none waits for another's budget.
        single_stops = (self._victims((vacate,), jobs, groups) for vacate in decision.vacated)
        stops.extend(self._begin(victims) for victims in single_stops if victims)
        if stops:
            self._tasks.start(self._stop_in_turn(stops))

    def _victims(
        self,
        stops: Sequence[Preempt | Vacate],
        jobs: Mapping[Key, JobFacts],
        groups: Mapping[Key, GroupFacts],
    ) -> list[_Victim]:
        """Return the victims of ``stops``; none if one of them cannot be stopped now."""
        victims = []
        for stop in stops:
            owner = self._owner(stop.gang, jobs, groups)
            if owner is not None:
                victims.append(_Victim(owner, stop))
        return victims if len(victims) == len(stops) and self._are_ready(victims) else []

    def _owner(
        self, gang: Gang, jobs: Mapping[Key, JobFacts], groups: Mapping[Key, GroupFacts]
    ) -> _Owner | None:
        if gang.kind != "PodGroup":
            return jobs.get(gang.key)
        group = groups.get(gang.key)
        # Orphans have the key of a PodGroup, if one exists, and a uid of their own.
        if group is not None and group.uid == gang.uid:
            return group
        return self._orphans(gang.key, gang.uid)

    def _orphans(self, key: Key, uid: str) -> Orphans | None:
        candidates = self.state.running.orphans_of(key)
        return next((orphans for orphans in candidates if orphans.uid == uid), None)

    def _are_ready(self, victims: Iterable[_Victim]) -> bool:
        return all(
            self._current(victim.owner) and victim.uid not in self._stopping for victim in victims
        )

    def _current(self, owner: _Owner) -> _Owner | None:
        """Return the present object if it holds the same places and no work is under way."""
        if isinstance(owner, JobFacts):
            return self._current_job(owner)
        if isinstance(owner, Orphans):
            orphans = self._orphans(owner.key, owner.uid)
            is_same = orphans is not None and _uids(orphans) == _uids(owner)
            return orphans if is_same and self.work.is_free(owner.key) else None
        current = self.state.objects.groups.get(owner.key)
        if (
            current is None
            or current.uid != owner.uid
            or current.plan is None
            or owner.plan is None
        ):
            return None
        if current.plan.planned != owner.plan.planned or current.is_leaving or current.is_stopping:
            return None
        return current if self.work.is_free(current.key) else None

    def _current_job(self, job: JobFacts) -> JobFacts | None:
        current = self.state.objects.jobs.get(job.key)
        if current is None or (current.uid, current.attempt) != (job.uid, job.attempt):
            return None
        if current.is_leaving or current.is_finished or current.is_suspended:
            return None
        return current if self.jobs.is_free(current) else None

    def _still_waits(self, gang: Gang) -> bool:
        key, objects = gang.key, self.state.objects
        facts = objects.groups.get(key) if gang.kind == "PodGroup" else objects.jobs.get(key)
        if facts is None or facts.uid != gang.uid or facts.is_leaving:
            return False
        return self.work.is_free(key)  # a busy gang only keeps its place in the order

    def _begin(self, victims: list[_Victim]) -> list[_Victim]:
        self._stopping.update((victim.uid, victim.stop) for victim in victims)
        return victims

    async def _stop_in_turn(self, stops: Sequence[Sequence[_Victim]]) -> None:
        """Carry out each of ``stops`` that the budgets allow after the earlier ones."""
        async with self.claims.lock:
            budgets = _Budgets(self.writes, self.claims)
            for victims in stops:
                await self._stop_all(victims, budgets)

    async def _stop_all(self, victims: Sequence[_Victim], budgets: "_Budgets") -> None:
        """Stop ``victims`` if every budget allows it and no victim has changed meanwhile."""
        stopped = False
        try:
            refusals = await self._budget_refusals(victims, budgets)
            # A job may have ended, or been edited, while the budgets were read.
            current = [now for v in victims if (now := self._current(v.owner)) is not None]
            may = all(v.overrides_budget for v in victims if v.key in refusals)
            stopped = may and len(current) == len(victims)
            if stopped:
                for owner, victim in zip(current, victims, strict=True):
                    budgets.claim(owner.uid, owner.key[0], self._pods_of(owner))
                    self.work.start(
                        owner.key, self._stop(owner, victim, refusals.get(owner.key, ""))
                    )
        except NotLeader:
            pass  # the process is about to end
        except (ApiError, *envelopes.UNDECODABLE) as error:
            _log.info("budgets not read", error=str(error))
            # A preemptor that may override budgets stops them with the next decision.
            end = self.clock() + _UNKNOWN_SECONDS
            self._protected_until.update((victim.uid, end) for victim in victims)
        finally:
            if not stopped:
                for victim in victims:
                    self._stopping.pop(victim.uid, None)
            self.on_answer()

    async def _budget_refusals(
        self, victims: Sequence[_Victim], budget_reader: "_Budgets"
    ) -> dict[Key, str]:
        """Return by victim the refusal of its budget, and remember the protected gangs."""
        spaces = sorted({victim.key[0] for victim in victims})
        budgets: dict[str, Sequence[Budget]] = {}
        unread: dict[str, str] = {}
        for space in spaces:
            try:
                budgets[space] = await budget_reader.of(space)
            except (ApiError, *envelopes.UNDECODABLE) as error:
                if not all(v.overrides_budget for v in victims if v.key[0] == space):
                    raise
                # A tenant with unreadable budgets must not keep places from their owner.
                _log.info("budgets not read", namespace=space, error=str(error))
                budgets[space] = ()
                unread[space] = f"its budgets cannot be read ({error})"
                budget_reader.going.setdefault(space, self.claims.pending(space))
        pending = {space: list(budget_reader.going[space]) for space in spaces}
        refusals: dict[Key, str] = {}
        # Count the victims first whose budgets are overridden: they stop in any case.
        for victim in sorted(victims, key=lambda victim: not victim.overrides_budget):
            key = victim.key
            pods = self._pods_of(victim.owner)
            refusal = unread.get(key[0]) or disruption_budgets.refusal(
                budgets[key[0]], pods, pending[key[0]]
            )
            # Victims of one namespace draw on the same budgets: each counts for the next.
            pending[key[0]] += pods
            if refusal:
                refusals[key] = refusal
                if not victim.overrides_budget:
                    _log.info("gang is protected", gang=key, why=refusal)
                    self.metrics.protected.inc()
        if refusals:
            self._remember(victims, refusals, budgets)
        return refusals

    def _pods_of(self, owner: _Owner) -> Sequence[PodFacts]:
        """Return the pods that stop with a gang."""
        if isinstance(owner, Orphans):
            return owner.pods
        if isinstance(owner, JobFacts):
            return self.state.objects.pods_of(owner)
        view = self.state.views.get(owner.key)
        return [] if view is None else starts.existing_pods(view)

    def _remember(
        self,
        victims: Iterable[_Victim],
        protected: Container[Key],
        budgets: Mapping[str, Sequence[Budget]],
    ) -> None:
        """Remember the gangs that a budget protects: victims, and others in their namespaces.

        Otherwise each of the others would cost a decision of its own.
        """
        end, victim_keys = self.clock() + _KEPT_SECONDS, {victim.key for victim in victims}
        uids = {victim.uid for victim in victims if victim.key in protected}
        other_jobs = (
            job
            for key, job in self.state.objects.jobs.items()
            if key[0] in budgets and key not in victim_keys and job.plan is not None
        )
        uids |= {
            job.uid
            for job in other_jobs
            if disruption_budgets.refusal(budgets[job.key[0]], self.state.objects.pods_of(job))
        }
        self._protected_until.update(dict.fromkeys(uids, end))

    async def _stop(self, owner: _Owner, victim: _Victim, refusal: str) -> None:
        reason, message = victim.stop.reason, victim.stop.message
        if refusal and isinstance(victim.stop, Preempt):
            reason = Reason.BUDGET_OVERRIDDEN
            beneficiary, was_lent = victim.stop.beneficiary, victim.stop.running.is_opportunistic
            message += messages.budget_overridden(
                refusal, beneficiary, was_lent, self.state.settings
            )
        try:
            if isinstance(owner, Orphans):
                await self.pod_groups.stop_orphans(owner, message, reason)
            elif isinstance(owner, JobFacts):
                await self.jobs.preempt(owner, message, self.now(), reason, victim.was_lent)
            else:
                await self.pod_groups.preempt(owner, message, self.now(), reason, victim.was_lent)
        except BaseException:
            self.claims.drop(owner.uid)
            raise
        finally:
            self._stopping.pop(owner.uid, None)

    async def close(self) -> None:
        await self._tasks.close()


def _uids(orphans: Orphans) -> set[str]:
    return {pod.uid for pod in orphans.pods}
