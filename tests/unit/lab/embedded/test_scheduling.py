"""The embedded cluster at work: scheduler, kubelets and controllers, in real time."""

import asyncio
from collections.abc import Callable
from typing import Any

from bireme_lab.embedded.api import kinds
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.cluster import EmbeddedCluster, put
from bireme_lab.embedded.scheduler import node_affinity
from tests.unit.lab.embedded.requests import PODS, a_pod, ask, done

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def a_node(name: str, gpus: int = 8, **labels: str) -> Object:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "10", "nvidia.com/gpu": str(gpus)}
    status = {"capacity": amounts, "allocatable": amounts}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def asks(gpus: int) -> Object:
    return {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def phases(cluster: EmbeddedCluster) -> dict[str, str]:
    pods = cluster.api.store.collection(kinds.PODS).objects
    return {name: (pod.get("status") or {}).get("phase", "") for (_, name), pod in pods.items()}


async def test_a_pod_goes_where_it_fits_runs_and_ends() -> None:
    async with EmbeddedCluster() as cluster:
        put(cluster.api, kinds.NODES, a_node("small", 2))
        put(cluster.api, kinds.NODES, a_node("large", 8))
        pod = a_pod(containers=[asks(4)])
        pod["metadata"]["annotations"] = {"fake.bireme.dev/duration": "1s"}
        done(cluster.api, "POST", PODS, pod)
        await until(lambda: phases(cluster) == {"p": "Running"})
        assert done(cluster.api, "GET", f"{PODS}/p")["spec"]["nodeName"] == "large"
        await until(lambda: phases(cluster) == {"p": "Succeeded"})


async def test_a_pod_that_fits_nowhere_says_why_and_starts_once_it_does() -> None:
    async with EmbeddedCluster() as cluster:
        put(cluster.api, kinds.NODES, a_node("small", 2))
        done(cluster.api, "POST", PODS, a_pod(containers=[asks(4)]))

        def condition() -> Object:
            found = done(cluster.api, "GET", f"{PODS}/p")
            conditions = found["status"].get("conditions") or [{}]
            first: Object = conditions[0]
            return first

        words = (
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are "
            "available: 1 Preemption is not helpful for scheduling."
        )
        await until(lambda: condition().get("message") == words)
        assert condition()["reason"] == "Unschedulable"
        put(cluster.api, kinds.NODES, a_node("large", 8))
        await until(lambda: phases(cluster) == {"p": "Running"})


async def test_owned_objects_go_with_their_owner_and_a_namespace_with_its_content() -> None:
    async with EmbeddedCluster() as cluster:
        put(cluster.api, kinds.NODES, a_node("n"))
        template = {"metadata": {"labels": {"app": "x"}}, "spec": a_pod()["spec"]}
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "x"}}, "template": template}
        done(cluster.api, "POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
        await until(lambda: list(phases(cluster).values()) == ["Running"] * 3)
        scale = {"metadata": {"name": "d"}, "spec": {"replicas": 1}}
        done(cluster.api, "PUT", f"{DEPLOYMENTS}/d/scale", scale)
        await until(lambda: len(phases(cluster)) == 1)
        done(cluster.api, "DELETE", f"{DEPLOYMENTS}/d")
        await until(lambda: not phases(cluster))
        done(cluster.api, "POST", kinds.NAMESPACES, {"metadata": {"name": "a"}})
        done(cluster.api, "POST", "/api/v1/namespaces/a/configmaps", {"metadata": {"name": "m"}})
        done(cluster.api, "DELETE", f"{kinds.NAMESPACES}/a")
        await until(lambda: ask(cluster.api, "GET", f"{kinds.NAMESPACES}/a").code == 404)


async def test_a_job_counts_its_ends_and_completes() -> None:
    async with EmbeddedCluster() as cluster:
        put(cluster.api, kinds.NODES, a_node("n"))
        template = {
            "metadata": {"annotations": {"fake.bireme.dev/duration": "0.1s"}},
            "spec": {**a_pod()["spec"], "restartPolicy": "Never"},
        }
        spec = {"completions": 3, "parallelism": 2, "completionMode": "Indexed"}
        path = "/apis/batch/v1/namespaces/default/jobs"
        job = {"metadata": {"name": "j"}, "spec": {**spec, "template": template}}
        done(cluster.api, "POST", path, job)

        def status() -> Object:
            found: Object = done(cluster.api, "GET", f"{path}/j").get("status") or {}
            return found

        await until(lambda: "completionTime" in status(), 20)
        assert (status()["succeeded"], status()["conditions"][-1]["type"]) == (3, "Complete")


def test_node_affinity_knows_every_operator() -> None:
    node = a_node("n", rack="7")
    for operator, values, is_met in (
        ("In", ["7"], True),
        ("NotIn", ["7"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
        ("Gt", ["6"], True),
        ("Lt", ["6"], False),
    ):
        requirement = {"key": "rack", "operator": operator, "values": values}
        assert node_affinity.matches({"matchExpressions": [requirement]}, node) is is_met, operator
