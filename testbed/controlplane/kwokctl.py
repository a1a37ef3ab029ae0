"""The configuration that kwokctl starts a cluster from.

Everything listens on loopback only, and the Stages are ours. Beside a real node, kwok keeps to the
fake ones, and the API server listens where the node reaches it as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from testbed.controlplane.binaries import ControlPlane
from testbed.controlplane.nodes import KWOK_ANNOTATION
from testbed.controlplane.process import free_ports
from testbed.controlplane.realnode.network import Network

API_VERSION: Final = "config.kwok.x-k8s.io/v1alpha1"
STAGES: Final = Path(__file__).parents[2] / "manifests" / "kwok" / "stages.yaml"

# Times the defaults: with node leases of 4000 s, renewed every 1000 s, the heartbeats of 5000 nodes
# do not drown a test's writes.
HEARTBEAT_FACTOR: Final = 100.0

# Advertised as the ``kubernetes`` Service's endpoint, which may not be a loopback address; from the
# range reserved for documentation, so that a machine without any network works, too.
UNREACHABLE_ADDRESS: Final = "198.51.100.1"

EXTRA_ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    # Nothing here has to survive a power failure.
    "etcd": {"unsafe-no-fsync": "true"},
    "kube-apiserver": {"advertise-address": UNREACHABLE_ADDRESS},
    # Without leader election a component that was started again works at once.
    "kube-controller-manager": {"leader-elect": "false", "node-monitor-period": "5s"},
    "kube-scheduler": {"leader-elect": "false"},
}

HEALTH_PATHS: Final[Mapping[str, tuple[str, str, str]]] = {
    "etcd": ("http", "etcdPort", "/health"),
    "kube-apiserver": ("https", "kubeApiserverPort", "/readyz"),
    "kube-controller-manager": ("https", "kubeControllerManagerPort", "/healthz"),
    "kube-scheduler": ("https", "kubeSchedulerPort", "/healthz"),
    "kwok-controller": ("http", "kwokControllerPort", "/healthz"),
}
"""Scheme, the option that holds the port, and path of every component's health check."""

# Naming one option clears the defaults of the others: without these five nothing runs.
KWOK_OPTIONS: Final = {
    "cidr": "10.64.0.0/10",  # four million pods, apart from the Services' 10.0.0.0/24
    "podPlayStageParallelism": 16,
    "nodePlayStageParallelism": 16,
    "nodeLeaseParallelism": 4,
    "podsOnNodeSyncParallelism": 4,
}


# Every port that a component opens: on ports of our own, clusters stand side by side.
PORTS: Final = ("etcdPeerPort", *(port for _, port, _ in HEALTH_PATHS.values()))

PROGRAMS: Final = {
    "etcdBinary": "etcd",
    "kubeApiserverBinary": "kube-apiserver",
    "kubeControllerManagerBinary": "kube-controller-manager",
    "kubeSchedulerBinary": "kube-scheduler",
    "kubectlBinary": "kubectl",
    "kwokControllerBinary": "kwok",
}


@dataclass(frozen=True, slots=True)
class RealNodeAccess:
    """Needs of a real node: its network, and kwokctl's folder of key pairs."""

    network: Network
    keys: Path

    def arguments(self) -> dict[str, dict[str, str]]:
        services = {"service-cluster-ip-range": self.network.services}
        return {
            "kube-apiserver": {
                **services,
                "advertise-address": self.network.host,
                "bind-address": "0.0.0.0",  # noqa: S104  # loopback, and the link to the node
                "kubelet-client-certificate": str(self.keys / "admin.crt"),
                "kubelet-client-key": str(self.keys / "admin.key"),
                "kubelet-preferred-address-types": "InternalIP",
            },
            "kube-controller-manager": services,
            "kwok-controller": {
                "manage-all-nodes": "false",
                "manage-nodes-with-annotation-selector": f"{KWOK_ANNOTATION}=fake",
            },
        }


Arguments = Mapping[str, Mapping[str, str]]
"""Flags by component, without their dashes."""

FAIRNESS: Final[Arguments] = {
    "kube-apiserver": {
        "enable-priority-and-fairness": "true",
        "max-requests-inflight": "400",
        "max-mutating-requests-inflight": "200",
    }
}
"""Requests limited as in every cluster by default; kwokctl lifts the limits where it lifts those of
clients. Administrators are exempt from them."""


def configuration(
    programs: ControlPlane, real: RealNodeAccess | None = None, given: Arguments | None = None
) -> str:
    """Return KwokctlConfiguration, KwokConfiguration and our Stages as one YAML text."""
    layers: list[Arguments] = [EXTRA_ARGUMENTS, real.arguments() if real else {}, given or {}]
    names = [real.network.api_service, real.network.host] if real else []
    arguments = {  # the later of two with one name wins
        component: {
            key: value for layer in layers for key, value in layer.get(component, {}).items()
        }
        for component in sorted({component for layer in layers for component in layer})
    }
    documents = [
        {
            "apiVersion": API_VERSION,
            "kind": "KwokctlConfiguration",
            "options": {
                "runtime": "binary",
                "bindAddress": "127.0.0.1",
                "disableQPSLimits": True,  # they would slow down whatever a benchmark measures
                "heartbeatFactor": HEARTBEAT_FACTOR,
                "kubeApiserverCertSANs": names,
                **{option: str(programs.path(name)) for option, name in PROGRAMS.items()},
                **dict(zip(PORTS, free_ports(len(PORTS)), strict=True)),
            },
            "componentsPatches": [
                {"name": name, "extraArgs": [{"key": k, "value": v} for k, v in flags.items()]}
                for name, flags in arguments.items()
            ],
        },
        {"apiVersion": API_VERSION, "kind": "KwokConfiguration", "options": KWOK_OPTIONS},
    ]
    return f"{yaml.safe_dump_all(documents)}---\n{STAGES.read_text()}"
