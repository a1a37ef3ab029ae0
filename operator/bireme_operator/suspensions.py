"""Stops a workload of another controller by a suspension, and resumes it once its pods have left.

The controller of a suspended workload deletes its pods and counts none of them as failed, so the
stop costs no retry. A resumed workload creates them again, and they wait behind Bireme's gate. The
integration of a kind tells how it is suspended (:mod:`bireme.kube.integrations`).

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
from bireme.kube import names
from bireme.kube.client import ApiError
from bireme.kube.cluster_state import ClusterState
from bireme.kube.integrations import INTEGRATIONS, integration_of
from bireme.kube.integrations.integration import (
    ExternalWorkload,
    Integration,
    controller_of,
    read_metadata,
)
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
class _Ref:
    kind: Integration
    key: Key
    uid: str

    @property
    def path(self) -> str:
        return self.kind.path(self.key)


@dataclass(frozen=True, slots=True)
class SuspendableOwner:
    """A workload that can be suspended, as read, with the pods that stop with it."""

    ref: _Ref
    resource_version: str
    is_suspended: bool
    """True if a leader of Bireme suspended it and died."""
    pods: tuple[PodFacts, ...]

    @property
    def name(self) -> str:
        return f"{self.ref.kind.kind} {self.ref.key[1]}"


@dataclass(slots=True)
class Suspensions:
    """Suspends and resumes owners of pods; ``clock`` is monotonic seconds."""

    state: ClusterState
    writes: Writes
    clock: Callable[[], float]
    _listable_kinds: set[Integration] = field(default_factory=set)
    _under_way: set[str] = field(default_factory=set)
    _in_doubt: asyncio.Event = field(default_factory=asyncio.Event)

    # --- suspensions of earlier leaders -------------------------------------------------------

    async def run(self) -> None:
        """Lift suspensions that earlier leaders or lost requests have left."""
        self._in_doubt.set()  # a request of the previous leader may still be under way
        while True:
            for kind in INTEGRATIONS:
                if kind.suspend_field:
                    await self._lift_all(kind)
            await self._in_doubt.wait()
            self._in_doubt.clear()
            await asyncio.sleep(_LATE_SECONDS)

    async def _lift_all(self, kind: Integration) -> None:
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

    async def _list(self, kind: Integration) -> list[_Ref]:
        """Return the objects suspended by earlier leaders; none if the kind may not be listed."""
        try:
            items = await self.writes.list_owners(kind.collection_path(), names.SUSPENDED_LABEL)
        except ApiError as error:
            if error.is_not_found or error.is_forbidden:
                self._listable_kinds.discard(kind)
                return []
            raise
        self._listable_kinds.add(kind)
        metas = [read_metadata(item).meta for item in items]
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

        ``has_all`` is true if no pod of the group stays, in any part of a larger workload.
        """
        pod_object = await self._read(pod.uid, self.writes.get_pod(pod.key), read_metadata)
        ref = self._controller_ref(pod_object, "Pod", group)
        workload = await self._get(ref) if ref is not None else None
        while ref is not None and workload is not None:
            parent = controller_of(workload.meta)
            if parent is None or parent.kind in ref.kind.bystanders:
                break
            # Any other owner would lift its suspension.
            ref = self._controller_ref(workload, ref.kind.kind, group) if has_all else None
            workload = await self._get(ref) if ref is not None else None
        if ref is None or workload is None or workload.meta.deletion_timestamp:
            return None
        if not _has_only(workload, group[1]):
            return None
        if workload.managed_by not in (None, ref.kind.controller):
            return None
        if workload.is_suspended and not _is_ours(workload):
            return None  # its user suspended it and resumes it
        if not await self._may_list(ref.kind):
            return None
        return SuspendableOwner(ref, workload.meta.resource_version, workload.is_suspended, ())

    def _controller_ref(
        self, dependent: ExternalWorkload | None, kind: str, group: Key
    ) -> _Ref | None:
        """Return the controller of an object of ``kind``, if it can be suspended."""
        owner = controller_of(dependent.meta) if dependent is not None else None
        integration = integration_of(owner.api_version, owner.kind) if owner is not None else None
        if owner is None or integration is None:
            return None
        if not integration.suspend_field or kind not in integration.controls:
            return None
        return _Ref(integration, (group[0], owner.name), owner.uid)

    async def _may_list(self, kind: Integration) -> bool:
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
                if current is None or not _is_ours(current):
                    return
                meta = {"labels": {names.SUSPENDED_LABEL: None}}
                await self._patch(ref, current.meta.resource_version, meta, suspend=False)
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

    async def _get(self, ref: _Ref) -> ExternalWorkload | None:
        """Return the object; None if it was deleted or replaced."""
        return await self._read(ref.uid, self.writes.get(ref.path), ref.kind.read)

    async def _read(
        self, uid: str, answer: Awaitable[bytes], decode: Callable[[bytes], ExternalWorkload]
    ) -> ExternalWorkload | None:
        try:
            workload = decode(await answer)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return workload if workload.meta.uid == uid else None

    async def _patch(
        self, ref: _Ref, resource_version: str, meta: Mapping[str, object], *, suspend: bool
    ) -> None:
        metadata = {**meta, "resourceVersion": resource_version}
        change = {"metadata": metadata, **ref.kind.suspend_patch(suspend)}
        await self.writes.patch_owner(ref.path, change)


def _is_ours(workload: ExternalWorkload) -> bool:
    return names.SUSPENDED_LABEL in (workload.meta.labels or {})


def _has_only(workload: ExternalWorkload, group: str) -> bool:
    """Return whether all templates create members of the PodGroup ``group``."""
    labels = workload.template_labels
    return bool(labels) and all(pairs.get(names.POD_GROUP_LABEL) == group for pairs in labels)


def _pause(count: int, first_seconds: float, limit_seconds: float) -> float:
    """Return the pause after ``count`` others, doubled each time; one leader needs no jitter."""
    return min(first_seconds * 2.0 ** min(count, 30), limit_seconds)


def _runs(pod: PodFacts) -> bool:
    return not (pod.is_terminal or pod.is_leaving or pod.is_gated)
