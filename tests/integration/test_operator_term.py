"""A whole operator against the fake API server: jobs run, gangs of others run, then silence."""

import asyncio
from pathlib import Path
from typing import Any

from bireme.kube import names
from testbed.fakeapi import FakeApi
from testbed.fakeapi.faults import WRITES
from testbed.fakeapi.store import Object
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import gated_pod
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    PATIENCE_SECONDS,
    PODS,
    furnish,
    job,
    leading,
    phases,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import GPU, pod_group, pod_spec, task, torch_job, training_job

POISON = {
    "reportedTime": "2026-01-01T00:00:00Z",
    "step": 1000.0,
    "firstExpectedSeconds": 1e300,
    "speeds": [{"replicas": 1, "stepsPerSecond": 4.9e-317}, {"replicas": 2, "stepsPerSecond": 49}],
}
"""What earlier versions wrote of tiny reports, and then ended of."""


async def test_a_job_runs_to_its_end_with_few_writes(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    submit(api, torch_job("job", 3, gpus=2))
    async with FakeKubelets(api) as kubelets, leading(api, tmp_path):
        await until(lambda: phases(api) == ["Succeeded"])
    assert set(kubelets.created) == {"job-master-0", *(f"job-worker-{i}" for i in range(3))}
    assert set(kubelets.created.values()) == {1}
    assert kubelets.violations == []
    reported = status(api)
    assert (reported["ready"], reported["attempt"], reported["gpus"]) == ("4/4", 0, 8)
    assert {c["type"]: c["status"] for c in reported["conditions"]} == {
        "Admitted": "True",
        "Finished": "True",
        "Running": "False",
        "Succeeded": "True",
    }
    assert "plan" not in status(api)
    assert api.requests["POST", PODS] == 4
    # Admitted, Running, Succeeded: each once, and no other object of ours.
    assert api.requests["PUT", JOBS] <= 3
    assert not any(path == GROUPS and method in WRITES for method, path in api.requests)


async def test_a_job_that_fails_once_is_restarted_whole_and_then_succeeds(
    api: FakeApi, tmp_path: Path
) -> None:
    def outcome(pod: Object) -> str:
        labels = pod["metadata"]["labels"]
        first_start = labels[names.ATTEMPT_LABEL] == "0"
        return "Failed" if first_start and labels[names.INDEX_LABEL] == "1" else "Succeeded"

    furnish(api)
    submit(api, training_job("job", task("worker", 3), runPolicy={"backoffLimit": 1}))
    async with FakeKubelets(api, outcome) as kubelets, leading(api, tmp_path):
        await until(lambda: phases(api) == ["Succeeded"])
    reported = status(api)
    assert (reported["restarts"], reported["attempt"]) == (1, 1)
    assert set(kubelets.created.values()) == {2}
    assert {p["metadata"]["labels"][names.PLAN_LABEL] for p in pods(api)} == {"1.1"}


async def test_a_job_that_keeps_failing_fails(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    submit(api, training_job("job", runPolicy={"backoffLimit": 1}))
    async with FakeKubelets(api, lambda _: "Failed"), leading(api, tmp_path):
        await until(lambda: phases(api) == ["Failed"])
        await until(lambda: "plan" not in status(api))
    assert (status(api)["reason"], status(api)["restarts"]) == ("BackoffLimitExceeded", 1)


async def test_a_job_is_suspended_and_resumed(api: FakeApi, tmp_path: Path) -> None:
    furnish(api)
    submit(api, training_job("job", task("worker", 2)))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])
        paused = {**job(api), "spec": {**job(api)["spec"], "runPolicy": {"suspend": True}}}
        api.store.update(JOBS, ("default", "job"), paused)
        await until(lambda: phases(api) == ["Suspended"] and not pods(api))
        await until(lambda: "plan" not in status(api))
        kubelets.outcome = lambda _: "Succeeded"
        resumed = {**job(api), "spec": {**job(api)["spec"], "runPolicy": {}}}
        api.store.update(JOBS, ("default", "job"), resumed)
        await until(lambda: phases(api) == ["Succeeded"])
    assert status(api).get("restarts", 0) == 0


async def test_the_last_room_is_given_to_one_gang_and_then_to_the_other(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, *(training_job(name, task("worker", 3, gpus=2)) for name in ("a", "b")))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        await until(lambda: sorted(phases(api)) == ["Pending", "Running"])
        waits = next(n for n in ("a", "b") if status(api, n)["phase"] == "Pending")
        assert status(api, waits)["reason"] == "WaitingForCapacity"
        assert status(api, waits)["queuePosition"] == 1
        kubelets.outcome = lambda _: "Succeeded"
        for pod in pods(api):
            api.store.update(PODS, ("default", pod["metadata"]["name"]), {**pod, "x": 1})
        await until(lambda: phases(api) == ["Succeeded", "Succeeded"])
    assert kubelets.violations == []


async def test_a_lost_node_moves_the_whole_gang(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    submit(api, training_job("job", task("worker", 2)))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: phases(api) == ["Running"])
        api.store.delete("/api/v1/nodes", ("", "n0"), {})
        await until(lambda: status(api).get("interruptions") == 1)
        furnish(api, 1)
        await until(lambda: phases(api) == ["Running"])
    assert {p["metadata"]["labels"][names.PLAN_LABEL] for p in pods(api)} == {"1.1"}


async def test_one_object_that_trips_the_operator_stops_no_other(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    strange = pod_spec(1)
    strange["containers"][0]["env"] = "RANK=1"
    submit(
        api,
        training_job("strange", task(spec=strange), rendezvous="torch"),
        training_job("bad-spec", task(replicas=0)),
        {**training_job("no-spec"), "spec": {"tasks": [None]}},
        training_job("bad-template", task(spec=pod_spec(1, cpu="many"))),
        training_job("endless", estimatedDuration="999999999h"),
        {**training_job("poisoned"), "status": {"phase": "Pending", "progress": POISON}},
        training_job("fine"),
    )
    async with FakeKubelets(api), leading(api, tmp_path):
        await until(lambda: status(api, "fine").get("phase") == "Succeeded")
        await until(lambda: all(phases(api)))
    assert status(api, "bad-spec")["reason"] == "SpecInvalid"
    assert status(api, "no-spec")["reason"] == "SpecInvalid"
    assert "999999999h is longer than ten years" in status(api, "endless")["message"]
    assert status(api, "bad-template")["reason"] in ("SpecInvalid", "TemplateInvalid")


# --- pods of other controllers ----------------------------------------------------------------


def member(name: str, gpus: int = 2) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    return gated_pod(name, "group", containers=[container])


async def test_gated_pods_start_together_once_they_are_all_there(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, pod_group("group", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        api.put("/api/v1/namespaces/default/pods/a", member("a"))
        await until(lambda: status(api, "group", GROUPS).get("reason") == "WaitingForPods")
        assert pods(api)[0]["spec"]["schedulingGates"]
        api.put("/api/v1/namespaces/default/pods/b", member("b"))
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
    assert [p["spec"]["nodeName"] for p in pods(api)] == ["n0", "n0"]
    planned = status(api, "group", GROUPS)["plan"]["placements"]
    uids = {uid for placement in planned for uid in placement["pods"]}
    assert uids == {p["metadata"]["uid"] for p in pods(api)}


async def test_a_late_pod_joins_a_group_that_runs_and_is_counted_with_it(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, pod_group("group", 1))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        api.put("/api/v1/namespaces/default/pods/a", member("a"))
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        api.put("/api/v1/namespaces/default/pods/b", member("b"))
        await until(lambda: all(p["spec"].get("nodeName") for p in pods(api)))
        await until(lambda: term.state.snapshot(0).queue_usage["default"].get(GPU) == 4)


async def test_a_group_completes_when_its_pods_have_ended(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 1)
    submit(api, pod_group("group", 1))
    async with FakeKubelets(api), leading(api, tmp_path):
        api.put("/api/v1/namespaces/default/pods/a", member("a"))
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Completed")
        await asyncio.sleep(0.5)
    assert status(api, "group", GROUPS)["phase"] == "Completed"
    assert "plan" not in status(api, "group", GROUPS)


# --- how much is written ----------------------------------------------------------------------


async def test_a_quiet_cluster_is_not_written_to(api: FakeApi, tmp_path: Path) -> None:
    furnish(api, 2)
    submit(
        api,
        training_job("runs", task("worker", 2)),
        training_job("never", task(gpus=9)),
        training_job("closed", queue="unknown"),
        training_job("paused", runPolicy={"suspend": True}),
        pod_group("group", 3),
    )
    api.put("/api/v1/namespaces/default/pods/a", member("a"))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        await until(lambda: status(api, "runs").get("phase") == "Running")
        await silence(api)


async def test_three_hundred_jobs_converge_with_a_few_writes_each(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 40)
    submit(api, *(training_job(f"job-{i}", task("worker", 2)) for i in range(300)))
    async with FakeKubelets(api) as kubelets, leading(api, tmp_path):
        await until(lambda: set(phases(api)) == {"Succeeded"}, 4 * PATIENCE_SECONDS)
    assert set(kubelets.created.values()) == {1}
    assert len(kubelets.created) == 600
    assert kubelets.violations == []
    assert api.requests["PUT", JOBS] <= 300 * 5
    assert api.requests["POST", PODS] <= 600 + 300  # and their dry runs
