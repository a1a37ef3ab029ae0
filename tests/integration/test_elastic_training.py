"""A real elastic training: torchrun's agents are the pods of a gang that the operator resizes.

The operator is whole; behind the fake API server, its pods are processes on this machine. The job
is the example, its script too.
"""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from testbed.controlplane.process import free_ports
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Object
from testbed.kubelets import ProgramKubelets
from testbed.operator_term.term import furnish, leading, pods, status, submit, until
from testbed.scenario.manifests import (
    Manifest,
    documents,
    pod_spec,
    priority_class,
    task,
    training_job,
)
from testbed.scenario.tenant import uids_of

pytest.importorskip("torch", reason="the example trains with PyTorch, which is not installed")

JOB = "elastic-torch"
HOST = f"{JOB}-worker-0"
MAX_SECONDS = 300.0
SETTLED = SchedulingSettings(resize_settle_seconds=2)
TOLD = re.compile(r"^step (\d+), loss ([\d.]+), (\d) processes$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that rank 0 prints now and then."""

    step: int
    loss: float
    world: int


@dataclass(frozen=True, slots=True)
class Training:
    """The example, as the operator runs it on this machine."""

    api: FakeApi
    kubelets: ProgramKubelets

    def lines(self, pod: str = HOST) -> list[Line]:
        found = TOLD.findall(self.kubelets.log(pod))
        return [Line(int(step), float(loss), int(world)) for step, loss, world in found]

    def replicas(self) -> list[Object]:
        return [p for p in pods(self.api) if p["metadata"]["labels"][names.JOB_LABEL] == JOB]

    async def trains_with(self, world: int) -> None:
        """Return when the gang has so many pods and its processes train together."""
        before = len(self.lines())
        await self.until(lambda: len(self.replicas()) == world)
        await self.until(lambda: {line.world for line in self.lines()[before:][-1:]} == {world})

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition, MAX_SECONDS)


@pytest.fixture
async def training(api: FakeApi, tmp_path: Path) -> AsyncIterator[Training]:
    """Two replicas of the example beside a job that holds the rest of the node."""
    config, job = documents("10-elastic-torch.yaml")
    script = tmp_path / "train.py"
    script.write_text(config["data"]["train.py"])
    (port,) = free_ports(1)
    swapped = {
        "/workspace/train.py": str(script),
        "/state": str(tmp_path),
        ":29500": f":{port}",
        "200000": "1000000000",
    }
    furnish(api, 1)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    kubelets = ProgramKubelets(api, tmp_path, swapped)
    async with kubelets, leading(api, tmp_path, scheduling=SETTLED):
        submit(api, rigid("first", 94))
        await until(lambda: status(api, "first").get("phase") == "Running")
        submit(api, job)
        yield Training(api, kubelets)


def rigid(name: str, cpus: int, **spec: str) -> Manifest:
    return training_job(name, task(spec=pod_spec(0, str(cpus))), **spec)


async def test_training_goes_on_where_it_was_through_every_resize(training: Training) -> None:
    await training.trains_with(2)
    (host, *_) = uids_of(training.replicas()).items()
    training.kubelets.end("first-worker-0")
    await training.trains_with(3)
    submit(training.api, rigid("urgent", 95, priorityClassName="high"))
    await training.trains_with(1)
    assert dict([host]) == uids_of(training.replicas())
    assert (status(training.api, JOB)["phase"], status(training.api, JOB)["attempt"]) == (
        "Running",
        0,
    )
    lines = training.lines()
    steps = [line.step for line in lines]
    assert steps == sorted(set(steps)), "what was saved is not done again"
    assert lines[-1].loss < lines[0].loss
    others = [training.lines(f"{JOB}-worker-{index}") for index in (1, 2)]
    assert others == [[], []], "only the first replica ever was rank 0"
