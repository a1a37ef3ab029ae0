"""The configuration a cluster is started from."""

from pathlib import Path
from typing import Any

import yaml

from testbed.controlplane.binaries import ControlPlane
from testbed.controlplane.kwokctl import HEALTH_PATHS, RealNodeAccess, configuration
from testbed.controlplane.realnode.network import Network

PROGRAMS = ControlPlane("v1.37.1", (Path("/bin-folder"),))


def documents(**options: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(configuration(PROGRAMS, **options)))


def test_everything_listens_on_loopback_and_on_ports_of_our_own() -> None:
    options = documents()[0]["options"]
    assert options["bindAddress"] == "127.0.0.1"
    ports = {key: value for key, value in options.items() if key.endswith("Port")}
    assert len(set(ports.values())) == 6
    assert {port for _, port, _ in HEALTH_PATHS.values()} <= set(ports)


def test_every_program_comes_from_the_built_folder() -> None:
    options = documents()[0]["options"]
    programs = [value for key, value in options.items() if key.endswith("Binary")]
    assert len(programs) == 6
    assert all(program.startswith("/bin-folder/") for program in programs)


def test_own_stages_for_nodes_and_pods_are_included() -> None:
    stages = [d for d in documents() if d["kind"] == "Stage"]
    kinds = {stage["spec"]["resourceRef"]["kind"] for stage in stages}
    assert kinds == {"Node", "Pod"}
    names = [stage["metadata"]["name"] for stage in stages]
    assert len(names) == len(set(names)) == 11


def arguments(document: dict[str, Any], component: str) -> dict[str, str]:
    for patch in document["componentsPatches"]:
        if patch["name"] == component:
            return {extra["key"]: extra["value"] for extra in patch["extraArgs"]}
    return {}


def test_beside_a_real_node_the_components_know_its_network_and_kwok_keeps_to_its_own() -> None:
    plain = documents()[0]
    document = documents(real=RealNodeAccess(Network(7), Path("/keys")))[0]
    assert document["options"]["kubeApiserverCertSANs"] == ["10.200.7.1", "10.198.7.1"]
    server = arguments(document, "kube-apiserver")
    assert server["advertise-address"] == "10.198.7.1"
    assert server["kubelet-client-key"] == "/keys/admin.key"
    controllers = arguments(document, "kube-controller-manager")
    assert controllers["service-cluster-ip-range"] == server["service-cluster-ip-range"]
    assert arguments(plain, "kube-controller-manager").items() <= controllers.items()
    assert arguments(plain, "kwok-controller") == {}
    assert arguments(document, "kwok-controller") == {
        "manage-all-nodes": "false",
        "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
    }


def test_flags_asked_for_are_laid_over_our_own() -> None:
    asked = {"kube-scheduler": {"feature-gates": "A=true"}, "etcd": {"unsafe-no-fsync": "false"}}
    document = documents(given=asked)[0]
    assert arguments(document, "kube-scheduler") == {
        "leader-elect": "false",
        "feature-gates": "A=true",
    }
    assert arguments(document, "etcd") == {"unsafe-no-fsync": "false"}
