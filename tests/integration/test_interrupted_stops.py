"""A stop that the API server interrupts halfway ends within minutes, whatever it was for."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.core.times import clock_time
from bireme.kube import names
from bireme.testing import a_node
from bireme_operator import guests, lifecycle
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi, Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    PODS,
    events_about,
    furnish,
    leading,
    make,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import pod_group, queue, task, training_job

PATIENCE_SECONDS = 2.0


class World:
    """The fake API server with a clock that can be set forward."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.ahead = 0.0

    def now(self) -> float:
        return wall_clock() + self.ahead

    def refuse_eviction(self, pod: str, message: str = "too many requests") -> None:
        """Answer 429 to every eviction of ``pod`` from now on."""

        def is_eviction(method: str, path: str, _: bool) -> bool:
            return method == "POST" and path.endswith(f"/{pod}/eviction")

        self.api.faults.add(Fault(status=429, message=message), is_eviction, times=None)

    def announce(self, node: str, begin: float, end: float) -> None:
        window = f"{clock_time(begin)}/{clock_time(end)}"
        stored = self.api.store.get("/api/v1/nodes", ("", node))
        about = {**stored["metadata"], "annotations": {names.MAINTENANCE: window}}
        self.api.store.update("/api/v1/nodes", ("", node), {**stored, "metadata": about})

    def suspend(self, job: str) -> None:
        stored = self.api.store.get(JOBS, ("default", job))
        spec = {**stored["spec"], "runPolicy": {"suspend": True}}
        self.api.store.update(JOBS, ("default", job), {**stored, "spec": spec})

    def runs(self, job: str) -> bool:
        return status(self.api, job).get("phase") == "Running"

    def nodes_of(self, job: str) -> set[str]:
        found = [p for p in pods(self.api) if p["metadata"]["name"].startswith(f"{job}-")]
        return {p["spec"].get("nodeName", "") for p in found}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lifecycle, guests):
        monkeypatch.setattr(module, "EVICTING_SECONDS", PATIENCE_SECONDS)


@asynccontextmanager
async def leading_world(api: FakeApi, folder: Path, **settings: Any) -> AsyncIterator[World]:
    world = World(api)
    async with (
        FakeKubelets(api, runs) as kubelets,
        leading(api, folder, now=world.now, **settings),
    ):
        yield world
    assert kubelets.violations == []


def furnish_models(api: FakeApi) -> None:
    for name, model in (("slow", "Tesla-V100-SXM2-32GB"), ("fast", "NVIDIA-H100-80GB-HBM3")):
        node = node_manifest(a_node(name, labels={GPU_MODEL_LABEL: model}))
        api.put(f"/api/v1/nodes/{name}", node)
    api.put(f"{names.path('queues')}/default", queue("default"))


async def starts_whole_again(world: World, job: str, is_there: Callable[[], bool]) -> None:
    """Wait until the stopped gang runs again with all of its four pods where ``is_there``."""
    await until(lambda: status(world.api, job).get("attempt") == 1 and world.runs(job), 30.0)
    assert is_there()
    own = [p for p in pods(world.api) if p["metadata"]["name"].startswith(f"{job}-")]
    assert len(own) == 4
    messages = [
        event["message"]
        for event in events_about(world.api, "TrainingJob")
        if event["involvedObject"]["name"] == job and event["reason"] == "BudgetOverridden"
    ]
    assert len(messages) == 1
    assert "a budget kept 1 of its pods" in messages[0]


async def test_a_move_whose_last_pod_is_never_let_go_ends(api: FakeApi, tmp_path: Path) -> None:
    furnish_models(api)
    async with leading_world(api, tmp_path) as world:
        submit(api, training_job("first", task("worker", 4, gpus=2)))
        await until(lambda: world.runs("first"))
        team = task("worker", 4, gpus=2)
        submit(api, training_job("job", team, runPolicy={"resumable": True}))
        await until(lambda: world.runs("job"))
        world.ahead = 10 * 3600.0
        world.refuse_eviction("job-worker-0")
        world.suspend("first")
        await until(lambda: status(api, "job").get("reason") == "FasterGpus")
        await starts_whole_again(world, "job", lambda: world.nodes_of("job") == {"fast"})
    assert status(api, "job")["interruptions"] == 1


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_vacated_node_whose_last_pod_is_never_let_go_is_left(
    api: FakeApi, tmp_path: Path, is_over: bool
) -> None:
    """Also where the maintenance is over before the budget lets the pod go."""
    furnish(api)
    async with leading_world(api, tmp_path) as world:
        submit(api, training_job("job", task("worker", 4, gpus=2)))
        await until(lambda: world.runs("job"))
        (node,) = world.nodes_of("job")
        world.refuse_eviction("job-worker-0")
        began = world.now() - 5
        world.announce(node, began, began + 7200)
        await until(lambda: status(api, "job").get("reason") == "NodeMaintenance")
        if is_over:
            world.announce(node, began, began + 1)
        await starts_whole_again(world, "job", lambda: len(world.nodes_of("job")) == 1)
    assert status(api, "job")["interruptions"] == 1


@pytest.mark.parametrize("words", ["Cannot evict pod: a disruption budget", "too many requests"])
async def test_a_guest_whose_last_pod_is_never_let_go_is_taken_back(
    api: FakeApi, tmp_path: Path, words: str
) -> None:
    """Whether the API server says that a budget keeps the pod, or only that it may not go now."""
    furnish(api, 1)
    async with leading_world(api, tmp_path, bind_timeout_seconds=0.5) as world:
        submit(api, pod_group("group", 4))
        make(api, "a", "b", "c", "d")
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        world.refuse_eviction("a", words)
        node = node_manifest(a_node("n0", 8))
        api.put("/api/v1/nodes/n0", {**node, "spec": {**node["spec"], "unschedulable": True}})
        api.store.delete(PODS, ("default", "d"), {})
        make(api, "e")  # its controller makes another one, which finds no place
        await until(lambda: {p["metadata"]["name"] for p in pods(api)} == {"a", "e"})
        await until(lambda: {p["metadata"]["name"] for p in pods(api)} == {"e"}, 30.0)
        await until(lambda: "plan" not in status(api, "group", GROUPS))
