"""Stops an external Job or JobSet by suspending it, and resumes it once its pods have left.

The controller of a suspended Job deletes its pods and counts none of them as failed, so the stop
costs no retry of ``backoffLimit``. A resumed Job creates them again, and they wait behind Bireme's
gate.

The write that suspends an object also sets the label ``bireme.dev/suspended-for`` with the name of
the PodGroup. Bireme resumes only objects with this label. If a leader dies in between, the next one
lists the labelled objects and resumes them. Without permission to list them it suspends nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from bireme.core.gangs import Key
from bireme.kube import names, wire
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.pods import PodFacts
from bireme_operator.writes import Writes

_log = structlog.get_logger(__name__)
# Time limit for a controller to act on a suspension; then Bireme evicts its pods.
_ACT_SECONDS = 30.0
# An abandoned request, or one of the previous leader, may arrive this much later.
_LATE_SECONDS = 60.0
# The first and the longest pause: after a failure, and between polls of a controller.
_PAUSES_SECONDS = (0.1, 10.0)
_POLLS_SECONDS = (0.05, 1.0)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind with ``spec.suspend``; ``controller`` is its controller's name in ``managedBy``."""

    api_version: str
    kind: str
    plural: str
    controller: str

    def path(self, key: Key | None = None) -> str:
        """Return the API path of one object, or of all objects in all namespaces."""
        suffix = f"/namespaces/{key[0]}/{self.plural}/{key[1]}" if key else f"/{self.plural}"
        return f"/apis/{self.api_version}{suffix}"


_JOB = _Kind("batch/v1", "Job", "jobs", "kubernetes.io/job-controller")
_JOB_SET = _Kind(
    "jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", "jobset.sigs.k8s.io/jobset-controller"
)
_KINDS = {kind.kind: kind for kind in (_JOB, _JOB_SET)}


@dataclass(frozen=True, slots=True)
class _Ref:
    kind: _Kind
    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class SuspendableOwner:
    """A Job or JobSet that can be suspended, as read, with the pods that stop with it."""

    ref: _Ref
    resource_version: str
    is_suspended: bool
    """True if a leader of Bireme suspended it and died."""
    pods: tuple[PodFacts, ...]

    @property
    def name(self) -> str:
        return f"{self.ref.kind.kind} {self.ref.key[1]}"


class _OwnerReference(wire.Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Meta(wire.Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    owner_references: tuple[_OwnerReference, ...] | None = None

    @property
    def controller(self) -> _OwnerReference | None:
        return next((o for o in self.owner_references or () if o.controller), None)


class _Labelled(wire.Wire, frozen=True):
    metadata: _Meta = _Meta()


class _Spec(wire.Wire, frozen=True):
    suspend: bool | None = None
    managed_by: str | None = None
    template: _Labelled | None = None
    replicated_jobs: "tuple[_ReplicatedJob, ...] | None" = None


class _JobTemplate(wire.Wire, frozen=True):
    spec: _Spec = _Spec()


class _ReplicatedJob(wire.Wire, frozen=True):
    template: _JobTemplate = _JobTemplate()


class _Status(wire.Wire, frozen=True):
    conditions: tuple[wire.V1Condition, ...] | None = None


class _Object(wire.Wire, frozen=True):
    """The fields of a pod, a Job or a JobSet that this module reads."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def is_ours(self) -> bool:
        return names.SUSPENDED_LABEL in (self.metadata.labels or {})

    @property
    def has_acted(self) -> bool:
        """True if its controller has seen the suspension, or the job is over."""
        ends = ("Suspended", "Complete", "Completed", "Failed")
        return any(c.type in ends and c.status == "True" for c in self.status.conditions or ())

    def has_only(self, group: str) -> bool:
        """Return whether all templates create members of the PodGroup ``group``."""
        jobs = (job.template.spec for job in self.spec.replicated_jobs or ())
        templates = [spec.template for spec in (self.spec, *jobs) if spec.template is not None]
        labels = [template.metadata.labels or {} for template in templates]
        return bool(labels) and all(pairs.get(names.POD_GROUP_LABEL) == group for pairs in labels)


@dataclass(slots=True)
class Suspensions:
    """Suspends and resumes owners of pods; ``clock`` is monotonic seconds."""

    state: ClusterState
    writes: Writes
    clock: Callable[[], float]
    _listable_kinds: set[_Kind] = field(default_factory=set)
    _under_way: set[str] = field(default_factory=set)
    _in_doubt: asyncio.Event = field(default_factory=asyncio.Event)

    # --- suspensions of earlier leaders -------------------------------------------------------

    async def run(self) -> None:
        """Lift suspensions that earlier leaders or lost requests have left."""
        self._in_doubt.set()  # a request of the previous leader may still be under way
        while True:
            for kind in _KINDS.values():
                await self._lift_all(kind)
            await self._in_doubt.wait()
            self._in_doubt.clear()
            await asyncio.sleep(_LATE_SECONDS)

    async def _lift_all(self, kind: _Kind) -> None:
        """Lift every suspension of ``kind`` that is not under way; retry until it is listed."""
        failures = 0
        while True:
            try:
                refs = await self._list(kind)
            except ApiError as error:
                _log.info("suspended owners not listed", kind=kind.kind, error=str(error))
            except msgspec.DecodeError as error:
                _log.warning("suspended owners not understood", kind=kind.kind, error=str(error))
                return
            else:
                for ref in refs:
                    await self._lift(ref)
                return
            await asyncio.sleep(_pause(failures, *_PAUSES_SECONDS))
            failures += 1

    async def _list(self, kind: _Kind) -> list[_Ref]:
        """Return the objects suspended by earlier leaders; none if the kind may not be listed."""
        try:
            items = await self.writes.list_owners(kind.path(), names.SUSPENDED_LABEL)
        except ApiError as error:
            if error.is_not_found or error.is_forbidden:
                self._listable_kinds.discard(kind)
                return []
            raise
        self._listable_kinds.add(kind)
        metas = [msgspec.json.decode(item, type=_Labelled).metadata for item in items]
        metas = [meta for meta in metas if meta.uid not in self._under_way]
        return [_Ref(kind, (meta.namespace, meta.name), meta.uid) for meta in metas]

    # --- a stop -------------------------------------------------------------------------------

    async def owners(
        self, group: Key, pods: Sequence[PodFacts], spare: Sequence[PodFacts], notes: list[str]
    ) -> list[SuspendableOwner]:
        """Return the owners whose suspension stops some or all of ``pods``.

        An owner stops all of its pods, so each must be in ``pods`` or in ``spare``. The method adds
        messages for the user to ``notes``.
        """
        free = {pod.uid for pod in (*pods, *spare)}
        staying_pods = [
            p for p in self.state.objects.members_of(group) if _runs(p) and p.uid not in free
        ]
        staying = {uid for pod in staying_pods for uid in pod.owner_uids}
        families: dict[frozenset[str], list[PodFacts]] = {}
        for pod in (*pods, *spare):
            families.setdefault(pod.owner_uids, []).append(pod)
        owners_by_ref: dict[_Ref, SuspendableOwner] = {}
        for uids in {pod.owner_uids: None for pod in pods}:
            if not uids or not staying.isdisjoint(uids):
                continue
            family = families[uids]
            try:
                owner = await self._owner_of(group, family[0], has_all=not staying_pods)
            except ApiError as error:
                # Despite any fault of the owner, its pods can be evicted one by one.
                note = "the operator may not suspend" if error.is_forbidden else "nobody suspended"
                notes.append(f"{note} their owner ({error.message})")
                continue
            if owner is not None:
                previous = owners_by_ref.get(owner.ref, owner)
                owners_by_ref[owner.ref] = replace(owner, pods=(*previous.pods, *family))
        return list(owners_by_ref.values())

    async def _owner_of(
        self, group: Key, pod: PodFacts, *, has_all: bool
    ) -> SuspendableOwner | None:
        """Return the owner to suspend for a pod of ``group``; None without one.

        ``has_all`` is true if no pod of the group stays, in any job of a JobSet.
        """
        pod_object = await self._read(self.writes.get_pod(pod.key), pod.uid)
        owner = pod_object.metadata.controller if pod_object is not None else None
        if owner is None or (owner.api_version, owner.kind) != (_JOB.api_version, _JOB.kind):
            return None
        ref = _Ref(_JOB, (group[0], owner.name), owner.uid)
        job = await self._get(ref)
        parent = job.metadata.controller if job is not None else None
        if parent is not None and parent.kind != "CronJob":
            # Any other owner of a Job would lift its suspension.
            is_set = parent.kind == _JOB_SET.kind and parent.api_version == _JOB_SET.api_version
            if not (is_set and has_all):
                return None
            ref = _Ref(_JOB_SET, (group[0], parent.name), parent.uid)
            job = await self._get(ref)
            if job is not None and job.metadata.controller is not None:
                return None
        if job is None or job.metadata.deletion_timestamp or not job.has_only(group[1]):
            return None
        if job.spec.managed_by not in (None, ref.kind.controller):
            return None
        if job.spec.suspend and not job.is_ours:
            return None  # its user suspended it and resumes it
        if not await self._may_list(ref.kind):
            return None
        return SuspendableOwner(ref, job.metadata.resource_version, bool(job.spec.suspend), ())

    async def _may_list(self, kind: _Kind) -> bool:
        if kind not in self._listable_kinds:
            await self._list(kind)
        return kind in self._listable_kinds

    async def stop(self, owner: SuspendableOwner, group: Key) -> bool:
        """Suspend ``owner`` until its pods leave, then resume it; return whether they left.

        Raises:
            ApiError: the owner could not be suspended, and is not.
        """
        self._under_way.add(owner.ref.uid)
        try:
            try:
                await self._suspend(owner, group)
                worked = await self._await_stop(owner)
            except Exception:
                self._in_doubt.set()
                await self._lift(owner.ref)
                raise
            await self._lift(owner.ref)
        finally:
            self._under_way.discard(owner.ref.uid)
        return worked

    async def _suspend(self, owner: SuspendableOwner, group: Key) -> None:
        if owner.is_suspended:
            return
        meta = {"labels": {names.SUSPENDED_LABEL: group[1]}}
        await self._patch(owner.ref, owner.resource_version, meta, suspend=True)

    async def _await_stop(self, owner: SuspendableOwner) -> bool:
        """Return whether the controller has deleted the pods of ``owner`` within the limit."""
        began, waits = self.clock(), 0
        while self.clock() - began < _ACT_SECONDS:
            members = (self.state.objects.members.get(pod.key) for pod in owner.pods)
            uids = {pod.uid for pod in members if pod is not None and _runs(pod)}
            if uids.isdisjoint(pod.uid for pod in owner.pods):
                # Wait for the condition too: a controller may miss a suspension lifted before.
                current = await self._get(owner.ref)
                if current is None or current.has_acted:
                    return True
            await asyncio.sleep(_pause(waits, *_POLLS_SECONDS))
            waits += 1
        return False

    async def _lift(self, ref: _Ref) -> None:
        """End a suspension that carries the label; retry until it is over."""
        failures = 0
        while True:
            try:
                current = await self._get(ref)
                if current is None or not current.is_ours:
                    return
                meta = {"labels": {names.SUSPENDED_LABEL: None}}
                await self._patch(ref, current.metadata.resource_version, meta, suspend=False)
            except ApiError as error:
                if error.is_not_found:
                    return
                if not error.is_conflict:
                    _log.warning("suspension not lifted yet", owner=ref.key, error=str(error))
            else:
                return
            await asyncio.sleep(_pause(failures, *_PAUSES_SECONDS))
            failures += 1

    # --- requests -----------------------------------------------------------------------------

    async def _get(self, ref: _Ref) -> _Object | None:
        """Return the object; None if it was deleted or replaced."""
        return await self._read(self.writes.get(ref.kind.path(ref.key)), ref.uid)

    async def _read(self, answer: Awaitable[bytes], uid: str) -> _Object | None:
        try:
            resource = msgspec.json.decode(await answer, type=_Object)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return resource if resource.metadata.uid == uid else None

    async def _patch(
        self, ref: _Ref, resource_version: str, meta: Mapping[str, object], *, suspend: bool
    ) -> None:
        metadata = {**meta, "resourceVersion": resource_version}
        change = {"metadata": metadata, "spec": {"suspend": suspend}}
        await self.writes.patch_owner(ref.kind.path(ref.key), change)


def _pause(count: int, first_seconds: float, limit_seconds: float) -> float:
    """Return the pause after ``count`` others, doubled each time; one leader needs no jitter."""
    return min(first_seconds * 2.0 ** min(count, 30), limit_seconds)


def _runs(pod: PodFacts) -> bool:
    return not (pod.is_terminal or pod.is_leaving or pod.is_gated)
