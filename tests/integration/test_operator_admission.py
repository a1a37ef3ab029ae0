"""Admissions: the order of their writes, and objects found in their way."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bireme.core.reasons import Reason
from bireme.kube import names
from bireme.kube.client import ApiError
from bireme_operator.rejections import rejection_of
from testbed.fakeapi import FakeApi, Fault, writes
from testbed.fakeapi.faults import WRITES
from testbed.fakeapi.store import Object
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    JOBS,
    PODS,
    furnish,
    leading,
    phases,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import task, training_job

TEAM = (task("worker", 2), task("evaluator"), task("ps", 2), task("chief"))


def recorded(api: FakeApi) -> list[str]:
    """Writes about gangs from now on, as ``POST pods/job-ps-0`` where the name is in the path."""
    story: list[str] = []

    def note(method: str, path: str, watch: bool) -> bool:
        if method in WRITES and "queues" not in path and "events" not in path:
            story.append(f"{method} {path.rpartition('/default/')[2]}")
        return False

    api.faults.add(Fault(), note, times=None)
    return story


async def test_the_plan_is_written_before_the_service_and_that_before_any_pod(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job", *TEAM, rendezvous="tensorflow"))
    story = recorded(api)
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])
    assert story[:2] == ["PUT trainingjobs/job/status", "POST services"]
    assert story[2:8] == ["POST pods"] * 6
    assert story[8:] == ["PUT trainingjobs/job/status"]


@pytest.mark.parametrize("replicas", [1, 5, 16])
async def test_a_gang_admitted_at_once_costs_two_writes_besides_its_pods(
    api: FakeApi, tmp_path: Path, replicas: int
) -> None:
    """Every write until it runs, and until nothing is written any more."""
    furnish(api)
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await silence(api)
        before = api.requests.copy()
        submit(api, training_job("job", task("worker", replicas)))
        await until(lambda: phases(api) == ["Running"])
        until_it_runs = writes_since(api, before)
        await silence(api)
    assert until_it_runs == {("PUT", JOBS): 2, ("POST", PODS): replicas}
    assert writes_since(api, before) == until_it_runs


def writes_since(api: FakeApi, before: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Writes since then, without the status of the queue, which all its gangs share."""
    made = {asked: n for asked, n in (api.requests - before).items() if asked[0] in WRITES}
    return Counter({asked: n for asked, n in made.items() if asked[1] != names.path("queues")})


async def test_a_gang_that_waits_costs_one_write_more(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    submit(api, training_job("first", task("worker", 8)))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        await until(lambda: status(api, "first").get("phase") == "Running")
        story = recorded(api)
        submit(api, training_job("job", task("worker", 4)))
        await until(lambda: status(api).get("reason") == "WaitingForCapacity")
        for pod in pods(api):
            kubelets.end(pod["metadata"]["name"], "Succeeded")
        await until(lambda: status(api).get("phase") == "Running")
    own = [line for line in story if "first" not in line]
    status_write = "PUT trainingjobs/job/status"
    # Its template is tried in a dry run where it waits for a second.
    assert [line for line in own if line != "POST pods"] == [status_write] * 3


async def test_pods_are_created_in_intra_job_order(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    submit(api, training_job("job", *TEAM))
    async with FakeKubelets(api, runs), leading(api, tmp_path, write_concurrency=1):
        await until(lambda: phases(api) == ["Running"])
    by_age = sorted(pods(api), key=lambda p: int(p["metadata"]["uid"].partition("-")[2]))
    assert [p["metadata"]["name"].removeprefix("job-") for p in by_age] == [
        "chief-0",
        "ps-0",
        "ps-1",
        "worker-0",
        "worker-1",
        "evaluator-0",
    ]


async def test_a_pod_sits_where_the_plan_says(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 3)
    submit(api, training_job("job", task("worker", 3, gpus=8)))
    async with FakeKubelets(api, runs), leading(api, tmp_path, epoch=7):
        await until(lambda: phases(api) == ["Running"])
    plan = status(api)["plan"]
    planned = {p["indices"]: p["node"] for p in plan["placements"]}
    bound = {p["metadata"]["labels"][names.INDEX_LABEL]: p["spec"]["nodeName"] for p in pods(api)}
    assert planned == bound
    assert {p["metadata"]["labels"][names.PLAN_LABEL] for p in pods(api)} == {"7.0"}
    assert status(api)["placement"]["nodes"] == 3


async def test_a_pod_whose_creation_went_unanswered_is_recognised(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    submit(api, training_job("job", task("worker", 3)))
    api.faults.add(
        Fault(drop_answer=True), lambda m, p, _: m == "POST" and p.endswith("/pods"), times=3
    )
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])
    assert set(kubelets.created.values()) == {1}
    assert status(api).get("attempt") == 0


async def test_an_old_pod_of_the_job_is_waited_for_and_then_replaced(
    api: FakeApi, tmp_path: Path
) -> None:
    """It carries the owner but not the label, so that no cache knows of it."""
    furnish(api)
    submit(api, training_job("job"))
    uid = api.store.get(names.path("trainingjobs"), ("default", "job"))["metadata"]["uid"]
    old = {
        "metadata": {"name": "job-worker-0", "ownerReferences": [{"uid": uid}]},
        "spec": {"containers": []},
    }
    api.put("/api/v1/namespaces/default/pods/job-worker-0", old)
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: "plan" in status(api))
        assert phases(api) != ["Running"]
        api.store.delete(PODS, ("default", "job-worker-0"), {})
        await until(lambda: phases(api) == ["Running"])
    assert pods(api)[0]["metadata"]["labels"][names.PLAN_LABEL] == "1.0"


async def test_two_gangs_for_the_last_room_are_not_both_admitted_while_the_first_is_written(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, *(training_job(name, task("worker", 4, gpus=2)) for name in "abc"))
    api.faults.add(Fault(delay_seconds=0.05), writes, times=None)
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        await until(lambda: sorted(phases(api)) == ["Pending", "Pending", "Running"])
    assert kubelets.violations == []
    assert len(pods(api)) == 4


async def test_a_large_gang_that_fills_its_nodes_is_not_taken_for_an_intruder(
    api: FakeApi, tmp_path: Path
) -> None:
    """Pods are bound while others are still being created; none of them counts twice."""

    def slow(method: str, path: str, _: bool) -> bool:
        return method == "POST" and path.endswith("/pods")

    furnish(api, 2)
    submit(api, training_job("job", task("worker", 16)))
    api.faults.add(Fault(delay_seconds=0.4), slow, times=None)
    async with FakeKubelets(api, runs), leading(api, tmp_path, write_concurrency=2) as term:
        seen: list[Object] = []

        def overfull() -> bool:
            snapshot = term.state.snapshot(0, term.work.assumed_plans())
            if (snapshot.used > snapshot.nodes.allocatable).any():
                seen.append({"used": snapshot.used.tolist()})
            return phases(api) == ["Running"]

        await until(overfull)
    assert seen == []
    assert status(api).get("interruptions", 0) == 0


async def test_nothing_is_decided_from_a_cache_that_has_not_seen_the_plan(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    blind = Fault(silent=True)
    api.faults.add(blind, lambda _, path, watch: watch and path == JOBS, times=None)
    submit(api, training_job("job", task("worker", 3, gpus=2)))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(
            lambda: len(pods(api)) == 3 and all(p["spec"].get("nodeName") for p in pods(api))
        )
        await asyncio.sleep(0.5)  # sweeps, which would judge the gang by the plan it does not have
        assert list(term.work.busy) == [("default", "job")]
    assert (api.requests["PUT", JOBS], len(pods(api))) == (1, 3)


# --- requests to the API server and its answers -----------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ApiError(422, "Invalid", "bad"), Reason.TEMPLATE_INVALID),
        (ApiError(400, "BadRequest", "bad"), Reason.TEMPLATE_INVALID),
        (ApiError(413, "RequestEntityTooLarge", "bad"), Reason.TEMPLATE_INVALID),
        (ApiError(500, "Unknown", "etcdserver: request is too large"), Reason.TEMPLATE_INVALID),
        (ApiError(403, "Forbidden", "exceeded quota"), Reason.PODS_REFUSED),
        (ApiError(500, "InternalError", "oops"), None),
        (ApiError(409, "Conflict", "oops"), None),
        (ApiError(429, "TooManyRequests", "oops"), None),
        (ApiError(0, "Timeout", "oops"), None),
    ],
)
def test_only_a_verdict_is_a_refusal(error: ApiError, reason: Reason | None) -> None:
    refusal = rejection_of(error)
    assert (refusal.reason if refusal else None) is reason
    if refusal is not None:
        assert str(refusal) == error.message
