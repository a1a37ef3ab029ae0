"""Pod Security on the embedded cluster: the words of a real one for what a level forbids."""

import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest

from bireme_lab.embedded.cluster import EmbeddedCluster
from testbed.controlplane.api import Manifest
from testbed.controlplane.cluster import Cluster
from testbed.scenario.server_pair import ServerPair

pytestmark = pytest.mark.cluster

LABEL: Final = "pod-security.kubernetes.io/enforce"
KEPT: Final[dict[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The security context that the level restricted asks of a container."""


def container(name: str = "a", port: int = 0, **context: Any) -> Manifest:
    ports = {"ports": [{"containerPort": port, "hostPort": port}]} if port else {}
    return {"name": name, "image": "i", "securityContext": context, **ports}


def pod(*containers: Manifest, context: Manifest | None = None, **spec: Any) -> Manifest:
    listed = list(containers) or [container()]
    return {"containers": listed, "securityContext": context or {}, **spec}


def caps(*added: str, drop: str = "ALL") -> Manifest:
    return {"capabilities": {"add": list(added), "drop": [drop]}}


def selinux(**options: str) -> Manifest:
    return {"seLinuxOptions": options}


PODS: Final[dict[str, Manifest]] = {
    "plain": pod(),
    "as restricted asks": pod(container(**KEPT)),
    "as restricted asks of the pod": pod(
        container(allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"]}),
        context={
            "runAsNonRoot": True,
            "seccompProfile": {"type": "Localhost", "localhostProfile": "p"},
        },
    ),
    "namespaces of the node": pod(hostNetwork=True, hostPID=True, hostIPC=True),
    "a folder of the node": pod(
        volumes=[
            {"name": "v", "hostPath": {"path": "/"}},
            {"name": "w", "hostPath": {"path": "/w"}},
        ]
    ),
    "another volume": pod(
        container(**KEPT),
        volumes=[
            {"name": "v", "nfs": {"server": "s", "path": "/"}},
            {"name": "c", "configMap": {"name": "c"}},
            {"name": "e", "emptyDir": {}},
        ],
    ),
    "ports of the node": pod(
        container(port=80),
        container("b", port=443),
    ),
    "a port of the node": pod(container(port=80)),
    "privileged": pod(
        container(privileged=True),
        initContainers=[container("first", privileged=True)],
    ),
    "capabilities": pod(
        container(**caps("SYS_ADMIN", "NET_RAW")),
        container("b", **caps("NET_BIND_SERVICE", drop="KILL")),
    ),
    "capabilities of all": pod(container(**caps("CHOWN"))),
    "a profile of none": pod(
        container(seccompProfile={"type": "Unconfined"}),
        context={"seccompProfile": {"type": "Unconfined"}},
    ),
    "a profile of AppArmor": pod(
        container(appArmorProfile={"type": "Unconfined"}),
        context={"appArmorProfile": {"type": "Unconfined"}},
    ),
    "SELinux": pod(
        container(**selinux(type="spc_t", user="u")), context=selinux(role="r", type="container_t")
    ),
    "hosts of probes": pod(
        {**container(), "livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}},
        {
            **container("b"),
            "lifecycle": {"preStop": {"tcpSocket": {"port": 80, "host": "10.0.0.2"}}},
            "readinessProbe": {"tcpSocket": {"port": 80, "host": "10.0.0.3"}},
        },
    ),
    "a host of a probe": pod(
        {
            **container(),
            "livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}},
            "lifecycle": {"postStart": {"httpGet": {"port": 80, "host": ""}}},
        }
    ),
    "this host in a probe": pod(
        {
            **container(),
            "livenessProbe": {"httpGet": {"port": 80, "host": "127.0.0.1"}},
            "readinessProbe": {"httpGet": {"port": 80, "host": "localhost"}},
        },
    ),
    "a process of the host on Windows": pod(
        container(windowsOptions={"hostProcess": True}),
        context={"windowsOptions": {"hostProcess": True}},
        hostNetwork=True,
    ),
    "sysctls": pod(
        context={
            "sysctls": [
                {"name": "kernel.msgmax", "value": "1"},
                {"name": "net.ipv4.tcp_syncookies", "value": "1"},
            ]
        }
    ),
    "as root": pod(
        container(**{**KEPT, "runAsUser": 0}), context={"runAsUser": 0, "runAsNonRoot": False}
    ),
    "one of two as root": pod(container(**KEPT), container("b", runAsNonRoot=False)),
}


@pytest.fixture
def space(cluster: Cluster) -> Iterator[str]:
    """The name of a new namespace of the real cluster."""
    name = f"secure-{secrets.token_hex(3)}"
    yield name
    cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_level_refuses_as_on_a_real_cluster(cluster: Cluster, space: str, level: str) -> None:
    servers = ServerPair(EmbeddedCluster().api, cluster)
    meta = {"name": space, "labels": {LABEL: level}}
    servers.do("POST", "/api/v1/namespaces", {"metadata": meta})
    own = {"automountServiceAccountToken": False}
    bodies = {
        name: {"metadata": {"name": "p"}, "spec": {**spec, **own}} for name, spec in PODS.items()
    }
    differences = servers.differences(f"/api/v1/namespaces/{space}/pods", bodies)
    assert not differences, differences


def test_an_unknown_level_is_refused_as_on_a_real_cluster(cluster: Cluster, space: str) -> None:
    servers = ServerPair(EmbeddedCluster().api, cluster)
    body = {"metadata": {"name": space, "labels": {LABEL: "safe"}}}
    difference = servers.difference("POST", "/api/v1/namespaces?dryRun=All", body)
    assert not difference, difference
