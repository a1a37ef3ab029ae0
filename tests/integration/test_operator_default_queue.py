"""The queue of jobs that name none: made by the leader where there is none, and then nobody's."""

from pathlib import Path
from typing import Any

import pytest

from bireme.core.errors import SettingError
from bireme.kube import names
from bireme.testing import a_node
from bireme_operator.first_objects import queue_spec
from testbed.fakeapi import FakeApi
from testbed.fakeapi.faults import Fault
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import leading, status, submit, until
from testbed.scenario.manifests import queue, task, training_job

QUEUES = names.path("queues")
SPEC = {"userPriority": 70}


def creates_queues(method: str, path: str, watch: bool) -> bool:  # a Match
    return (method, path) == ("POST", QUEUES)


def made(api: FakeApi) -> Any:
    return api.store.collection(QUEUES).objects.get(("", "default"))


@pytest.fixture
def node(api: FakeApi) -> None:
    api.put("/api/v1/nodes/n0", node_manifest(a_node("n0", 8)))


@pytest.mark.usefixtures("node")
async def test_a_job_that_names_no_queue_runs_in_the_one_that_the_leader_makes(
    api: FakeApi, tmp_path: Path
) -> None:
    submit(api, training_job("job", task("worker", 1)))
    async with FakeKubelets(api, runs), leading(api, tmp_path, default_queue=SPEC):
        await until(lambda: status(api).get("phase") == "Running")
    assert made(api)["spec"] == SPEC


@pytest.mark.usefixtures("node")
async def test_without_a_spec_none_is_made(api: FakeApi, tmp_path: Path) -> None:
    submit(api, training_job("job", task("worker", 1)))
    async with leading(api, tmp_path):
        await until(lambda: status(api).get("reason") == "QueueNotFound")
    assert made(api) is None


@pytest.mark.usefixtures("node")
async def test_one_that_exists_stays_as_it_is(api: FakeApi, tmp_path: Path) -> None:
    api.put(f"{QUEUES}/default", queue("default", userPriority=10))
    submit(api, training_job("job", task("worker", 1)))
    async with FakeKubelets(api, runs), leading(api, tmp_path, default_queue=SPEC):
        await until(lambda: status(api).get("phase") == "Running")
    assert made(api)["spec"]["userPriority"] == 10


@pytest.mark.usefixtures("node")
async def test_it_is_made_when_the_api_server_can_again(api: FakeApi, tmp_path: Path) -> None:
    api.faults.add(Fault(status=503), creates_queues, times=2)
    api.faults.add(Fault(drop_answer=True), creates_queues)
    submit(api, training_job("job", task("worker", 1)))
    async with FakeKubelets(api, runs), leading(api, tmp_path, default_queue=SPEC):
        await until(lambda: status(api).get("phase") == "Running")
    assert api.faults.next("POST", QUEUES, False) is None  # all three came about


@pytest.mark.usefixtures("node")
async def test_a_refusal_ends_nothing_but_the_attempt(api: FakeApi, tmp_path: Path) -> None:
    api.faults.add(Fault(status=403), creates_queues, times=None)
    submit(api, training_job("other", task("worker", 1), queue="other"))
    async with FakeKubelets(api, runs), leading(api, tmp_path, default_queue=SPEC):
        await until(lambda: status(api, "other").get("reason") == "QueueNotFound")
        api.put(f"{QUEUES}/other", queue("other"))
        await until(lambda: status(api, "other").get("phase") == "Running")
    assert made(api) is None


def test_a_spec_that_is_none_is_refused_by_its_place_at_the_start() -> None:
    assert queue_spec({}) is None
    assert queue_spec({"defaultQueue": {}}) == {}
    with pytest.raises(SettingError, match=r"^defaultQueue\.userPriority in the settings file"):
        queue_spec({"defaultQueue": {"userPriority": 101}})
    with pytest.raises(SettingError, match=r"^defaultQueue\.limt in the settings file"):
        queue_spec({"defaultQueue": {"limt": {}}})
    with pytest.raises(SettingError, match=r"^defaultQueue in the settings file"):
        queue_spec({"defaultQueue": "research"})
