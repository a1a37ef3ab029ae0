"""Carries decisions and chores out: plan first, then pods created already pinned.

One gang at a time: while work on a gang is under way it is *busy*, nobody judges it, and what it
was promised stays reserved. It stops being busy when our own caches have seen our own writes, so
nothing is done from a state older than what we did: until then a gang only keeps its turn. Work
that fails is not retried here; the next look at the recorded state asks for what is missing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from bireme.core.decision import Admit
from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube import names, plans, pod_builder, wire
from bireme.kube.allocations import AssumedPlan
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_builder import PodFactory, ProgressAccess, group_manifest
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme.tasks import Tasks
from bireme_operator.lifecycle import ACTIVE, PendingAction
from bireme_operator.watches import Watches
from bireme_operator.writes import Writes

# When work that failed may be tried again: ever later, for as long as the gang does not move.
#
# A failure after which something of the gang has changed counts as the first again, so that a gang
# of many writes gets through an API server that fails now and then.

_PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_CONFLICT_SECONDS = 0.05
"""First pause after a conflict: somebody else wrote, and the cache is about to say what."""
_PATIENCE = 3
"""After so many failures in a row others need not wait for the gang any more."""


@dataclass(frozen=True, slots=True)
class _Failure:
    until: float
    in_a_row: int
    state: object


@dataclass(slots=True)
class BackOffs:
    """Pauses of gangs; ``clock`` is monotonic seconds."""

    clock: Callable[[], float]
    _last: dict[Key, _Failure] = field(default_factory=dict)

    def are_over(self, key: Key) -> bool:
        """Whether work on the gang may be started now."""
        return key not in self._last or self.clock() >= self._last[key].until

    def hopeless(self) -> list[Key]:
        """Gangs whose pause is not over and that have failed too often to be waited for.

        Until then a gang keeps its turn, or a hiccup of the API server would give it to others.
        """
        now = self.clock()
        return [
            key
            for key, last in self._last.items()
            if now < last.until and last.in_a_row > _PATIENCE
        ]

    def add(self, key: Key, error: Exception, state: object) -> float:
        """Note a failure while the gang was in ``state``; the pause in seconds."""
        last = self._last.get(key)
        before = last.in_a_row if last is not None and last.state == state else 0
        pause = _PAUSES_SECONDS[min(before, len(_PAUSES_SECONDS) - 1)]
        if isinstance(error, ApiError):
            if error.is_conflict:
                pause = min(pause, _CONFLICT_SECONDS * 2**before)
            pause = max(pause, error.retry_after_seconds or 0.0)
        self._last[key] = _Failure(self.clock() + pause, before + 1, state)
        return pause

    def end(self, key: Key) -> None:
        """Work on the gang succeeded."""
        self._last.pop(key, None)

    def forget(self, keys: set[Key]) -> None:
        """Drop what is remembered of gangs that are gone; ``keys`` are those that exist."""
        self._last = {key: last for key, last in self._last.items() if key in keys}


_log = structlog.get_logger(__name__)


class AdmissionRejected(Exception):  # noqa: N818  # a verdict about the gang, not a malfunction
    """The API server will not take a pod of the gang, and trying again at once is pointless."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class Actuator:
    """Does what was decided. ``on_done`` is called whenever a gang stops being busy."""

    state: ClusterState
    watches: Watches
    writes: Writes
    epoch: int
    back_offs: BackOffs
    on_done: Callable[[], None]
    on_refused: Callable[[Key, AdmissionRejected], None]
    progress: ProgressAccess | None = None
    busy: dict[Key, AssumedPlan | None] = field(default_factory=dict)
    _tasks: Tasks = field(default_factory=Tasks)

    def is_free(self, key: Key) -> bool:
        """Whether work on the gang may be started now."""
        return key not in self.busy and self.back_offs.are_over(key)

    def undecided(self) -> set[Key]:
        """Gangs left out of a cycle; not all that are busy, for who is left out loses its turn."""
        return {*self.promises(), *self.back_offs.hopeless()}

    def promises(self) -> dict[Key, AssumedPlan]:
        """What gangs under way were promised."""
        return {key: promise for key, promise in self.busy.items() if promise is not None}

    def start(
        self, key: Key, work: Coroutine[Any, Any, None], promise: AssumedPlan | None = None
    ) -> None:
        """Begin ``work`` on a gang that is not busy."""
        self.busy[key] = promise
        self._tasks.start(self._run(key, work))

    async def _run(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        self.writes.turns.take()
        try:
            await work
            self.back_offs.end(key)
        except AdmissionRejected as refusal:
            self.on_refused(key, refusal)
        except NotLeader:
            _log.info("write stopped: not the leader any more", gang=key)
        except ApiError as error:
            self.back_off(key, error)
        except Exception as error:  # noqa: BLE001  # one gang that trips over a bug of ours stops no other
            _log.exception("work on a gang failed", gang=key)
            self.back_off(key, error)
        finally:
            del self.busy[key]
            self.state.changed.add(key)
            self.on_done()

    def back_off(self, key: Key, error: Exception) -> None:
        """Leave the gang alone for a while after ``error``."""
        job, group = self.state.jobs.get(key), self.state.groups.get(key)
        versions = tuple(facts.resource_version for facts in (job, group) if facts is not None)
        pause = self.back_offs.add(key, error, (versions, len(self.state.members_of(key))))
        asyncio.get_running_loop().call_later(pause, self.wake, key)
        _log.info("will try again", gang=key, seconds=pause, error=str(error))

    def wake(self, key: Key) -> None:
        """Have the gang looked at again."""
        self.state.changed.add(key)
        self.on_done()

    async def close(self) -> None:
        """Stop all work under way."""
        await self._tasks.close()

    def pods_of(self, job: JobFacts) -> list[PodFacts]:
        """The pods that ``job`` owns, of whichever start."""
        return [pod for pod in self.state.members_of(job.key) if job.uid in pod.owner_uids]

    # --- TrainingJobs ---------------------------------------------------------------------

    def admit(self, job: JobFacts, admit: Admit, plan: PlanFacts) -> None:
        """Write the plan and create the pods of an admitted job."""
        self.start(job.key, self._admit(job, plan), AssumedPlan(admit.gang.queue, job.uid, plan))

    async def _admit(self, job: JobFacts, plan: PlanFacts) -> None:
        group = self.state.groups.get(job.key)
        version = group.resource_version if group is not None else ""
        if group is None:
            version = await self._create_group(job)
        status = {"phase": "Inqueue", "reason": Reason.ADMITTED, "plan": plans.to_manifest(plan)}
        written = await self.writes.write_group_status(job.key, version, status)
        try:
            await self.create_pods(job, plan, self._factory(job, plan).in_order())
        except (ApiError, AdmissionRejected):
            # Or pods would be taken for leftovers where the cache does not have their plan yet.
            await self.watches.wait_past(self.watches.groups, written)
            raise
        await self.watches.wait_past(self.watches.groups, written)

    async def _create_group(self, job: JobFacts) -> str:
        try:
            return str(await self.writes.create_group(job.key[0], group_manifest(job)))
        except ApiError as error:
            raise rejection_of(error) or error from error

    async def create_pods(self, job: JobFacts, plan: PlanFacts, members: Iterable[Member]) -> None:
        """Create pods for ``members``, in that order, and wait until the cache has them.

        Raises:
            AdmissionRejected: the API server will not take one of them, or their Service.
        """
        factory = self._factory(job, plan)
        wanted = tuple(members)
        if pod_builder.Rendezvous(job, plan).needs_service:
            # First: only what is missing asks for it again.
            await self._create_service(job, may_exist=len(wanted) < len(plan.members))
        creations = [self._create_pod(job, plan, factory.manifest(m)) for m in wanted]
        results = await asyncio.gather(*creations, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(errors, key=lambda e: not isinstance(e, AdmissionRejected)):
            raise error
        newest = max((r for r in results if isinstance(r, int)), default=0)
        await self.watches.wait_past(self.watches.members, newest)

    def _factory(self, job: JobFacts, plan: PlanFacts) -> PodFactory:
        return PodFactory(job, plan, self.progress)

    async def _create_service(self, job: JobFacts, *, may_exist: bool) -> None:
        if may_exist and await self._has_service(job):
            return
        try:
            await self.writes.create_service(job.key[0], pod_builder.service_manifest(job))
        except ApiError as error:
            if not error.is_already_exists:
                raise rejection_of(error) or error from error
            if not await self._has_service(job):
                raise

    async def _has_service(self, job: JobFacts) -> bool:
        """Whether it is there; one of that name that an earlier job or a stranger left raises."""
        try:
            answer = await self.writes.get_service(job.key)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        meta = msgspec.json.decode(answer, type=wire.V1Service).metadata
        owners = meta.owner_references or ()
        is_leaving = meta.deletion_timestamp is not None
        if any(owner.uid == job.uid for owner in owners) and not is_leaving:
            return True
        if is_leaving or any(names.is_training_job(o.api_version, o.kind) for o in owners):
            raise ApiError(409, "Conflict", f"Service {job.key[1]} of an earlier job still exists")
        raise AdmissionRejected(Reason.PODS_REFUSED, _stranger("Service", job.key[1]))

    async def _create_pod(self, job: JobFacts, plan: PlanFacts, pod: dict[str, Any]) -> int:
        namespace, name = job.key[0], pod["metadata"]["name"]
        try:
            return await self.writes.create_pod(namespace, pod)
        except ApiError as error:
            if error.is_already_exists:
                return await self._existing_pod(job, plan, (namespace, name))
            if (refusal := rejection_of(error)) is not None:
                raise refusal from error
            raise

    async def _existing_pod(self, job: JobFacts, plan: PlanFacts, key: Key) -> int:
        """A pod of that name exists: ours from before a crash, an old one, or a stranger's."""
        pod = msgspec.json.decode(await self.writes.get_pod(key), type=wire.V1Pod)
        if all(owner.uid != job.uid for owner in pod.metadata.owner_references or ()):
            raise AdmissionRejected(Reason.PODS_REFUSED, _stranger("pod", key[1]))
        if (pod.metadata.labels or {}).get(names.PLAN_LABEL) != plan.label:
            raise ApiError(409, "Conflict", f"pod {key[1]} of an earlier start still exists")
        return int(pod.metadata.resource_version)

    async def try_template(self, job: JobFacts, plan: PlanFacts) -> None:
        """Have the API server judge one pod of every task without creating it.

        Raises:
            AdmissionRejected: it would refuse one.
            ApiError: it gave no verdict; ask again.
        """
        factory = self._factory(job, plan)
        for member in plan.members:
            try:
                await self.writes.try_pod(job.key[0], factory.manifest(member))
            except ApiError as error:
                if error.is_invalid and (refusal := rejection_of(error)) is not None:
                    raise refusal from error
                if error.is_retryable:
                    raise  # no verdict yet

    def do(self, job: JobFacts, chore: PendingAction, plan: PlanFacts | None) -> None:
        """Carry out what a recorded phase still asks for."""
        self.start(job.key, self._do(job, chore, plan))

    async def _do(self, job: JobFacts, chore: PendingAction, plan: PlanFacts | None) -> None:
        await self.delete_pods(chore.delete_pods, evicts=chore.evicts)
        if chore.create and plan is not None:
            wanted = {(member.task, member.index) for member in chore.create}
            in_order = self._factory(job, plan).in_order()
            await self.create_pods(job, plan, [m for m in in_order if (m.task, m.index) in wanted])
        if chore.clear_plan:
            await self.clear_plan(job.key, job)
        if chore.delete_job:
            await self.writes.delete_job(job)

    async def delete_pods(self, pods: Iterable[PodFacts], *, evicts: bool = False) -> None:
        """Delete these very pods, all at once; with ``evicts`` only those that budgets let go.

        Raises:
            ApiError: one stays, after all have been tried.
        """
        remove = self.writes.evict_pod if evicts else self.writes.delete_pod
        removals = [remove(pod.key, pod.uid, self._grace(pod.node)) for pod in pods]
        for result in await asyncio.gather(*removals, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _grace(self, node: str) -> int | None:
        """No grace where no kubelet is there to confirm the end of a pod.

        One that has no node yet may have been bound a moment ago.
        """
        facts = self.state.node(node)
        return None if not node or (facts is not None and facts.is_ready) else 0

    async def clear_plan(self, key: Key, job: JobFacts | None) -> None:
        """Give the gang's place back."""
        group = self.state.groups.get(key)
        if group is None or group.plan is None:
            return
        phase = "Pending"
        if job is not None:
            phase = "Completed" if job.is_finished else phase
            phase = "Interrupted" if job.phase == "Restarting" else phase
        written = await self.writes.write_group_status(
            key, group.resource_version, {"phase": phase}
        )
        await self.watches.wait_past(self.watches.groups, written)

    async def take_back(self, job: JobFacts) -> None:
        """Undo a refused admission: delete what was created, then clear the plan."""
        await self.delete_pods(self.pods_of(job))
        await self.clear_plan(job.key, job)


def rejection_of(error: ApiError) -> AdmissionRejected | None:
    """The verdict in an API error: invalid for good, refused as things stand, or None."""
    if error.is_invalid or "request is too large" in error.message:
        return AdmissionRejected(Reason.TEMPLATE_INVALID, error.message)
    if error.is_forbidden:
        return AdmissionRejected(Reason.PODS_REFUSED, error.message)
    return None


def _stranger(kind: str, name: str) -> str:
    return f"a {kind} {name!r} exists that is not this job's; delete it or rename the job"


# What the API server would not take: until the spec changes, or for a while, ever longer.
#
# A verdict ends by itself, because its cause may: a quota is raised, an admission policy corrected
# (whose denial looks like that of an invalid pod). The gang is then tried again where there is
# room.
# Nobody is stopped for it for an hour, or others would make room in vain again and again.

Verdict = tuple[Reason, str]
_REMEMBERED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _Known:
    spec_hash: str
    at: float
    pause: float
    verdict: Verdict


@dataclass(slots=True)
class AdmissionRejections:
    """Verdicts of the API server on jobs, by uid; ``clock`` is monotonic seconds."""

    clock: Callable[[], float]
    _known: dict[str, _Known] = field(default_factory=dict)

    def add(self, job: JobFacts, refused: AdmissionRejected) -> None:
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
