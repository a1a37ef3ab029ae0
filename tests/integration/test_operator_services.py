"""No gang starts without the Service by which its replicas find each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bireme.kube import names
from testbed.fakeapi import FakeApi, Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    furnish,
    job,
    leading,
    phases,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import torch_job

SERVICES = "/api/v1/services"
KEY = ("default", "job")


def posts(plural: str) -> Callable[[str, str, bool], bool]:
    return lambda method, path, _: method == "POST" and path.endswith(f"/{plural}")


def put_service(api: FakeApi, *owners: dict[str, Any]) -> None:
    metadata = {"name": "job", "namespace": "default", "ownerReferences": list(owners)}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    api.put("/api/v1/namespaces/default/services/job", {**service, "spec": {"clusterIP": "None"}})


def owner_of(api: FakeApi) -> str:
    service = api.store.collection(SERVICES).objects[KEY]
    return str(service["metadata"]["ownerReferences"][0]["uid"])


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500, reason="InternalError"), Fault(drop=True), Fault(drop_answer=True)],
    ids=["error", "dropped", "answer lost"],
)
async def test_a_service_that_could_not_be_created_is_created_before_any_pod(
    api: FakeApi, tmp_path: Path, fault: Fault
) -> None:
    furnish(api, 1)
    api.faults.add(fault, posts("services"), times=1)
    early: list[str] = []

    def note(method: str, path: str, _: bool) -> bool:
        if posts("pods")(method, path, _) and KEY not in api.store.collection(SERVICES).objects:
            early.append(path)
        return False

    api.faults.add(Fault(), note, times=None)
    submit(api, torch_job("job", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])
    assert owner_of(api) == job(api)["metadata"]["uid"]
    assert not early


async def test_the_service_of_an_earlier_job_is_waited_for(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    put_service(
        api, {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "name": "job", "uid": "old"}
    )
    submit(api, torch_job("job", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: api.requests["POST", SERVICES] >= 2)
        assert pods(api) == []
        api.store.delete(SERVICES, KEY, {})
        await until(lambda: phases(api) == ["Running"])
    assert owner_of(api) == job(api)["metadata"]["uid"]


async def test_the_service_of_a_stranger_is_named(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    put_service(api)
    submit(api, torch_job("job", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "PodsRefused")
        assert "a Service 'job' exists that is not this job's" in status(api)["message"]
    assert pods(api) == []


async def test_a_quota_that_forbids_the_service_is_shown_on_the_job(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.faults.add(Fault(status=403, reason="Forbidden"), posts("services"), times=None)
    submit(api, torch_job("job", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "PodsRefused")
        await until(lambda: "plan" not in status(api))
    assert status(api)["message"] == "injected fault"
    assert pods(api) == []


async def test_a_service_that_is_deleted_while_the_gang_runs_comes_back(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, torch_job("job", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])
        before = {pod["metadata"]["uid"] for pod in pods(api)}
        api.store.delete(SERVICES, KEY, {})
        await until(lambda: KEY in api.store.collection(SERVICES).objects)
        assert owner_of(api) == job(api)["metadata"]["uid"]
        assert {pod["metadata"]["uid"] for pod in pods(api)} == before


async def test_a_stranger_in_the_place_of_a_deleted_service_is_named_and_stops_nobody(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, torch_job("job", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])
        before = {pod["metadata"]["uid"] for pod in pods(api)}
        api.faults.add(Fault(status=409, reason="AlreadyExists"), posts("services"), times=None)
        api.store.delete(SERVICES, KEY, {})
        put_service(api)
        words = "its Service is gone, and its replicas cannot find each other"
        await until(lambda: words in status(api)["message"])
        assert "a Service 'job' exists that is not this job's" in status(api)["message"]
        assert (status(api)["phase"], len(pods(api))) == ("Running", 3)
        api.faults.clear()
        api.store.delete(SERVICES, KEY, {})
        await until(lambda: words not in status(api)["message"])
        assert owner_of(api) == job(api)["metadata"]["uid"]
        assert {pod["metadata"]["uid"] for pod in pods(api)} == before
