"""A cluster for measurements on a real control plane: fake nodes, Bireme on call.

While the stock scheduler is measured Bireme is stopped, so that its watches cost the rival nothing;
while Bireme is measured the stock scheduler keeps running, as it does in every cluster.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from benchmarks.machine import OTHERS, CpuMeter
from benchmarks.timings.workloads import NAMESPACE, plain_pods, training_job
from bireme.kube import names
from bireme.kube.client import ApiClient, ApiError, Params
from bireme.kube.envelopes import WatchEvent
from bireme_operator.leader import MAX_WRITES
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.kwokctl import FAIRNESS, HEALTH_PATHS
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import helm
from testbed.scenario.clusters import install_api
from testbed.scenario.manifests import Manifest, queue

# Observation is by a watch of our own and the monotonic clock: times in objects have whole seconds;
# the moment of an event here is good to a millisecond or two, and the same for both sides.


class Meta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    resource_version: str = ""


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    node_name: str | None = None


class Status(msgspec.Struct, rename="camel", gc=False):
    phase: str | None = None
    reason: str | None = None
    conditions: list[dict[str, Any]] | None = None


class Observed(msgspec.Struct, gc=False):
    """A pod or a TrainingJob."""

    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: Status = msgspec.field(default_factory=Status)


_event = msgspec.json.Decoder(WatchEvent)
_observed = msgspec.json.Decoder(Observed)


class ObservationError(Exception):
    """A wait ended without its event, or the watch broke."""


class Observer:
    """First time of everything that can be waited for, in monotonic seconds, by name.

    ``reasons`` has (time, reason) of the first reason of a TrainingJob.
    """

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.present: set[str] = set()
        """Pods that are not deleted yet."""
        self.unschedulable: dict[str, float] = {}
        self.reasons: dict[str, tuple[float, str]] = {}
        self._news = asyncio.Event()

    def forget(self) -> None:
        for seen in (self.created, self.bound, self.ended, self.unschedulable, self.reasons):
            seen.clear()

    async def until(self, what: str, met: Callable[[], bool], timeout_seconds: float) -> None:
        """Return once ``met()``, asked after every batch of events; else ObservationError."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not met():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ObservationError(
                f"waited {timeout_seconds:g} s for {what}; seen: {len(self.bound)} bound, "
                f"{len(self.ended)} ended, {len(self.reasons)} with reason"
            ) from None

    def take_pod(self, event: str, pod: Observed, now: float) -> None:
        name = pod.metadata.name
        self.created.setdefault(name, now)
        (self.present.discard if event == "DELETED" else self.present.add)(name)
        if event == "DELETED" or pod.status.phase == "Succeeded":
            self.ended.setdefault(name, now)
        elif pod.spec.node_name:
            self.bound.setdefault(name, now)
        elif any(c.get("reason") == "Unschedulable" for c in pod.status.conditions or ()):
            self.unschedulable.setdefault(name, now)
        self._news.set()

    def take_job(self, event: str, job: Observed, now: float) -> None:
        if event != "DELETED" and job.status.reason:
            self.take_reason(job.metadata.name, now, job.status.reason)

    def take_reason(self, name: str, now: float, reason: str) -> None:
        self.reasons.setdefault(name, (now, reason))
        self._news.set()


@asynccontextmanager
async def observing(client: ApiClient, namespace: str) -> AsyncIterator[Observer]:
    """Observe the pods and TrainingJobs of a namespace within the block."""
    observer = Observer()
    pods = f"/api/v1/namespaces/{namespace}/pods"
    jobs = names.path("trainingjobs", namespace)
    async with asyncio.TaskGroup() as group:
        following = [
            group.create_task(follow(client, pods, observer.take_pod)),
            group.create_task(follow(client, jobs, observer.take_job)),
        ]
        yield observer
        for task in following:
            task.cancel()


async def follow(
    client: ApiClient, path: str, take: Callable[[str, Observed, float], None]
) -> None:
    """Watch from an empty collection on, and resume when the API server drops a watch that lags."""
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


CONCURRENCY: Final = MAX_WRITES
"""Requests in flight of the client that plays the rival's job controller: as many as Bireme's."""

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS: Final = names.path("trainingjobs", NAMESPACE)
_QUIET_CORES: Final = 0.15
_QUIET_TRIES: Final = 40
_CLEAR_SECONDS: Final = 240.0
T = TypeVar("T")


@dataclass
class Arena:
    """A running cluster of fake nodes with 8 GPUs, and the means to use it."""

    cluster: Cluster
    stack: BiremeStack
    client: ApiClient
    observer: Observer
    submitted: dict[str, float] = field(default_factory=dict)
    """Object name to the monotonic time its create request was handed over."""

    async def create(self, path: str, manifests: Sequence[Manifest]) -> None:
        """Create objects in that order, as fast as the API server takes them."""
        bodies = [(m["metadata"]["name"], msgspec.json.encode(m)) for m in manifests]
        loop = asyncio.get_running_loop()

        async def create(named: tuple[str, bytes]) -> None:
            self.submitted[named[0]] = loop.time()
            await self.client.create(path, named[1])

        await each(bodies, create)

    async def submit(
        self,
        side: str,
        gangs: Sequence[str],
        replicas: int,
        gpus: int,
        duration: str = "",
        *,
        varied: bool = False,
    ) -> None:
        """Create gangs: TrainingJobs for Bireme, their pods for the stock scheduler.

        With ``varied`` no two gangs have the same template.
        """
        more = [{"duration": duration, "variant": gang if varied else ""} for gang in gangs]
        if side == "bireme":
            jobs = [training_job(g, replicas, gpus, **m) for g, m in zip(gangs, more, strict=True)]
            await self.create(JOBS, jobs)
        else:
            pods = (plain_pods(g, replicas, gpus, **m) for g, m in zip(gangs, more, strict=True))
            await self.create(PODS, [*chain.from_iterable(pods)])

    async def have_bound(self, pods: int, timeout_seconds: float = 300.0) -> None:
        """Return once so many pods are bound."""
        bound = self.observer.bound
        await self.observer.until(f"{pods} pods", lambda: len(bound) == pods, timeout_seconds)

    async def delete(self, path: str, grace_seconds: int | None = None, selector: str = "") -> None:
        """Delete one object or a whole collection; dependents follow by owner reference."""
        options: dict[str, object] = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self.client.request(
            "DELETE",
            path,
            params={"labelSelector": selector} if selector else None,
            body=msgspec.json.encode(options),
            timeout_seconds=_CLEAR_SECONDS,
        )

    async def clear(self) -> None:
        """Remove every job and pod, and return when the cluster has come to rest."""
        await self.delete(JOBS)
        # One by one, as the API server deletes a collection, thousands take half a minute.
        pods = [f"{PODS}/{name}" for name in self.observer.created]
        await each(pods, lambda path: self.client.delete(path, grace_seconds=0))
        async with asyncio.timeout(_CLEAR_SECONDS):
            for path in (PODS, JOBS):
                while await self._exists(path):
                    await asyncio.sleep(0.1)
        # The observer's watch may lag behind: what it sees later would count for the next side.
        seen = self.observer
        await seen.until("the end of all pods", lambda: not seen.present, _CLEAR_SECONDS)
        seen.forget()
        self.submitted.clear()
        await self.rest()

    async def _exists(self, path: str) -> bool:
        answer = await self.client.get(path, params={"limit": 1})
        return bool(msgspec.json.decode(answer)["items"])

    async def rest(self) -> None:
        """Return when the processes do next to nothing, or after twenty seconds."""
        for _ in range(_QUIET_TRIES):
            meter = CpuMeter(self.pids())
            await asyncio.sleep(0.5)
            busy = sum(n for name, n in meter.spent().items() if name != OTHERS)
            if busy < 0.5 * _QUIET_CORES:
                return

    def pids(self) -> dict[str, int]:
        pids = {name: self.cluster.component(name).pid for name in HEALTH_PATHS}
        for process in self.stack.processes:
            # Two schedulers run: the stock one is the cluster's own.
            name = "kube-scheduler (bireme)" if process is self.stack.scheduler else process.name
            pids[name] = process.pid if process.running else None
        return {name: pid for name, pid in pids.items() if pid is not None}

    async def prepare(self, side: str) -> None:
        """Start or stop Bireme for ``side`` and let a small gang pass, so that nothing is cold."""
        await asyncio.to_thread(self.stack.start if side == "bireme" else self.stack.stop)
        await self.submit(side, ["warm-up"], 64, 1)
        await self.have_bound(64, 60)
        await self.clear()


async def each(items: Sequence[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Call ``work`` on every item, begun in their order, ``CONCURRENCY`` at a time."""
    waiting = iter(items)  # one for all workers, so that requests begin in the order of the items

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(CONCURRENCY, len(items))):
            group.create_task(worker())


@asynccontextmanager
async def arena(nodes: int, workdir: Path, *, fairness: bool = False) -> AsyncIterator[Arena]:
    """Start a cluster with its stack, not yet running.

    With ``fairness`` the API server limits requests by API Priority and Fairness, and Bireme has
    the chart's accounts and flow schemas. The cluster's own programs and the client are
    administrators, whom it exempts.
    """
    limits = FAIRNESS if fairness else None
    with Cluster.start(f"bench-{secrets.token_hex(3)}", arguments=limits) as cluster:
        cluster.add_nodes(fake_nodes(nodes, racks=max(1, nodes // 25)))
        install_api(cluster)
        cluster.create_namespace(NAMESPACE)
        cluster.api.post(names.path("queues"), queue(names.DEFAULT_QUEUE))
        client = await ApiClient.connect(cluster.kubeconfig)
        try:
            kubeconfigs = _accounts(cluster, workdir) if fairness else None
            env = {"BIREME_LEASE_NAMESPACE": helm.NAMESPACE} if fairness else None
            with BiremeStack(cluster, workdir, env, kubeconfigs) as stack:
                async with observing(client, NAMESPACE) as observer:
                    yield Arena(cluster, stack, client, observer)
        finally:
            await client.close()


def _accounts(cluster: Cluster, folder: Path) -> dict[str, Path]:
    """Install the chart without its pods; return kubeconfigs of its accounts by program."""
    off = (
        "crds.enabled",
        "defaultQueue.create",
        "learnedShadow.create",
        "forecast.enabled",
        "admission.use",
    )
    flags = [f"--set={value}=false" for value in (*off, "admission.pods")]
    # The programs run here, not on the fake nodes.
    flags += ["--set=operator.replicas=0", "--set=scheduler.replicas=0"]
    helm.install(cluster, helm.Helm(folder / "helm"), *flags)
    return helm.kubeconfigs(cluster, folder)
