"""Elastic gangs against the fake API server: they grow, shrink and lose replicas, and run on."""

from pathlib import Path

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import NotLeader
from testbed.fakeapi import FakeApi, Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    PODS,
    furnish,
    leading,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import Manifest, task, training_job
from testbed.scenario.tenant import uids_of
from tests.integration.elastic_jobs import SETTLED, elastic, is_whole, of

SLOW = SchedulingSettings(resize_settle_seconds=3600)
EVENTS = "/api/v1/events"


def rigid(replicas: int = 4) -> Manifest:
    return training_job("rigid", task("worker", replicas))


def leaving(api: FakeApi) -> list[str]:
    """Pods that were deleted and take their time to end."""
    return [p["metadata"]["name"] for p in pods(api) if "deletionTimestamp" in p["metadata"]]


def messages(api: FakeApi) -> dict[str, str]:
    """Reason to message of the events about the elastic job."""
    found = api.store.collection(EVENTS).objects.values()
    return {e["reason"]: e["message"] for e in found if e["involvedObject"]["name"] == "elastic"}


async def test_an_elastic_gang_grows_into_what_is_idle(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    submit(api, elastic(most=6))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        await until(lambda: is_whole(api, 6))
        await until(lambda: "Grown" in messages(api))
    reported = status(api, "elastic")
    assert (reported["phase"], reported["attempt"], reported["gpus"]) == ("Running", 0, 6)
    assert reported["message"] == "all 6 replicas run on 1 node(s)"
    assert reported["placement"]["summary"].startswith("6 on n0")
    assert "grown by 2" in messages(api)["Grown"]
    assert set(kubelets.created.values()) == {1}
    assert {p["metadata"]["labels"][names.PLAN_LABEL] for p in pods(api)} == {"1.0"}
    assert "resizedTime" in status(api, "elastic")["plan"]


async def test_an_elastic_gang_shrinks_for_one_that_waits_and_the_others_run_on(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, elastic())
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path, scheduling=SETTLED):
        await until(lambda: is_whole(api, 8))
        before = uids_of(of(api, "elastic"))
        submit(api, rigid())
        await until(lambda: status(api, "rigid").get("phase") == "Running")
        await until(lambda: is_whole(api, 4))
        await until(lambda: "Shrunk" in messages(api))
    stayed = uids_of(of(api, "elastic"))
    assert stayed == {f"elastic-worker-{i}": before[f"elastic-worker-{i}"] for i in range(4)}
    assert status(api, "elastic")["attempt"] == 0
    assert messages(api)["Shrunk"] == "shrunk to make room for default/rigid"
    assert kubelets.violations == []


async def test_what_a_shrink_freed_is_waited_for_and_nobody_else_is_stopped(
    api: FakeApi, tmp_path: Path
) -> None:
    """The surplus pods take their time to end: the waiting gang counts on them."""
    furnish(api, 1)
    submit(api, elastic())
    async with FakeKubelets(api, runs), leading(api, tmp_path, scheduling=SETTLED):
        await until(lambda: is_whole(api, 8))
        api.store.lingers = lambda _: True
        submit(api, rigid())
        await until(lambda: status(api, "rigid").get("reason") == "WaitingForPreemption")
        await until(lambda: len(leaving(api)) == 4)
        for pod in leaving(api):
            api.store.delete(PODS, ("default", pod), {}, grace_seconds=0)
        await until(lambda: status(api, "rigid").get("phase") == "Running")
        await until(lambda: is_whole(api, 4))
    assert (status(api, "elastic")["attempt"], status(api, "elastic").get("preemptions", 0)) == (
        0,
        0,
    )


async def test_a_replica_that_never_gets_onto_its_node_is_given_up(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, elastic(most=4))
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path):
            await until(lambda: is_whole(api, 4))
        kubelets.binds = False
        api.store.delete(PODS, ("default", "elastic-worker-3"), {})
        async with leading(api, tmp_path, epoch=2, scheduling=SLOW, bind_timeout_seconds=1.0):
            await until(lambda: is_whole(api, 3))
            await until(lambda: "Shrunk" in messages(api))
    assert status(api, "elastic")["attempt"] == 0
    assert "continues without replica 3 of worker on node n0" in messages(api)["Shrunk"]


async def test_a_growth_that_does_not_bind_is_taken_back_and_the_gang_runs_on(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1, gpus=4)
    submit(api, elastic(most=6))
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path):
            await until(lambda: is_whole(api, 4))
        before = uids_of(pods(api))
        kubelets.binds = False
        furnish(api, 1, gpus=8)
        async with leading(api, tmp_path, epoch=2, scheduling=SLOW, bind_timeout_seconds=5.0):
            await until(lambda: kubelets.created["elastic-worker-5"] == 1)
            await until(lambda: is_whole(api, 4))
    assert (status(api, "elastic")["attempt"], uids_of(pods(api))) == (0, before)


async def test_a_growth_that_the_api_server_refuses_is_taken_back(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, elastic(most=6))
    posted: list[str] = []
    beside_the_plan: list[str] = []

    def beyond_quota(method: str, path: str, _: bool) -> bool:
        if len(posted) > 5 and method in ("PATCH", "PUT") and path.endswith("/elastic/status"):
            beside_the_plan.extend(p["metadata"]["name"] for p in of(api, "elastic")[4:])
        if method != "POST" or not path.endswith("/default/pods"):
            return False
        posted.append(path)
        return len(posted) > 5

    api.faults.add(Fault(status=403), beyond_quota, times=None)
    async with FakeKubelets(api, runs), leading(api, tmp_path, scheduling=SLOW):
        await until(lambda: "Shrunk" in messages(api))
        await until(lambda: is_whole(api, 4))
    assert status(api, "elastic")["attempt"] == 0
    assert not beside_the_plan, "the plan keeps the place of a pod that is still there"


async def test_a_replica_lost_with_its_node_is_no_restart(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 2, gpus=4)
    submit(api, elastic(8, 4, 8))
    async with FakeKubelets(api, runs), leading(api, tmp_path, scheduling=SLOW):
        await until(lambda: is_whole(api, 8))
        first = of(api, "elastic")[0]["spec"]["nodeName"]
        (other,) = {"n0", "n1"} - {first}
        api.store.delete("/api/v1/nodes", ("", other), {})
        await until(lambda: is_whole(api, 4))
    assert {p["spec"]["nodeName"] for p in pods(api)} == {first}
    assert (status(api, "elastic")["attempt"], status(api, "elastic")["phase"]) == (0, "Running")


async def test_a_gang_that_loses_the_replica_where_the_others_meet_starts_again(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, elastic(most=4))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: is_whole(api, 4))
        api.store.delete(PODS, ("default", "elastic-worker-0"), {})
        await until(lambda: status(api, "elastic")["attempt"] == 1 and is_whole(api, 4))
    assert status(api, "elastic")["interruptions"] == 1


async def test_a_replica_that_fails_alone_is_given_up_and_the_job_succeeds_with_the_first(
    api: FakeApi, tmp_path: Path
) -> None:
    """As those end that were added while the training ended: one failed, one not even running."""
    furnish(api, 1)
    submit(api, elastic(most=6))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path, scheduling=SLOW):
        await until(lambda: is_whole(api, 6))
        kubelets.end("elastic-worker-5", "Failed")
        await until(lambda: is_whole(api, 5))
        kubelets.end("elastic-worker-0", "Succeeded")
        await until(lambda: status(api, "elastic")["phase"] == "Succeeded")
    assert status(api, "elastic").get("restarts", 0) == 0
    assert "continues without replica 5 of worker" in messages(api)["Shrunk"]


# --- crashes ----------------------------------------------------------------------------------


class Crash:
    """A fence that lets some writes pass once it is armed, and then none."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.happened = False

    def __call__(self) -> None:
        if self.left == 0:
            self.happened = True
            raise NotLeader("crashed")
        if self.left is not None:
            self.left -= 1


@pytest.mark.parametrize("after", range(9))
async def test_a_growth_survives_a_crash_after_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    furnish(api, 1, gpus=4)
    submit(api, elastic(most=6))
    async with FakeKubelets(api, runs) as kubelets:
        crash = Crash()
        async with leading(api, tmp_path, fence=crash, scheduling=SETTLED):
            await until(lambda: is_whole(api, 4))
            crash.left = after
            furnish(api, 1, gpus=8)
            await until(lambda: crash.happened or is_whole(api, 6))
        async with leading(api, tmp_path, epoch=2, scheduling=SETTLED):
            await until(lambda: is_whole(api, 6))
    assert set(kubelets.created.values()) == {1}
    assert kubelets.violations == []
    assert status(api, "elastic")["attempt"] == 0


@pytest.mark.parametrize("after", range(9))
async def test_a_shrink_survives_a_crash_after_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    furnish(api, 1)
    submit(api, elastic())
    async with FakeKubelets(api, runs) as kubelets:
        crash = Crash()
        async with leading(api, tmp_path, fence=crash, scheduling=SETTLED):
            await until(lambda: is_whole(api, 8))
            crash.left = after
            submit(api, rigid())
            await until(lambda: crash.happened or is_whole(api, 4, "rigid"))
        async with leading(api, tmp_path, epoch=2, scheduling=SETTLED):
            await until(lambda: is_whole(api, 4) and is_whole(api, 4, "rigid"))
    assert kubelets.violations == []
    assert set(kubelets.created.values()) == {1}
    assert status(api, "elastic")["attempt"] == 0


async def test_a_gang_at_its_size_causes_no_writes(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    submit(api, elastic(most=6))
    async with FakeKubelets(api, runs), leading(api, tmp_path, scheduling=SETTLED):
        await until(lambda: is_whole(api, 6))
        await silence(api)
