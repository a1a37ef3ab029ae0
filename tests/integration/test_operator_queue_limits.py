"""Resources that count against a queue's limit, however its gangs and their pods change."""

from pathlib import Path
from typing import Any

from bireme.kube import names
from bireme_operator.leader import LeaderTerm
from tests.support.fakeapi import FakeApi
from tests.support.kubelets import FakeKubelets, runs
from tests.support.objects.facts import gated_pod
from tests.support.operator_term.term import (
    GROUPS,
    JOBS,
    PODS,
    furnish,
    job,
    leading,
    pods,
    status,
    submit,
    until,
)
from tests.support.scenario.manifests import GPU, Manifest, pod_group, queue, task, training_job

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


async def test_a_gang_counts_in_its_jobs_queue_whatever_its_pod_group_names(
    api: FakeApi, tmp_path: Path
) -> None:
    limit(api)
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        submit(api, training_job("a", WORKERS))
        await until(lambda: status(api, "a").get("phase") == "Running")
        change(api, GROUPS, "a", spec={"queue": "other"})
        submit(api, training_job("b", WORKERS))
        await stays_waiting(api, "b")
        assert (used(term), used(term, "other")) == (4, 0)


async def test_a_pod_group_made_before_its_job_is_admitted_takes_it_to_no_other_queue(
    api: FakeApi, tmp_path: Path
) -> None:
    limit(api)
    async with FakeKubelets(api, runs), leading(api, tmp_path) as term:
        submit(api, training_job("a", WORKERS, runPolicy={"suspend": True}))
        await until(lambda: status(api, "a").get("phase") == "Suspended")
        group: Manifest = pod_group("a", 4, queue="other")
        uid = job(api, "a")["metadata"]["uid"]
        owner = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "name": "a", "uid": uid}
        group["metadata"]["ownerReferences"] = [owner]
        submit(api, group)
        change(api, JOBS, "a", spec={"runPolicy": {}})
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
        for resource in (GROUPS, PODS):
            for _, name in list(api.store.collection(resource).objects):
                change(api, resource, name, metadata={"ownerReferences": []})
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
