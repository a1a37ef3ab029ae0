"""What a pod asks about other pods is planned, or left to kube-scheduler in words."""

from typing import Any

import pytest

from bireme.core.cycle import run_cycle
from bireme.core.gangs import HostPort
from bireme.kube import wire
from bireme.kube.pods import kind_of_spec, rules_over_pods, spec_of_template
from bireme.registry import make_policy
from tests.support.objects.cluster_state import ClusterStateFeed
from tests.support.objects.facts import a_job, a_plan, pod_manifest, served, through_the_wire
from tests.support.scenario.manifests import Manifest, member_template, pod, pod_spec, queue, task

TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": TERM}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"affinity": {"podAffinity": REQUIRED}},
            ("required pod affinity on kubernetes.io/hostname",),
        ),
        (
            {"affinity": {"podAntiAffinity": REQUIRED}},
            ("required pod anti-affinity on kubernetes.io/hostname",),
        ),
        ({"affinity": {"podAffinity": PREFERRED, "podAntiAffinity": PREFERRED}}, ()),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
                    {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
                ]
            },
            ("topology spread over rack",),
        ),
    ],
)
def test_hard_demands_about_other_pods_are_named(
    spec: dict[str, Any], words: tuple[str, ...]
) -> None:
    assert rules_over_pods(spec_of_template({"spec": spec})) == words


def test_gangs_of_such_pods_are_planned_without_a_pin() -> None:
    """Of a job the rules of all tasks are named, each once; an equal job without has none."""
    cluster = ClusterStateFeed()
    cluster.node("n0")
    ruled = pod_spec(1, affinity={"podAntiAffinity": REQUIRED})
    cluster.job(task("a", role="worker", spec=ruled), task("b", role="worker", spec=ruled))
    (gang,) = cluster.waiting()
    words = "required pod anti-affinity on kubernetes.io/hostname"
    assert (gang.fault, gang.left_to_scheduler) == (None, words)
    cluster.job(task("a", role="worker", spec=pod_spec(1)))
    (gang,) = cluster.waiting()
    assert gang.left_to_scheduler == ""


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
    kind = kind_of_spec(spec_of_template({"spec": spec}))
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
    cluster.state.put_other_pod(("default", "agent"), read)
    cluster.job(task("worker", 1, spec=on_port(8080)))
    assert places(cluster) == ["n1"]
    assert cluster.waiting()[0].left_to_scheduler == ""
    cluster.state.delete_other_pod(("default", "agent"))
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
