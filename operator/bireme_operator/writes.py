"""The operator's writes, one function each, and the limit of concurrent ones.

Plans and pods share one :class:`PrioritySemaphore`, gang after gang, with reports about gangs that
have their places. All other reports (waiting reasons, failures, events) have a few slots of their
own and never wait behind them. Writes that the caller awaits in a cache return the resource version
they produced.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from types import TracebackType
from typing import Any

import msgspec

from bireme.core.gangs import Key
from bireme.kube import envelopes, names, pages
from bireme.kube.client import JSON, METADATA, ApiClient, ApiError
from bireme.kube.training_jobs import JobFacts

# Number of the running task; a task without a number goes first, so it cannot starve.
_number: ContextVar[int] = ContextVar("number", default=0)


class PrioritySemaphore:
    """Async context manager for at most ``limit`` concurrent holders, the lowest number next.

    A task takes its number once. All writes of the task and its children are served by that number,
    not by the time of the request. So the plan *and* the pods of the gang admitted first are
    written before the plan of the next one. A report about a running gang comes after gangs
    admitted before it and ahead of those admitted later.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._numbers = itertools.count(1)
        self._asked = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def take_number(self) -> None:
        """Give the next number to the running task and to its later child tasks."""
        _number.set(next(self._numbers))

    async def __aenter__(self) -> None:
        if self._free > 0:
            self._free -= 1
            return
        ready = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (_number.get(), next(self._asked), ready))
        try:
            await ready
        except asyncio.CancelledError:
            # The slot was granted at the moment of the cancellation: release it, or it is lost.
            if ready.done() and not ready.cancelled():
                self._release()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._release()

    def _release(self) -> None:
        while self._waiting:
            _, _, ready = heapq.heappop(self._waiting)
            # Cancelled waiters are still in the heap.
            if not ready.done():
                ready.set_result(None)
                return
        self._free += 1


_REPORT_SLOTS = 4
_PATIENT_SLOTS = 2
_DRY_RUN_SLOTS = 16
# The API server waits ten seconds for a webhook by default.
_DRY_RUN_SECONDS = 15.0
_PROBE_SECONDS = 5.0
# Limits of concurrent reads of pods' owners, and of the size of one: etcd takes 1.5 MiB by default.
_READS = 4
_MAX_OBJECT_BYTES = 2 * 1024**2
_PAGE = 250


class _Written(msgspec.Struct):
    metadata: "_WrittenMeta"


class _WrittenMeta(msgspec.Struct, rename="camel"):
    resource_version: str = "0"


_DECODER = msgspec.json.Decoder(_Written)


def version_of(answer: bytes) -> int:
    """Return the resource version in an answer; 0 if it has none."""
    try:
        return int(_DECODER.decode(answer).metadata.resource_version or 0)
    except RecursionError:  # the answer is the whole object, however deep
        return version_of(envelopes.cut(answer))
    except (msgspec.DecodeError, ValueError):
        return 0


class Writes:
    """Writes to the API server; ``slots`` limits the writes of plans and pods."""

    def __init__(self, client: ApiClient, slots: PrioritySemaphore) -> None:
        self.concurrency = slots.limit
        self._client = client
        self._slots = slots
        self._report_slots = asyncio.Semaphore(_REPORT_SLOTS)
        self._reads = asyncio.Semaphore(_READS)
        self._dry_run_slots = asyncio.Semaphore(_DRY_RUN_SLOTS)
        self._patient_slots = asyncio.Semaphore(_PATIENT_SLOTS)

    async def create_pod(self, namespace: str, build: Callable[[], Mapping[str, Any]]) -> bytes:
        """Create the pod that ``build`` returns when its turn has come; return the answer."""
        async with self._slots:
            return await self._client.create(f"{_core(namespace)}/pods", build())

    async def try_pod(self, namespace: str, build: Callable[[], Mapping[str, Any]]) -> bytes:
        """Return the pod that ``build`` returns as the API server would create it, by dry run."""
        async with self._dry_run_slots:
            return await self._client.create(
                f"{_core(namespace)}/pods",
                build(),
                params={"dryRun": "All"},
                timeout_seconds=_DRY_RUN_SECONDS,
            )

    async def get_pod(self, key: Key) -> bytes:
        return await self._client.get(f"{_core(key[0])}/pods/{key[1]}")

    async def patch_pod(self, key: Key, operations: Sequence[Mapping[str, Any]]) -> int:
        path = f"{_core(key[0])}/pods/{key[1]}"
        async with self._slots:
            return version_of(await self._client.json_patch(path, operations))

    async def delete_pod(self, key: Key, uid: str, grace_seconds: int | None = None) -> None:
        """Delete one pod if it still has ``uid``; ignore a missing pod."""
        path = f"{_core(key[0])}/pods/{key[1]}"
        async with self._slots:
            await self._client.delete(path, uid=uid, grace_seconds=grace_seconds)

    async def evict_pod(self, key: Key, uid: str, grace_seconds: int | None = None) -> None:
        """Evict one pod if it still has ``uid``; ignore a missing pod.

        Raises:
            ApiError: with status 429 while a PodDisruptionBudget protects it.
        """
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": key[0], "name": key[1]},
            "deleteOptions": options,
        }
        try:
            async with self._slots:
                await self._client.create(f"{_core(key[0])}/pods/{key[1]}/eviction", eviction)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def set_condition(self, key: Key, uid: str, condition: Mapping[str, str]) -> None:
        """Set a condition of the pod with ``uid``; ignore a missing pod."""
        path = f"{_core(key[0])}/pods/{key[1]}/status"
        change = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            async with self._slots:
                await self._client.strategic_patch(path, change)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def is_answering(self) -> bool:
        """Return whether the API server can read its stored objects."""
        try:
            path, params = names.path("trainingjobs"), {"limit": 1}
            await self._client.get(path, params=params, timeout_seconds=_PROBE_SECONDS)
        except ApiError as error:
            return not (error.is_retryable or error.status == HTTPStatus.UNAUTHORIZED)
        return True

    async def get(self, path: str) -> bytes:
        """Return one object, up to etcd's size limit; few reads run concurrently."""
        async with self._reads:
            return await self._client.get(path, max_bytes=_MAX_OBJECT_BYTES)

    async def list_owners(self, path: str, label: str) -> list[msgspec.Raw]:
        """Return the metadata of the objects that carry ``label``, each in JSON."""
        return await self._list(path, {"labelSelector": label}, METADATA)

    async def patch_owner(self, path: str, change: Mapping[str, Any]) -> None:
        """Merge ``change``, which names the version that was read, into an owner of pods."""
        async with self._slots:
            await self._client.merge_patch(path, change)

    async def list_budgets(self, namespace: str) -> list[msgspec.Raw]:
        """Return the PodDisruptionBudgets of ``namespace``, each in JSON."""
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        return await self._list(path)

    async def _list(
        self, path: str, params: Mapping[str, str | int] | None = None, accept: str = JSON
    ) -> list[msgspec.Raw]:
        """Return all objects of a list, read page by page, as tenants choose their sizes."""
        size, token, items = pages.PageSize(_PAGE), "", list[msgspec.Raw]()
        while True:
            page = await pages.read(
                self._client, path, size, token=token, params=params, accept=accept
            )
            items += (
                raw.copy() for raw in page.items or ()
            )  # a view would keep its whole page in memory
            if not (token := page.metadata.next):
                return items

    async def create_queue(self, queue: Mapping[str, Any]) -> None:
        async with self._report_slots:
            await self._client.create(names.path("queues"), queue)

    async def create_policy(self, policy: Mapping[str, Any]) -> None:
        async with self._report_slots:
            await self._client.create(names.path("schedulingpolicies"), policy)

    async def create_lease(self, lease: Mapping[str, Any]) -> None:
        namespace = lease["metadata"]["namespace"]
        async with self._report_slots:
            path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
            await self._client.create(path, lease)

    async def create_service(self, namespace: str, service: Mapping[str, Any]) -> None:
        async with self._slots:
            await self._client.create(f"{_core(namespace)}/services", service)

    async def get_service(self, key: Key) -> bytes:
        return await self._client.get(f"{_core(key[0])}/services/{key[1]}")

    async def write_group_status(
        self, key: Key, resource_version: str, status: Mapping[str, Any], *, report: bool = False
    ) -> int:
        """PUT a PodGroup's status over exactly the version that was read."""
        path = f"{names.path('podgroups', *key)}/status"
        body = _status_body("PodGroup", key, resource_version, status)
        async with self._report_slots if report else self._slots:
            return version_of(await self._client.replace(path, body))

    async def write_plan(self, job: JobFacts, status: Mapping[str, Any]) -> int:
        """PUT a TrainingJob's status with a new plan, before the pods that the plan names."""
        path = f"{names.path('trainingjobs', *job.key)}/status"
        body = _status_body("TrainingJob", job.key, job.resource_version, status)
        async with self._slots:
            return version_of(await self._client.replace(path, body))

    async def write_job_status(
        self, job: JobFacts, status: Mapping[str, Any], *, can_wait: bool = False
    ) -> int:
        """PUT a TrainingJob's status over exactly the version that was read.

        With ``can_wait`` the gangs admitted before it are written first. Few such writes run
        concurrently, which leaves the API server to the scheduler's bindings.
        """
        path = f"{names.path('trainingjobs', *job.key)}/status"
        body = _status_body("TrainingJob", job.key, job.resource_version, status)
        if can_wait:
            async with self._patient_slots, self._slots:
                return version_of(await self._client.replace(path, body))
        async with self._report_slots:
            return version_of(await self._client.replace(path, body))

    async def write_status(
        self, kind: str, name: str, version: str, status: Mapping[str, Any]
    ) -> None:
        """PUT the status of a cluster-scoped object over exactly the version that was read."""
        path = f"{names.path(names.PLURALS[kind])}/{name}/status"
        async with self._report_slots:
            await self._client.replace(path, _status_body(kind, ("", name), version, status))

    async def delete_job(self, job: JobFacts) -> None:
        """Delete a finished job; its pods follow by owner reference."""
        path = names.path("trainingjobs", *job.key)
        async with self._report_slots:
            await self._client.delete(path, uid=job.uid, propagation="Background")

    async def post_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        async with self._report_slots:
            await self._client.create(f"{_core(namespace)}/events", event)

    async def patch_event(self, namespace: str, name: str, change: Mapping[str, Any]) -> None:
        async with self._report_slots:
            await self._client.merge_patch(f"{_core(namespace)}/events/{name}", change)


def _core(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}"


def _status_body(
    kind: str, key: Key, resource_version: str, status: Mapping[str, Any]
) -> dict[str, Any]:
    metadata = {"name": key[1], "resourceVersion": resource_version}
    if key[0]:
        metadata["namespace"] = key[0]
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "status": status}
