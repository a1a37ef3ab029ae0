"""Where measurements on a real control plane happen: a cluster, fake nodes, Bireme on call.

While the stock scheduler is measured Bireme is stopped, so that its watches cost the rival
nothing; while Bireme is measured the stock scheduler keeps running, as it does in every cluster.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from benchmarks.timings.machine import OTHERS, CpuMeter
from benchmarks.timings.observation import Observer, observing
from benchmarks.timings.workloads import NAMESPACE, Manifest, plain_pods, training_job
from bireme.kube import crd, names
from bireme.kube.client import ApiClient
from bireme_operator.settings import OperatorSettings
from tools.controlplane.cluster import Cluster
from tools.controlplane.nodes import fake_nodes
from tools.controlplane.stack import BiremeStack

CONCURRENCY: Final = OperatorSettings().write_concurrency
"""Requests in flight of the client that plays the rival's job controller: as many as Bireme's."""

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS: Final = names.path("trainingjobs", NAMESPACE)
_COMPONENTS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok-controller",
)
_QUIET_CORES: Final = 0.15
_QUIET_TRIES: Final = 40
_CLEAR_SECONDS: Final = 240.0
T = TypeVar("T")


@dataclass
class Arena:
    """A running cluster of ``nodes`` fake nodes with 8 GPUs, and the means to use it."""

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

        await _each(bodies, create)

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
        await self.delete(names.path("podgroups", NAMESPACE))
        # One by one, as the API server deletes a collection, thousands take half a minute.
        pods = [f"{PODS}/{name}" for name in self.observer.created]
        await _each(pods, lambda path: self.client.delete(path, grace_seconds=0))
        async with asyncio.timeout(_CLEAR_SECONDS):
            for path in (PODS, JOBS, names.path("podgroups", NAMESPACE)):
                while await self._exists(path):
                    await asyncio.sleep(0.1)
        self.observer.forget()
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
        """The processes of cluster and stack that run now, by name."""
        pids = {name: self.cluster.component(name).pid for name in _COMPONENTS}
        for process in self.stack.processes:
            # Two schedulers run: the stock one is the cluster's own.
            name = "kube-scheduler (bireme)" if process is self.stack.scheduler else process.name
            pids[name] = process.pid if process.running else None
        return {name: pid for name, pid in pids.items() if pid is not None}

    async def prepare(self, side: str) -> None:
        """Start or stop Bireme for ``side`` and let a small gang pass, so that nothing is cold."""
        if side == "bireme":
            await asyncio.to_thread(self.stack.start)
            await self.create(JOBS, [training_job("warm-up", 64, 1)])
        else:
            await asyncio.to_thread(self.stack.stop)
            await self.create(PODS, plain_pods("warm-up", 64, 1))
        await self.observer.until("the warm-up", lambda: len(self.observer.bound) == 64, 60)
        await self.clear()


async def _each(items: Sequence[T], work: Callable[[T], Awaitable[object]]) -> None:
    """``work`` on every item, begun in their order, ``CONCURRENCY`` at a time."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(CONCURRENCY, len(items))):
            group.create_task(worker())


@asynccontextmanager
async def arena(nodes: int, workdir: Path) -> AsyncIterator[Arena]:
    """A fresh cluster for one case."""
    with Cluster.start(f"bench-{secrets.token_hex(3)}") as cluster:
        cluster.add_nodes(fake_nodes(nodes, racks=max(1, nodes // 25)))
        cluster.kubectl("apply", "--server-side", "-f", str(crd.DIRECTORY))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
        cluster.create_namespace(NAMESPACE)
        queue = {"apiVersion": names.API_VERSION, "kind": "Queue", "spec": {}}
        queue["metadata"] = {"name": names.DEFAULT_QUEUE}
        cluster.api.post(names.path("queues"), queue)
        client = await ApiClient.connect(cluster.kubeconfig)
        try:
            with BiremeStack(cluster, workdir) as stack:
                async with observing(client, NAMESPACE) as observer:
                    yield Arena(cluster, stack, client, observer)
        finally:
            await client.close()
