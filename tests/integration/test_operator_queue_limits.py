"""Resources that count against a queue's limit, however its gangs and their pods change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bireme.core.accelerators import GPU_UNITS
from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.testing import a_node
from bireme_operator.leader import LeaderTerm
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import gated_pod, node_manifest
from testbed.operator_term.term import (
    GROUPS,
    JOBS,
    PODS,
    furnish,
    leading,
    pods,
    status,
    submit,
    until,
)
from testbed.scenario.manifests import (
    GPU,
    Manifest,
    pod_group,
    pod_spec,
    queue,
    task,
    training_job,
)

WORKERS = task("worker", 4)


def limit(api: FakeApi, gpus: int = 4) -> None:
    furnish(api, 2)
    api.put(f"{names.path('queues')}/default", queue("default", limit={GPU: str(gpus)}))
    api.put(f"{names.path('queues')}/other", queue("other", limit={GPU: "64"}))


def used(term: LeaderTerm, name: str = "default") -> int:
    return term.state.snapshot(0).queue_usage.get(name, {}).get(GPU, 0)


def change(api: FakeApi, resource: str, name: str, **parts: Any) -> None:
    """Merge one level of ``parts`` into an object."""
    stored = api.store.get(resource, ("default", name))
    merged = {part: {**stored[part], **more} for part, more in parts.items()}
    api.store.update(resource, ("default", name), {**stored, **merged})


async def stays_waiting(api: FakeApi, name: str) -> None:
    await until(lambda: status(api, name).get("reason") == "OverQueueLimit")


async def test_a_pod_group_with_a_running_jobs_name_changes_nothing_but_is_told_so(
    api: FakeApi, tmp_path: Path
) -> None:
    limit(api)
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        submit(api, training_job("a", WORKERS))
        await until(lambda: status(api, "a").get("phase") == "Running")
        submit(api, pod_group("a", 4, queue="other"))
        await until(lambda: status(api, "a", GROUPS).get("reason") == "SpecInvalid")
        assert "a TrainingJob 'a' runs here" in status(api, "a", GROUPS)["message"]
        submit(api, training_job("b", WORKERS))
        await stays_waiting(api, "b")
        assert (used(term), used(term, "other")) == (4, 0)
        assert (status(api, "a")["phase"], len(pods(api))) == ("Running", 4)


async def test_a_job_waits_for_a_pod_group_of_its_name_to_go(api: FakeApi, tmp_path: Path) -> None:
    limit(api)
    submit(api, pod_group("a", 4, queue="other"), training_job("a", WORKERS))
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        await until(lambda: status(api, "a").get("reason") == "SpecInvalid")
        assert "a PodGroup 'a' exists" in status(api, "a")["message"]
        api.store.delete(GROUPS, ("default", "a"), {})
        await until(lambda: status(api, "a").get("phase") == "Running")
        assert (used(term), used(term, "other")) == (4, 0)


async def test_pods_that_a_deleted_job_leaves_behind_count_until_they_end(
    api: FakeApi, tmp_path: Path
) -> None:
    limit(api)
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path) as term:
        submit(api, training_job("a", WORKERS))
        await until(lambda: status(api, "a").get("phase") == "Running")
        api.store.delete(JOBS, ("default", "a"), {})  # kubectl delete --cascade=orphan
        for _, name in list(api.store.collection(PODS).objects):
            change(api, PODS, name, metadata={"ownerReferences": []})
        submit(api, training_job("b", WORKERS))
        await stays_waiting(api, "b")
        assert used(term) == 4
        for pod in pods(api):
            kubelets.end(pod["metadata"]["name"], "Succeeded")
        await until(lambda: status(api, "b").get("phase") == "Running")


async def test_pods_of_others_count_on_without_their_pod_group(
    api: FakeApi, tmp_path: Path
) -> None:
    limit(api)
    container = {"name": "c", "resources": {"limits": {GPU: "2"}}}
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        submit(api, pod_group("group", 2))
        for name in "ab":
            made = gated_pod(name, containers=[container])
            api.put(f"/api/v1/namespaces/default/pods/{name}", made)
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
        api.store.delete(GROUPS, ("default", "group"), {})
        submit(api, training_job("b", WORKERS))
        await stays_waiting(api, "b")
        assert used(term) == 4


async def test_shares_of_gpus_and_whole_ones_add_up_to_the_limit_that_a_queue_has_in_units(
    api: FakeApi, tmp_path: Path
) -> None:
    mig = "nvidia.com/mig-1g.10gb"
    shared = a_node("shared", 2)
    shared = replace(shared, allocatable={**shared.allocatable, mig: 7})
    api.put("/api/v1/nodes/shared", node_manifest(shared))
    team = queue("default", limit={GPU_UNITS: "1250m"})
    api.put(f"{names.path('queues')}/default", team)

    def asks(name: str, resource: str, amount: int) -> Manifest:
        spec = pod_spec(0)
        spec["containers"][0]["resources"] = {"limits": {resource: str(amount)}}
        return training_job(name, task(spec=spec))

    units = SchedulingSettings(gpu_units=(f"{mig}=0.125",))
    async with FakeKubelets(api, runs), leading(api, tmp_path, scheduling=units):
        submit(api, asks("whole", GPU, 1), asks("small", mig, 2))
        await until(lambda: status(api, "whole").get("phase") == "Running")
        await until(lambda: status(api, "small").get("phase") == "Running")
        assert (status(api, "whole")["gpus"], status(api, "small")["gpus"]) == (1, 0.25)
        submit(api, asks("more", mig, 1))
        await stays_waiting(api, "more")
        words = "asks 0.125 bireme.dev/gpu, 1.25 bireme.dev/gpu of 1.25 bireme.dev/gpu in use"
        assert words in status(api, "more")["message"]
        queues = api.store.collection(f"/apis/{names.API_VERSION}/queues").objects
        usage = {GPU: "1", mig: "2", GPU_UNITS: "1250m"}
        await until(
            lambda: (
                usage.items() <= queues["", "default"].get("status", {}).get("usage", {}).items()
            )
        )
