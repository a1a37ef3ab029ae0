"""Run a whole leading operator against the fake API server, and read what its jobs came to."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import ApiClient, NotLeader
from bireme.testing import a_node
from bireme_operator.leader import LeaderTerm
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.observer import ObserverTerm
from bireme_operator.settings import OperatorSettings
from bireme_operator.term import TermContext, wall_clock
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Change, Object
from testbed.internals import changed, split
from testbed.objects.facts import gated_pod, node_manifest
from testbed.scenario.manifests import GPU, Manifest, disruption_budget, queue

PATIENCE_SECONDS = 120.0
"""Longest wait for what must come: tests share the machine with others."""
JOBS = names.path("trainingjobs")
GROUPS = names.path("podgroups")
PODS = "/api/v1/pods"
# The real one is made for clusters: a test would mostly wait for the next sweep.
FAST: dict[str, float] = {"sweep_interval_seconds": 0.2}


@asynccontextmanager
async def leading(
    api: FakeApi,
    folder: Path,
    *,
    epoch: int = 1,
    fence: Callable[[], None] = lambda: None,
    scheduling: SchedulingSettings | None = None,
    now: Callable[[], float] = wall_clock,
    default_queue: Manifest | None = None,
    shadow: Manifest | None = None,
    **options: Any,
) -> AsyncIterator[LeaderTerm]:
    """A term of leadership that ends, by cancellation as by a crash, with the block.

    ``fence`` is asked before every write. A term that ends by itself fails the test.
    ``default_queue`` is the spec of the Queue that it makes where there is none, ``shadow`` the
    checkpoint of the learned shadow that it makes. ``options`` are settings and internals.
    """
    client = await ApiClient.connect(api.kubeconfig(folder))
    client.fence = fence
    settings, internals = split({**FAST, **options})
    chosen = OperatorSettings(**settings)
    decides = scheduling or SchedulingSettings()
    process = (client, chosen, decides, OperatorMetrics())
    given = TermContext(*process, epoch, "test", lambda: None, now=now)
    with changed(**internals):
        term = LeaderTerm(replace(given, queue=default_queue, shadow=shadow))
        async with running(term, client):
            yield term


@asynccontextmanager
async def running(term: LeaderTerm | ObserverTerm, client: ApiClient) -> AsyncIterator[None]:
    """Run ``term`` until the end of the block, and close its client; raise what ended it sooner."""
    task = asyncio.create_task(term.run())
    try:
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        await client.close()
    if isinstance(ended, Exception):
        raise ended


class Crash:
    """A fence that lets ``after`` writes pass, and then none."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.happened = False

    def __call__(self) -> None:
        if self.left == 0:
            self.happened = True
            raise NotLeader("crashed")
        self.left -= 1


async def crashed(
    api: FakeApi, folder: Path, after: int, done: Callable[[], bool], **settings: Any
) -> bool:
    """Lead until the crash, or until the job is done; whether it crashed."""
    crash = Crash(after)
    async with leading(api, folder, fence=crash, **settings):
        await until(lambda: crash.happened or done())
        await asyncio.sleep(0)
    return crash.happened


async def until(condition: Callable[[], object], timeout_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; TimeoutError when it does not come true."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true in time")
        await asyncio.sleep(0.005)


def furnish(api: FakeApi, nodes: int = 2, *, gpus: int = 8) -> None:
    """Create nodes n0, n1, ... and an open queue."""
    for index in range(nodes):
        api.put(f"/api/v1/nodes/n{index}", node_manifest(a_node(f"n{index}", gpus)))
    api.put(f"{names.path('queues')}/default", queue("default"))


def submit(api: FakeApi, *jobs: Manifest) -> None:
    """Create objects of tenants in the namespace ``default``."""
    for job in jobs:
        plural = f"{job['kind'].lower()}s"
        api.put(names.path(plural, "default", job["metadata"]["name"]), job)


def protect(api: FakeApi, gang: str, allowed: int) -> None:
    """Set a budget over the pods of one gang that lets ``allowed`` of them go."""
    budget = disruption_budget(f"keep-{gang}", 1, **{names.POD_GROUP_LABEL: gang})
    budget_status = {"disruptionsAllowed": allowed, "observedGeneration": 1}
    path = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep-{gang}"
    api.put(path, {**budget, "status": budget_status})


def make(api: FakeApi, *members: str, group: str = "group", gpus: int = 2, **labels: str) -> None:
    """Make gated pods of ``group`` as a controller does, each time with other uids."""
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    for name in members:
        pod = gated_pod(name, group, containers=[container], labels=labels)
        del pod["metadata"]["uid"]
        api.put(f"/api/v1/namespaces/default/pods/{name}", pod)


def endings(api: FakeApi) -> dict[str, str]:
    """From now on: reason and message of the disruption with which each pod has gone."""
    seen: dict[str, str] = {}

    def note(change: Change) -> None:
        if change.after is None and change.before is not None:
            found = (change.before.get("status") or {}).get("conditions") or ()
            words = [f"{c['reason']}: {c['message']}" for c in found if "Disrupt" in c["type"]]
            seen[change.before["metadata"]["name"]] = " ".join(words)

    api.store.collection(PODS).subscribers.append(note)
    return seen


def job(api: FakeApi, name: str = "job") -> Object:
    return api.store.get(JOBS, ("default", name))


def status(api: FakeApi, name: str = "job", resource: str = JOBS) -> Object:
    """Return the status of a job (or of another object), empty before it has any or even exists."""
    stored = api.store.collection(resource).objects.get(("default", name), {})
    return stored.get("status") or {}


def with_conditions(api: FakeApi, resource: str, name: str) -> Object:
    """Return the status of a cluster-wide object, its conditions as ``status reason``."""
    found = api.store.get(resource, ("", name)).get("status") or {}
    conditions = {c["type"]: f"{c['status']} {c['reason']}" for c in found.get("conditions", ())}
    return {**found, "conditions": conditions}


def events_about(api: FakeApi, kind: str) -> list[Object]:
    found = api.store.collection("/api/v1/events").objects.values()
    return [event for event in found if event["involvedObject"]["kind"] == kind]


def pods(api: FakeApi) -> list[Object]:
    return list(api.store.collection(PODS).objects.values())


def phases(api: FakeApi) -> list[str]:
    found = api.store.collection(JOBS).objects.values()
    return [(job.get("status") or {}).get("phase", "") for job in found]


def written(api: FakeApi) -> int:
    """Count the requests so far that changed, or tried to change, anything."""
    return sum(
        n for (method, _), n in api.requests.items() if method not in ("GET", "PEEK", "WATCH")
    )


async def silence(api: FakeApi, seconds: float = 1.2) -> None:
    """Return once nothing was written for so long: six sweeps, and more than counts may wait."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        before = -1
        while written(api) != before:
            before = written(api)
            await asyncio.sleep(seconds)
