"""What the API server refuses for good is said on the object, and nothing is left behind."""

import asyncio
from pathlib import Path

from fakeapi import FakeApi, Fault
from fakeapi.faults import every
from kubeobjects.kubelets import FakeKubelets, runs
from kubeobjects.terms import GROUPS, PODS, furnish, leading, pods, status, submit, until
from scenario.manifests import task, training_job


def creations_of_pods(method: str, path: str, _: bool) -> bool:
    return method == "POST" and path.endswith("/pods")


async def test_a_template_the_server_refuses_is_said_on_the_job_and_leaves_nothing_behind(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job", task("worker", 3)))
    api.faults.add(Fault(status=422, reason="Invalid"), creations_of_pods, times=None)
    async with FakeKubelets(api), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "TemplateInvalid")
        await until(lambda: "plan" not in status(api, "job", GROUPS))
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
        await until(lambda: not pods(api) and "plan" not in status(api, "job", GROUPS))
    assert status(api)["phase"] == "Pending"


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
    term = leading(api, tmp_path, bind_timeout_seconds=1.0, max_bind_failures=2)
    async with FakeKubelets(api, runs, binds=False), term:
        await until(lambda: status(api).get("interruptions", 0) >= 2)
        await until(lambda: len(pods(api)) == 2)
        await until(lambda: status(api, "job", GROUPS).get("plan", {}).get("mode") == "Score")
        await until(
            lambda: len(pods(api)) == 2 and all("affinity" not in p["spec"] for p in pods(api))
        )
    assert status(api).get("restarts", 0) == 0
