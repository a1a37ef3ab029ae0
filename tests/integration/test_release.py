"""``bireme migrate release``: nothing is lost half way, each kind is released in its own way."""

import asyncio
import json
from pathlib import Path

import pytest

from bireme.cli import main
from testbed.fakeapi import FakeApi, Fault
from testbed.fakeapi.store import Object
from testbed.operator_term.term import PODS, make
from testbed.scenario.manifests import member_template


async def test_a_pod_whose_successor_is_refused_is_printed_for_its_user_to_create(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.put("/api/v1/namespaces/default", {})
    make(api, "a")

    def creates(method: str, path: str, _: bool) -> bool:
        return method == "POST" and path.endswith("/pods")  # the dry run before goes well

    api.faults.add(Fault(status=403, reason="Forbidden"), creates, times=None)
    kubeconfig = f"--kubeconfig={api.kubeconfig(tmp_path)}"
    command = ["migrate", "release", kubeconfig, "--namespace=default"]
    assert await asyncio.to_thread(main, command) == 1
    printed = capsys.readouterr()
    assert not api.store.collection(PODS).objects
    assert "Pod a, 1 waiting: deleted, but not created again: 403 Forbidden" in printed.out
    made = json.loads(printed.err)
    assert (made["metadata"]["name"], made["spec"]["schedulerName"]) == ("a", "default-scheduler")


@pytest.mark.parametrize("has_deployment", [True, False])
async def test_pods_of_a_replica_set_are_released_through_its_deployment_if_it_has_one(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], has_deployment: bool
) -> None:
    api.put("/api/v1/namespaces/default", {})
    apps = "/apis/apps/v1/namespaces/default"
    template = member_template("group")
    owners: list[Object] = []
    for kind, plural in (("Deployment", "deployments"), ("ReplicaSet", "replicasets")):
        if kind == "ReplicaSet" or has_deployment:
            head = {"apiVersion": "apps/v1", "kind": kind}
            meta = {"name": "serve", "ownerReferences": owners}
            made = {**head, "metadata": meta, "spec": {"template": template}}
            uid = api.put(f"{apps}/{plural}/serve", made)["metadata"]["uid"]
            owners = [{**head, "name": "serve", "uid": uid, "controller": True}]
    metadata = {**template["metadata"], "ownerReferences": owners}
    api.put("/api/v1/namespaces/default/pods/serve-x", {**template, "metadata": metadata})
    command = [
        "migrate",
        "release",
        f"--kubeconfig={api.kubeconfig(tmp_path)}",
        "--namespace=default",
    ]
    assert await asyncio.to_thread(main, command) == 0
    kind = "Deployment" if has_deployment else "ReplicaSet"
    assert f"{kind} serve, 1 waiting: made anew" in capsys.readouterr().out
    assert bool(api.store.collection(PODS).objects) == has_deployment, "it replaces them itself"
    edited = api.store.get(f"/apis/apps/v1/{kind.lower()}s", ("default", "serve"))
    assert edited["spec"]["template"]["spec"]["schedulerName"] == "default-scheduler"
    assert edited["spec"]["template"]["spec"]["schedulingGates"] == []
