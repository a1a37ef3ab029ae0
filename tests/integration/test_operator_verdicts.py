"""Final refusals of the API server show in the object's status, and nothing is left behind."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bireme.core.gpus import GPU
from bireme.core.settings import SchedulingSettings
from bireme_operator.leader import LeaderTerm
from bireme_operator.term import wall_clock
from testbed.fakeapi import ApiRefusal, FakeApi, Fault
from testbed.fakeapi.faults import every
from testbed.fakeapi.store import Key, Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    PODS,
    furnish,
    leading,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import pod_group, priority_class, task, training_job


def creations_of_pods(method: str, path: str, _: bool) -> bool:
    return method == "POST" and path.endswith("/pods")


async def test_a_template_the_server_refuses_is_shown_on_the_job_and_leaves_nothing(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job", task("worker", 3)))
    api.faults.add(Fault(status=422, reason="Invalid"), creations_of_pods, times=None)
    async with FakeKubelets(api), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "TemplateInvalid")
        await until(lambda: "plan" not in status(api))
        tried = api.requests["POST", PODS]
        await asyncio.sleep(1.0)
        assert api.requests["POST", PODS] <= tried + 1, "at most the dry run"
    assert pods(api) == []
    assert status(api)["phase"] == "Pending"


async def test_a_gang_refused_in_part_is_taken_back_whole(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    submit(api, training_job("job", task("worker", 4)))
    api.faults.add(Fault(status=403, reason="Forbidden"), every(2, creations_of_pods), times=None)
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "PodsRefused")
        await until(lambda: not pods(api) and "plan" not in status(api))
    assert status(api)["phase"] == "Pending"


def hurry(term: LeaderTerm, factor: float) -> None:
    """Let the time of refusals pass ``factor`` times as fast."""
    clock = term.work.rejections.clock
    began = clock()
    term.work.rejections.clock = lambda: began + factor * (clock() - began)


async def test_a_refusal_ends_when_its_cause_may_have(api: FakeApi, tmp_path: Path) -> None:
    """The denial of an admission policy that is corrected later looks like an invalid pod."""
    furnish(api)
    submit(api, training_job("job"))
    api.faults.add(Fault(status=422, reason="Invalid"), creations_of_pods, times=None)
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api).get("reason") == "TemplateInvalid")
        api.faults.clear()
        hurry(term, 1000)
        await until(lambda: status(api).get("phase") == "Running")


async def test_a_job_made_anew_is_not_refused_for_the_one_before(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job"))
    api.faults.add(Fault(status=422, reason="Invalid"), creations_of_pods, times=None)
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "TemplateInvalid")
        await until(lambda: "plan" not in status(api))
        api.faults.clear()
        api.store.delete(JOBS, ("default", "job"), {})
        submit(api, training_job("job"))
        await until(lambda: status(api).get("phase") == "Running")


async def test_a_gang_over_its_quota_does_not_stop_others_again_and_again(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, tries = api.store.create, Counter[str]()

    def refuse_the_last(
        resource: str, key: Key, body: Object, *, uid: str = "", dry_run: bool = False
    ) -> Object:
        tries[key[1]] += resource == PODS and not dry_run
        if resource == PODS and key[1] == "urgent-worker-3":
            raise ApiRefusal(403, "Forbidden", "exceeded quota: gpus")
        return create(resource, key, body, uid=uid, dry_run=dry_run)

    monkeypatch.setattr(api.store, "create", refuse_the_last)
    furnish(api, 1)
    api.put("/apis/scheduling.k8s.io/v1/priorityclasses/high", priority_class("high", 1000))
    eager = SchedulingSettings(min_runtime_seconds=0)
    async with (
        FakeKubelets(api, runs) as kubelets,
        leading(api, tmp_path, scheduling=eager) as term,
    ):
        submit(api, training_job("low", task("worker", 4, gpus=2)))
        await until(lambda: status(api, "low").get("phase") == "Running")
        urgent = training_job("urgent", task("worker", 4, gpus=2), priorityClassName="high")
        submit(api, urgent)
        await until(lambda: status(api, "urgent").get("reason") == "PodsRefused")
        await until(lambda: status(api, "low").get("phase") == "Running")
        hurry(term, 20)
        await until(lambda: status(api, "urgent").get("reason") == "WaitingForCapacity")
        await silence(api)
        assert (status(api, "low")["preemptions"], tries["urgent-worker-3"]) == (1, 1)
        for index in range(4):
            kubelets.end(f"low-worker-{index}")
        await until(lambda: tries["urgent-worker-3"] == 2)  # where there is room it is tried


async def test_a_pod_of_a_stranger_in_the_way_is_not_touched(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    stranger = {"metadata": {"name": "job-worker-0"}, "spec": {"containers": []}}
    api.put("/api/v1/namespaces/default/pods/job-worker-0", stranger)
    submit(api, training_job("job", task("worker", 2)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "PodsRefused")
        await until(lambda: len(pods(api)) == 1)
    assert "job-worker-0" in status(api)["message"]
    assert pods(api)[0]["spec"]["containers"] == []


async def test_a_gang_that_does_not_get_onto_its_nodes_is_planned_again(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job", task("worker", 2)))
    term = leading(api, tmp_path, bind_timeout_seconds=1.0)
    async with FakeKubelets(api, runs, binds=False), term:
        await until(lambda: status(api).get("interruptions", 0) >= 2)
        await until(lambda: len(pods(api)) == 2)
        assert status(api)["plan"]["mode"] == "Pinned"
    given = {name: status(api).get(name, 0) for name in ("restarts", "startFailures")}
    assert given == {"restarts": 0, "startFailures": 0}, "the scheduler said nothing"


async def test_a_clock_that_is_set_back_does_not_keep_a_gang_from_being_planned_again(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    ahead = [3600.0]
    term = leading(api, tmp_path, bind_timeout_seconds=1.0, now=lambda: wall_clock() + ahead[0])
    async with FakeKubelets(api, runs, binds=False), term:
        submit(api, training_job("job", task("worker", 2)))
        await until(lambda: len(pods(api)) == 2)
        ahead[0] = 0.0
        await until(lambda: status(api).get("reason") == "GangNotBoundInTime")


async def test_a_group_too_large_for_the_cluster_is_reported_before_its_pods_exist(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, pod_group("vast", 4, minResources={GPU: "9", "cpu": "4"}))
    submit(api, pod_group("sound", 4, minResources={GPU: "8"}))
    async with leading(api, tmp_path):
        await until(lambda: status(api, "vast", GROUPS).get("reason") == "NeverFits")
        await until(lambda: status(api, "sound", GROUPS).get("reason") == "WaitingForPods")
        reported = status(api, "vast", GROUPS)
        assert f"9 {GPU}, all nodes together offer 8 {GPU}" in reported["message"]
        (admitted,) = reported["conditions"]
        assert (admitted["status"], admitted["reason"]) == ("False", "NeverFits")
        furnish(api, 2)
        await until(lambda: status(api, "vast", GROUPS).get("reason") == "WaitingForPods")
