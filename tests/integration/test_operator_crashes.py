"""The operator killed at every write: it always ends the same.

A crash is a fence that closes for good after the n-th write, as for a process that dies there;
what follows is a fresh term of leadership that knows nothing but the API server.
"""

from pathlib import Path

import pytest

from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.fakeapi.store import Object
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import gated_pod
from testbed.operator_term.term import (
    GROUPS,
    PODS,
    crashed,
    furnish,
    leading,
    phases,
    pods,
    status,
    submit,
    until,
    written,
)
from testbed.scenario.manifests import pod_group, task, torch_job, training_job

SERVICES = "/api/v1/services"


@pytest.mark.parametrize("after", range(18))
async def test_a_job_survives_a_crash_after_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    def done() -> bool:
        return phases(api) == ["Succeeded"] and "plan" not in status(api)

    furnish(api)
    # A master that ends before the workers exist would end the job.
    submit(api, torch_job("job", 3, gpus=2, runPolicy={"successPolicy": "AllReplicas"}))
    async with FakeKubelets(api) as kubelets:
        did_crash = await crashed(api, tmp_path, after, done)
        # The last write is an event, which may be asked for while the job is seen to be done.
        assert did_crash or (done() and after >= written(api))
        async with leading(api, tmp_path, epoch=2):
            await until(done)
    names_of_all = {"job-master-0", *(f"job-worker-{i}" for i in range(3))}
    assert {p["metadata"]["name"] for p in pods(api)} == names_of_all
    assert kubelets.created == dict.fromkeys(names_of_all, 1)
    assert kubelets.violations == []
    assert status(api)["ready"] == "4/4"
    assert status(api).get("attempt") == 0
    assert status(api).get("interruptions", 0) == status(api).get("restarts", 0) == 0
    assert set(api.store.collection(SERVICES).objects) == {("default", "job")}


@pytest.mark.parametrize("after", range(14))
async def test_a_restart_survives_a_crash_after_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    """The gang fails, loses its pods and its plan, and starts again, with a crash in between."""

    def outcome(pod: Object) -> str:
        again = pod["metadata"]["labels"][names.ATTEMPT_LABEL] != "0"
        return "Succeeded" if again else "Failed"

    furnish(api)
    submit(api, training_job("job", task("worker", 2), runPolicy={"backoffLimit": 1}))
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path):
            await until(lambda: phases(api) == ["Running"])
        kubelets.outcome = outcome
        for pod in pods(api):
            failed = {"phase": "Failed", "conditions": []}
            api.store.update(
                PODS, ("default", pod["metadata"]["name"]), {"status": failed}, "status"
            )
        await crashed(api, tmp_path, after, lambda: phases(api) == ["Succeeded"])
        async with leading(api, tmp_path, epoch=2):
            await until(lambda: phases(api) == ["Succeeded"])
    assert status(api)["restarts"] == 1
    assert set(kubelets.created.values()) == {2}
    assert {p["metadata"]["labels"][names.ATTEMPT_LABEL] for p in pods(api)} == {"1"}


@pytest.mark.parametrize("after", range(7))
async def test_a_gang_of_others_survives_a_crash_after_any_write(
    api: FakeApi, tmp_path: Path, after: int
) -> None:
    def all_run() -> bool:
        return status(api, "group", GROUPS).get("phase") == "Running"

    furnish(api)
    submit(api, pod_group("group", 3))
    async with FakeKubelets(api, runs) as kubelets:
        for name in "abc":
            api.put(f"/api/v1/namespaces/default/pods/{name}", gated_pod(name))
        await crashed(api, tmp_path, after, all_run)
        async with leading(api, tmp_path, epoch=2):
            await until(all_run)
            await until(lambda: all(p["spec"].get("nodeName") for p in pods(api)))
    assert {p["metadata"]["name"] for p in pods(api)} == set("abc")
    assert set(kubelets.created.values()) == {1}
