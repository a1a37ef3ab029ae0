"""Gangs whose pods name volume claims, under the real kube-scheduler: what can run runs at once.

Volumes are local ones on fake nodes, or those of a CSI driver of which only the objects exist.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.objects.volumes import (
    HOSTNAME,
    claim,
    csi_node,
    ephemeral,
    named,
    storage_class,
    volume,
)
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, pod_spec, task, training_job
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import always

pytestmark = pytest.mark.cluster

WITHIN_SECONDS = 10.0
DRIVER = "disks.example.com"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("volumes", tmp_path_factory.mktemp("stack"), nodes=12) as stack:
        yield stack


@pytest.fixture
def local(tenant: Tenant) -> str:
    """The name of a storage class of this test alone, whose volumes are made by hand."""
    name = f"local-{tenant.namespace}"
    tenant.create(storage_class(name))
    return name


def using(fields: Manifest, replicas: int = 1, name: str = "worker") -> Manifest:
    return task(name, replicas, role="worker", spec=pod_spec(1, **fields))


def runs_at_once(tenant: Tenant, name: str = "job") -> list[str]:
    """Wait until the job runs, within the time and without an interruption; return its nodes."""
    began = time.monotonic()
    status = tenant.await_phase(name, "Running")
    assert time.monotonic() - began < WITHIN_SECONDS
    assert (status.get("interruptions", 0), status.get("attempt", 0)) == (0, 0)
    return sorted(nodes_of(tenant.pods(name)).values())


def waits(tenant: Tenant, words: str, name: str = "job") -> None:
    """Wait until the job says ``words``; it holds nothing, and an equal job beside it starts."""
    began = time.monotonic()
    tenant.eventually(lambda: tenant.status(name).get("message", ""), lambda said: words in said)
    assert time.monotonic() - began < WITHIN_SECONDS
    tenant.create(training_job("behind"))
    tenant.await_phase("behind", "Running")
    always(lambda: tenant.plan(name), lambda plan: plan is None, 1.0, what="without a plan")


def bind(tenant: Tenant, of_class: str, name: str = "data", **where: Any) -> None:
    """Create a claim and the volume that it is bound to, and wait until both say so."""
    of = f"pv-{name}-{tenant.namespace}"
    made = volume(of, of_class, claim=f"{tenant.namespace}/{name}", **where)
    tenant.create(made, claim(name, of_class, volumeName=of))
    bound(tenant, name)


def bound(tenant: Tenant, name: str) -> None:
    found = tenant.path("PersistentVolumeClaim", name)
    tenant.eventually(
        lambda: tenant.cluster.api.get(found)["status"].get("phase"), lambda p: p == "Bound"
    )


def test_a_gang_goes_where_its_volume_is(tenant: Tenant, local: str) -> None:
    bind(tenant, local, host="gpu-11", modes=("ReadWriteOnce",))
    tenant.create(training_job("job", using(named("data"), 3)))
    assert runs_at_once(tenant) == ["gpu-11"] * 3


def test_a_claim_that_is_missing_is_waited_for_in_words(tenant: Tenant, local: str) -> None:
    tenant.create(training_job("job", using(named("data"), 2)))
    waits(tenant, 'persistentvolumeclaim "data" not found')
    bind(tenant, local, host="gpu-03")
    assert runs_at_once(tenant) == ["gpu-03"] * 2


def test_each_replica_gets_a_local_volume_of_its_own(tenant: Tenant, local: str) -> None:
    """Two on one node and one on another: three replicas, and no fourth."""
    for index, host in enumerate(("gpu-02", "gpu-02", "gpu-09")):
        tenant.create(volume(f"{local}-{index}", local, host=host))
    tenant.create(training_job("job", using(ephemeral(local), 3)))
    assert runs_at_once(tenant) == ["gpu-02", "gpu-02", "gpu-09"]
    tenant.create(training_job("late", using(ephemeral(local))))
    waits(tenant, f"each of which needs 1 local-volumes-{local}", "late")


def test_a_claim_that_has_got_its_volume_is_where_the_next_start_goes(
    tenant: Tenant, local: str
) -> None:
    for host in ("gpu-05", "gpu-06"):
        tenant.create(volume(f"{local}-{host}", local, host=host))
    tenant.create(claim("data", local), training_job("job", using(named("data"))))
    (node,) = runs_at_once(tenant)
    bound(tenant, "data")
    tenant.delete("Pod", "job-worker-0")
    again = tenant.eventually(
        lambda: tenant.status("job"), lambda s: (s.get("attempt"), s["phase"]) == (1, "Running")
    )
    assert again["interruptions"] == 1
    assert list(nodes_of(tenant.pods("job")).values()) == [node]


def test_a_volume_for_several_is_left_to_kube_scheduler(tenant: Tenant, local: str) -> None:
    tenant.create(volume(f"{local}-0", local, host="gpu-07"), claim("data", local))
    tenant.create(training_job("job", using(named("data"), 2)))
    assert runs_at_once(tenant) == ["gpu-07"] * 2
    plan = tenant.plan("job")
    assert plan is not None
    assert plan["mode"] == "Score"


def provision(tenant: Tenant, claims: int, after_seconds: float) -> None:
    """Make volumes as a provisioner does: on the nodes that kube-scheduler has chosen, and late."""
    key = "volume.kubernetes.io/selected-node"

    def chosen() -> list[Manifest]:
        found = tenant.all("PersistentVolumeClaim")
        return [each for each in found if key in each["metadata"].get("annotations", {})]

    found = tenant.eventually(chosen, lambda found: len(found) == claims)
    time.sleep(after_seconds)  # so long a provisioner takes
    for each in found:
        meta, of_class = each["metadata"], each["spec"]["storageClassName"]
        name, node = f"pv-{meta['uid']}", meta["annotations"][key]
        made = volume(name, of_class, host=node, claim=f"{tenant.namespace}/{meta['name']}")
        made["spec"]["claimRef"]["uid"] = meta["uid"]
        tenant.create(made)


def test_volumes_that_are_being_made_fail_no_start(tenant: Tenant) -> None:
    """A class allows one node; its volumes take longer to make than a pod may be unschedulable."""
    of_class = f"made-{tenant.namespace}"
    allowed = {"matchLabelExpressions": [{"key": HOSTNAME, "values": ["gpu-04"]}]}
    tenant.create(storage_class(of_class, DRIVER, allowedTopologies=[allowed]))
    tenant.create(training_job("job", using(ephemeral(of_class), 2)))
    provision(tenant, 2, after_seconds=8.0)
    assert runs_at_once(tenant) == ["gpu-04"] * 2
    assert "startFailures" not in tenant.status("job")


def test_a_volume_is_made_where_there_is_capacity_for_it(tenant: Tenant) -> None:
    of_class, driver = f"small-{tenant.namespace}", f"{tenant.namespace}.example.com"
    api = tenant.cluster.api
    spec = {"storageCapacity": True, "attachRequired": False}
    tenant.create({"kind": "CSIDriver", "metadata": {"name": driver}, "spec": spec})
    tenant.create(storage_class(of_class, driver))
    capacity = {
        "metadata": {"name": "on-gpu-05"},
        "storageClassName": of_class,
        "nodeTopology": {"matchLabels": {HOSTNAME: "gpu-05"}},
        "capacity": "5Gi",
    }
    path = f"/apis/storage.k8s.io/v1/namespaces/{tenant.namespace}/csistoragecapacities"
    api.post(path, capacity)
    tenant.create(training_job("large", using(ephemeral(of_class, gibibytes=6))))
    waits(tenant, f"can provide its volume scratch, of class {of_class}", "large")
    tenant.create(training_job("job", using(ephemeral(of_class, gibibytes=4))))
    provision(tenant, 1, after_seconds=0.0)
    assert runs_at_once(tenant) == ["gpu-05"]


def test_nodes_have_so_many_volumes_attached(tenant: Tenant) -> None:
    """Three nodes can have one volume each, the others none."""
    hosts = [f"gpu-{index:02d}" for index in range(12)]
    for host in hosts:
        limit = int(host in ("gpu-01", "gpu-04", "gpu-08"))
        tenant.create(csi_node(host, disks_example_com=limit))
    try:
        of_class = f"made-{tenant.namespace}"
        tenant.create(storage_class(of_class, DRIVER))
        names = ("a", "b", "c")
        for name in names:
            bind(tenant, of_class, name, driver=DRIVER)
        tenant.create(training_job("job", *(using(named(name), name=name) for name in names)))
        assert Counter(runs_at_once(tenant)) == {"gpu-01": 1, "gpu-04": 1, "gpu-08": 1}
        bind(tenant, of_class, "d", driver=DRIVER)
        tenant.create(training_job("late", using(named("d"))))
        waits(tenant, f"conflict with its attached volumes of driver {DRIVER}", "late")
        tenant.delete("TrainingJob", "job")
        tenant.eventually(lambda: tenant.status("late").get("phase"), lambda p: p == "Running")
    finally:
        for host in hosts:
            tenant.delete("CSINode", host)


def test_replicas_attach_the_volume_that_they_share_once_to_a_node(tenant: Tenant) -> None:
    """Two nodes of eight GPUs can have one volume each, the others none."""
    hosts = [f"gpu-{index:02d}" for index in range(12)]
    for host in hosts:
        tenant.create(csi_node(host, disks_example_com=int(host in ("gpu-03", "gpu-09"))))
    try:
        of_class = f"made-{tenant.namespace}"
        tenant.create(storage_class(of_class, DRIVER))
        for name in ("shared", "other"):
            bind(tenant, of_class, name, driver=DRIVER)
        tenant.create(training_job("job", using(named("shared"), 12)))
        assert Counter(runs_at_once(tenant)).keys() == {"gpu-03", "gpu-09"}
        plan = tenant.plan("job")
        assert plan is not None
        assert plan["mode"] == "Pinned"
        tenant.create(training_job("late", using(named("other"))))
        waits(tenant, f"conflict with its attached volumes of driver {DRIVER}", "late")
        tenant.create(training_job("beside", using(named("shared"), 2)))
        assert set(runs_at_once(tenant, "beside")) <= {"gpu-03", "gpu-09"}
    finally:
        for host in hosts:
            tenant.delete("CSINode", host)


def test_a_claim_for_one_pod_waits_for_the_pod_that_uses_it(tenant: Tenant, local: str) -> None:
    mode = "ReadWriteOncePod"
    of = f"pv-{tenant.namespace}"
    made = volume(of, local, host="gpu-10", modes=(mode,), claim=f"{tenant.namespace}/data")
    tenant.create(made, claim("data", local, mode=mode, volumeName=of))
    bound(tenant, "data")
    tenant.create(training_job("first", using(named("data"))))
    assert runs_at_once(tenant, "first") == ["gpu-10"]
    tenant.create(training_job("job", using(named("data"))))
    waits(tenant, f"has access mode ReadWriteOncePod and {tenant.namespace}/first uses it")
    tenant.delete("TrainingJob", "first")
    tenant.await_phase("job", "Running")


def test_one_of_two_gangs_that_name_a_claim_for_one_pod_at_once_waits(
    tenant: Tenant, local: str
) -> None:
    """Both come in one moment: one runs, and no pod of the other is created before it ends."""
    mode = "ReadWriteOncePod"
    of = f"pv-{tenant.namespace}"
    made = volume(of, local, host="gpu-10", modes=(mode,), claim=f"{tenant.namespace}/data")
    tenant.create(made, claim("data", local, mode=mode, volumeName=of))
    bound(tenant, "data")
    names = ("one", "two")
    tenant.create(*(training_job(name, using(named("data"))) for name in names))
    phases = tenant.eventually(
        lambda: {tenant.status(name).get("phase"): name for name in names},
        lambda found: "Running" in found,
    )
    first = phases["Running"]
    (second,) = set(names) - {first}
    waits(
        tenant, f"has access mode ReadWriteOncePod and {tenant.namespace}/{first} uses it", second
    )
    assert tenant.pods(second) == []
    tenant.delete("TrainingJob", first)
    status = tenant.await_phase(second, "Running")
    assert (status.get("interruptions", 0), status.get("startFailures", 0)) == (0, 0)
