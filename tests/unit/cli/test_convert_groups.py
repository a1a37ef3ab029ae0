"""bireme migrate convert: Volcano's queues and pod groups, and pods of other controllers."""

from typing import Any

import pytest
import yaml

from bireme.cli.convert import convert
from bireme.cli.manifest_files import ManifestError, manifests


def queue(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    return {**head, "metadata": {"name": "q"}, "spec": spec}


def test_a_queue_keeps_weight_parent_limit_and_what_it_deserves() -> None:
    made, notes = convert(
        [queue(weight=3, parent="root", capability={"cpu": 4}, deserved={"cpu": 2})], {}
    )
    assert made[0]["spec"] == {"weight": 3, "limit": {"cpu": 4}, "guaranteed": {"cpu": 2}}
    assert notes == ()


def test_what_volcano_keeps_idle_is_only_guaranteed() -> None:
    made, notes = convert([queue(guarantee={"resource": {"cpu": 2}}, reclaimable=False)], {})
    assert made[0]["spec"]["guaranteed"] == {"cpu": 2}
    assert {note.field for note in notes} == {"spec.guarantee", "spec.reclaimable"}


def test_a_hierarchy_of_annotations_becomes_queues_with_parents() -> None:
    def leaf(name: str, weights: str) -> dict[str, Any]:
        about = {
            "volcano.sh/hierarchy": f"root/eng/{name}",
            "volcano.sh/hierarchy-weights": weights,
        }
        made = queue(weight=1)
        made["metadata"] = {"name": f"root-eng-{name}", "annotations": about}
        return made

    made, _ = convert([leaf("prod", "1/2/8"), leaf("dev", "1/2/3")], {})
    assert [(q["metadata"]["name"], q["spec"]) for q in made] == [
        ("eng", {"weight": 2}),
        ("root-eng-prod", {"weight": 8, "parent": "eng"}),
        ("root-eng-dev", {"weight": 3, "parent": "eng"}),
    ]


def test_a_pod_group_keeps_its_shape() -> None:
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    spec = {"minMember": 3, "minTaskMember": {"a": 2}, "queue": "q", "minResources": {"cpu": "3"}}
    topology = {"networkTopology": {"mode": "hard"}}
    made, notes = convert([{**head, "metadata": {"name": "g"}, "spec": {**spec, **topology}}], {})
    assert made[0]["spec"] == spec
    assert [note.field for note in notes] == ["spec.networkTopology"]


def workload(annotations: dict[str, str]) -> dict[str, Any]:
    pod = {"schedulerName": "volcano", "containers": [{"name": "a", "image": "b"}]}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"template": template}}  # fmt: skip


def test_pods_of_other_controllers_join_the_group_they_name() -> None:
    made, _ = convert([workload({"scheduling.k8s.io/group-name": "g"})], {})
    template = made[0]["spec"]["template"]
    assert template["metadata"]["labels"] == {"bireme.dev/pod-group": "g"}
    assert template["spec"]["schedulingGates"] == [{"name": "bireme.dev/plan"}]
    assert template["spec"]["schedulerName"] == "bireme"


def test_pods_without_a_group_go_back_to_the_default_scheduler() -> None:
    made, notes = convert([workload({"scheduling.volcano.sh/queue-name": "q"})], {})
    assert "schedulerName" not in made[0]["spec"]["template"]["spec"]
    assert any("default scheduler" in note.text for note in notes)


def test_other_documents_stay_as_they_are_and_kinds_without_a_counterpart_are_named() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}}
    cron = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": "c"}}
    made, notes = convert([service, cron], {})
    assert made == [service]
    assert "CronJob of Kubernetes" in notes[0].text


def test_lists_are_unfolded_and_what_is_no_manifest_is_refused() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [service, service]}
    assert len(manifests(yaml.safe_dump(listed), "x.yaml")) == 2
    with pytest.raises(ManifestError, match=r"x\.yaml: is not YAML"):
        manifests("a: [", "x.yaml")
    with pytest.raises(ManifestError, match="without a kind"):
        manifests("- 1", "x.yaml")
