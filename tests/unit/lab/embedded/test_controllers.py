"""Controllers of the embedded cluster: what they make of pods that others end or delete."""

import asyncio
from collections.abc import Callable

import aiohttp

from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.cluster import EmbeddedCluster, put
from bireme_lab.embedded.controllers import jobs
from bireme_lab.embedded.fake_nodes import fake_nodes
from tests.unit.lab.embedded.requests import PODS, a_pod, ask, done

JOBS = "/apis/batch/v1/namespaces/default/jobs"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"


def pods(cluster: EmbeddedCluster, phase: str = "Running") -> dict[str, Object]:
    """Return the pods in a phase that nobody deletes, by name."""
    return {
        each["metadata"]["name"]: each
        for each in done(cluster.api, "GET", PODS)["items"]
        if each["status"]["phase"] == phase and "deletionTimestamp" not in each["metadata"]
    }


async def until(cluster: EmbeddedCluster, holds: Callable[[], bool]) -> None:
    """Wait for what changes of pods and of their owners bring about."""
    changed = asyncio.Event()
    collections = [
        cluster.api.store.collection(path)
        for path in ("/api/v1/pods", "/apis/batch/v1/jobs", "/apis/apps/v1/statefulsets")
    ]
    for collection in collections:
        collection.subscribers.append(lambda _: changed.set())
    async with asyncio.timeout(20):
        while not holds():
            await changed.wait()
            changed.clear()


def test_a_deleted_pod_of_a_job_counts_as_failed_and_is_replaced() -> None:
    async def course() -> None:
        async with EmbeddedCluster() as cluster:
            put(cluster.api, "/api/v1/nodes", fake_nodes(1, racks=1)[0])
            template = {"spec": {**a_pod()["spec"], "restartPolicy": "Never"}}
            put(cluster.api, JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}})
            await until(cluster, lambda: len(pods(cluster)) == 1)
            (first,) = pods(cluster)
            done(cluster.api, "DELETE", f"{PODS}/{first}")
            await until(cluster, lambda: len(pods(cluster)) == 1 and first not in pods(cluster))
            await until(
                cluster, lambda: done(cluster.api, "GET", f"{JOBS}/j")["status"].get("failed") == 1
            )

    asyncio.run(course())


def test_two_indexes_are_no_range() -> None:
    assert jobs._ranges([0, 1, 3, 5, 6, 7]) == "0,1,3,5-7"


def test_an_ended_indexed_job_says_which_indexes_are_done_and_by_both_conditions() -> None:
    async def course() -> None:
        async with EmbeddedCluster() as cluster:
            put(cluster.api, "/api/v1/nodes", fake_nodes(1, racks=1)[0])
            template = {
                "metadata": {"annotations": {"fake.bireme.dev/duration": "1ms"}},
                "spec": {**a_pod()["spec"], "restartPolicy": "Never"},
            }
            spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
            job = {"metadata": {"name": "j"}, "spec": {**spec, "template": template}}
            put(cluster.api, JOBS, job)

            def status() -> Object:
                found: Object = done(cluster.api, "GET", f"{JOBS}/j").get("status") or {}
                return found

            await until(cluster, lambda: "completionTime" in status())
            assert status()["completedIndexes"] == "0-2"
            kinds = [condition["type"] for condition in status()["conditions"]]
            assert kinds == ["SuccessCriteriaMet", "Complete"]

    asyncio.run(course())


def test_a_parallel_set_goes_on_past_a_pod_that_ended() -> None:
    async def course() -> None:
        async with EmbeddedCluster() as cluster:
            put(cluster.api, "/api/v1/nodes", fake_nodes(1, racks=1)[0])
            spec = {
                "podManagementPolicy": "Parallel",
                "replicas": 3,
                "serviceName": "s",
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": a_pod()["spec"]},
            }
            put(cluster.api, SETS, {"metadata": {"name": "s"}, "spec": spec})
            await until(cluster, lambda: len(pods(cluster)) == 3)
            first = pods(cluster)["s-0"]
            ended = {**first, "status": {**first["status"], "phase": "Failed"}}
            done(cluster.api, "PUT", f"{PODS}/s-0/status", ended)
            done(cluster.api, "DELETE", f"{PODS}/s-1")
            await until(
                cluster,
                lambda: (
                    len(pods(cluster)) == 3
                    and pods(cluster)["s-0"]["metadata"]["uid"] != first["metadata"]["uid"]
                ),
            )

    asyncio.run(course())


def test_pages_of_browsers_are_refused() -> None:
    """A page could send requests to a port of this machine, as the administrator."""

    async def course() -> None:
        async with EmbeddedCluster() as cluster, aiohttp.ClientSession() as session:
            url = f"{cluster.http.url}{PODS}"
            foreign = ({"Origin": "https://a.example.org"}, {"Host": "a.example.org:80"})
            for headers in foreign:
                async with session.post(url, json=a_pod(), headers=headers) as answer:
                    assert answer.status == 403
            async with session.post(url, json=a_pod()) as answer:
                assert answer.status == 201
        assert ask(cluster.api, "GET", f"{PODS}/p").code == 200

    asyncio.run(course())
