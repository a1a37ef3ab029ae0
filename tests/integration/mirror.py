"""A reflector under observation: the calls of its callbacks, in order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from bireme.core.gangs import Key
from bireme.kube.client import ApiClient
from bireme.kube.envelopes import ObjectReader
from bireme.kube.watch import Reflector, Timing
from bireme.kube.wire import V1Pod
from testbed.fakeapi.server import FakeApi
from testbed.operator_term.term import until

PODS = "/api/v1/pods"
JOBS = "/apis/bireme.dev/v1alpha1/trainingjobs"
FAST = Timing(
    page_size=3,
    inactivity_seconds=0.3,
    backoff_first_seconds=0.01,
    backoff_limit_seconds=0.05,
    missing_retry_seconds=0.05,
)


class _Reporting(ObjectReader[Any]):
    """A reader that appends what it cannot decode to ``bad``."""

    def __init__(self, bad: list[tuple[Key | None, str]], type_: type[Any]) -> None:
        super().__init__(type_, structlog.get_logger(__name__))
        self._bad = bad

    def _log_undecodable(self, key: Key | None, error: Exception) -> None:
        super()._log_undecodable(key, error)
        self._bad.append((key, str(error)))


class Mirror:
    """A reflector and the story its callbacks tell."""

    def __init__(self, client: ApiClient, path: str = PODS, **options: Any) -> None:
        self.story: list[str] = []
        self.objects: dict[Key, Any] = {}
        self.bad: list[tuple[Key | None, str]] = []
        options = {"timing": FAST, "type_": V1Pod, **options}
        type_ = options.pop("type_")
        self.reflector: Reflector[Any] = Reflector(
            client,
            path,
            type_,
            on_put=self._put,
            on_delete=self._delete,
            **options,
        )
        self.reflector._reader = _Reporting(self.bad, type_)

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.objects}

    def _put(self, key: Key, obj: Any) -> None:
        self.objects[key] = obj
        self.story.append(f"put {key[1]}")

    def _delete(self, key: Key) -> None:
        del self.objects[key]
        self.story.append(f"delete {key[1]}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Mirror"]:
        task = asyncio.create_task(self.reflector.run())
        try:
            await asyncio.wait_for(self.reflector.synced.wait(), 5)
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def put(api: FakeApi, name: str, **content: object) -> dict[str, Any]:
    return api.put(f"/api/v1/namespaces/team/pods/{name}", {"metadata": {"name": name}, **content})


def drop(api: FakeApi, name: str, resource: str = PODS) -> None:
    api.store.delete(resource, ("team", name), {})


async def watching(api: FakeApi, resource: str = PODS) -> None:
    await until(lambda: api.open_watches(resource) == 1)
