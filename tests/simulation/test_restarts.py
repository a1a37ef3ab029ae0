"""One job that starts again and again: neither its object nor the operator grows with the starts.

``BIREME_RESTARTS=10000`` has it start so often, as ``make verify`` does.
"""

import asyncio
import gc
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from testbed.fakeapi.store import Object
from testbed.scenario.manifests import queue, torch_job
from testbed.simcluster import objects, pod_status
from testbed.simcluster.cluster import SPACE, SimulatedCluster
from testbed.simcluster.objects import JOBS, PODS, QUEUES
from testbed.simcluster.virtual import VirtualLoop
from testbed.simcluster.world import World

RESTARTS = int(os.environ.get("BIREME_RESTARTS", "200"))
EVENTS = "/api/v1/events"
MAX_EVENTS = 8
WORDS_BYTES = 64
"""A message may have longer numbers, a timestamp be there or not."""
MOMENTS = 8
"""Restarts after which objects are counted, early and at the end; the fewest count."""
SLACK = 100
"""Objects by which the fewest may differ: what is under way at a moment differs by as many."""


def test_a_job_that_starts_again_and_again_grows_nothing() -> None:
    loop = VirtualLoop()
    with quiet():
        loop.run_until_complete(start_again(SimulatedCluster(0, loop, World())))
    loop.close()


async def start_again(cluster: SimulatedCluster) -> None:
    cluster.put(QUEUES, queue("default"))
    for index in range(3):
        cluster.add_node(f"n{index}")
    cluster.start()
    cluster.put(JOBS, torch_job("job", workers=3), SPACE)
    await until(lambda: phase(cluster) == "Running")
    first, counts = size(cluster), list[int]()
    for number in range(RESTARTS):
        lose_a_pod(cluster, number)
        await until(lambda: attempt(cluster) > number and phase(cluster) == "Running")  # noqa: B023  # asked before the next turn
        if number == RESTARTS // 10:
            first = size(cluster)
        if 0 <= number - RESTARTS // 10 < MOMENTS or number >= RESTARTS - MOMENTS:
            counts.append(live_objects(cluster))
        if number % 100 == 99:
            forget(cluster)
    status = job(cluster)["status"]
    assert (status["attempt"], status.get("restarts", 0)) == (RESTARTS, 0)
    assert size(cluster) <= first + WORDS_BYTES
    assert len(status["conditions"]) == len({each["type"] for each in status["conditions"]})
    assert len(cluster.store.collection(EVENTS).objects) <= MAX_EVENTS
    assert min(counts[-MOMENTS:]) <= min(counts[:MOMENTS]) + SLACK
    assert [fault for process in cluster.processes for fault in process.faults] == []
    await cluster.stop()


def lose_a_pod(cluster: SimulatedCluster, number: int) -> None:
    """Delete one replica, or have its kubelet evict it, in turn."""
    pods = cluster.store.collection(PODS).objects
    key = sorted(pods)[number % len(pods)]
    if number % 2:
        cluster.store.delete(PODS, key, {}, 0)
        return
    words = "The node was low on resource: memory."
    pod_status.disrupt(cluster.store, key, "TerminationByKubelet", words)
    status = {**cluster.store.get(PODS, key)["status"], "phase": "Failed", "reason": "Evicted"}
    pod_status.write(cluster.store, key, status)


def forget(cluster: SimulatedCluster) -> None:
    """Drop what the simulation itself keeps of the past."""
    cluster.records.clear()
    cluster.story.clear()
    cluster.server.forget()


def live_objects(cluster: SimulatedCluster) -> int:
    forget(cluster)
    gc.collect()
    return len(gc.get_objects())


def size(cluster: SimulatedCluster) -> int:
    """Return the bytes of the job as it is stored."""
    return len(json.dumps(job(cluster)))


def job(cluster: SimulatedCluster) -> Object:
    return cluster.store.get(JOBS, (SPACE, "job"))


def phase(cluster: SimulatedCluster) -> str:
    return objects.phase(job(cluster))


def attempt(cluster: SimulatedCluster) -> int:
    return int(job(cluster).get("status", {}).get("attempt") or 0)


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(600.0):
        while not met():
            await asyncio.sleep(0.25)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing while the block lasts."""
    before = structlog.get_config()
    structlog.configure(processors=[silent])
    try:
        yield
    finally:
        structlog.configure(**before)


def silent(*_: object) -> str:
    raise structlog.DropEvent
