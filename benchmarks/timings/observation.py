"""When things happened on the API server, by a watch of our own and the monotonic clock.

Times in objects have whole seconds; the moment an event arrives here is good to a millisecond or
two, and the same for everybody who is measured.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from bireme.kube import names
from bireme.kube.client import ApiClient, ApiError, Params


class Meta(msgspec.Struct, rename="camel", gc=False):
    """What the observer wants of metadata."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    """Where a pod is."""

    node_name: str | None = None


class Status(msgspec.Struct, rename="camel", gc=False):
    """How far a pod is, or what a TrainingJob says."""

    phase: str | None = None
    reason: str | None = None
    conditions: list[dict[str, Any]] | None = None


class Observed(msgspec.Struct, gc=False):
    """A pod or a TrainingJob."""

    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: Status = msgspec.field(default_factory=Status)


class Event(msgspec.Struct, gc=False):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


_event = msgspec.json.Decoder(Event)
_observed = msgspec.json.Decoder(Observed)


class ObservationError(Exception):
    """What was waited for did not happen in time, or the watch broke."""


class Observer:
    """Remembers the first time of everything that can be waited for; times are monotonic seconds.

    Attributes:
        created: Pod name to when it appeared.
        bound: Pod name to when its node was set.
        ended: Pod name to when it was gone or had succeeded.
        unschedulable: Pod name to when a scheduler said so on it.
        said: TrainingJob name to (time, reason) of its first reason.
    """

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.unschedulable: dict[str, float] = {}
        self.said: dict[str, tuple[float, str]] = {}
        self._news = asyncio.Event()

    def forget(self) -> None:
        """Start over."""
        for seen in (self.created, self.bound, self.ended, self.unschedulable, self.said):
            seen.clear()

    async def until(self, what: str, met: Callable[[], bool], timeout_seconds: float) -> None:
        """Return once ``met()``; it is asked after every batch of events.

        Raises:
            ObservationError: not within the time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not met():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            seen = f"{len(self.bound)} bound, {len(self.ended)} ended, {len(self.said)} said"
            raise ObservationError(
                f"waited {timeout_seconds:g} s for {what}; seen: {seen}"
            ) from None

    def take_pod(self, event: str, pod: Observed, now: float) -> None:
        """Note what an event of type ``event`` says about a pod."""
        name = pod.metadata.name
        self.created.setdefault(name, now)
        if event == "DELETED" or pod.status.phase == "Succeeded":
            self.ended.setdefault(name, now)
        elif pod.spec.node_name:
            self.bound.setdefault(name, now)
        elif any(c.get("reason") == "Unschedulable" for c in pod.status.conditions or ()):
            self.unschedulable.setdefault(name, now)
        self._news.set()

    def take_job(self, event: str, job: Observed, now: float) -> None:
        """The same for a TrainingJob."""
        if event != "DELETED" and job.status.reason:
            self.said.setdefault(job.metadata.name, (now, job.status.reason))
            self._news.set()


@asynccontextmanager
async def observing(client: ApiClient, namespace: str) -> AsyncIterator[Observer]:
    """An observer of a namespace's pods and TrainingJobs, for as long as the block runs."""
    observer = Observer()
    pods = f"/api/v1/namespaces/{namespace}/pods"
    jobs = names.path("trainingjobs", namespace)
    async with asyncio.TaskGroup() as group:
        following = [
            group.create_task(_follow(client, pods, observer.take_pod)),
            group.create_task(_follow(client, jobs, observer.take_job)),
        ]
        yield observer
        for task in following:
            task.cancel()


async def _follow(
    client: ApiClient, path: str, take: Callable[[str, Observed, float], None]
) -> None:
    """Watch from an empty collection on. The API server drops watchers that lag; then resume."""
    version = "0"
    while True:
        params: Params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": 3600}
        try:
            stream = client.stream(path, params, read_timeout_seconds=3600)
            async with aclosing(stream) as lines:
                async for line in lines:
                    event = _event.decode(line)
                    if event.type == "ERROR":
                        raise ObservationError(f"the watch of {path} broke: {line!r}")
                    found = _observed.decode(event.object)
                    version = found.metadata.resource_version
                    take(event.type, found, time.monotonic())
        except ApiError as error:
            if error.is_gone:
                raise
            await asyncio.sleep(0.1)  # such as a CRD that is being established
