"""bireme migrate convert: Kueue's queues, cohorts, priority classes and Jobs."""

from typing import Any

import pytest

from bireme.cli.conversion import ConversionError
from bireme.cli.convert import convert

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


def kueue(kind: str, name: str, version: str = "v1beta2", **spec: Any) -> Json:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def cluster_queue(name: str, *quotas: Json, **spec: Any) -> Json:
    """Return a ClusterQueue with one flavor for each of ``quotas``, by resource."""
    return kueue("ClusterQueue", name, **groups(*quotas), namespaceSelector={}, **spec)


def groups(*quotas: Json) -> Json:
    flavors = [
        {"name": f"flavor-{index}", "resources": [{"name": GPU, **quota}]}
        for index, quota in enumerate(quotas)
    ]
    return {"resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}


def nominal(amount: int | str, **limits: int) -> Json:
    return {"nominalQuota": amount, **limits}


def local_queue(name: str, namespace: str, to: str) -> Json:
    document = kueue("LocalQueue", name, clusterQueue=to)
    document["metadata"]["namespace"] = namespace
    return document


def job(**labels: str) -> Json:
    about = {"name": "train", "namespace": "vision", "labels": {"app": "a", **labels}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {"parallelism": 4, "completions": 4, "suspend": True, "template": {"spec": pod}},
    }


def specs(*documents: Json) -> dict[str, Json]:
    """Return the specs of the queues that ``documents`` become, by name."""
    manifests, _ = convert(documents, {})
    return {each["metadata"]["name"]: each["spec"] for each in manifests}


def fields(*documents: Json) -> set[str]:
    return {note.field for note in convert(documents, {})[1]}


def test_a_cluster_queue_alone_may_use_its_quota_and_no_more() -> None:
    (made,) = specs(cluster_queue("vision", nominal(8), nominal(16))).values()
    assert made == {"guaranteed": {GPU: "24"}, "limit": {GPU: "24"}}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_members_of_a_cohort_borrow_up_to_their_limit_and_the_sum_of_all(version: str) -> None:
    name = {"v1beta1": "cohort", "v1beta2": "cohortName"}[version]
    made = specs(
        cluster_queue("bounded", nominal(8, borrowingLimit=4), **{name: "all"}),
        cluster_queue("free", nominal(16), **{name: "all"}),
        cluster_queue("half", nominal(1, borrowingLimit=1), nominal(1), **{name: "all"}),
    )
    assert made["all"] == {"guaranteed": {GPU: "26"}, "limit": {GPU: "26"}}
    assert made["bounded"] == {"parent": "all", "guaranteed": {GPU: "8"}, "limit": {GPU: "12"}}
    assert made["free"] == {"parent": "all", "guaranteed": {GPU: "16"}}
    assert made["half"] == {"parent": "all", "guaranteed": {GPU: "2"}}


def test_cohorts_have_quotas_of_their_own_parents_and_the_names_of_queues() -> None:
    made = specs(
        kueue("Cohort", "top", **groups(nominal(2))),
        kueue("Cohort", "team", parentName="top", **groups(nominal(1, borrowingLimit=3))),
        cluster_queue("team", nominal(0), cohortName="team"),
        cluster_queue("a.b", nominal(4), cohortName="top"),
    )
    assert made["top"] == {"guaranteed": {GPU: "7"}, "limit": {GPU: "7"}}
    assert made["team-cohort"] == {
        "parent": "top",
        "guaranteed": {GPU: "1"},
        "limit": {GPU: "4"},
    }
    assert made["team"] == {"parent": "team-cohort", "guaranteed": {GPU: "0"}}
    assert made["a-b"]["parent"] == "top"


def test_a_cycle_of_cohorts_and_a_quota_that_is_no_number_are_refused() -> None:
    with pytest.raises(ConversionError, match=r"a -> b -> a is a cycle; remove one parent"):
        convert([kueue("Cohort", "a", parentName="b"), kueue("Cohort", "b", parentName="a")], {})
    with pytest.raises(ConversionError, match=r"ClusterQueue q: spec\.resourceGroups: nvidia\.com"):
        convert([cluster_queue("q", nominal("many"))], {})
    with pytest.raises(ConversionError, match=r"fairSharing\.weight is 'x'; write a number"):
        convert([cluster_queue("q", nominal(1), fairSharing={"weight": "x"})], {})
    with pytest.raises(ConversionError, match="does not have the form of its API"):
        convert([kueue("ClusterQueue", "q", resourceGroups=[{}])], {})


def test_two_objects_are_never_one_queue_and_a_new_name_is_noted_once() -> None:
    with pytest.raises(ConversionError, match=r"ClusterQueue a\.b and ClusterQueue a-b would both"):
        convert([cluster_queue("a.b", nominal(1)), cluster_queue("a-b", nominal(1))], {})
    with pytest.raises(ConversionError, match="has 64 characters, and a Queue's name at most 63"):
        convert([cluster_queue("a" * 64, nominal(1))], {})
    members = [cluster_queue(name, nominal(1), cohortName="a.b") for name in ("x", "y")]
    texts = [note.text for note in convert(members, {})[1] if note.field == "metadata.name"]
    assert texts == ["Cohort a.b is the Queue a-b"]


def test_what_kubectl_noted_of_the_applied_object_stays_behind() -> None:
    document = cluster_queue("q", nominal(1))
    own = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}
    document["metadata"]["annotations"] = own
    assert convert([document], {})[0][0]["metadata"]["annotations"] == {"team": "a"}


def test_a_queue_serves_the_namespaces_that_have_a_local_queue() -> None:
    selected = kueue("ClusterQueue", "q", namespaceSelector={"matchLabels": {"team": "a"}})
    local = local_queue("default", "vision", "q")
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["vision"]}
    assert specs(selected, local)["q"]["namespaceSelector"] == {
        "matchLabels": {"team": "a"},
        "matchExpressions": [expression],
    }
    assert specs(selected)["q"]["namespaceSelector"] == {"matchLabels": {"team": "a"}}
    assert "namespaceSelector" not in specs(cluster_queue("q", nominal(1)))["q"]
    (nobody,) = specs(kueue("ClusterQueue", "q")).values()
    assert nobody["namespaceSelector"]["matchExpressions"][0]["operator"] == "DoesNotExist"
    notes = convert([local], {})[1]
    assert "jobs of namespace vision name Queue q instead of default" in notes[0].text
    assert "kubectl label namespace vision bireme.dev/default-queue=q" in notes[1].text


def test_a_queue_without_quota_or_on_hold_is_closed() -> None:
    assert specs(kueue("ClusterQueue", "q", namespaceSelector={}))["q"] == {"state": "Closed"}
    held = cluster_queue("q", nominal(1), stopPolicy="HoldAndDrain")
    assert specs(held)["q"]["state"] == "Closed"
    assert "spec.stopPolicy" in fields(held)


def test_weights_are_whole_numbers() -> None:
    def weight(text: str | int) -> Any:
        return specs(cluster_queue("q", nominal(1), fairSharing={"weight": text}))["q"]["weight"]

    assert [weight(3), weight("500m"), weight("2500m"), weight(0), weight("5k")] == [
        3,
        1,
        2,
        1,
        1000,
    ]
    assert "spec.fairSharing.weight" in fields(
        cluster_queue("q", nominal(1), fairSharing={"weight": "2500m"})
    )


def test_every_difference_of_a_cluster_queue_is_noted() -> None:
    usual = cluster_queue(
        "q",
        nominal(1),
        cohortName="c",
        preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
    )
    assert fields(usual) == {"spec.resourceGroups", "spec.cohortName"}
    other = cluster_queue(
        "q",
        nominal(1, lendingLimit=0),
        cohortName="c",
        queueingStrategy="StrictFIFO",
        flavorFungibility={"whenCanBorrow": "TryNextFlavor"},
        admissionChecksStrategy={"admissionChecks": [{"name": "x"}]},
        preemption={"borrowWithinCohort": {"policy": "LowerPriority"}},
    )
    assert fields(other) - fields(usual) == {
        "spec.preemption.reclaimWithinCohort",
        "spec.preemption.withinClusterQueue",
        "spec.preemption.borrowWithinCohort",
        "spec.queueingStrategy",
        "spec.flavorFungibility",
        "spec.admissionChecksStrategy",
        "spec.resourceGroups[].flavors[].resources[].lendingLimit",
    }


def test_a_priority_class_keeps_its_value_up_to_the_maximum() -> None:
    document = {**kueue("WorkloadPriorityClass", "high"), "value": 2_000_000_000}
    document["description"] = "first"
    del document["spec"]
    (made,), notes = convert([document], {})
    assert made == {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1_000_000_000,
        "description": "first",
    }
    assert [note.field for note in notes] == ["kind", "value"]


def test_a_job_joins_a_pod_group_in_the_queue_behind_its_local_queue() -> None:
    queued = job(**{"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "high"})
    queued["spec"]["template"]["metadata"] = {
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}
    }
    manifests, notes = convert([queued, local_queue("lq", "vision", "q")], {})
    group, made = manifests
    assert group["metadata"] == {"name": "train", "namespace": "vision"}
    assert group["spec"] == {"minMember": 4, "queue": "q", "priorityClassName": "high"}
    assert made["metadata"]["labels"] == {"app": "a"}
    assert "suspend" not in made["spec"]
    template = made["spec"]["template"]
    assert template["metadata"] == {"labels": {"bireme.dev/pod-group": "train"}}
    assert template["spec"]["schedulerName"] == "bireme"
    assert template["spec"]["schedulingGates"] == [{"name": "bireme.dev/plan"}]
    assert "annotations[kueue.x-k8s.io/podset-required-topology]" in {n.field for n in notes}
    assert queued["spec"]["suspend"] is True, "the input stays unchanged"


def test_a_job_may_start_with_fewer_pods_and_its_queue_may_be_unknown() -> None:
    queued = job(**{"kueue.x-k8s.io/queue-name": "lq"})
    queued["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    manifests, notes = convert([queued], {})
    assert manifests[0]["spec"] == {"minMember": 2, "queue": "lq"}
    assert "LocalQueue vision/lq is not in this input" in notes[0].text


def test_jobs_without_a_name_and_other_kinds_stay_and_are_named() -> None:
    unnamed = job(**{"kueue.x-k8s.io/queue-name": "lq"})
    del unnamed["metadata"]["name"]
    other = {**job(**{"kueue.x-k8s.io/queue-name": "lq"}), "apiVersion": "kubeflow.org/v1"}
    other["kind"] = "PyTorchJob"
    made, notes = convert([unnamed, other], {})
    assert made == [unnamed, other]
    assert ["has no name" in notes[0].text, "is no Job" in notes[1].text] == [True, True]


def test_flavors_topologies_and_what_has_no_counterpart_become_advice() -> None:
    flavor = kueue(
        "ResourceFlavor",
        "spot",
        nodeLabels={"type": "spot"},
        tolerations=[{"key": "spot", "operator": "Exists"}],
        topologyName="racks",
    )
    topology = kueue("Topology", "racks", levels=[{"nodeLabel": "block"}, {"nodeLabel": "rack"}])
    made, notes = convert([flavor, topology, kueue("AdmissionCheck", "x")], {})
    assert made == []
    assert [note.text for note in notes[:2]] == [
        "give jobs that need such nodes nodeSelector type: spot",
        "give jobs that need such nodes tolerations for spot",
    ]
    assert "topologyLevels: rack, block" in notes[3].text
    assert notes[4].text == "left out: no other controller is asked before a start"
