"""Which pods of other schedulers are one gang, and what Bireme would plan for it."""

from typing import Any

import pytest

from bireme.kube import names, wire
from bireme.kube.observed_gangs import ObservedPods, PendingPod, gang_of
from bireme.kube.tenancy import Tenancy
from testbed.objects.facts import CREATED, served, through_the_wire
from testbed.scenario.manifests import GPU, Manifest, pod


def owned(kind: str, name: str) -> Manifest:
    reference = {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": f"{name}-uid"}
    return {"ownerReferences": [{**reference, "controller": True}]}


def read(name: str, gpus: int = 1, spec: Manifest | None = None, **metadata: Any) -> PendingPod:
    made = pod(name, gpus, **(spec or {}))
    made["metadata"].pop("annotations")
    manifest = served(made, f"{name}-uid", **metadata)
    return through_the_wire(manifest, PendingPod)


@pytest.mark.parametrize(
    ("found", "gang"),
    [
        (read("a", annotations={"scheduling.k8s.io/group-name": "crew"}), "default/crew"),
        (read("a", labels={"scheduling.x-k8s.io/pod-group": "crew"}), "default/crew"),
        (read("a", labels={"kueue.x-k8s.io/pod-group-name": "crew"}), "default/crew"),
        (read("a", gpus=0, **owned("PyTorchJob", "bert")), "default/bert/bert-uid"),
        (read("a", **owned("StatefulSet", "web")), "default/a/a-uid"),
        (read("a"), "default/a/a-uid"),
        (read("a", gpus=0), ""),
        (read("a", gpus=0, **owned("ReplicaSet", "web")), ""),
        (read("a", **owned("DaemonSet", "agent")), ""),
        (read("a", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}), ""),
        (read("a", deletionTimestamp="2026-01-01T00:00:00Z"), ""),
    ],
)
def test_pods_of_a_group_or_of_a_job_are_one_gang_and_services_are_none(
    found: PendingPod, gang: str
) -> None:
    assert gang_of(found) == gang


def test_a_gang_is_all_of_its_pods_in_the_queue_of_its_namespace() -> None:
    changes: list[int] = []
    observed = ObservedPods(lambda: changes.append(1))
    tenancy = Tenancy(lambda: None)
    labels = {names.DEFAULT_QUEUE_LABEL: "lab"}
    namespace = through_the_wire(
        {"metadata": {"name": "default", "labels": labels}}, wire.MetadataOnly
    )
    tenancy.put_namespace(("", "default"), namespace)
    group = {"annotations": {"scheduling.k8s.io/group-name": "crew"}}
    for name, gpus in (("master", 1), ("worker-0", 4), ("worker-1", 4)):
        pending = read(name, gpus, {"priority": 7}, **group)
        observed.put(("default", name), pending)
        observed.put(("default", name), pending)
    (gang,) = observed.gangs(tenancy, lambda _, pods: 60.0 * len(list(pods)), lambda _: "")
    assert len(changes) == 3
    assert (gang.uid, gang.queue, gang.priority) == ("default/crew", "lab", 7)
    assert (gang.demand[GPU], gang.replicas, gang.at_minimum.replicas) == (9, 3, 3)
    assert (gang.arrived, gang.estimated_seconds, gang.is_learned_estimate) == (
        CREATED,
        180.0,
        True,
    )
    observed.delete(("default", "worker-1"))
    assert observed.take_removed() == {("default", "worker-1"): "default/crew"}
    assert observed.take_removed() == {}
    (gang,) = observed.gangs(tenancy, lambda *_: None, lambda _: "")
    assert (gang.replicas, gang.estimated_seconds) == (2, None)
    nodes = {("default", "master"): "n0"}  # the watch of what runs is ahead
    (gang,) = observed.gangs(tenancy, lambda *_: None, lambda key: nodes.get(key, ""))
    assert gang.replicas == 1
    assert observed.gang_uids(lambda key: nodes.get(key, "")) == ({gang.uid}, {gang.uid})
