"""Time that a gang spends parked buys it no place before others, whichever replica leads."""

from pathlib import Path

import pytest

from bireme.kube import names, quantities
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import gated_pod
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    furnish,
    leading,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import (
    GPU,
    Manifest,
    pod_group,
    pod_spec,
    priority_class,
    queue,
    task,
    training_job,
)

BEGAN = 1.9e9
NOW = BEGAN + 25 * 3600.0
"""More than the wait bound later."""


def made_at(api: FakeApi, moment: float) -> None:
    """From now on objects are created then."""
    api.store.now = lambda: quantities.format_timestamp(moment)


def impossible(replicas: int) -> Manifest:
    spec = pod_spec(1, nodeSelector={"no": "node"})
    return training_job("parked", task("worker", replicas, spec=spec))


def urgent(api: FakeApi) -> None:
    api.put(
        "/apis/scheduling.k8s.io/v1/priorityclasses/urgent", priority_class("urgent", 1_000_000)
    )
    submit(api, training_job("urgent", task("worker", 8), priorityClassName="urgent"))


async def test_a_job_that_was_parked_for_longer_than_the_wait_bound_goes_before_nobody(
    api: FakeApi, tmp_path: Path
) -> None:
    made_at(api, BEGAN)
    furnish(api)
    submit(api, impossible(4))
    async with FakeKubelets(api, runs):
        async with leading(api, tmp_path, now=lambda: BEGAN):
            await until(lambda: status(api, "parked").get("reason") == "NeverFits")
        assert "parkedTime" in status(api, "parked")
        found = api.store.get(JOBS, ("default", "parked"))
        edited = training_job("parked", task("worker", 16))["spec"]
        api.store.update(JOBS, ("default", "parked"), {**found, "spec": edited})
        made_at(api, NOW - 60.0)
        urgent(api)
        async with leading(api, tmp_path, epoch=2, now=lambda: NOW):
            await until(lambda: status(api, "urgent").get("phase") == "Running")
            await until(lambda: status(api, "parked").get("reason") == "WaitingForCapacity")
    now = status(api, "parked")
    assert (now["waitSeconds"], "parkedTime" in now) == (0, False)
    assert now["queuedTime"] == quantities.format_timestamp(NOW)


async def test_a_pod_group_that_was_parked_goes_before_nobody_either(
    api: FakeApi, tmp_path: Path
) -> None:
    """The nodes that its pods ask for come after a day."""
    made_at(api, BEGAN)
    furnish(api, 1)
    submit(api, pod_group("parked", 2))
    container = {"name": "c", "resources": {"limits": {GPU: "8"}}}
    for name in "ab":
        made = gated_pod(name, "parked", containers=[container])
        api.put(f"/api/v1/namespaces/default/pods/{name}", made)
    async with FakeKubelets(api, runs):
        async with leading(api, tmp_path, now=lambda: BEGAN):
            await until(lambda: status(api, "parked", GROUPS).get("reason") == "NeverFits")
        furnish(api, 2)
        made_at(api, NOW - 60.0)
        urgent(api)
        async with leading(api, tmp_path, epoch=2, now=lambda: NOW):
            await until(lambda: status(api, "urgent").get("phase") == "Running")
            await until(lambda: status(api, "parked", GROUPS).get("reason") == "WaitingForCapacity")
    assert status(api, "parked", GROUPS)["waitSeconds"] == 0


async def wait_in_quota(api: FakeApi, folder: Path) -> None:
    """Have job ``mine`` wait for more than the wait bound for its namespace's own quota."""
    made_at(api, BEGAN)
    furnish(api)
    limit_pods(api, hard=20, used=20)
    submit(api, training_job("mine", task("worker", 4, gpus=2)))
    async with leading(api, folder, now=lambda: BEGAN):
        await until(lambda: status(api, "mine").get("reason") == "OverQuota")


def limit_pods(api: FakeApi, hard: int, used: int) -> None:
    """Set the quota of the namespace ``default``, and what other pods use of it."""
    counted = {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}
    manifest = {"metadata": {"name": "all"}, "spec": {"hard": counted["hard"]}, "status": counted}
    api.put("/api/v1/namespaces/default/resourcequotas/all", manifest)


async def test_a_day_behind_a_quota_that_the_tenant_itself_fills_goes_before_nobody(
    api: FakeApi, tmp_path: Path
) -> None:
    async with FakeKubelets(api, runs):
        await wait_in_quota(api, tmp_path)
        furnish(api, 1)
        api.store.delete("/api/v1/nodes", ("", "n1"), {})
        made_at(api, NOW - 60.0)
        urgent(api)
        limit_pods(api, hard=20, used=0)
        async with leading(api, tmp_path, epoch=2, now=lambda: NOW):
            await until(lambda: status(api, "urgent").get("phase") == "Running")
            await until(lambda: status(api, "mine").get("reason") == "WaitingForCapacity")
    now = status(api, "mine")
    assert (now["uncountedSeconds"] >= 25 * 3600 - 60, "uncountedTime" in now) == (True, False)


@pytest.mark.parametrize("edit", ["queue", "nodeSelector", "shape"])
async def test_a_day_in_line_for_something_else_goes_before_nobody(
    api: FakeApi, tmp_path: Path, edit: str
) -> None:
    """What a job waited for in one queue, or with other pods, does not count in another."""
    made_at(api, BEGAN)
    furnish(api, 1)
    for name in ("small", "large"):
        api.put(f"{names.path('queues')}/{name}", queue(name))
    async with FakeKubelets(api, runs):
        async with leading(api, tmp_path, now=lambda: BEGAN):
            submit(api, training_job("first", task("worker", 4, gpus=2), queue="small"))
            await until(lambda: status(api, "first").get("phase") == "Running")
            submit(api, training_job("mine", task("worker", 4, gpus=2), queue="small"))
            await until(lambda: status(api, "mine").get("reason") == "WaitingForCapacity")
        found = api.store.get(JOBS, ("default", "mine"))
        selected = task(
            "worker", 4, spec=pod_spec(2, nodeSelector={"kubernetes.io/hostname": "n0"})
        )
        changes: dict[str, Manifest] = {
            "queue": {"queue": "large"},
            "nodeSelector": {"tasks": [selected]},
            "shape": {"tasks": [task("worker", 1, gpus=8)]},
        }
        api.store.update(
            JOBS, ("default", "mine"), {**found, "spec": {**found["spec"], **changes[edit]}}
        )
        made_at(api, NOW - 60.0)
        urgent(api)
        first = api.store.get(JOBS, ("default", "first"))
        ended = {**first["spec"], "runPolicy": {"suspend": True}}
        api.store.update(JOBS, ("default", "first"), {**first, "spec": ended})
        async with leading(api, tmp_path, epoch=2, now=lambda: NOW):
            await until(lambda: status(api, "urgent").get("phase") == "Running")
            await until(lambda: status(api, "mine").get("reason") == "WaitingForCapacity")
    assert status(api, "mine")["waitSeconds"] == 0
