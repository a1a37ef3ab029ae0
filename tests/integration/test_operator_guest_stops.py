"""Pods of other controllers make room for what is guaranteed or more important, whole."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import NotLeader
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi, Fault
from testbed.job_controller import FakeJobController
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    furnish,
    leading,
    make,
    pods,
    protect,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import (
    GPU,
    Manifest,
    batch_job,
    member_template,
    pod_group,
    priority_class,
    queue,
    task,
    training_job,
)

EAGER = SchedulingSettings(min_runtime_seconds=0)
JOB_PATH = "/apis/batch/v1/namespaces/default/jobs/train"


def job(name: str, **spec: Any) -> Manifest:
    return training_job(name, task("worker", 4, gpus=2), **spec)


def is_running(api: FakeApi, name: str, kind: str = "") -> bool:
    found = status(api, name, kind) if kind else status(api, name)
    return found.get("phase") == "Running"


def members(api: FakeApi) -> list[str]:
    """Names of pods of the PodGroup that are on a node."""
    label = names.POD_GROUP_LABEL
    return [
        pod["metadata"]["name"]
        for pod in pods(api)
        if pod["metadata"]["labels"].get(label) == "group" and pod["spec"].get("nodeName")
    ]


def offer(api: FakeApi, name: str, **spec: Any) -> None:
    api.put(f"{names.path('queues')}/{name}", queue(name, **spec))


@asynccontextmanager
async def occupied(api: FakeApi, folder: Path) -> AsyncIterator[FakeJobController]:
    """A node that a gang of a Job fills, which no failure is forgiven."""
    furnish(api, 1)
    high = priority_class("high", 1000)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", high)
    async with (
        FakeKubelets(api, runs),
        FakeJobController(api) as controller,
        leading(api, folder, scheduling=EAGER),
    ):
        submit(api, pod_group("group", 4))
        made = batch_job("train", 4, member_template("group", 2))
        api.put(JOB_PATH, {**made, "spec": {**made["spec"], "backoffLimit": 0}})
        await until(lambda: is_running(api, "group", GROUPS))
        yield controller


async def test_a_higher_class_stops_the_gang_of_a_job_which_costs_it_no_retry(
    api: FakeApi, tmp_path: Path
) -> None:
    async with occupied(api, tmp_path) as controller:
        submit(api, job("urgent", priorityClassName="high"))
        await until(lambda: is_running(api, "urgent"))
        await until(lambda: status(api, "group", GROUPS).get("queuePosition") == 1)
        told = status(api, "group", GROUPS)
        assert (told["phase"], told["preemptions"]) == ("Interrupted", 1)
        assert members(api) == []
        assert (controller.failed["train"], controller.suspended["train"]) == (0, 1)
        urgent = api.store.get(names.path("trainingjobs"), ("default", "urgent"))
        ended = {**urgent["spec"], "runPolicy": {"suspend": True}}
        path = names.path("trainingjobs")
        api.store.update(path, ("default", "urgent"), {**urgent, "spec": ended})
        await until(lambda: is_running(api, "group", GROUPS))
        assert status(api, "group", GROUPS)["preemptions"] == 1


@pytest.mark.parametrize("are_readable", [True, False])
async def test_a_queue_takes_back_from_it_what_is_guaranteed_whatever_a_budget_says(
    api: FakeApi, tmp_path: Path, are_readable: bool
) -> None:
    async with occupied(api, tmp_path):
        protect(api, "group", 0)
        if not are_readable:
            of_budgets: Any = lambda _method, path, _: path.endswith("budgets")  # noqa: E731
            api.faults.add(Fault(status=500), of_budgets, times=None)
        offer(api, "owed", guaranteed={GPU: 8})
        submit(api, job("owner", queue="owed"))
        await until(lambda: is_running(api, "owner"))
        await until(lambda: status(api, "group", GROUPS).get("queuePosition") == 1)
        assert members(api) == []


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["none", "in another queue"])
async def test_pods_without_their_pod_group_are_no_more_out_of_reach_of_a_guarantee(
    api: FakeApi, tmp_path: Path, is_elsewhere: bool
) -> None:
    async with occupied(api, tmp_path) as controller:
        offer(api, "elsewhere")
        api.store.delete(GROUPS, ("default", "group"), {})
        if is_elsewhere:
            submit(api, pod_group("group", 4, queue="elsewhere"))
        protect(api, "group", 0)
        submit(api, job("equal"))
        await until(lambda: status(api, "equal").get("queuePosition"))
        assert len(members(api)) == 4, "no equal stops them"
        offer(api, "owed", guaranteed={GPU: 8})
        submit(api, job("owner", queue="owed"))
        await until(lambda: is_running(api, "owner"))
        assert members(api) == []
        assert controller.failed["train"] == 0


@pytest.mark.parametrize("annotation", [None, "true"])
async def test_an_equal_stops_it_only_where_an_annotation_says_that_it_can_resume(
    api: FakeApi, tmp_path: Path, annotation: str | None
) -> None:
    # The fake API server makes all objects at the beginning of 2030.
    ahead = 1893456000.0 - wall_clock()
    ran = 0.0
    furnish(api, 1)
    group = pod_group("group", 4)
    if annotation is not None:
        group["metadata"]["annotations"] = {names.RESUMABLE: annotation}
    leader = leading(api, tmp_path, scheduling=EAGER, now=lambda: wall_clock() + ahead + ran)
    async with FakeKubelets(api, runs), leader:
        submit(api, group)
        make(api, *"abcd")
        await until(lambda: is_running(api, "group", GROUPS))
        ran = 36_000.0
        submit(api, job("equal"))
        if annotation is not None:
            await until(lambda: is_running(api, "equal"))
            assert status(api, "group", GROUPS)["preemptions"] == 1
            return
        await until(lambda: status(api, "equal").get("queuePosition"))
        submit(api, job("last"))  # its status tells that all were decided on once more
        await until(lambda: status(api, "last").get("queuePosition"))
        assert is_running(api, "group", GROUPS)


async def test_an_administrator_may_exempt_a_queue(api: FakeApi, tmp_path: Path) -> None:
    async with occupied(api, tmp_path):
        offer(api, "default", preemptPodGroups=False)
        submit(api, job("urgent", priorityClassName="high"))
        await until(lambda: status(api, "urgent").get("queuePosition"))
        submit(api, job("last", priorityClassName="high"))
        await until(lambda: status(api, "last").get("queuePosition"))
        assert len(members(api)) == 4
        offer(api, "default")
        await until(lambda: is_running(api, "urgent"))


@pytest.mark.parametrize("after", range(5))
async def test_a_stop_survives_a_crash_after_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    async with occupied(api, tmp_path):
        pass
    left = after

    def fence() -> None:
        nonlocal left
        if left == 0:
            raise NotLeader("crashed")
        left -= 1

    submit(api, job("urgent", priorityClassName="high"))
    async with FakeKubelets(api, runs), FakeJobController(api) as controller:
        async with leading(api, tmp_path, epoch=2, fence=fence, scheduling=EAGER):
            await until(lambda: left == 0 or is_running(api, "urgent"))
        async with leading(api, tmp_path, epoch=3, scheduling=EAGER):
            await until(lambda: is_running(api, "urgent"))
            await until(lambda: status(api, "group", GROUPS).get("queuePosition") == 1)
        assert controller.failed["train"] == 0
    assert status(api, "group", GROUPS)["preemptions"] == 1
