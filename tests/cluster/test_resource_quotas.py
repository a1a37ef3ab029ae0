"""What quotas count of pods, compared with what the real API server counts."""

import json
from typing import Any

import pytest

from bireme.core.gangs import Task
from bireme.core.resources import add
from bireme.kube import wire
from bireme.kube.pods import request_of_spec
from bireme.kube.resource_quotas import ResourceQuotas, charges_of
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.waiting import wait_until
from testbed.objects.facts import through_the_wire
from testbed.scenario.manifests import GPU, Manifest, priority_class

pytestmark = pytest.mark.cluster
# The API server has every pod that such a quota counts ask for each of these, and of quotas with
# scopes it takes no others.
COMPUTE = {
    "pods": "100",
    "cpu": "100",
    "requests.memory": "1Ti",
    "limits.cpu": "200",
    "limits.memory": "1Ti",
}
NUMBER = {"pods": "100"}
ANY = {"pods": "100", "count/pods": "100", f"requests.{GPU}": "64", "ephemeral-storage": "1Ti"}


def selects(operator: str, *values: str) -> Manifest:
    scope = {"scopeName": "PriorityClass", "operator": operator}
    return {"scopeSelector": {"matchExpressions": [scope | ({"values": values} if values else {})]}}


QUOTAS: dict[str, Manifest] = {
    "all": {"hard": ANY},
    "ending": {"scopes": ["Terminating"], "hard": NUMBER},
    "lasting": {"scopes": ["NotTerminating"], "hard": NUMBER},
    "best": {"scopes": ["BestEffort"], "hard": NUMBER},
    "paid": {"scopes": ["NotBestEffort"], "hard": COMPUTE},
    "paid-and-ending": {"scopes": ["NotBestEffort", "Terminating"], "hard": COMPUTE},
    "high": {**selects("In", "quota-high", "quota-third"), "hard": COMPUTE},
    "not-high": {**selects("NotIn", "quota-high"), "hard": NUMBER},
    "classed": {**selects("Exists"), "hard": COMPUTE},
    "classless": {**selects("DoesNotExist"), "hard": NUMBER},
    "classed-by-name": {"scopes": ["PriorityClass"], "hard": NUMBER},
}
GIVEN = {"cpu": "500m", "memory": "1Gi"}
TWICE = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "3Gi", GPU: "2"}
BOTH: dict[str, Any] = {"requests": GIVEN, "limits": TWICE}


def container(name: str = "train", **resources: Any) -> Manifest:
    return {"name": name, "image": "train", "resources": resources}


PODS: dict[str, Manifest] = {
    "empty": {"containers": [container()]},
    "gpus-alone": {"containers": [container(limits={GPU: "1"})]},
    "two": {"containers": [container(**BOTH), container("b", limits=TWICE)]},
    "ending": {"containers": [container(**BOTH)], "activeDeadlineSeconds": 600},
    "ending-empty": {"containers": [container()], "activeDeadlineSeconds": 600},
    "high": {"containers": [container(**BOTH)], "priorityClassName": "quota-high"},
    "other": {"containers": [container(limits=TWICE)], "priorityClassName": "quota-other"},
    "sidecar": {
        "containers": [container(**BOTH)],
        "initContainers": [
            {**container("proxy", **BOTH), "restartPolicy": "Always"},
            container("unpack", requests=GIVEN, limits={"cpu": "4", "memory": "1Gi"}),
        ],
    },
    "whole": {
        "containers": [container(**BOTH)],
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "5", "memory": "7Gi"}},
    },
}


def test_every_scope_counts_what_the_api_server_counts(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    for name in ("quota-high", "quota-other"):
        cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(name, 5))
    try:
        for name, more in QUOTAS.items():
            body = {"metadata": {"name": name}, "spec": more}
            cluster.api.post(f"{path}/resourcequotas", body)
        wait_until(lambda: all(used(each) is not None for each in quotas(cluster, path)), 30, "use")
        found = ResourceQuotas(lambda: None)
        for each in quotas(cluster, path):
            key = (namespace, each["metadata"]["name"])
            found.put(key, through_the_wire(each, wire.V1ResourceQuota))
        made = [
            cluster.api.post(
                f"{path}/pods",
                {
                    "metadata": {"name": name},
                    # Gated: no scheduler takes it, and quotas count it all the same.
                    "spec": {**spec, "schedulingGates": [{"name": "example.com/never"}]},
                },
            )
            for name, spec in PODS.items()
        ]
        expected: dict[str, dict[str, int]] = {name: {} for name in QUOTAS}
        for pod in made:
            spec = through_the_wire(pod["spec"], wire.V1PodSpec)
            task = Task("worker", 1, request_of_spec(spec))
            class_name = pod["spec"].get("priorityClassName")
            for name, amounts in found.charges(namespace, task, class_name, charges_of(spec)):
                expected[name] = add(expected[name], amounts)

        def seen() -> dict[str, dict[str, int]]:
            now = ResourceQuotas(lambda: None)
            for each in quotas(cluster, path):
                key = (namespace, each["metadata"]["name"])
                now.put(key, through_the_wire(each, wire.V1ResourceQuota))
            return {
                name: {resource: amount for resource, amount in quota.used.items() if amount}
                for (_, name), quota in now.with_promised({}).items()
            }

        differs = lambda: json.dumps({"bireme": expected, "api server": seen()}, indent=1)  # noqa: E731
        wait_until(lambda: seen() == expected, 30, "equal counts", differs)
        assert all(expected.values())
    finally:
        for name in ("quota-high", "quota-other"):
            cluster.kubectl("delete", "priorityclass", name, "--wait=false")


def quotas(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.api.get(f"{path}/resourcequotas")["items"]
    return items


def used(quota: dict[str, Any]) -> Manifest | None:
    found: Manifest | None = quota.get("status", {}).get("used")
    return found
