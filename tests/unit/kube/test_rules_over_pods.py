"""What a pod asks about other pods is planned, or left to kube-scheduler in words."""

from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.pod_constraints import HostPort
from bireme.kube import wire
from bireme.kube.pod_rules import demands_for_scheduler, demands_of_spec
from bireme.registry import make_policy
from testbed.objects.cluster_state import ClusterStateFeed
from testbed.objects.facts import a_job, a_plan, pod_manifest, served, through_the_wire
from testbed.scenario.manifests import Manifest, member_template, pod, pod_spec, queue, task

HOST = "kubernetes.io/hostname"


def affinity(kind: str, key: str = HOST, **labels: str) -> Manifest:
    """Return an affinity of this kind to pods with ``labels``."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key: str, **fields: Any) -> list[Manifest]:
    """Return a hard spread of the pods with label ``app: a``."""
    pods = {"labelSelector": {"matchLabels": {"app": "a"}}}
    hard = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**hard, **pods, **fields}]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"affinity": affinity("podAffinity", app="a")}, ()),
        (
            {"affinity": affinity("podAntiAffinity", **{"bireme.dev/index": "0"})},
            (f"required pod anti-affinity on {HOST}",),
        ),
        ({"topologySpreadConstraints": spread("rack")}, ()),
        (
            {"topologySpreadConstraints": spread("rack", minDomains=2)},
            ("topology spread over rack",),
        ),
        (
            {"topologySpreadConstraints": spread("rack", nodeAffinityPolicy="Ignore")},
            ("topology spread over rack",),
        ),
    ],
)
def test_demands_about_other_pods_that_are_not_planned_are_named(
    spec: dict[str, Any], words: tuple[str, ...]
) -> None:
    assert demands_for_scheduler(through_the_wire(spec, wire.V1PodSpec)) == words


INDEX = {"labelSelector": {"matchLabels": {"bireme.dev/index": "0"}}}


@pytest.mark.parametrize(
    ("written", "made", "words"),
    [
        (spread("rack", minDomains=2), spread("rack", minDomains=2), ()),
        (
            spread("rack", nodeAffinityPolicy="Ignore"),
            # As the API server returns it: it completes selectors.
            spread("rack", nodeAffinityPolicy="Ignore", matchLabelKeys=["version"]),
            (),
        ),
        (spread("rack"), spread("rack", minDomains=2), ("topology spread over rack",)),
        (
            [],
            [*spread("rack"), *spread("zone", nodeAffinityPolicy="Ignore")],
            ("topology spread over rack", "topology spread over zone"),
        ),
        (spread("rack", **INDEX), spread("rack", **INDEX), ("topology spread over rack",)),
        (
            spread("rack", matchLabelKeys=["bireme.dev/plan"]),
            spread("rack", matchLabelKeys=["bireme.dev/plan"]),
            ("topology spread over rack",),
        ),
    ],
)
def test_a_spread_is_left_where_no_template_of_ours_has_it_so_or_it_is_about_one_pod(
    written: list[Manifest], made: list[Manifest], words: tuple[str, ...]
) -> None:
    template, spec = (
        through_the_wire({"topologySpreadConstraints": given}, wire.V1PodSpec)
        for given in (written, made)
    )
    assert demands_for_scheduler(spec, template) == words
    kind = demands_of_spec(spec, "default", {}, template)
    assert kind is not None
    assert bool(kind.spread) is not bool(words)


def test_equal_templates_of_two_jobs_know_their_own_pods_by_the_labels_of_their_job() -> None:
    """``matchLabelKeys`` takes the value of the pod itself, which only Bireme gives it."""
    cluster = ClusterStateFeed()
    a_queue(cluster)
    limits = spread(HOST, matchLabelKeys=["bireme.dev/training-job"])
    template = labelled("worker", pod_spec(1, topologySpreadConstraints=limits), app="a")
    cluster.job({**template, "replicas": 2})
    first = cluster.state.objects.jobs["default", "job"]
    other = a_job({**template, "replicas": 2}, name="other")
    assert first.pod_shapes != other.pod_shapes
    for job in (first, other):
        assert job.tasks[0].pod is not None
        (limit,) = job.tasks[0].pod.spread
        (asked,) = [r for r in limit.pods.requirements if r.key == "bireme.dev/training-job"]
        assert asked.values == (job.key[1],)
    assert places(cluster) == ["n0", "n1"]


def labelled(name: str, spec: Manifest, **labels: str) -> Manifest:
    """Return a task whose pods have ``labels``."""
    made = task(name, role=name, spec=spec)
    made["template"]["metadata"] = {"labels": labels}
    return made


def test_a_gang_without_rules_stays_away_from_pods_that_want_it_away() -> None:
    """Anti-affinity holds both ways; a label of the namespace can be what it selects by."""
    cluster = ClusterStateFeed()
    a_queue(cluster)
    cluster.job(labelled("worker", pod_spec(1), app="a"))
    assert not cluster.waiting()[0].has_rules
    away = affinity("podAntiAffinity", app="a")
    (term,) = away["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    made = pod("database", 0, **pod_spec(0, affinity=away), nodeName="n0")
    read = through_the_wire(made, wire.V1Pod)
    cluster.state.objects.put_other_pod(("other", "database"), read)
    assert places(cluster) == ["n0"]
    space = {"metadata": {"name": "default", "labels": {"team": "a"}}}
    cluster.state.tenancy.put_namespace(("", "default"), through_the_wire(space, wire.MetadataOnly))
    assert places(cluster) == ["n1"]
    assert cluster.waiting()[0].left_to_scheduler == ""
    cluster.state.objects.delete_other_pod(("other", "database"))
    assert places(cluster) == ["n0"]


def test_members_that_are_planned_are_seen_by_others_rules_before_they_exist() -> None:
    cluster = ClusterStateFeed()
    a_queue(cluster)
    template = labelled("worker", pod_spec(1), app="a")
    template["replicas"] = 1
    cluster.job(template, plan=a_plan(a_job(template), ("n1",)))
    near = member_template("group", 1, **pod_spec(1, affinity=affinity("podAffinity", app="a")))
    gated = {"apiVersion": "v1", "kind": "Pod", **near}
    gated["metadata"] = {**near["metadata"], "name": "w"}
    cluster.group(queue="default")
    cluster.member(served(gated, "w-uid"))
    assert places(cluster) == ["n1"]


def on_port(number: int, **port: Any) -> Manifest:
    """Return a pod spec of one GPU that takes a host port."""
    spec = pod_spec(1)
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": number, **port}]
    return spec


@pytest.mark.parametrize(
    ("spec", "ports"),
    [
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, None),
        (
            {"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080}]}]},
            (HostPort(8080),),
        ),
        (
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
            (HostPort(80),),
        ),
        ({"initContainers": [{"ports": [{"hostPort": 8080}]}]}, None),
        (
            {
                "initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 8080}]}],
                "containers": [
                    {"ports": [{"hostPort": 8080, "protocol": "UDP", "hostIP": "10.0.0.1"}]}
                ],
            },
            (HostPort(8080), HostPort(8080, "UDP", "10.0.0.1")),
        ),
    ],
)
def test_host_ports_are_read_of_all_containers_that_stay(
    spec: dict[str, Any], ports: tuple[HostPort, ...] | None
) -> None:
    kind = demands_of_spec(through_the_wire(spec, wire.V1PodSpec), "default", {})
    assert (kind.ports if kind is not None else None) == ports


def places(cluster: ClusterStateFeed) -> list[str]:
    """Return the nodes of the gang that is admitted."""
    snapshot = cluster.snapshot()
    (admit,) = run_cycle(snapshot, make_policy(cluster.state.settings)).admitted
    return sorted(n for some in admit.placement.by_task(snapshot.nodes).values() for n in some)


def a_queue(cluster: ClusterStateFeed) -> None:
    made = through_the_wire(served(queue("default"), "uid", namespace=""), wire.CustomObject)
    cluster.state.tenancy.put_queue(("", "default"), made)


def test_ports_of_pods_of_nobody_are_free_again_when_they_end() -> None:
    cluster = ClusterStateFeed()
    a_queue(cluster)
    made = pod("agent", 0, **on_port(8080), nodeName="n0")
    read = through_the_wire(made, wire.V1Pod)
    cluster.state.objects.put_other_pod(("default", "agent"), read)
    cluster.job(task("worker", 1, spec=on_port(8080)))
    assert places(cluster) == ["n1"]
    assert cluster.waiting()[0].left_to_scheduler == ""
    cluster.state.objects.delete_other_pod(("default", "agent"))
    assert places(cluster) == ["n0"]


def test_ports_of_planned_pods_count_before_these_exist_and_after() -> None:
    """A PodGroup's pod wants the port of a job, of which one pod exists and one does not."""
    template = task("worker", 1, spec=on_port(8080))
    job = a_job(template)
    cluster = ClusterStateFeed()
    a_queue(cluster)
    plan = a_plan(job, ("n0",))
    cluster.job(template, plan=plan)
    cluster.group(queue="default")
    waiting = member_template("group", 1, **on_port(8080))
    gated = {"apiVersion": "v1", "kind": "Pod", **waiting}
    gated["metadata"] = {**waiting["metadata"], "name": "w"}
    cluster.member(served(gated, "w-uid"))
    assert [held.gang.uid for held in cluster.snapshot().running] == ["job-uid"]
    assert places(cluster) == ["n1"]
    cluster.member(pod_manifest(job, plan, plan.members[0], "Running"))
    assert places(cluster) == ["n1"]
    assert {group.owner for group in cluster.snapshot().occupants.groups} == {"job-uid"}
    cluster.job_gone()
    cluster.gone(pod_manifest(job, plan, plan.members[0], "Running"))
    assert places(cluster) == ["n0"]
