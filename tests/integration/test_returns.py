"""A gang that had to go keeps its place: nobody who comes while its pods end gets what it goes to.

Its pods take a long time to end: evictions are answered 429 until the test lets them go.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.settings import SchedulingSettings
from bireme.core.times import clock_time
from bireme.kube import names
from bireme.testing import a_node
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi, Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import (
    JOBS,
    furnish,
    leading,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import Manifest, priority_class, queue, task, training_job

SETTLED = SchedulingSettings(min_runtime_seconds=3600, service_threshold=0, assume_resumable=True)


class World:
    """The fake API server, an operator that can be started again, and a clock set forward."""

    def __init__(self, api: FakeApi, folder: Path, stack: AsyncExitStack) -> None:
        self.api, self._folder, self._stack = api, folder, stack
        self._term = AsyncExitStack()
        self.epoch = 0
        self.ahead = 0.0

    def now(self) -> float:
        return wall_clock() + self.ahead

    async def lead(self) -> None:
        """Start the operator, after the end of the one before."""
        await self._term.aclose()
        self.epoch += 1
        term = leading(self.api, self._folder, epoch=self.epoch, now=self.now, scheduling=SETTLED)
        await self._term.enter_async_context(term)

    async def close(self) -> None:
        await self._term.aclose()

    def hold_pods(self) -> None:
        """Let no pod be evicted until :meth:`let_go`."""
        self.api.faults.add(
            Fault(status=429, reason="TooManyRequests"),
            lambda method, path, _: method == "POST" and path.endswith("/eviction"),
            times=None,
        )

    def let_go(self) -> None:
        self.api.faults.clear()

    def phase(self, job: str) -> str:
        return str(status(self.api, job).get("phase", ""))

    async def start(self, name: str, **spec: object) -> None:
        submit(self.api, whole(name, **spec))
        await until(lambda: self.phase(name) == "Running")

    def nodes_of(self, job: str) -> set[str]:
        found = [p for p in pods(self.api) if p["metadata"]["name"].startswith(f"{job}-")]
        return {p["spec"].get("nodeName", "") for p in found}

    def edit(self, job: str, **spec: object) -> None:
        stored = self.api.store.get(JOBS, ("default", job))
        new = {**stored["spec"], **spec}
        self.api.store.update(JOBS, ("default", job), {**stored, "spec": new})


def whole(name: str, **spec: object) -> Manifest:
    """A job that fills a node."""
    return training_job(name, task("worker", 4, gpus=2), **spec)


@asynccontextmanager
async def cluster(api: FakeApi, folder: Path) -> AsyncIterator[World]:
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    async with AsyncExitStack() as stack, FakeKubelets(api, runs) as kubelets:
        world = World(api, folder, stack)
        try:
            await world.lead()
            yield world
        finally:
            await world.close()
    assert kubelets.violations == []


@asynccontextmanager
async def moving(api: FakeApi, folder: Path) -> AsyncIterator[World]:
    """A gang on slow GPUs that is being stopped to start again on fast ones."""
    for name, model in (("slow", "Tesla-V100-SXM2-32GB"), ("fast", "NVIDIA-H100-80GB-HBM3")):
        node = node_manifest(a_node(name, labels={GPU_MODEL_LABEL: model}))
        api.put(f"/api/v1/nodes/{name}", node)
    api.put(f"{names.path('queues')}/default", queue("default"))
    async with cluster(api, folder) as world:
        await world.start("first")
        await world.start("job")
        world.ahead = 10 * 3600.0
        world.hold_pods()
        world.edit("first", runPolicy={"suspend": True})
        await until(lambda: status(api, "job").get("reason") == "FasterGpus")
        await until(lambda: not world.nodes_of("first"))
        yield world


async def newcomers_wait(world: World, *jobs: str) -> None:
    await until(lambda: all(status(world.api, name).get("reason") for name in jobs))
    await silence(world.api)
    assert [world.phase(name) for name in jobs] == ["Pending"] * len(jobs)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_newcomers_do_not_take_the_target_of_a_move(
    api: FakeApi, tmp_path: Path, is_restarted: bool
) -> None:
    """Nor where another operator leads by then: that the gang returns is recorded."""
    async with moving(api, tmp_path) as world:
        if is_restarted:
            await world.lead()
        submit(api, whole("new0"), whole("new1", priorityClassName="high"))
        await newcomers_wait(world, "new0", "new1")
        world.let_go()
        await until(lambda: world.phase("job") == "Running" and world.nodes_of("job") == {"fast"})
        await until(lambda: world.phase("new1") == "Running")
        assert (world.nodes_of("new1"), world.phase("new0")) == ({"slow"}, "Pending")
    assert (status(api, "job")["interruptions"], status(api, "job").get("preemptions", 0)) == (1, 0)


async def test_a_move_that_its_user_suspends_gives_its_target_to_others(
    api: FakeApi, tmp_path: Path
) -> None:
    async with moving(api, tmp_path) as world:
        submit(api, whole("new0"))
        await newcomers_wait(world, "new0")
        world.edit("job", runPolicy={"suspend": True})
        await until(lambda: world.phase("new0") == "Running")
        assert world.nodes_of("new0") == {"fast"}


async def test_a_move_whose_target_is_lost_goes_back_before_newcomers(
    api: FakeApi, tmp_path: Path
) -> None:
    async with moving(api, tmp_path) as world:
        submit(api, whole("new0"))
        await newcomers_wait(world, "new0")
        api.store.delete("/api/v1/nodes", ("", "fast"), {})
        world.let_go()
        await until(lambda: world.phase("job") == "Running")
        assert (world.nodes_of("job"), world.phase("new0")) == ({"slow"}, "Pending")


async def test_newcomers_do_not_take_the_places_to_which_maintenance_moves_a_gang(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    async with cluster(api, tmp_path) as world:
        await world.start("job")
        (node,) = world.nodes_of("job")
        world.hold_pods()
        stored = api.store.get("/api/v1/nodes", ("", node))
        window = f"{clock_time(world.now() - 5)}/{clock_time(world.now() + 7200)}"
        about = {**stored["metadata"], "annotations": {names.MAINTENANCE: window}}
        api.store.update("/api/v1/nodes", ("", node), {**stored, "metadata": about})
        await until(lambda: status(api, "job").get("reason") == "NodeMaintenance")
        submit(api, whole("new0"), whole("new1", priorityClassName="high"))
        await newcomers_wait(world, "new0", "new1")
        world.let_go()
        await until(lambda: world.phase("job") == "Running")
        assert world.nodes_of("job") == {"n0", "n1"} - {node}
        assert [world.phase(name) for name in ("new0", "new1")] == ["Pending"] * 2


async def test_newcomers_do_not_take_the_places_to_which_a_gang_goes_that_lost_a_node(
    api: FakeApi, tmp_path: Path
) -> None:
    """Its other pods take their grace, and a spare node is free meanwhile."""
    furnish(api, 3)
    async with cluster(api, tmp_path) as world:
        await world.start("job", tasks=[task("worker", 8, gpus=2)])
        there = sorted(world.nodes_of("job"))
        assert len(there) == 2
        api.store.lingers = lambda stored: stored.get("spec", {}).get("nodeName") == there[1]
        api.store.delete("/api/v1/nodes", ("", there[0]), {})
        await until(lambda: status(api, "job").get("reason") == "NodeLost")
        submit(api, whole("new0", priorityClassName="high"))
        await newcomers_wait(world, "new0")
        api.store.lingers = lambda _: False
        for pod in pods(api):
            if pod["spec"].get("nodeName") == there[1]:
                name = pod["metadata"]["name"]
                api.store.delete("/api/v1/pods", ("default", name), {}, 0)
        await until(lambda: world.phase("job") == "Running")
        assert world.nodes_of("job") == {"n0", "n1", "n2"} - {there[0]}
        assert world.phase("new0") == "Pending"
