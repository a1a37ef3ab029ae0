"""ResourceQuotas and LimitRanges on the embedded cluster and on a real one.

Both refuse in the same words, count the same usage and set the same defaults.
"""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest

from bireme_lab.embedded.api import patches
from bireme_lab.embedded.cluster import EmbeddedCluster
from testbed.controlplane.api import Manifest
from testbed.controlplane.cluster import Cluster
from testbed.scenario.manifests import GPU
from testbed.scenario.server_pair import ServerPair

pytestmark = pytest.mark.cluster


def selects(scope: str, operator: str, *values: str) -> Manifest:
    requirement = {"scopeName": scope, "operator": operator}
    listed = requirement | ({"values": list(values)} if values else {})
    return {"scopeSelector": {"matchExpressions": [listed]}}


ONE: Final = {"hard": {"pods": "1"}}
SPECS: Final[dict[str, Manifest]] = {
    "amounts": {
        "hard": {
            "requests.cpu": "1000m",
            "memory": "1024Mi",
            "limits.memory": "1e3",
            "requests.ephemeral-storage": "1.5Gi",
            "cpu": 0.5,
            "hugepages-2Mi": "4Mi",
            "pods": 10,
            f"requests.{GPU}": "4",
            "count/jobs.batch": "2",
        }
    },
    "unknown name": {"hard": {"foo": "1"}},
    "part of a pod": {"hard": {"pods": "1.5"}},
    "below zero": {"hard": {"pods": "-1"}},
    "no amount": {"hard": {"pods": "x"}},
    "unknown scope": {**ONE, "scopes": ["Foo"]},
    "conflicting scopes": {**ONE, "scopes": ["BestEffort", "NotBestEffort"]},
    "scope of no such amount": {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]},
    "counts in a scope": {"hard": {"count/pods": "1"}, "scopes": ["Terminating"]},
    "values of a plain scope": {**ONE, **selects("Terminating", "In", "a")},
    "no values": {**ONE, **selects("PriorityClass", "In")},
    "values too many": {**ONE, **selects("PriorityClass", "Exists", "a")},
    "unknown operator": {**ONE, **selects("PriorityClass", "Near")},
    "selector of no such amount": {"hard": {"secrets": "1"}, **selects("PriorityClass", "Exists")},
    "nothing": {},
}
COMPUTE: Final = {
    "pods": "4",
    "cpu": "4",
    "requests.memory": "6Gi",
    "limits.cpu": "8",
    f"requests.{GPU}": "3",
}
QUOTAS: Final[dict[str, Manifest]] = {
    "all": {"hard": {"count/pods": "7", f"requests.{GPU}": "3", "ephemeral-storage": "1Ti"}},
    "paid": {"scopes": ["NotBestEffort"], "hard": {**COMPUTE, f"requests.{GPU}": "100"}},
    "best": {"scopes": ["BestEffort"], "hard": {"pods": "2"}},
    "ending": {"scopes": ["Terminating"], "hard": {"pods": "1"}},
    "lasting": {"scopes": ["NotTerminating"], "hard": {"pods": "6"}},
    "classed": {**selects("PriorityClass", "In", "system-node-critical"), "hard": {"pods": "0"}},
    "objects": {"hard": {"services": "2", "count/secrets": "1", "count/jobs.batch": "0"}},
}
BOTH: Final[dict[str, Any]] = {
    "requests": {"cpu": "500m", "memory": "1Gi"},
    "limits": {"cpu": "1", "memory": "2Gi"},
}


def container(name: str = "c", **resources: Any) -> Manifest:
    return {"name": name, "image": "i", "resources": resources}


def gpus(number: str) -> Manifest:
    limits = {**BOTH["limits"], GPU: number}
    return container(requests=BOTH["requests"], limits=limits)


PODS: Final[dict[str, Manifest]] = {
    "best-1": {"containers": [container()]},
    "best-2": {"containers": [container(limits={GPU: "1"})]},
    "best-3": {"containers": [container()]},
    "gpus": {"containers": [gpus("2")]},
    "gpus-too-many": {"containers": [gpus("1")]},
    "no-limit": {"containers": [container(requests=BOTH["requests"])]},
    "no-memory": {
        "containers": [container(limits={"cpu": "1"}), container("b", limits={"cpu": "1"})]
    },
    "ending": {"containers": [container(**BOTH)], "activeDeadlineSeconds": 60},
    "ending-again": {"containers": [container(**BOTH)], "activeDeadlineSeconds": 60},
    "sidecar": {
        "containers": [container(**BOTH)],
        "initContainers": [
            {**container("proxy", **BOTH), "restartPolicy": "Always"},
            container("unpack", requests=BOTH["requests"], limits={"cpu": "3", "memory": "1Gi"}),
        ],
    },
    "classed": {"containers": [container(**BOTH)], "priorityClassName": "system-node-critical"},
    "large": {"containers": [container(limits={"cpu": "2500m", "memory": "4100Mi"})]},
    "together": {"containers": [container()], "resources": {"limits": BOTH["limits"]}},
}
HUGE: Final = "hugepages-2Mi"
OWN: Final = container(requests={"cpu": "500m", "memory": "1Gi"}, limits={"cpu": "2"})
TOGETHER: Final[dict[str, tuple[Manifest, Manifest]]] = {
    "limits": ({"limits": {"cpu": "4", "memory": "4Gi"}}, OWN),
    "limits alone": ({"limits": {"cpu": "4", "memory": "4Gi"}}, container()),
    "one limit": ({"limits": {"cpu": "4"}}, OWN),
    "huge pages": ({"limits": {HUGE: "4Mi", "memory": "1Gi"}}, container()),
    "huge pages alone": ({"limits": {HUGE: "4Mi"}}, container()),
    "huge pages without limit": ({"requests": {HUGE: "4Mi", "cpu": "1"}}, container()),
    "huge pages of a container": ({}, container(limits={HUGE: "4Mi"})),
    "fewer huge pages": (
        {"requests": {HUGE: "2Mi"}, "limits": {HUGE: "4Mi", "cpu": "1"}},
        container(),
    ),
    "other forms": ({"requests": {"cpu": "1.50", "memory": "1024Mi"}}, container()),
    "below its containers": ({"requests": {"cpu": "100m", "memory": "1Mi", "foo": "1"}}, OWN),
    "limits below": ({"limits": {"cpu": "1", "memory": "1Mi"}}, OWN),
    "of no pod": ({"requests": {"ephemeral-storage": "1Gi", GPU: "1"}}, container()),
    "below zero": ({"requests": {"cpu": "-1"}}, OWN),
    "request above limit": ({"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}, container()),
}
"""What a pod asks for all its containers, and its container."""
JOB: Final = {
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": {"containers": [container()], "restartPolicy": "Never"}}},
}


def limits(*items: Manifest) -> Manifest:
    return {"metadata": {"name": "l"}, "spec": {"limits": list(items)}}


def of_container(**parts: Any) -> Manifest:
    return {"type": "Container", **parts}


LIMITS: Final[dict[str, Manifest]] = {
    "complete": limits(
        of_container(
            max={"cpu": "2", "memory": "1024Mi"},
            min={"cpu": 0.1, "ephemeral-storage": "1Gi"},
            default={"cpu": "1"},
            maxLimitRequestRatio={"cpu": "4"},
        )
    ),
    "defaults of pods": limits(
        {"type": "Pod", "max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": 1}}
    ),
    "type twice": limits({"type": "Pod", "max": {"cpu": "1"}}, {"type": "Pod"}),
    "unknown type": limits({"type": "Foo", "max": {"cpu": "1"}}),
    "type of others": limits({"type": "a.b/Foo", "max": {"cpu": "1"}}),
    "min above max": limits(of_container(max={"cpu": "1"}, min={"cpu": "2"})),
    "unknown resource": limits({"type": "Pod", "max": {"foo": "1"}}),
    "claim without storage": limits({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}),
    "ratio below one": limits(of_container(maxLimitRequestRatio={"cpu": "0.5"})),
    "ratio out of reach": limits(
        of_container(maxLimitRequestRatio={"cpu": "5"}, max={"cpu": "4"}, min={"cpu": "1"})
    ),
    "default above max": limits(of_container(default={"cpu": "3"}, max={"cpu": "2"})),
    "defaults apart": limits(of_container(default={GPU: "3"}, defaultRequest={GPU: "2"})),
    "no amount": limits(of_container(max={"cpu": "x"})),
}
RANGE: Final = limits(
    of_container(
        min={"cpu": "100m"},
        max={"cpu": "2"},
        default={"cpu": "1", "memory": "2Gi"},
        defaultRequest={"memory": "1Gi"},
    ),
    {"type": "Pod", "max": {"memory": "3Gi"}, "maxLimitRequestRatio": {"memory": "2"}},
    {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
)
LIMITED: Final[dict[str, Manifest]] = {
    "empty": {"containers": [container()]},
    "with an init container": {
        "containers": [container(requests={"cpu": "200m"})],
        "initContainers": [container("first", limits={"memory": "1Gi"})],
    },
    "high limit": {"containers": [container(limits={"cpu": "2500m"})]},
    "low request": {"containers": [container(requests={"cpu": "50m"})]},
    "large together": {"containers": [container(), container("b")]},
    "high ratio": {"containers": [container(requests={"memory": "100Mi"})]},
    "as large as may be": {
        "containers": [container(limits={"cpu": "2", "memory": "3Gi"})],
        "priorityClassName": "system-node-critical",
    },
}


@pytest.fixture
def space(cluster: Cluster) -> Iterator[str]:
    """The path of a new namespace of the real cluster."""
    name = f"quota-{secrets.token_hex(3)}"
    yield f"/api/v1/namespaces/{name}"
    cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")


def test_quotas_are_answered_as_by_the_api_server(cluster: Cluster, space: str) -> None:
    servers = ServerPair(EmbeddedCluster().api, cluster)
    servers.do("POST", "/api/v1/namespaces", {"metadata": {"name": space.rpartition("/")[2]}})
    bodies = {name: {"metadata": {"name": "q"}, "spec": spec} for name, spec in SPECS.items()}
    differences = servers.differences(f"{space}/resourcequotas", bodies)
    assert not differences, differences


def test_what_pods_ask_for_all_containers_is_judged_as_by_the_api_server(
    cluster: Cluster, space: str
) -> None:
    servers = ServerPair(EmbeddedCluster().api, cluster)
    servers.do("POST", "/api/v1/namespaces", {"metadata": {"name": space.rpartition("/")[2]}})
    own = {"automountServiceAccountToken": False}
    bodies = {
        name: {"metadata": {"name": "p"}, "spec": {**own, "resources": of, "containers": [only]}}
        for name, (of, only) in TOGETHER.items()
    }
    differences = servers.differences(f"{space}/pods", bodies)
    assert not differences, differences


def test_quotas_refuse_and_count_as_on_a_real_cluster(cluster: Cluster, space: str) -> None:
    asyncio.run(_compare_course(cluster, space))


async def _compare_course(cluster: Cluster, space: str) -> None:
    """Create, end and delete pods and other objects; compare every answer and all usage."""
    async with EmbeddedCluster() as embedded:
        servers = ServerPair(embedded.api, cluster)
        servers.do("POST", "/api/v1/namespaces", {"metadata": {"name": space.rpartition("/")[2]}})
        for name, spec in QUOTAS.items():
            body = {"metadata": {"name": name}, "spec": spec}
            servers.do("POST", f"{space}/resourcequotas", body)
        await _compare_usage(servers, space)
        for name, spec in PODS.items():
            own = {"automountServiceAccountToken": False, "schedulingGates": [{"name": "a/b"}]}
            pod = {"metadata": {"name": name}, "spec": {**spec, **own}}
            _compare_answers(servers, f"{space}/pods", pod)
        await _compare_usage(servers, space)
        for name in "abc":
            service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
            _compare_answers(servers, f"{space}/services", service)
        jobs = space.replace("/api/v1", "/apis/batch/v1") + "/jobs"
        _compare_answers(servers, jobs, JOB)
        ended = {"status": {"phase": "Succeeded"}}
        servers.do("PATCH", f"{space}/pods/gpus/status", ended, patches.MERGE_PATCH)
        servers.do("DELETE", f"{space}/pods/best-1")
        await _compare_usage(servers, space)


def _compare_answers(servers: ServerPair, path: str, body: Manifest) -> None:
    given, expected = (
        (code, answer["message"] if code >= 300 else "")
        for code, answer in (servers.ask_embedded("POST", path, body),
                             servers.ask_real("POST", path, body))
    )  # fmt: skip
    assert given == expected, body["metadata"]["name"]


async def _compare_usage(servers: ServerPair, space: str) -> None:
    for name in QUOTAS:
        # Controllers of the embedded cluster work while this waits.
        await asyncio.sleep(0.02)
        difference = servers.difference("GET", f"{space}/resourcequotas/{name}")
        assert not difference, difference


def test_limit_ranges_set_and_refuse_as_on_a_real_cluster(cluster: Cluster, space: str) -> None:
    servers = ServerPair(EmbeddedCluster().api, cluster)
    servers.do("POST", "/api/v1/namespaces", {"metadata": {"name": space.rpartition("/")[2]}})
    differences = servers.differences(f"{space}/limitranges", LIMITS)
    assert not differences, differences
    servers.do("POST", f"{space}/limitranges", RANGE)
    own = {"automountServiceAccountToken": False}
    bodies = {
        name: {"metadata": {"name": "p"}, "spec": {**spec, **own}} for name, spec in LIMITED.items()
    }
    differences = servers.differences(f"{space}/pods", bodies)
    assert not differences, differences
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    body = {"metadata": {"name": "c"}, "spec": claim}
    path = f"{space}/persistentvolumeclaims?dryRun=All"
    assert not (difference := servers.difference("POST", path, body)), difference
