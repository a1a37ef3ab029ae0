"""What pods need of nodes' declared features is what kube-scheduler infers."""

from typing import Any

import msgspec
import pytest

from bireme.core.nodes import Node, NodeTable, feasible
from bireme.core.pod_constraints import ANYWHERE
from bireme.kube import nodes, pods, wire

RESTARTING = {
    "containers": [{"name": "main", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]
}
ON_HOST = {"hostNetwork": True, "hostUsers": False}


def node(name: str, *declared: str) -> Node:
    ready = {"type": "Ready", "status": "True"}
    status = {"conditions": [ready], "declaredFeatures": declared}
    manifest = {"metadata": {"name": name, "labels": {"zone": "a"}}, "status": status}
    return nodes.from_manifest(msgspec.convert(manifest, wire.V1Node))


TABLE = NodeTable(
    [
        node("all", "RestartAllContainersOnContainerExits", "Other"),
        node("none", "Other"),
        node("users", "UserNamespacesHostNetworkSupport"),
    ],
    ("kubernetes.io/hostname",),
)


def allowed(spec: dict[str, Any]) -> list[str]:
    found = feasible(pods.constraints_of_spec(msgspec.convert(spec, wire.V1PodSpec)), TABLE)
    return [name for name, allows in zip(TABLE.names, found, strict=True) if allows]


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        (RESTARTING, ["all"]),
        (ON_HOST, ["users"]),
        (RESTARTING | ON_HOST, []),
        ({"hostUsers": False}, ["all", "none", "users"]),
    ],
)
def test_a_pod_goes_where_its_features_are_declared(spec: dict[str, Any], where: list[str]) -> None:
    assert allowed(spec) == where


def test_a_pod_that_needs_no_feature_has_no_demand() -> None:
    plain = msgspec.convert({"containers": [{"name": "main"}]}, wire.V1PodSpec)
    assert pods.constraints_of_spec(plain) == ANYWHERE
