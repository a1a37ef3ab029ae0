"""Gangs whose pods name claims: when those are read, where the gang goes, what its job says."""

from pathlib import Path

from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import gated_pod
from testbed.objects.volumes import HOSTNAME, claim, ephemeral, named, storage_class, volume
from testbed.operator_term.term import (
    GROUPS,
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
from testbed.scenario.manifests import Manifest, pod_group, pod_spec, task, training_job

CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"


def put(api: FakeApi, *manifests: Manifest) -> None:
    for each in manifests:
        name = each["metadata"]["name"]
        match each["kind"]:
            case "PersistentVolumeClaim":
                api.put(f"/api/v1/namespaces/default/persistentvolumeclaims/{name}", each)
            case "PersistentVolume":
                api.put(f"{VOLUMES}/{name}", each)
            case _:
                api.put(f"/apis/storage.k8s.io/v1/storageclasses/{name}", each)


def furnish_hosts(api: FakeApi, nodes: int = 3) -> None:
    furnish(api, nodes)
    for index in range(nodes):
        path = f"/api/v1/nodes/n{index}"
        node = api.store.get("/api/v1/nodes", ("", f"n{index}"))
        api.put(
            path, {**node, "metadata": {"name": f"n{index}", "labels": {HOSTNAME: f"n{index}"}}}
        )
    put(api, storage_class())


def using(replicas: int, fields: Manifest) -> Manifest:
    return task("worker", replicas, spec=pod_spec(1, **fields))


async def test_claims_are_read_once_a_gang_names_one(api: FakeApi, tmp_path: Path) -> None:
    furnish_hosts(api)
    submit(api, training_job("plain"))
    operator = leading(api, tmp_path, status_refresh_seconds=0.1)
    async with FakeKubelets(api, runs), operator:
        await until(lambda: phases(api) == ["Running"])
        await silence(api)
        assert not api.requests["GET", CLAIMS]
        submit(api, training_job("job", using(2, named("data"))))
        words = 'persistentvolumeclaim "data" not found'
        await until(lambda: status(api).get("message") == words)
        assert status(api)["reason"] == "ClaimNotReady"
        put(api, volume("pv", host="n2", claim="default/data"), claim("data", bound="pv"))
        await until(lambda: status(api).get("phase") == "Running")
    assert {p["spec"]["nodeName"] for p in pods(api) if "job-" in p["metadata"]["name"]} == {"n2"}


async def test_a_claim_that_has_got_its_volume_is_where_the_next_start_goes(
    api: FakeApi, tmp_path: Path
) -> None:
    """kube-scheduler binds it with the first start; the second must go to the same node."""
    furnish_hosts(api)
    put(api, volume("pv-1", host="n1"), volume("pv-2", host="n2"), claim("data"))
    submit(api, training_job("job", using(1, named("data"))))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path):
        await until(lambda: status(api).get("phase") == "Running")
        (pod,) = pods(api)
        node = pod["spec"]["nodeName"]
        put(api, volume(f"pv-{node[1]}", host=node, claim="default/data"))
        put(api, claim("data", bound=f"pv-{node[1]}"))
        kubelets.end("job-worker-0", "Failed")
        await until(lambda: status(api).get("attempt") == 1 and phases(api) == ["Running"])
        (pod,) = pods(api)
    assert pod["spec"]["nodeName"] == node


async def test_what_is_not_planned_is_left_to_kube_scheduler_from_the_first_attempt(
    api: FakeApi, tmp_path: Path
) -> None:
    """Room is kept; the pods are not pinned, and are counted where they get to."""
    furnish_hosts(api)
    put(api, storage_class("made", "disks.example.com"), claim("data", "made"))
    submit(api, training_job("job", using(2, named("data"))))
    async with FakeKubelets(api, runs) as kubelets, leading(api, tmp_path) as term:
        await until(lambda: len(pods(api)) == 2)
        said = status(api)
        assert said["plan"]["mode"] == "Score"
        words = "claim data, which gets its volume with its first pod"
        assert said["message"].endswith(f"kube-scheduler chooses the nodes because of {words}")
        assert all("affinity" not in pod["spec"] for pod in pods(api))
        (planned,) = {place["node"] for place in said["plan"]["placements"]}
        (elsewhere, *_) = {"n0", "n1", "n2"} - {planned}
        for pod in pods(api):
            key = ("default", pod["metadata"]["name"])
            api.store.update(PODS, key, {**pod, "spec": {**pod["spec"], "nodeName": elsewhere}})
        await until(lambda: status(api).get("phase") == "Running")
        await until(lambda: elsewhere in status(api)["placement"]["summary"])
        (running,) = term.state.snapshot(0).running
        names = running.placement.by_task(term.state.nodes.table)
        assert names == {"worker": (elsewhere, elsewhere)}
    assert not kubelets.violations


async def test_pods_of_others_go_where_the_claim_of_each_is(api: FakeApi, tmp_path: Path) -> None:
    """Claims that were made for a pod alone have the name of the pod."""
    furnish_hosts(api)
    submit(api, pod_group("group", 2))
    for name, host in (("a", "n1"), ("b", "n2")):
        made = gated_pod(name, **{**pod_spec(1), **ephemeral()})
        api.put(f"/api/v1/namespaces/default/pods/{name}", made)
        put(api, volume(f"pv-{name}", host=host, claim=f"default/{name}-scratch"))
    operator = leading(api, tmp_path, status_refresh_seconds=0.1)
    async with FakeKubelets(api, runs), operator:
        words = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "'
        await until(lambda: words in status(api, "group", GROUPS).get("message", ""))
        for name in ("a", "b"):
            put(api, claim(f"{name}-scratch", bound=f"pv-{name}"))
        await until(lambda: status(api, "group", GROUPS).get("phase") == "Running")
    assert {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(api)} == {
        "a": "n1",
        "b": "n2",
    }
