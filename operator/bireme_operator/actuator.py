"""Carries out decisions on a TrainingJob: writes the plan first, then creates pods pinned by it.

Every method is one piece of work on one gang, to be run by the
:class:`~bireme_operator.workqueue.WorkQueue`. A crash between any two writes loses nothing: the
missing pods follow from the plan and the existing ones.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from bireme.core.gangs import Key
from bireme.core.reasons import Reason
from bireme.kube import names, pod_builder, wire
from bireme.kube.client import ApiError, NotLeader
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_builder import PodFactory, ProgressAccess
from bireme.kube.pod_comparison import against_pin, differences, text_of
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from bireme_operator import status
from bireme_operator.lifecycle import PendingAction
from bireme_operator.rejections import AdmissionRejected, rejection_of
from bireme_operator.watches import Watches
from bireme_operator.writes import Writes, version_of

_log = structlog.get_logger(__name__)

# Errors in a row that the API server answers a plan with: their pauses add up to 8.5 s.
_MAX_ANSWERS = 5


@dataclass(frozen=True, slots=True)
class Actuator:
    """Writes plans, creates and deletes pods; ``progress`` is the endpoint of reports, if any."""

    state: ClusterState
    watches: Watches
    writes: Writes
    lost_node: Callable[[str], str]
    """Returns the reason why a node counts as lost; empty when it does not."""
    progress: ProgressAccess | None = None
    max_grace_seconds: int = 2**31 - 1
    """Limit of the grace period of a stopped pod."""

    async def admit(self, job: JobFacts, plan: PlanFacts, new_status: Mapping[str, Any]) -> None:
        """Write the status of an admitted job with its plan, and create its pods."""
        # Write the plan first: after a crash the next leader creates the pods that it names. Pods
        # without a plan would have no owner.
        new_version = await self._write_plan(
            partial(self.writes.write_plan, job, new_status), "trainingjobs", job.key
        )
        try:
            await self.create_pods(job, plan, self._factory(job, plan).in_order())
        except (ApiError, AdmissionRejected):
            # Without the plan in the cache the created pods would look like leftovers.
            await self.watches.wait_for(self.watches.jobs, job.key, new_version)
            raise
        await self.watches.wait_for(self.watches.jobs, job.key, new_version)

    def _factory(self, job: JobFacts, plan: PlanFacts) -> PodFactory:
        accelerators = self.state.settings.known_accelerators
        return PodFactory(job, plan, self.progress, self.state.nodes.label, accelerators)

    async def create_pods(self, job: JobFacts, plan: PlanFacts, members: Iterable[Member]) -> None:
        """Create pods for ``members``, in that order, and wait until the cache has them.

        Raises:
            AdmissionRejected: the API server rejects one of them, or their Service.
        """
        factory = self._factory(job, plan)
        new_members = tuple(members)
        if factory.needs_service:
            # Create the Service first: only missing pods lead to this code again.
            await self.create_service(job, may_exist=len(new_members) < len(plan.members))
        await self._create_each(job, plan, factory, new_members)

    async def _create_each(
        self, job: JobFacts, plan: PlanFacts, factory: PodFactory, members: Sequence[Member]
    ) -> None:
        """Create pods in order, with as many concurrent requests as writes may use."""
        waiting = iter(members)
        versions = [0]
        errors: list[Exception] = []
        verdicts: list[Exception] = []

        async def worker() -> None:
            for member in waiting:
                try:
                    versions.append(await self._create_pod(job, plan, factory, member))
                except ApiError as error:
                    # Try the other pods too: then only the failed ones are missing.
                    errors.append(error)
                except (AdmissionRejected, NotLeader) as verdict:
                    verdicts.append(verdict)
                if verdicts:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.writes.concurrency, len(members))):
                group.create_task(worker())
        # Wait also after a rejection: the created pods are deleted next, and the plan after them.
        await self.watches.wait_for_pods(max(versions))
        for error in (*verdicts, *errors):
            raise error

    async def create_service(self, job: JobFacts, *, may_exist: bool) -> bool:
        """Create the Service of a job; return False if it exists.

        With ``may_exist`` the method looks for it first.

        Raises:
            AdmissionRejected: the API server rejects it, or its name belongs to another owner.
        """
        if may_exist and await self._has_service(job):
            return False
        try:
            await self.writes.create_service(job.key[0], pod_builder.service_manifest(job))
        except ApiError as error:
            if not error.is_already_exists:
                raise rejection_of(error) or error from error
            if not await self._has_service(job):
                raise
            return False
        return True

    async def _has_service(self, job: JobFacts) -> bool:
        """Return whether the job has its Service.

        Raises:
            ApiError: an earlier job's Service of that name still exists; try again.
            AdmissionRejected: a Service of that name belongs to another owner.
        """
        try:
            answer = await self.writes.get_service(job.key)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        meta = msgspec.json.decode(answer, type=wire.MetadataOnly).metadata
        owners = meta.owner_references or ()
        is_leaving = meta.deletion_timestamp is not None
        if any(owner.uid == job.uid for owner in owners) and not is_leaving:
            return True
        if is_leaving or any(names.is_training_job(o.api_version, o.kind) for o in owners):
            raise ApiError(409, "Conflict", f"Service {job.key[1]} of an earlier job still exists")
        raise _name_taken("Service", job.key[1])

    async def _create_pod(
        self, job: JobFacts, plan: PlanFacts, factory: PodFactory, member: Member
    ) -> int:
        namespace, job_name = job.key
        manifest: dict[str, Any] = {}

        def build() -> dict[str, Any]:
            manifest.update(factory.manifest(member))
            return manifest

        try:
            answer = await self.writes.create_pod(namespace, build)
        except ApiError as error:
            if error.is_already_exists:
                key = (namespace, names.pod_name(job_name, member.task, member.index))
                return await self._existing_pod(job, plan, key, manifest, member)
            if (rejected := rejection_of(error)) is not None:
                raise rejected from error
            raise
        return await self._verify(manifest, answer, member, plan)

    async def _verify(
        self, manifest: dict[str, Any], answer: bytes, member: Member, plan: PlanFacts
    ) -> int:
        """Return the version of a created pod; delete the pod if it would not start as planned.

        Raises:
            AdmissionRejected: admission has changed fields on which its binding depends.
        """
        try:
            sent = msgspec.convert(manifest, wire.V1Pod)
            pod = msgspec.json.decode(answer, type=wire.V1Pod)
            changes = differences(sent, pod)
            if not changes and plan.mode == "Pinned":
                changes = against_pin(sent, pod, member.node, self.state.nodes.table)
        except (ValueError, msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            return version_of(answer)  # a field of a newer Kubernetes
        if not changes:
            return version_of(answer)
        # Admission may have changed labels and owner, so that no other code would delete the pod.
        metadata = pod.metadata
        await self.writes.delete_pod((sent.metadata.namespace, metadata.name), metadata.uid)
        raise AdmissionRejected(Reason.PODS_REFUSED, text_of(member.task, changes))

    async def _existing_pod(
        self,
        job: JobFacts,
        plan: PlanFacts,
        key: Key,
        manifest: dict[str, Any],
        member: Member,
    ) -> int:
        """Return the version of an existing pod, which an earlier leader created for this plan."""
        answer = await self.writes.get_pod(key)
        pod = msgspec.json.decode(answer, type=wire.V1Pod)
        if all(owner.uid != job.uid for owner in pod.metadata.owner_references or ()):
            raise _name_taken("pod", key[1])
        if (pod.metadata.labels or {}).get(names.PLAN_LABEL) != plan.label:
            raise ApiError(409, "Conflict", f"pod {key[1]} of an earlier start still exists")
        if plan.mode == "Score" or pod.spec.node_name == member.node:
            manifest["spec"]["nodeName"] = pod.spec.node_name  # it is bound by now
        return await self._verify(manifest, answer, member, plan)

    async def perform(self, job: JobFacts, action: PendingAction, plan: PlanFacts | None) -> None:
        """Do the remaining work of a recorded phase."""
        if action.disruption is not None:
            await self._mark(action.delete_pods, action.disruption)
        await self.delete_pods(action.delete_pods, evicts=action.evicts)
        if action.create and plan is not None:
            indices = {(member.task, member.index) for member in action.create}
            in_order = self._factory(job, plan).in_order()
            await self.create_pods(job, plan, [m for m in in_order if (m.task, m.index) in indices])
        if action.clear_plan:
            await self.clear_plan(job)
        if action.delete_job:
            await self.writes.delete_job(job)

    async def delete_pods(self, pods: Iterable[PodFacts], *, evicts: bool = False) -> None:
        """Delete ``pods`` by uid, concurrently; with ``evicts`` only as budgets allow.

        Raises:
            ApiError: one pod stays, after all have been tried.
        """
        remove = self.writes.evict_pod if evicts else self.writes.delete_pod
        removals = [remove(pod.key, pod.uid, self._grace_seconds(pod)) for pod in pods]
        for result in await asyncio.gather(*removals, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _mark(self, pods: Iterable[PodFacts], condition: Mapping[str, str]) -> None:
        """Set ``condition`` on pods that are about to be deleted, as kube-scheduler does."""
        marks = [
            self.writes.set_condition(pod.key, pod.uid, condition)
            for pod in pods
            if not (pod.is_disrupted or pod.is_leaving)
        ]
        for result in await asyncio.gather(*marks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _grace_seconds(self, pod: PodFacts) -> int | None:
        """Return the grace period for a deletion, or None for the pod's own.

        It is 0 on a lost node, whose kubelet will not confirm the end. With 0 the API server
        removes the pod at once. If the node were only disconnected for a moment, the next replica
        would meet the old one. A pod without a node keeps its grace: it may have just been bound.
        """
        if pod.node and self.lost_node(pod.node):
            return 0
        return grace_override(pod, self.max_grace_seconds)

    async def clear_plan(self, job: JobFacts) -> None:
        """Give the gang's places back."""
        current = self.state.objects.jobs.get(job.key)
        if current is not None and current.uid == job.uid and current.plan is not None:
            await self.write_job(current, status.without_plan(current))

    async def plan_group(self, key: Key, version: str, new_status: Mapping[str, Any]) -> None:
        """Write a PodGroup's status with a new plan over ``version``; wait for the cache."""
        write = partial(self.writes.write_group_status, key, version, new_status)
        new_version = await self._write_plan(write, "podgroups", key)
        await self.watches.wait_for(self.watches.groups, key, new_version)

    async def plan_job(self, job: JobFacts, new_status: Mapping[str, Any]) -> None:
        """Write a TrainingJob's status likewise."""
        write = partial(self.writes.write_job_status, job, new_status)
        new_version = await self._write_plan(write, "trainingjobs", job.key)
        await self.watches.wait_for(self.watches.jobs, job.key, new_version)

    async def _write_plan(self, write: Callable[[], Awaitable[int]], plural: str, key: Key) -> int:
        """Send a plan until its outcome is known; return the version of its object.

        A request without an answer may have arrived, or may yet arrive. Without a retry, other
        gangs could be planned into the same places meanwhile. All requests are over the same
        version, so at most one of them succeeds. If the server answers each of several requests
        with an error, as with a webhook that is down, the cache catches up with the object and the
        gang gives its places back.

        Raises:
            ApiError: the plan was not written, and no request can still arrive.
        """
        may_arrive, answers = False, 0
        for pause_seconds in _pauses():
            try:
                return await write()
            except ApiError as error:
                may_arrive = may_arrive or error.has_no_answer
                if not may_arrive:
                    raise
                # Only a request without any answer may still be on its way.
                answers = answers + 1 if error.status else 0
                error.is_lasting = answers >= _MAX_ANSWERS
                if error.is_lasting or not error.is_retryable:
                    await self._catch_up(plural, key)
                    raise
                pause = max(pause_seconds, error.retry_after_seconds or 0.0)
                _log.info("plan not written", gang=key, seconds=pause, error=str(error))
            await asyncio.sleep(pause)
        raise AssertionError("there is always another pause")

    async def _catch_up(self, plural: str, key: Key) -> None:
        """Return once the cache has the newest version of a gang's object, if it still exists."""
        source = self.watches.jobs if plural == "trainingjobs" else self.watches.groups
        for pause_seconds in _pauses():
            try:
                newest = version_of(await self.writes.get(names.path(plural, *key)))
            except ApiError as error:
                if not error.is_retryable:
                    return
                await asyncio.sleep(max(pause_seconds, error.retry_after_seconds or 0.0))
            else:
                await self.watches.wait_for(source, key, newest)
                return

    async def write_group(self, key: Key, version: str, new_status: Mapping[str, Any]) -> None:
        """Write a PodGroup's status over ``version``, and wait until the cache has it."""
        new_version = await self.writes.write_group_status(key, version, new_status, report=True)
        await self.watches.wait_for(self.watches.groups, key, new_version)

    async def write_job(
        self, job: JobFacts, new_status: Mapping[str, Any], *, can_wait: bool = False
    ) -> None:
        """Write a TrainingJob's status likewise."""
        new_version = await self.writes.write_job_status(job, new_status, can_wait=can_wait)
        await self.watches.wait_for(self.watches.jobs, job.key, new_version)

    async def roll_back(self, job: JobFacts) -> None:
        """Undo a rejected admission: delete the created pods, then clear the plan."""
        # Clear the plan last: it keeps the places as long as a pod uses one of them.
        await self.delete_pods(self.state.objects.pods_of(job))
        await self.clear_plan(job)


def grace_override(pod: PodFacts, max_grace_seconds: int) -> int | None:
    """Return ``max_grace_seconds`` for a pod that requests more; None for the pod's own grace."""
    requested_seconds = max(pod.grace_seconds, pod.ending_grace_seconds)
    return max_grace_seconds if requested_seconds > max_grace_seconds else None


def _pauses() -> Iterator[float]:
    """Yield seconds between two attempts, endlessly: leadership ends first."""
    return itertools.chain((0.5, 1.0, 2.0), itertools.repeat(5.0))


def _name_taken(kind: str, name: str) -> AdmissionRejected:
    message = f"a {kind} {name!r} exists that is not this job's; delete it or rename the job"
    return AdmissionRejected(Reason.PODS_REFUSED, message)
