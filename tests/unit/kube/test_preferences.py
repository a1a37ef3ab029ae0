"""What pods would rather have is read from their manifests and weighs when their gang starts."""

from typing import Any

import pytest

from bireme.core.pod_constraints import (
    NO_PREFERENCES,
    NodePreference,
    PodPreference,
    PodSelector,
    PodTerm,
    Preferences,
    Requirement,
    SelectorOperator,
    SelectorTerm,
    SpreadLimit,
    Taint,
)
from bireme.kube import preferences, wire
from bireme.testing import a_node
from testbed.objects.cluster_state import ClusterStateFeed
from testbed.objects.facts import a_job, a_plan, node_manifest, served, through_the_wire
from testbed.scenario.manifests import (
    Manifest,
    member_template,
    pod,
    pod_group,
    pod_spec,
    task,
)
from tests.unit.kube.test_rules_over_pods import HOST, a_queue, labelled, places

SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def on_nodes(weight: int = 1, **labels: str) -> Manifest:
    """Return an affinity that prefers nodes with ``labels``."""
    asked = [{"key": k, "operator": "In", "values": [v]} for k, v in labels.items()]
    term = {"weight": weight, "preference": {"matchExpressions": asked}}
    return {"nodeAffinity": {SOFT: [term]}}


def to_pods(kind: str, key: str = HOST, **labels: str) -> Manifest:
    """Return a soft affinity of this kind to pods with ``labels``."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {kind: {SOFT: [{"weight": 5, "podAffinityTerm": term}]}}


def read(**spec: Any) -> Preferences:
    return preferences.of_spec(through_the_wire(spec, wire.V1PodSpec), "default", {"app": "a"})


def of_app(app: str) -> PodSelector:
    return PodSelector(("default",), (), (Requirement("app", SelectorOperator.IN, (app,)),))


def test_all_that_kube_scheduler_scores_of_a_pod_is_read_with_its_weights() -> None:
    affinity = {
        **on_nodes(7, disk="ssd"),
        **to_pods("podAffinity", app="a"),
        **to_pods("podAntiAffinity", "rack", app="b"),
    }
    soft = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}
    spread = [{**soft, "labelSelector": {}, "matchLabelKeys": ["app"]}]
    ssd = SelectorTerm((Requirement("disk", SelectorOperator.IN, ("ssd",)),))
    assert read(affinity=affinity, topologySpreadConstraints=spread) == Preferences(
        (NodePreference(14, ssd),),
        (
            PodPreference(10, near=PodTerm(HOST, of_app("a"))),
            PodPreference(10, apart=PodTerm("rack", of_app("b"))),
            PodPreference(200, spread=SpreadLimit("rack", 2, of_app("a"))),
        ),
    )


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {"nodeAffinity": {}, "podAffinity": {}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
        {"affinity": to_pods("podAntiAffinity", **{"bireme.dev/index": "0"})},
    ],
)
def test_a_pod_without_preferences_has_none(spec: dict[str, Any]) -> None:
    assert read(**spec) is NO_PREFERENCES


def a_cluster() -> ClusterStateFeed:
    """Return two nodes of which the first is the one that a gang without wishes gets."""
    cluster = ClusterStateFeed()
    a_queue(cluster)
    cluster.job(task("worker", 1, spec=pod_spec(1)))
    assert places(cluster) == ["n0"]
    return cluster


def test_a_job_goes_to_the_nodes_it_prefers() -> None:
    cluster = a_cluster()
    cluster.node("n1", labels={"disk": "ssd"})
    cluster.job(task("worker", 1, spec=pod_spec(1, affinity=on_nodes(disk="ssd"))))
    assert places(cluster) == ["n1"]


def test_a_job_keeps_away_from_a_pod_of_nobody_while_that_is_there() -> None:
    cluster = a_cluster()
    cluster.job(task("worker", 1, spec=pod_spec(1, affinity=to_pods("podAntiAffinity", app="x"))))
    assert places(cluster) == ["n0"]
    made = pod("noisy", 0, nodeName="n0")
    made["metadata"]["labels"] = {"app": "x"}
    cluster.state.objects.put_other_pod(("default", "noisy"), through_the_wire(made, wire.V1Pod))
    assert places(cluster) == ["n1"]
    cluster.state.objects.delete_other_pod(("default", "noisy"))
    assert places(cluster) == ["n0"]


def test_members_of_a_group_keep_away_from_each_other_and_from_jobs() -> None:
    cluster = a_cluster()
    busy = labelled("worker", pod_spec(1), app="a")
    busy["replicas"] = 1
    cluster.job(busy, plan=a_plan(a_job(busy), ("n0",)))
    cluster.group(queue="default")
    spec = pod_spec(1, affinity=to_pods("podAntiAffinity", app="a"))
    a_member(cluster, "one", spec)
    assert places(cluster) == ["n1"]
    cluster.job_gone()
    a_member(cluster, "two", spec)
    assert places(cluster) == ["n0", "n1"]


def a_member(cluster: ClusterStateFeed, name: str, spec: Manifest) -> None:
    template = member_template("group", 1, **spec)
    labels = {**template["metadata"]["labels"], "app": "a"}
    meta = {**template["metadata"], "name": name, "labels": labels}
    cluster.member(served({"apiVersion": "v1", "kind": "Pod", **template, "metadata": meta}, name))


def test_members_that_prefer_different_things_are_one_task_with_what_all_prefer() -> None:
    cluster = a_cluster()
    cluster.job_gone()
    cluster.group(queue="default")
    both = on_nodes(1, disk="ssd")
    more = {
        "nodeAffinity": {
            SOFT: [*on_nodes(2, net="ib")["nodeAffinity"][SOFT], *both["nodeAffinity"][SOFT]]
        }
    }
    a_member(cluster, "one", pod_spec(1, affinity=more))
    a_member(cluster, "two", pod_spec(1, affinity=both))
    (gang,) = cluster.waiting()
    (made,) = gang.tasks
    assert [wish.weight for wish in made.preferences.nodes] == [2]


def test_what_running_pods_prefer_concerns_no_gang() -> None:
    cluster = a_cluster()
    made = pod("there", 0, nodeName="n0", affinity=to_pods("podAntiAffinity", app="a"))
    cluster.state.objects.put_other_pod(("default", "there"), through_the_wire(made, wire.V1Pod))
    cluster.job(labelled("worker", pod_spec(1), app="a"))
    (gang,) = cluster.waiting()
    assert not gang.has_rules
    assert places(cluster) == ["n0"]


def test_a_soft_taint_keeps_a_job_off_only_while_another_node_has_room() -> None:
    cluster = a_cluster()
    cluster.node("n0", soft_taints=(Taint("old", "", "PreferNoSchedule"),))
    assert places(cluster) == ["n1"]
    cluster.node("n1", gpus=0)
    assert places(cluster) == ["n0"]


def with_images(cluster: ClusterStateFeed, name: str, *images: str) -> None:
    made = node_manifest(a_node(name))
    made["status"]["images"] = [{"names": [image, f"{image}@sha256:0"]} for image in images]
    cluster.state.nodes.put(("", name), through_the_wire(made, wire.V1Node))


def that_failed(cluster: ClusterStateFeed, reason: str, spec: Manifest) -> None:
    condition = {"type": "Running", "status": "False", "reason": reason}
    status = {"phase": "Restarting", "startFailures": 1, "conditions": [condition]}
    meta, of_spec = {"generation": 9}, {"observedGeneration": 9}
    cluster.job(task("worker", 1, spec=spec), status={**status, **of_spec}, metadata=meta)


def test_a_retry_after_a_start_that_timed_out_prefers_nodes_that_have_all_images() -> None:
    cluster = a_cluster()
    spec = pod_spec(1)
    spec["containers"][0]["image"] = "trainer"
    spec["initContainers"] = [{"name": "init", "image": "data:1"}]
    that_failed(cluster, "StartTimedOut", spec)
    assert places(cluster) == ["n0"]
    with_images(cluster, "n1", "trainer:latest")
    assert places(cluster) == ["n0"]
    with_images(cluster, "n1", "trainer:latest", "data:1", "other:3")
    assert places(cluster) == ["n1"]
    with_images(cluster, "n1", "data:1")
    assert places(cluster) == ["n0"]
    with_images(cluster, "n1", "trainer:latest", "data:1")
    that_failed(cluster, "Unschedulable", spec)
    assert places(cluster) == ["n0"]


def test_so_does_a_retry_of_a_group() -> None:
    cluster = a_cluster()
    cluster.job_gone()
    made = served(pod_group("group", 1, queue="default"), "group")
    made["metadata"]["generation"] = 2
    made["status"] = {"reason": "StartTimedOut", "startFailures": 1, "observedGeneration": 2}
    cluster.state.objects.put_group(("default", "group"), through_the_wire(made, wire.CustomObject))
    a_member(cluster, "one", pod_spec(1))
    assert places(cluster) == ["n0"]
    with_images(cluster, "n1", "trainer:latest")
    assert places(cluster) == ["n1"]


def test_preferences_that_admission_adds_count() -> None:
    cluster = a_cluster()
    cluster.node("n1", labels={"disk": "ssd"})
    job = cluster.state.objects.jobs["default", "job"]
    made = through_the_wire(pod("any", 1, affinity=on_nodes(disk="ssd")), wire.V1Pod)
    cluster.state.mutations.put(job, 0, made, 0.0)
    cluster.state.objects.apply_mutations("default")
    assert places(cluster) == ["n1"]
