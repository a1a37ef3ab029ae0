"""What a pod asks about other pods is left to kube-scheduler, in words."""

from typing import Any

import pytest

from bireme.kube.pods import rules_over_pods, spec_of_template
from tests.support.objects.cluster_state import ClusterStateFeed
from tests.support.scenario.manifests import pod_spec, task

TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": TERM}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, ()),
        (
            {"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080}]}]},
            ("host port 8080",),
        ),
        (
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
            ("host port 80",),
        ),
        ({"initContainers": [{"ports": [{"hostPort": 8080}]}]}, ()),
        (
            {"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 8080}]}]},
            ("host port 8080",),
        ),
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
