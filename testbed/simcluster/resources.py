"""Bireme's own kinds, for operators in a simulation: kopf needs a real server and real time.

Events of one kind come in the order of their versions, so waiting for an own write does not depend
on its key.
"""

import asyncio
from collections.abc import Callable

from bireme.core.gangs import Key
from bireme.kube import names, wire
from bireme.kube.client import ApiClient
from bireme.kube.watch import Reflector


class ReflectedKind:
    def __init__(self, reflector: Reflector[wire.CustomObject]) -> None:
        self.reflector = reflector
        self.synced = reflector.synced

    async def wait_past(self, key: Key, version: int, timeout_seconds: float) -> None:  # a Source
        await self.reflector.wait_past(version, timeout_seconds)


class ReflectedResources:
    """See :class:`bireme_operator.custom_resources.Sources`."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._reflectors: list[Reflector[wire.CustomObject]] = []

    def source(
        self,
        plural: str,
        on_put: Callable[..., None],
        on_delete: Callable[..., None],
        *,
        is_needed: bool = True,  # a reflector goes on trying either way
    ) -> ReflectedKind:
        reflector = Reflector(
            self._client,
            names.path(plural),
            wire.CustomObject,
            on_put=on_put,
            on_delete=on_delete,
            clock=self._clock,
        )
        self._reflectors.append(reflector)
        return ReflectedKind(reflector)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
