"""What has ended well stays ended, whatever becomes of its pod object afterwards."""

from pathlib import Path
from typing import Any

from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    PODS,
    furnish,
    leading,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import task, training_job

HALVES = (task("fast", role="worker"), task("slow", role="worker"))


def uid(api: FakeApi, name: str) -> str:
    return next((p["metadata"]["uid"] for p in pods(api) if p["metadata"]["name"] == name), "")


def remove(api: FakeApi, name: str) -> None:
    """Delete a pod as the pod garbage collector does."""
    api.store.delete(PODS, ("default", name), {})


def record(api: FakeApi) -> Any:
    return (status(api).get("plan") or {}).get("endedReplicas")


async def test_a_job_goes_on_when_the_pod_of_a_replica_that_succeeded_is_gone(
    api: FakeApi, tmp_path: Path
) -> None:
    """The garbage collector, a user or a TTL removed it; the next leader reads the record."""
    furnish(api, 1)
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path):
            submit(api, training_job("job", *HALVES, runPolicy={"backoffLimit": 0}))
            await until(lambda: status(api).get("phase") == "Running")
            slow = uid(api, "job-slow-0")
            kubelets.end("job-fast-0")
            await until(lambda: record(api) == [{"task": "fast", "indices": "0"}])
        remove(api, "job-fast-0")
        async with leading(api, tmp_path, epoch=2):
            await until(lambda: status(api).get("ready") == "2/2")
            assert (uid(api, "job-slow-0"), uid(api, "job-fast-0")) == (slow, "")
            kubelets.end("job-slow-0")
            await until(lambda: status(api).get("phase") == "Succeeded")
    assert status(api).get("interruptions", 0) == 0
    assert kubelets.created["job-fast-0"] == 1


async def test_what_was_seen_to_end_is_no_loss_although_no_write_has_noticed_it(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        submit(api, training_job("job", *HALVES))
        await until(lambda: status(api).get("ready") == "2/2")
        kubelets.end("job-fast-0")
        remove(api, "job-fast-0")  # in the same turn of the loop: no write can have come between
        await until(lambda: record(api) == [{"task": "fast", "indices": "0"}])
        kubelets.end("job-slow-0")
        await until(lambda: status(api).get("phase") == "Succeeded")
    assert status(api).get("interruptions", 0) == 0


async def test_a_new_start_begins_without_the_record_of_the_last(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        submit(api, training_job("job", *HALVES))
        await until(lambda: status(api).get("phase") == "Running")
        kubelets.end("job-fast-0")
        await until(lambda: record(api))
        remove(api, "job-fast-0")
        remove(api, "job-slow-0")
        await until(lambda: status(api).get("attempt") == 1 and status(api)["phase"] == "Running")
        assert record(api) is None
        assert status(api)["interruptions"] == 1, "for the one that worked"
        assert kubelets.created == {"job-fast-0": 2, "job-slow-0": 2}


async def test_an_ended_replica_holds_nothing_once_its_pod_is_gone(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1, gpus=2)
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        submit(api, training_job("job", *HALVES))
        await until(lambda: status(api).get("phase") == "Running")
        kubelets.end("job-fast-0")
        remove(api, "job-fast-0")
        submit(api, training_job("next", task("worker", 1)))
        await until(lambda: status(api, "next").get("phase") == "Running")
        assert status(api).get("phase") == "Running"
    assert kubelets.violations == []
