"""What claims ask of nodes, as the planner sees it: faults, demands, amounts, and words."""

from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.decision import Admit, Hold
from bireme.core.gangs import Gang
from bireme.core.reasons import Reason
from bireme.core.resources import ATTACHABLE
from bireme.core.settings import SchedulingSettings
from bireme.kube import plans, wire
from bireme.kube.allocations import AssumedPlan
from bireme.kube.volume_objects import LOCAL_VOLUMES
from bireme.registry import make_policy
from testbed.objects.cluster_state import ClusterStateFeed
from testbed.objects.facts import CREATED, pod_manifest, served, through_the_wire
from testbed.objects.volumes import (
    HOSTNAME,
    ZONE,
    claim,
    csi_node,
    ephemeral,
    named,
    storage_class,
    volume,
)
from testbed.scenario.manifests import (
    Manifest,
    member_template,
    pod,
    pod_spec,
    task,
    training_job,
)

DRIVER = "disks.example.com"


class Cluster(ClusterStateFeed):
    """Three nodes of eight GPUs, two of them in zone a, whose volumes are known."""

    def __init__(self) -> None:
        super().__init__()
        for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b")):
            self.node(name, labels={HOSTNAME: name, ZONE: zone})
        self.volumes = self.state.volumes
        self.volumes.all_listed()
        self.put(storage_class())

    def put(self, *manifests: Manifest) -> None:
        for each in manifests:
            kind, of = _KINDS[each["kind"]]
            namespace = "default" if each["kind"].endswith(("Claim", "Capacity")) else ""
            made = served(each, f"uid-{each['metadata']['name']}", namespace=namespace)
            key = (namespace, each["metadata"]["name"])
            getattr(self.volumes, f"put_{of}")(key, through_the_wire(made, kind))

    def asks(self, fields: Manifest, replicas: int = 1, gpus: int = 1, **task_fields: Any) -> Gang:
        """The gang of a job whose only task has pods with ``fields``."""
        spec = pod_spec(gpus, **fields)
        self.job(task("worker", replicas, spec=spec, **task_fields))
        (gang,) = self.waiting()
        return gang

    def decided(self, **options: Any) -> Admit | Hold:
        self.state.tenancy.put_queue(("", "default"), QUEUE)
        snapshot = self.snapshot(**options)
        (action,) = run_cycle(snapshot, make_policy(SchedulingSettings())).actions
        assert isinstance(action, Admit | Hold)
        return action

    def places(self) -> list[str]:
        """The nodes of the admitted gang, sorted."""
        action = self.decided()
        assert isinstance(action, Admit), action
        by_task = action.placement.by_task(self.state.nodes.table)
        return sorted(node for nodes in by_task.values() for node in nodes)

    def held(self, **options: Any) -> tuple[Reason, str]:
        action = self.decided(**options)
        assert isinstance(action, Hold), action
        return action.reason, action.message


_KINDS: dict[str, tuple[type[Any], str]] = {
    "PersistentVolume": (wire.V1PersistentVolume, "volume"),
    "PersistentVolumeClaim": (wire.V1PersistentVolumeClaim, "claim"),
    "StorageClass": (wire.V1StorageClass, "class"),
    "CSINode": (wire.V1CsiNode, "csi_node"),
    "CSIDriver": (wire.V1CsiDriver, "driver"),
    "CSIStorageCapacity": (wire.V1CsiStorageCapacity, "capacity"),
    "VolumeAttachment": (wire.V1VolumeAttachment, "attachment"),
}
QUEUE = through_the_wire(
    served({"metadata": {"name": "default"}, "spec": {}}, "q", namespace=""), wire.CustomObject
)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def bound(name: str = "data", **where: Any) -> tuple[Manifest, Manifest]:
    """A claim and the volume that it is bound to."""
    made = volume(f"pv-{name}", claim=f"default/{name}", **where)
    return made, claim(name, bound=f"pv-{name}")


def test_nothing_is_wanted_before_a_gang_names_a_claim() -> None:
    feed = ClusterStateFeed()
    wanted: list[bool] = []
    feed.state.volumes.on_wanted = lambda: wanted.append(True)
    feed.job()
    feed.waiting()
    assert not wanted
    feed.job(task("worker", spec=pod_spec(**named("data"))))
    reason, message = feed.fault()
    assert wanted == [True]
    assert (reason, "has not read" in message) == (Reason.CLAIM_NOT_READY, True)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ((), 'persistentvolumeclaim "data" not found'),
        (
            (claim("data", bound="pv", phase="Lost"),),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
        ),
        (
            (claim("data", metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}),),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            (claim("data", bound="pv"),),
            'persistentvolumeclaim "data" is bound to persistentvolume "pv", not found',
        ),
        (
            (claim("data", "absent"),),
            'persistentvolumeclaim "data" has no volume yet: storageclass "absent" not found',
        ),
        (
            (storage_class("now", mode="Immediate"), claim("data", "now")),
            'persistentvolumeclaim "data" is not bound yet; its class binds before pods are placed',
        ),
        (
            (claim("data", volumeName="pv"),),
            'persistentvolumeclaim "data" is being bound to persistentvolume "pv"',
        ),
        (
            (claim("data", gibibytes=20), volume("small", host="n0")),
            (
                "claim data finds no PersistentVolume of class 'local' with its size, access "
                "modes and labels"
            ),
        ),
    ],
)
def test_a_claim_that_cannot_be_used_is_a_fault_in_words(
    cluster: Cluster, there: tuple[Manifest, ...], words: str
) -> None:
    cluster.put(*there)
    assert cluster.asks(named("data")).fault == (Reason.CLAIM_NOT_READY, words)


def test_a_gang_goes_where_its_bound_volume_is(cluster: Cluster) -> None:
    cluster.put(*bound(host="n1"))
    cluster.asks(named("data"), 2)
    assert cluster.places() == ["n1", "n1"]


def test_too_few_places_beside_the_volume_say_so(cluster: Cluster) -> None:
    cluster.put(*bound(zone="b"))
    cluster.other("guest", "n2", 6)
    cluster.asks(named("data"), 4)
    reason, message = cluster.held()
    assert reason is Reason.WAITING_FOR_CAPACITY
    assert "this counts only nodes that can provide volume pv-data of claim data" in message


def test_a_volume_that_no_node_can_have_says_so(cluster: Cluster) -> None:
    cluster.put(*bound(host="gone"))
    cluster.asks(named("data"))
    assert cluster.held() == (
        Reason.NEVER_FITS,
        "no node that task worker may use can provide its volume pv-data of claim data",
    )


@pytest.mark.parametrize("key", [ZONE, "failure-domain.beta.kubernetes.io/zone"])
def test_zone_labels_of_a_volume_hold_as_in_kube_scheduler(cluster: Cluster, key: str) -> None:
    made, of = bound(labels={key: "b__c"})
    cluster.put(made, of)
    cluster.asks(named("data"))
    assert cluster.places() == ["n2"]
    for name in ("n0", "n1", "n2"):  # nodes without any zone are in a cluster of one
        cluster.node(name, 8 if name == "n0" else 0, labels={HOSTNAME: name})
    assert cluster.places() == ["n0"]


def test_a_claim_of_one_pod_is_not_for_two(cluster: Cluster) -> None:
    cluster.put(
        volume("pv", claim="default/data"), claim("data", bound="pv", mode="ReadWriteOncePod")
    )
    fault = cluster.asks(named("data"), 2).fault
    assert fault is not None
    assert "2 replicas name it" in fault[1]


def test_a_claim_of_one_pod_waits_for_the_pod_that_uses_it(cluster: Cluster) -> None:
    cluster.put(
        volume("pv", claim="default/data"), claim("data", bound="pv", mode="ReadWriteOncePod")
    )
    user = {**pod("user", 0, nodeName="n0", **named("data")), "status": {"phase": "Running"}}
    cluster.state.objects.put_other_pod(("default", "user"), through_the_wire(user, wire.V1Pod))
    fault = cluster.asks(named("data")).fault
    assert fault is not None
    words = "has access mode ReadWriteOncePod and pod default/user uses it"
    assert fault[1] == f'persistentvolumeclaim "data" {words}'
    cluster.state.objects.delete_other_pod(("default", "user"))
    assert cluster.places() == ["n0"]


def test_a_claim_of_one_pod_is_kept_by_a_plan_and_by_the_pods_of_it(cluster: Cluster) -> None:
    """From the plan on, when no pod exists yet, until plan and pods are gone."""
    mode, words = "ReadWriteOncePod", "and default/job uses it"
    cluster.put(volume("pv", claim="default/data"), claim("data", bound="pv", mode=mode))
    gang = cluster.asks(named("data"))
    admit = cluster.decided()
    assert isinstance(admit, Admit)
    plan = plan_of(cluster, gang, admit)
    assumed = {gang.key: AssumedPlan("job-uid", plan)}
    another_job(cluster, "second", "data")
    assert words in cluster.held(reserved=assumed)[1]
    cluster.replan(plan)
    assert words in cluster.held()[1]
    (member,) = plan.members
    replica = pod_manifest(cluster.state.objects.jobs[gang.key], plan, member, node="n0")
    replica["spec"] |= named("data")
    cluster.member(replica)
    cluster.job_gone()
    assert cluster.held() == (
        Reason.WAITING_FOR_PREEMPTION,
        "1 worker start when the gangs that make room have stopped",
    )
    cluster.gone(replica)
    assert cluster.places() == ["n0"]


def plan_of(cluster: Cluster, gang: Gang, admit: Admit) -> plans.PlanFacts:
    return plans.make_plan(
        *(gang, admit.placement, cluster.state.nodes.table),
        epoch=1,
        attempt=0,
        spec_hash="h",
        now=CREATED,
    )


def test_a_late_bound_claim_goes_where_a_volume_is(cluster: Cluster) -> None:
    cluster.put(volume("pv", host="n2"), claim("data"))
    gang = cluster.asks(named("data"))
    assert (cluster.places(), gang.left_to_scheduler) == (["n2"], "")


def test_one_volume_serves_one_claim(cluster: Cluster) -> None:
    """Each replica has a claim of its own; two volumes are on one node, one on another."""
    cluster.put(*(volume(f"pv-{n}", host=host) for n, host in enumerate(("n0", "n0", "n2"))))
    gang = cluster.asks(ephemeral(), 3)
    assert gang.left_to_scheduler == ""
    assert cluster.places() == ["n0", "n0", "n2"]
    cluster.put(volume("pv-2", host="n2", claim="other/data"))
    reason, message = cluster.held()
    assert reason is Reason.WAITING_FOR_CAPACITY
    assert message.startswith("asks 3 nvidia.com/gpu as 3 worker; 16 nvidia.com/gpu free")
    assert "no room left for 1 of 3 worker, each of which needs 1 local-volumes-local" in message


def test_claims_of_two_tasks_do_not_take_the_same_volume(cluster: Cluster) -> None:
    cluster.put(volume("pv-0", host="n0"), volume("pv-2", host="n2"), claim("a"), claim("b"))
    tasks = (task(n, role="worker", spec=pod_spec(**named(n))) for n in ("a", "b"))
    cluster.job(*tasks)
    assert cluster.places() == ["n0", "n2"]


def test_a_volume_is_made_where_its_class_allows(cluster: Cluster) -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    cluster.put(storage_class("made", DRIVER, allowedTopologies=allowed), claim("data", "made"))
    cluster.asks(named("data"))
    assert cluster.places() == ["n2"]


def test_a_volume_is_made_where_there_is_capacity_for_it(cluster: Cluster) -> None:
    cluster.put(storage_class("made", DRIVER), claim("data", "made", gibibytes=5))
    cluster.put(_named("CSIDriver", DRIVER, spec={"storageCapacity": True}))
    cluster.asks(named("data"))
    assert cluster.held()[0] is Reason.NEVER_FITS
    for host, size in (("n0", "4Gi"), ("n1", "5Gi")):
        topology = {"matchLabels": {HOSTNAME: host}}
        fields = {"storageClassName": "made", "capacity": size, "nodeTopology": topology}
        cluster.put(_named("CSIStorageCapacity", f"of-{host}", **fields))
    assert cluster.places() == ["n1"]


def _named(kind: str, name: str, **fields: Any) -> Manifest:
    return {"kind": kind, "metadata": {"name": name}, **fields}


def test_a_claim_whose_volume_is_being_made_keeps_its_node(cluster: Cluster) -> None:
    notes = {"volume.kubernetes.io/selected-node": "n1"}
    cluster.put(storage_class("made", DRIVER), claim("data", "made", annotations=notes))
    cluster.asks(named("data"))
    assert cluster.places() == ["n1"]


def test_nodes_have_so_many_volumes_attached(cluster: Cluster) -> None:
    cluster.put(storage_class("made", DRIVER))
    cluster.put(csi_node("n0", disks_example_com=2), csi_node("n1", disks_example_com=0))
    cluster.put(csi_node("n2", disks_example_com=2))
    used = volume("pv", "made", driver=DRIVER, claim="default/used")
    cluster.put(used, claim("used", "made", bound="pv"))
    user = {**pod("user", 0, nodeName="n2", **named("used")), "status": {"phase": "Running"}}
    for name in ("user", "other"):  # one volume for both
        cluster.state.objects.put_other_pod(("default", name), through_the_wire(user, wire.V1Pod))
    gang = cluster.asks(ephemeral("made"), 3)
    assert dict(gang.tasks[0].request)[f"{ATTACHABLE}{DRIVER}"] == 1
    assert cluster.places() == ["n0", "n0", "n2"]
    attached = {"attacher": DRIVER, "nodeName": "n2", "source": {"persistentVolumeName": "pv-9"}}
    cluster.put(_named("VolumeAttachment", "late", spec=attached))
    assert "1 of 3 worker, each of which needs 1 attachable-volumes-csi" in cluster.held()[1]


def limited(cluster: Cluster, **slots: int) -> None:
    """Have nodes attach so many volumes; three claims are bound to volumes of the driver."""
    cluster.put(storage_class("made", DRIVER))
    for node, most in slots.items():
        cluster.put(csi_node(node, disks_example_com=most))
    for name in "vwx":
        made = volume(f"pv-{name}", "made", driver=DRIVER, claim=f"default/{name}")
        cluster.put(made, claim(name, "made", bound=f"pv-{name}", mode="ReadWriteMany"))


def use(cluster: Cluster, name: str, node: str, *claims: str, **labels: str) -> None:
    """Put a pod of no gang that names claims."""
    made = {**pod(name, 0, nodeName=node, **named(*claims)), "status": {"phase": "Running"}}
    made["metadata"] = {**made["metadata"], "labels": labels}
    cluster.state.objects.put_other_pod(("default", name), through_the_wire(made, wire.V1Pod))


def another_job(cluster: Cluster, name: str, *claims: str) -> None:
    made = training_job(name, task("worker", spec=pod_spec(1, **named(*claims))))
    job = through_the_wire(served(made, f"{name}-uid"), wire.CustomObject)
    cluster.state.objects.put_job(("default", name), job)


def test_a_volume_that_several_pods_use_is_attached_to_a_node_once(cluster: Cluster) -> None:
    """Where it is already it takes no more, and what pods of others attach counts."""
    limited(cluster, n0=1, n1=1, n2=1)
    use(cluster, "one", "n1", "w")
    use(cluster, "two", "n2", "v")
    gang = cluster.asks(named("v"), 4, gpus=4)
    assert (gang.left_to_scheduler, gang.fault) == ("", None)
    assert cluster.places() == ["n0", "n0", "n2", "n2"]
    use(cluster, "three", "n2", "v", "x")
    use(cluster, "four", "n0", "x")
    reason, message = cluster.held()
    assert reason is Reason.WAITING_FOR_CAPACITY
    assert f"conflict with its attached volumes of driver {DRIVER}" in message


def test_what_planned_pods_share_counts_before_and_after_they_are_bound(cluster: Cluster) -> None:
    limited(cluster, n0=1, n1=0, n2=0)
    gang = cluster.asks(named("v"), 2)
    admit = cluster.decided()
    assert isinstance(admit, Admit)
    assert cluster.places() == ["n0", "n0"]
    plan = plan_of(cluster, gang, admit)
    cluster.replan(plan)
    another_job(cluster, "other", "w")
    assert cluster.held()[0] is Reason.WAITING_FOR_CAPACITY
    for member in plan.members:
        replica = pod_manifest(cluster.state.objects.jobs[gang.key], plan, member, node="n0")
        replica["spec"] |= named("v")
        cluster.member(replica)
    assert cluster.held()[0] is Reason.WAITING_FOR_CAPACITY
    cluster.state.objects.delete_job(("default", "other"))
    another_job(cluster, "same", "v")
    assert cluster.places() == ["n0"]


def test_a_gang_may_share_a_volume_with_one_that_is_only_planned(cluster: Cluster) -> None:
    limited(cluster, n0=1, n1=0, n2=0)
    gang = cluster.asks(named("v"))
    admit = cluster.decided()
    assert isinstance(admit, Admit)
    cluster.replan(plan_of(cluster, gang, admit))
    another_job(cluster, "same", "v")
    assert cluster.places() == ["n0"]
    cluster.state.objects.delete_job(("default", "same"))
    another_job(cluster, "other", "w")
    assert cluster.held()[0] is Reason.WAITING_FOR_CAPACITY


def test_rules_over_pods_see_labels_of_pods_with_claims_and_no_claims_as_pods(
    cluster: Cluster,
) -> None:
    """All name the volume; two jobs must be apart from pods that have no label ``team``."""
    limited(cluster, n0=1, n1=0, n2=0)
    use(cluster, "there", "n0", "v", team="b")
    without = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    term = {"topologyKey": HOSTNAME, "labelSelector": without, "namespaceSelector": {}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    fields = {**named("v"), "affinity": {"podAntiAffinity": required}}
    for name in ("one", "two"):
        made = task("worker", spec=pod_spec(1, **fields))
        made["template"]["metadata"] = {"labels": {"team": "a"}}
        job = through_the_wire(served(training_job(name, made), f"{name}-uid"), wire.CustomObject)
        cluster.state.objects.put_job(("default", name), job)
    cluster.state.tenancy.put_queue(("", "default"), QUEUE)
    decision = run_cycle(cluster.snapshot(), make_policy(SchedulingSettings()))
    assert [each.gang.name for each in decision.admitted] == ["one", "two"]


def test_pods_of_another_controller_share_a_volume_with_those_that_run(cluster: Cluster) -> None:
    limited(cluster, n0=1, n1=0, n2=0)
    use(cluster, "other", "n0", "v")
    cluster.group()
    for name in ("one", "two"):
        made = member_template("group", 1)
        spec = {**made["spec"], **named("v")}
        cluster.member(
            served({**made, "spec": spec, "metadata": made["metadata"] | {"name": name}}, name)
        )
    assert cluster.places() == ["n0", "n0"]


@pytest.mark.parametrize(
    ("there", "fields", "replicas", "words"),
    [
        (
            (storage_class("made", DRIVER), claim("data", "made")),
            named("data"),
            2,
            "claim data, which gets its volume with its first pod",
        ),
        (
            (volume("pv", host="n0"), claim("data")),
            named("data"),
            2,
            "claim data, which gets its volume with its first pod",
        ),
        (
            (volume("wide", zone="a"), claim("data")),
            named("data"),
            1,
            "claim data, whose volumes can be used on several nodes",
        ),
        (
            (
                volume("large", host="n0"),
                volume("small", host="n1", gibibytes=1),
                claim("data", gibibytes=5),
            ),
            named("data"),
            1,
            "claim data, which fits only some volumes of its class",
        ),
        (
            (),
            {"volumes": [{"name": "disk", "rbd": {"monitors": ["m"], "image": "i"}}]},
            1,
            "the disk of volume disk, which has no claim",
        ),
        (
            (storage_class("now", mode="Immediate"),),
            ephemeral("now"),
            1,
            "volume scratch, which is bound when its pod exists",
        ),
    ],
)
def test_what_is_not_planned_is_left_to_kube_scheduler_in_words(
    cluster: Cluster, there: tuple[Manifest, ...], fields: Manifest, replicas: int, words: str
) -> None:
    cluster.put(*there)
    gang = cluster.asks(fields, replicas)
    assert (gang.fault, gang.left_to_scheduler) == (None, words)


def test_a_gang_that_runs_gives_no_local_volume_back(cluster: Cluster) -> None:
    """A claim keeps its volume: to stop the gang makes room for no other claim."""
    cluster.put(volume("pv", host="n0"), claim("data"))
    gang = cluster.asks(named("data"))
    assert dict(gang.tasks[0].request)[f"{LOCAL_VOLUMES}local"] == 1
    admit = cluster.decided()
    assert isinstance(admit, Admit)
    cluster.replan(plan_of(cluster, gang, admit))
    snapshot = cluster.snapshot()
    (running,) = snapshot.running
    column = snapshot.nodes.axis.column(f"{LOCAL_VOLUMES}local")
    assert snapshot.used[:, column].tolist() == [1, 0, 0]
    assert f"{LOCAL_VOLUMES}local" not in dict(running.gang.tasks[0].request)
