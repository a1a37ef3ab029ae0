"""One repetition of one side, in a fresh cluster: all that is measured, one thing after another.

1. One gang of 512 pods on an empty cluster; it is deleted afterwards.
2. 500 gangs of four that fill the cluster to its last GPU.
3. A gang for which there is no room: how long until something says so.
4. One of the 500 ends while the next gang waits: how long until that one is bound.
"""

import asyncio
import os
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.machine import CpuMeter, resident_mib
from benchmarks.peers.feeding import feed
from benchmarks.peers.sides import Gang, Side, Size
from benchmarks.report import Sample
from benchmarks.timings.arena import PODS, Observed, Observer, each, follow
from benchmarks.timings.workloads import NAMESPACE, replica_names
from bireme.kube.client import ApiClient
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.kwokctl import HEALTH_PATHS
from testbed.controlplane.nodes import fake_nodes

GPUS_PER_NODE: Final = 8
SETTLE_SECONDS: Final = 1.0
"""Pause before something is measured."""
COUNTED_SECONDS: Final = 2.0
"""So long is processor time counted after the last bind: status is written late."""
CALM_SECONDS: Final = 5.0
"""Pause after the many gangs."""
BIND_LIMIT_SECONDS: Final = 300.0
WORD_LIMIT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """Sizes of one run. The many gangs have ``replicas`` pods of two GPUs and fill all nodes."""

    nodes: int
    large: int
    replicas: int = 4
    gpus: int = 2
    tries: int = 3

    @property
    def gangs(self) -> int:
        return self.nodes * GPUS_PER_NODE // (self.replicas * self.gpus)

    @property
    def size(self) -> Size:
        return self.replicas, self.gpus


FULL: Final = Load(nodes=500, large=512)
QUICK: Final = Load(nodes=40, large=64)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition of one side: seconds, MiB, and processor seconds by process."""

    side: str
    repetition: int
    version: str
    large_seconds: float
    many_seconds: float
    per_gang_seconds: tuple[float, ...]
    """From the first create request of each gang to the last bind of its pods."""
    since_start_seconds: tuple[float, ...]
    """The same, from the first create request of all."""
    word_seconds: tuple[float, ...]
    freed_seconds: tuple[float, ...]
    memory_mib: dict[str, float]
    cpu_seconds: dict[str, float]
    words: tuple[str, ...]
    took_seconds: float

    @property
    def gangs_per_second(self) -> float:
        return len(self.per_gang_seconds) / self.many_seconds

    @property
    def memory(self) -> float:
        return sum(self.memory_mib.values())

    @property
    def mean_seconds(self) -> float:
        return statistics.mean(self.per_gang_seconds)

    @property
    def p99_seconds(self) -> float:
        return Sample.of(self.per_gang_seconds).percentile(99)

    @property
    def mean_since_start_seconds(self) -> float:
        return statistics.mean(self.since_start_seconds)


async def measure(
    kind: type[Side], repetition: int, load: Load, workdir: Path, say: Callable[[str], None]
) -> Measured:
    """Measure one repetition of one side; the whole takes about a minute."""
    began = time.monotonic()
    nodes = fake_nodes(load.nodes, racks=max(1, load.nodes // 25))
    name = f"peers-{secrets.token_hex(3)}"
    with await asyncio.to_thread(Cluster.start, name, arguments=kind.arguments) as cluster:
        cluster.add_nodes(nodes)
        cluster.create_namespace(NAMESPACE)
        workdir.mkdir(parents=True, exist_ok=True)
        side = kind(cluster, workdir)
        try:
            await asyncio.to_thread(side.install, nodes)
            # The garbage collector looks for new kinds every 30 s only, and at its start.
            controllers = cluster.component("kube-controller-manager")
            await asyncio.to_thread(controllers.stop)
            await asyncio.to_thread(controllers.start)
            async with _place(cluster, side) as place:
                measured = await _measure(place, repetition, load, say)
                took = time.monotonic() - began
                return msgspec.structs.replace(measured, took_seconds=took)
        finally:
            side.stop()


@dataclass
class Place:
    """A running cluster with one side in it, and what happens there."""

    cluster: Cluster
    side: Side
    client: ApiClient
    observer: Observer

    async def submit(self, gangs: Sequence[Gang]) -> dict[str, float]:
        return await feed(self.client.create, gangs)

    async def bound(self, gang: str, replicas: int, limit_seconds: float) -> float:
        """Return when the last pod of a gang was bound."""
        members, bound = replica_names(gang, replicas), self.observer.bound
        await self.observer.until(
            f"{gang}", lambda: all(m in bound for m in members), limit_seconds
        )
        return max(bound[member] for member in members)

    async def word(self, gang: str, replicas: int) -> tuple[float, str]:
        """Return when something first said why a gang waits, and the word."""
        members = replica_names(gang, replicas)
        seen = self.observer

        def said() -> list[tuple[float, str]]:
            pods = [
                (seen.unschedulable[m], "pod: Unschedulable")
                for m in members
                if m in seen.unschedulable
            ]
            return pods + ([seen.reasons[gang]] if gang in seen.reasons else [])

        await seen.until(f"a word on {gang}", lambda: bool(said()), WORD_LIMIT_SECONDS)
        return min(said())

    async def end(self, gang: str, replicas: int) -> None:
        """Report that the pods of a gang have succeeded, as kubelets would."""
        body = {"status": {"phase": "Succeeded"}}
        paths = [f"{PODS}/{member}/status" for member in replica_names(gang, replicas)]
        await each(paths, lambda path: self.client.merge_patch(path, body))

    async def remove(self, gang: str) -> None:
        """Delete a gang and its pods, which some sides' owners delete anyway; await their end."""
        side, seen = self.side, self.observer
        if side.groups:
            await self.client.delete(f"{side.groups}/{gang}")
        members = [name for name in seen.created if name.startswith(f"{gang}-")]
        pods = [f"{PODS}/{member}" for member in members]
        await each(pods, lambda path: self.client.delete(path, grace_seconds=0))
        await seen.until(
            f"the end of {gang}", lambda: all(m in seen.ended for m in members), BIND_LIMIT_SECONDS
        )
        for known in (seen.created, seen.bound, seen.ended, seen.unschedulable):
            for member in members:
                known.pop(member, None)
        await asyncio.sleep(SETTLE_SECONDS)


@asynccontextmanager
async def _place(cluster: Cluster, side: Side) -> AsyncIterator[Place]:
    client = await ApiClient.connect(cluster.kubeconfig)
    observer = Observer()

    def take_group(event: str, group: Observed, now: float) -> None:
        if event != "DELETED" and (word := side.word(group.status)):
            observer.take_reason(group.metadata.name, now, word)

    pods = follow(client, PODS, observer.take_pod)
    following = [pods, *([follow(client, side.groups, take_group)] if side.groups else [])]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in following]
            yield Place(cluster, side, client, observer)
            for task in tasks:
                task.cancel()
    finally:
        await client.close()


async def _measure(
    place: Place, repetition: int, load: Load, say: Callable[[str], None]
) -> Measured:
    side = place.side
    await _one(place, "warm-up", (64, 1))
    large_seconds = await _one(place, "large", (load.large, 1))
    say(f"one gang of {load.large}: {large_seconds:.2f} s")

    gangs = [side.gang(f"gang-{number:04d}", load.size) for number in range(load.gangs)]
    meter = CpuMeter(_pids(place))
    began = time.monotonic()
    submitted = await place.submit(gangs)
    pods = load.gangs * load.replicas
    seen = place.observer
    await seen.until(f"{pods} pods", lambda: len(seen.bound) == pods, BIND_LIMIT_SECONDS)
    whole = {
        gang.name: max(seen.bound[m] for m in replica_names(gang.name, load.replicas))
        for gang in gangs
    }
    many_seconds = max(whole.values()) - began
    memory = {name: resident_mib(pid) for name, pid in side.pids().items()}
    await asyncio.sleep(COUNTED_SECONDS)
    cpu = meter.spent()
    rate, mib = load.gangs / many_seconds, sum(memory.values())
    what = f"{load.gangs} gangs of {load.replicas}"
    say(f"{what}: {many_seconds:.2f} s, {rate:.1f} gangs/s, {mib:.0f} MiB")

    await asyncio.sleep(CALM_SECONDS)
    words = [await _word(place, f"late-{number}", load) for number in range(load.tries)]
    said = ", ".join(f"{seconds:.2f}" for seconds, _ in words)
    say(f"no room: {said} s ({words[0][1][:90]})")
    freed = [
        await _freed(place, gangs[number].name, f"next-{number}", load)
        for number in range(load.tries)
    ]
    say(f"freed room: {', '.join(f'{seconds:.2f}' for seconds in freed)} s")
    return Measured(
        side=side.name,
        repetition=repetition,
        version=side.version,
        large_seconds=large_seconds,
        many_seconds=many_seconds,
        per_gang_seconds=tuple(whole[name] - submitted[name] for name in whole),
        since_start_seconds=tuple(at - began for at in whole.values()),
        word_seconds=tuple(seconds for seconds, _ in words),
        freed_seconds=tuple(freed),
        memory_mib=memory,
        cpu_seconds=cpu,
        words=tuple(word for _, word in words),
        took_seconds=0.0,
    )


def _pids(place: Place) -> dict[str, int]:
    own = {name: place.cluster.component(name).pid for name in HEALTH_PATHS}
    pids = {name: pid for name, pid in own.items() if pid is not None}
    return {**pids, **place.side.pids(), "load generator": os.getpid()}


async def _one(place: Place, name: str, size: Size) -> float:
    """Return the seconds from the first create request of one gang to its last bind."""
    gang = place.side.gang(name, size)
    submitted = await place.submit([gang])
    seconds = await place.bound(name, size[0], BIND_LIMIT_SECONDS) - submitted[name]
    await place.remove(name)
    return seconds


async def _word(place: Place, name: str, load: Load) -> tuple[float, str]:
    """Return seconds until the first word on a gang that needs whole nodes of a full cluster."""
    submitted = await place.submit([place.side.gang(name, (load.replicas, GPUS_PER_NODE))])
    at, word = await place.word(name, load.replicas)
    await place.remove(name)
    return at - submitted[name], word


async def _freed(place: Place, ending: str, waiting: str, load: Load) -> float:
    """Return seconds from the end of a gang's last pod to the last bind of a gang that waits."""
    await place.submit([place.side.gang(waiting, load.size)])
    await place.word(waiting, load.replicas)
    await asyncio.sleep(SETTLE_SECONDS)
    await place.end(ending, load.replicas)
    at = await place.bound(waiting, load.replicas, BIND_LIMIT_SECONDS)
    return at - max(place.observer.ended[m] for m in replica_names(ending, load.replicas))
