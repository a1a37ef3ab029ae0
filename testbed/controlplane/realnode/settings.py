"""The configuration of a node's programs, as pure functions of its name and network."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.controlplane.realnode.network import Network

PAUSE: Final = "localhost/pause:1"
CLUSTER_DOMAIN: Final = "cluster.local"
CONTAINERD_PORT: Final = 1338
KUBELET_PORT: Final = 10248
KUBE_PROXY_PORT: Final = 10256
COREDNS_PORT: Final = 8181


def containerd(network: Network, binaries: Path, cni: Path) -> str:
    return f"""version = 3
[metrics]
address = "{network.node}:{CONTAINERD_PORT}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{binaries}"]
conf_dir = "{cni}"
"""


def pod_network(network: Network) -> str:
    """Return the CNI list that gives pods an address on a bridge, and ports of the node."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": network.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [{**bridge, "ipam": ipam}, portmap]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins})


def kubelet(network: Network, group: str, client_ca: Path) -> str:
    """Return KubeletConfiguration; pods live below the control group ``/GROUP``."""
    # The disk is the machine's, and nearly full as it may be that is no reason to evict a pod.
    never = {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"}
    return _yaml(
        "kubelet.config.k8s.io/v1beta1",
        "KubeletConfiguration",
        authentication={"x509": {"clientCAFile": str(client_ca)}},
        cgroupDriver="cgroupfs",
        cgroupRoot=f"/{group}",
        clusterDNS=[network.node],
        clusterDomain=CLUSTER_DOMAIN,
        containerRuntimeEndpoint="unix:///run/containerd/containerd.sock",
        evictionHard=never,
        # The machine decides about both.
        failCgroupV1=False,
        failSwapOn=False,
        healthzBindAddress=network.node,
        healthzPort=KUBELET_PORT,
        imageGCHighThresholdPercent=100,  # none can be pulled again
        resolvConf="",
    )


def kube_proxy(network: Network, kubeconfig: Path) -> str:
    return _yaml(
        "kubeproxy.config.k8s.io/v1alpha1",
        "KubeProxyConfiguration",
        clientConnection={"kubeconfig": str(kubeconfig)},
        clusterCIDR=network.pods,
        # Zeros leave alone what belongs to the kernel of the machine, not to the sandbox.
        conntrack={"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        healthzBindAddress=f"{network.node}:{KUBE_PROXY_PORT}",
        mode="iptables",
    )


def coredns(network: Network, kubeconfig: Path) -> str:
    """Return the Corefile: names of services and pods, and none of the world outside."""
    return f""".:53 {{
    bind {network.node}
    errors
    ready {network.node}:{COREDNS_PORT}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
}}
"""


def _yaml(version: str, kind: str, **fields: Any) -> str:
    return yaml.safe_dump({"apiVersion": version, "kind": kind, **fields})
