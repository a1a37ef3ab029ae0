"""A PodGroup that is applied again: what runs is its own, and what is replaced gets a place."""

from pathlib import Path
from typing import Any

import pytest

from bireme.kube import names, quantities
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import (
    GROUPS,
    PODS,
    furnish,
    leading,
    make,
    pods,
    silence,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import GPU, pod_group, queue


def group_status(api: FakeApi) -> dict[str, Any]:
    return status(api, "group", GROUPS)


def is_running(api: FakeApi) -> bool:
    return group_status(api).get("phase") == "Running"


def uids(api: FakeApi) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods(api)}


def remove(api: FakeApi, *members: str) -> None:
    for name in members:
        api.store.delete(PODS, ("default", name), {})


def apply_again(api: FakeApi, size: int = 4, **spec: Any) -> None:
    """Delete the PodGroup and create it, as ``kubectl replace --force`` does."""
    api.store.delete(GROUPS, ("default", "group"), {})
    submit(api, pod_group("group", size, **spec))


def own(api: FakeApi, kind: str, uid: str) -> None:
    """Make all pods those of one controller."""
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": "job", "uid": uid, "controller": True}
    for pod in pods(api):
        meta = {**pod["metadata"], "ownerReferences": [owner]}
        api.store.update(PODS, ("default", meta["name"]), {**pod, "metadata": meta})


def put_job(api: FakeApi, succeeded: int) -> str:
    """Create a Job that counts so many pods; return its uid."""
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}}
    path = "/apis/batch/v1/namespaces/default/jobs/job"
    api.put(path, {**made, "status": {"succeeded": succeeded}})
    return str(api.store.get("/apis/batch/v1/jobs", ("default", "job"))["metadata"]["uid"])


def resize(api: FakeApi, size: int) -> None:
    """Edit minMember in place."""
    stored = api.store.get(GROUPS, ("default", "group"))
    edited = {**stored, "spec": {**stored["spec"], "minMember": size}}
    api.store.update(GROUPS, ("default", "group"), edited)


async def test_a_group_that_is_applied_again_has_what_runs_as_members(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, pod_group("group", 4))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        make(api, *"abcd")
        await until(lambda: is_running(api))
        before = uids(api)
        apply_again(api)
        await until(lambda: is_running(api))
        assert uids(api) == before
        assert term.state.snapshot(0).queue_usage["default"][GPU] == 8
        remove(api, "b")
        make(api, "b")
        await until(lambda: all(p["spec"].get("nodeName") for p in pods(api)))
        after = uids(api)
        assert {name for name in before if after[name] != before[name]} == {"b"}


def put_status(api: FakeApi, name: str, ready: str, **said: Any) -> None:
    """Say of a pod that it was bound ten minutes ago, and what its containers do."""
    bound = quantities.format_timestamp(wall_clock() - 600)
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound},
        {"type": "Ready", "status": ready},
    ]
    body = {"phase": "Running", "conditions": conditions, **said}
    api.store.update(PODS, ("default", name), {"status": body}, "status")


async def test_a_group_that_is_applied_again_is_no_start_although_a_container_of_it_hangs(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.put(f"{names.path('queues')}/default", queue("default", startTimeoutSeconds=2))
    submit(api, pod_group("group", 3))
    async with FakeKubelets(api, runs), leading(api, tmp_path):
        make(api, *"abc")
        await until(lambda: is_running(api))
        before = uids(api)
        hangs = {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        for name in "ab":
            put_status(api, name, "True")
        put_status(api, "c", "False", containerStatuses=[hangs])
        apply_again(api, 3)
        await until(lambda: group_status(api).get("plan"))
        planned = quantities.parse_timestamp(group_status(api)["plan"]["plannedTime"])
        assert planned is not None
        assert planned <= wall_clock() - 600, "no new time for which nobody may stop it"
        assert is_running(api)
        assert "2 members have started" in group_status(api)["message"]
        await silence(api, 3.0)
        assert (uids(api), is_running(api)) == (before, True)


async def test_a_group_that_was_applied_again_while_no_operator_watched_is_adopted(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, pod_group("group", 3))
    async with FakeKubelets(api, runs):
        async with leading(api, tmp_path):
            make(api, *"abc")
            await until(lambda: is_running(api))
        apply_again(api, 3)
        remove(api, "c")
        make(api, "c")
        async with leading(api, tmp_path, epoch=2):
            await until(lambda: all(p["spec"].get("nodeName") for p in pods(api)))
            await until(lambda: is_running(api))


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {names.QUEUE_LABEL: "other"}},
        {"labels": {names.POD_GROUP_LABEL: "group"}},
        {"spec": {"schedulerName": "default-scheduler"}},
        {"labels": {names.PLAN_LABEL: "1.0"}},
    ],
)
async def test_a_pod_that_the_operator_did_not_let_in_is_not_adopted(
    api: FakeApi, tmp_path: Path, change: dict[str, Any]
) -> None:
    """Anybody may write labels: this one bound its pod past the scheduler."""
    furnish(api, 1)
    api.put(f"{names.path('queues')}/other", queue("other"))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        labels = {names.POD_GROUP_LABEL: "group", names.QUEUE_LABEL: "default"}
        if change.get("labels") == {names.POD_GROUP_LABEL: "group"}:
            del labels[names.QUEUE_LABEL]
        labels |= change.get("labels", {})
        spec = {"schedulerName": "bireme", "nodeName": "n0", "containers": [{"name": "c"}]}
        spec |= change.get("spec", {})
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": labels}}
        api.put("/api/v1/namespaces/default/pods/x", {**made, "spec": spec})
        await until(lambda: ("default", "x") in term.state.objects.members)
        submit(api, pod_group("group", 2))
        await until(lambda: group_status(api).get("reason") == "WaitingForPods")
        await silence(api)
        assert "plan" not in group_status(api)


async def test_a_group_that_is_applied_again_in_another_queue_names_that_of_its_pods(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    api.put(f"{names.path('queues')}/other", queue("other"))
    submit(api, pod_group("group", 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path, bind_timeout_seconds=2.0):
        make(api, "a", "b")
        await until(lambda: is_running(api))
        apply_again(api, 2, queue="other")
        words = "2 pods still count in queue default"
        await until(lambda: words in group_status(api).get("message", ""))
        await silence(api)
        assert len(pods(api)) == 2, "what runs is not stopped"


@pytest.mark.parametrize("next_queue", ["default", "other"])
async def test_a_pod_released_for_a_group_that_is_gone_is_stopped_and_comes_back_gated(
    api: FakeApi, tmp_path: Path, next_queue: str
) -> None:
    furnish(api, 1)
    api.put(f"{names.path('queues')}/other", queue("other"))
    submit(api, pod_group("group", 2))
    async with (
        FakeKubelets(api, runs, binds=False) as kubelets,
        leading(api, tmp_path, bind_timeout_seconds=2.0),
    ):
        make(api, "a", "b")
        await until(lambda: all(not p["spec"].get("schedulingGates") for p in pods(api)))
        apply_again(api, 2, queue=next_queue)
        await until(lambda: not pods(api))
        kubelets.binds = True
        make(api, "a", "b")
        await until(lambda: is_running(api))


async def test_a_raised_min_member_stops_nobody_and_the_next_pods_join_together(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    submit(api, pod_group("group", 3))
    async with FakeKubelets(api, runs), leading(api, tmp_path, bind_timeout_seconds=0.5):
        make(api, *"abc", gpus=2)
        await until(lambda: is_running(api))
        before = uids(api)
        resize(api, 5)
        make(api, "d", gpus=2)
        await until(lambda: "4 of minMember 5" in group_status(api).get("message", ""))
        make(api, "e", gpus=2)
        await until(lambda: "2 more pods wait to join" in group_status(api).get("message", ""))
        await silence(api, 2.0)
        assert {name: uid for name, uid in uids(api).items() if name in before} == before
        assert is_running(api)
        assert sum(bool(p["spec"].get("nodeName")) for p in pods(api)) == 3, "not one alone"
        resize(api, 3)
        await until(lambda: sum(bool(p["spec"].get("nodeName")) for p in pods(api)) == 4)


async def test_members_that_succeeded_count_once_their_pods_are_gone(
    api: FakeApi, tmp_path: Path
) -> None:
    """A Job never creates them again, so the group would wait for them without end."""
    furnish(api, 1)
    submit(api, pod_group("group", 3))
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path):
            make(api, *"abc")
            own(api, "Job", "job-uid")
            await until(lambda: is_running(api))
            kubelets.end("a")
            await until(lambda: group_status(api).get("endedPods"))
        remove(api, "a", "b")
        make(api, "b")
        own(api, "Job", "job-uid")
        async with leading(api, tmp_path, epoch=2):
            await until(lambda: all(p["spec"].get("nodeName") for p in pods(api)))
            assert set(uids(api)) == {"b", "c"}


async def test_another_run_of_the_same_controller_starts_whole_again(
    api: FakeApi, tmp_path: Path
) -> None:
    """Members that ended well in the run before are no part of it."""
    furnish(api, 1)
    submit(api, pod_group("group", 3))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        make(api, *"abc")
        own(api, "Workflow", "workflow-uid")
        await until(lambda: is_running(api))
        kubelets.end("a")
        await until(lambda: group_status(api).get("endedPods"))
        for name in "bc":
            kubelets.end(name)
        await until(lambda: group_status(api).get("phase") == "Completed")
        await until(lambda: "endedPods" not in group_status(api))
        remove(api, *"abc")
        make(api, "d")
        own(api, "Workflow", "workflow-uid")
        await until(lambda: "1 of minMember 3" in group_status(api).get("message", ""))
        make(api, "e", "f")
        own(api, "Workflow", "workflow-uid")
        await until(lambda: is_running(api))
        assert "endedPods" not in group_status(api)


async def lose_all_unseen(api: FakeApi, folder: Path, kind: str, uid: str) -> None:
    """Run a gang of three; while no operator watches, two succeed and go, and one fails."""
    furnish(api, 1)
    submit(api, pod_group("group", 3))
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, folder):
            make(api, *"abc")
            own(api, kind, uid)
            await until(lambda: is_running(api))
        for name, phase in (("a", "Succeeded"), ("b", "Succeeded"), ("c", "Failed")):
            kubelets.end(name, phase)
        remove(api, "a", "b")


async def test_members_that_only_their_job_saw_succeed_count_too(
    api: FakeApi, tmp_path: Path
) -> None:
    """The group is over before the Job replaces the pod that failed."""
    await lose_all_unseen(api, tmp_path, "Job", uid := put_job(api, 2))
    async with FakeKubelets(api, runs), leading(api, tmp_path, epoch=2):
        await until(lambda: group_status(api).get("phase") == "Completed")
        make(api, "d")
        own(api, "Job", uid)
        await until(lambda: any(p["spec"].get("nodeName") for p in pods(api) if is_new(p)))
        await until(lambda: is_running(api))


@pytest.mark.parametrize(("kind", "counted"), [("Job", 1), ("PyTorchJob", 2)])
async def test_a_group_says_that_members_nobody_saw_succeed_do_not_count(
    api: FakeApi, tmp_path: Path, kind: str, counted: int
) -> None:
    """A Job that counts too few, and a controller that is no Job."""
    await lose_all_unseen(api, tmp_path, kind, uid := put_job(api, counted))
    async with FakeKubelets(api, runs), leading(api, tmp_path, epoch=2):
        make(api, "d")
        own(api, kind, uid)
        await until(lambda: "lower minMember by" in group_status(api).get("message", ""))
        await silence(api)
        assert group_status(api)["reason"] == "WaitingForPods"
        assert not any(p["spec"].get("nodeName") for p in pods(api) if is_new(p))


def is_new(pod: dict[str, Any]) -> bool:
    return str(pod["metadata"]["name"]) == "d"
