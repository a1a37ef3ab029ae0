"""Stops a Job or JobSet of others by suspending it, and lifts that as soon as it has worked.

The controller of a suspended Job deletes its pods and counts none of them as failed, so that the
stop costs no retry of ``backoffLimit``. Lifted, it makes them anew, and they wait behind Bireme's
gate.

What is suspended here carries the label ``bireme.dev/suspended-for`` with the name of the PodGroup,
set by the same write, and nothing without it is ever lifted. A leader that dies in between leaves
that label behind: the next one lists by it and lifts what it finds. Where it could not list, it
suspends nothing.
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
# A controller has so long to act on a suspension; then its pods are evicted.
_ACT_SECONDS = 30.0
# A request that was given up may arrive this much later, as may one of the leader before.
_LATE_SECONDS = 60.0
# The first pause and the longest: after a failure, and until a controller has acted.
_PAUSES_SECONDS = (0.1, 10.0)
_POLLS_SECONDS = (0.05, 1.0)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind with ``spec.suspend``; ``own`` is how ``spec.managedBy`` names its controller."""

    api_version: str
    kind: str
    plural: str
    own: str

    def path(self, key: Key | None = None) -> str:
        """Return the API path of one object, or of all of them in all namespaces."""
        at = f"/namespaces/{key[0]}/{self.plural}/{key[1]}" if key else f"/{self.plural}"
        return f"/apis/{self.api_version}{at}"


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
class Owner:
    """A Job or JobSet that can be suspended, as it was read, with the pods that go with it."""

    ref: _Ref
    resource_version: str
    is_suspended: bool
    """By Bireme: by a leader that died meanwhile."""
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
    """As much of a pod, a Job or a JobSet as is read here."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def is_ours(self) -> bool:
        return names.SUSPENDED_LABEL in (self.metadata.labels or {})

    @property
    def has_acted(self) -> bool:
        """True if its controller has seen the suspension, or it is over."""
        ends = ("Suspended", "Complete", "Completed", "Failed")
        return any(c.type in ends and c.status == "True" for c in self.status.conditions or ())

    def has_only(self, group: str) -> bool:
        """Return whether the templates make members of the PodGroup ``group`` alone."""
        jobs = (each.template.spec for each in self.spec.replicated_jobs or ())
        templates = [spec.template for spec in (self.spec, *jobs) if spec.template is not None]
        labels = [each.metadata.labels or {} for each in templates]
        return bool(labels) and all(each.get(names.POD_GROUP_LABEL) == group for each in labels)


@dataclass(slots=True)
class Suspensions:
    """Suspends owners of pods, and lifts what was suspended; ``clock`` is monotonic seconds."""

    state: ClusterState
    writes: Writes
    clock: Callable[[], float]
    _listed: set[_Kind] = field(default_factory=set)
    _under_way: set[str] = field(default_factory=set)
    _in_doubt: asyncio.Event = field(default_factory=asyncio.Event)

    # --- what leaders before left -------------------------------------------------------------

    async def run(self) -> None:
        """Lift what leaders before left suspended, and what a lost request may have."""
        self._in_doubt.set()  # a request of the leader before may still be under way
        while True:
            for kind in _KINDS.values():
                await self._lift_all(kind)
            await self._in_doubt.wait()
            self._in_doubt.clear()
            await asyncio.sleep(_LATE_SECONDS)

    async def _lift_all(self, kind: _Kind) -> None:
        """Lift every suspension of ``kind`` that is not under way; tried until it is known."""
        failures = 0
        while True:
            try:
                left = await self._list(kind)
            except ApiError as error:
                _log.info("suspended owners not listed", kind=kind.kind, error=str(error))
            except msgspec.DecodeError as error:
                _log.warning("suspended owners not understood", kind=kind.kind, error=str(error))
                return
            else:
                for ref in left:
                    await self._lift(ref)
                return
            await asyncio.sleep(_pause(failures, *_PAUSES_SECONDS))
            failures += 1

    async def _list(self, kind: _Kind) -> list[_Ref]:
        """Return what is suspended by leaders before; nothing where the kind may not be listed."""
        try:
            listed = await self.writes.list_owners(kind.path(), names.SUSPENDED_LABEL)
        except ApiError as error:
            if error.is_not_found or error.is_forbidden:
                self._listed.discard(kind)
                return []
            raise
        self._listed.add(kind)
        metas = [msgspec.json.decode(each, type=_Labelled).metadata for each in listed]
        metas = [meta for meta in metas if meta.uid not in self._under_way]
        return [_Ref(kind, (meta.namespace, meta.name), meta.uid) for meta in metas]

    # --- a stop -------------------------------------------------------------------------------

    async def owners(
        self, group: Key, pods: Sequence[PodFacts], spare: Sequence[PodFacts], notes: list[str]
    ) -> list[Owner]:
        """Return the owners by which all of ``pods``, or some, can be stopped.

        An owner takes all of its pods with it: none of them may stay but those in ``spare``. What
        a user should know is added to ``notes``.
        """
        free = {pod.uid for pod in (*pods, *spare)}
        stay = [p for p in self.state.members_of(group) if _runs(p) and p.uid not in free]
        staying = {uid for pod in stay for uid in pod.owner_uids}
        families: dict[frozenset[str], list[PodFacts]] = {}
        for pod in (*pods, *spare):
            families.setdefault(pod.owner_uids, []).append(pod)
        found: dict[_Ref, Owner] = {}
        for uids in {pod.owner_uids: None for pod in pods}:
            if not uids or not staying.isdisjoint(uids):
                continue
            family = families[uids]
            try:
                owner = await self._owner_of(group, family[0], has_all=not stay)
            except ApiError as error:
                # Whatever is wrong with the owner, its pods can be evicted one by one.
                words = "the operator may not suspend" if error.is_forbidden else "nobody suspended"
                notes.append(f"{words} their owner ({error.message})")
                continue
            if owner is not None:
                known = found.get(owner.ref, owner)
                found[owner.ref] = replace(owner, pods=(*known.pods, *family))
        return list(found.values())

    async def _owner_of(self, group: Key, pod: PodFacts, *, has_all: bool) -> Owner | None:
        """Return the owner to suspend for a pod of ``group``; None where there is none.

        ``has_all``: no pod of the group stays, whatever job of a JobSet it is of.
        """
        found = await self._read(self.writes.get_pod(pod.key), pod.uid)
        by = found.metadata.controller if found is not None else None
        if by is None or (by.api_version, by.kind) != (_JOB.api_version, _JOB.kind):
            return None
        ref = _Ref(_JOB, (group[0], by.name), by.uid)
        job = await self._get(ref)
        above = job.metadata.controller if job is not None else None
        if above is not None and above.kind != "CronJob":
            # Any other owner of a Job would lift its suspension.
            is_set = above.kind == _JOB_SET.kind and above.api_version == _JOB_SET.api_version
            if not (is_set and has_all):
                return None
            ref = _Ref(_JOB_SET, (group[0], above.name), above.uid)
            job = await self._get(ref)
            if job is not None and job.metadata.controller is not None:
                return None
        if job is None or job.metadata.deletion_timestamp or not job.has_only(group[1]):
            return None
        if job.spec.managed_by not in (None, ref.kind.own):
            return None
        if job.spec.suspend and not job.is_ours:
            return None  # by its user, who lifts it
        if not await self._may_list(ref.kind):
            return None
        return Owner(ref, job.metadata.resource_version, bool(job.spec.suspend), ())

    async def _may_list(self, kind: _Kind) -> bool:
        if kind not in self._listed:
            await self._list(kind)
        return kind in self._listed

    async def stop(self, owner: Owner, group: Key) -> bool:
        """Suspend ``owner`` until its pods go, and lift that; return whether they went.

        Raises:
            ApiError: it could not be suspended, and is not.
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

    async def _suspend(self, owner: Owner, group: Key) -> None:
        if owner.is_suspended:
            return
        meta = {"labels": {names.SUSPENDED_LABEL: group[1]}}
        await self._patch(owner.ref, owner.resource_version, meta, suspend=True)

    async def _await_stop(self, owner: Owner) -> bool:
        """Return whether the controller has deleted the pods of ``owner`` in good time."""
        began, waits = self.clock(), 0
        while self.clock() - began < _ACT_SECONDS:
            there = (self.state.members.get(pod.key) for pod in owner.pods)
            uids = {pod.uid for pod in there if pod is not None and _runs(pod)}
            if uids.isdisjoint(pod.uid for pod in owner.pods):
                # It has also to have said so: lifted before, it would never have been suspended.
                found = await self._get(owner.ref)
                if found is None or found.has_acted:
                    return True
            await asyncio.sleep(_pause(waits, *_POLLS_SECONDS))
            waits += 1
        return False

    async def _lift(self, ref: _Ref) -> None:
        """End a suspension that carries the label; tried until it is over."""
        failures = 0
        while True:
            try:
                found = await self._get(ref)
                if found is None or not found.is_ours:
                    return
                meta = {"labels": {names.SUSPENDED_LABEL: None}}
                await self._patch(ref, found.metadata.resource_version, meta, suspend=False)
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
        """Return the object; None if it is gone or another one."""
        return await self._read(self.writes.get(ref.kind.path(ref.key)), ref.uid)

    async def _read(self, answer: Awaitable[bytes], uid: str) -> _Object | None:
        try:
            found = msgspec.json.decode(await answer, type=_Object)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return found if found.metadata.uid == uid else None

    async def _patch(
        self, ref: _Ref, resource_version: str, meta: Mapping[str, object], *, suspend: bool
    ) -> None:
        metadata = {**meta, "resourceVersion": resource_version}
        change = {"metadata": metadata, "spec": {"suspend": suspend}}
        await self.writes.patch_owner(ref.kind.path(ref.key), change)


def _pause(before: int, first_seconds: float, limit_seconds: float) -> float:
    """Return the pause after ``before`` others, doubled each time; one leader needs no jitter."""
    return min(first_seconds * 2.0 ** min(before, 30), limit_seconds)


def _runs(pod: PodFacts) -> bool:
    return not (pod.is_terminal or pod.is_leaving or pod.is_gated)
