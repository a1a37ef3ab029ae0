"""A node whose pods are real: containerd, kubelet, kube-proxy and CoreDNS in one sandbox."""

import os
from functools import cached_property, partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from testbed.controlplane.api import Api
from testbed.controlplane.binaries import NODE, build, require
from testbed.controlplane.errors import ControlPlaneError, tail
from testbed.controlplane.nodes import is_usable
from testbed.controlplane.process import Process
from testbed.controlplane.realnode import cgroups, settings
from testbed.controlplane.realnode.credentials import Authority
from testbed.controlplane.realnode.network import Network
from testbed.controlplane.realnode.obstacle import PACKAGES, obstacle
from testbed.controlplane.realnode.pause import write_image
from testbed.controlplane.realnode.sandbox import Sandbox
from testbed.controlplane.waiting import wait_until

READY_TIMEOUT_SECONDS: Final = 90.0
IMPORT_TIMEOUT_SECONDS: Final = 300.0
# In the order of starting: a kubelet without its container runtime gives up.
HEALTH: Final = {
    "containerd": (settings.CONTAINERD_PORT, "/v1/metrics"),
    "kubelet": (settings.KUBELET_PORT, "/healthz"),
    "kube-proxy": (settings.KUBE_PROXY_PORT, "/healthz"),
    "coredns": (settings.COREDNS_PORT, "/ready"),
}


class RealNode:
    """The real node of the cluster ``cluster``, whose files lie in ``folder``.

    First ``reserve``, since the control plane has to know the addresses; ``join`` when that runs;
    ``stop`` leaves nothing but the folder. Unless ``detached``, all goes with this program.
    """

    name: Final = "real"

    def __init__(self, cluster: str, folder: Path, *, detached: bool = False) -> None:
        self.sandbox = Sandbox(folder, detached=detached)
        self._folder = folder
        self._group = f"bireme-{cluster}"

    @cached_property
    def network(self) -> Network:
        return Network(int((self._folder / "network").read_text()))

    def reserve(self) -> Network:
        """Build what is missing; make the sandbox with its network and control groups.

        Raises:
            ControlPlaneError: this machine cannot have a real node, or a part could not be made.
        """
        if reason := obstacle():
            raise ControlPlaneError(reason)
        require(*PACKAGES)
        build(NODE)
        network = Network.claim(self.sandbox.start())
        (self._folder / "network").write_text(str(network.number))
        cgroups.make(self._group)
        return network

    def join(self, api: Api, authority: Path) -> None:
        """Start the node's programs; return when the cluster may use the node.

        ``authority`` is the folder with ``ca.crt`` and ``ca.key`` of the cluster.
        """
        self._configure(api, authority)
        image = write_image(self._binary("pause"), settings.PAUSE, self._folder / "pause.tar")
        self.start("containerd").wait_ready()
        self.load(image)
        for program in [self.start(name) for name in HEALTH if name != "containerd"]:
            program.wait_ready(READY_TIMEOUT_SECONDS)

        def usable() -> bool:
            answer = api.request("GET", f"/api/v1/nodes/{self.name}")
            return answer.status == 200 and is_usable(answer.json())

        wait_until(usable, READY_TIMEOUT_SECONDS, "the node", partial(self.log, "kubelet"))

    def load(self, archive: Path) -> None:
        """Bring the images of an archive, in OCI's or Docker's format, onto the node."""
        self.ctr("images", "import", str(archive), timeout_seconds=IMPORT_TIMEOUT_SECONDS)

    def ctr(self, *arguments: str, timeout_seconds: float = 60.0) -> str:
        """Run containerd's own client in the namespace of Kubernetes."""
        command = (str(self._binary("ctr")), "--namespace=k8s.io", *arguments)
        return self.sandbox.run(*command, timeout_seconds=timeout_seconds)

    def start(self, program: str) -> Process:
        """Start ``containerd``, ``kubelet``, ``kube-proxy`` or ``coredns``; ready or not."""
        port, path = HEALTH[program]
        command = [str(self._binary(program)), *self._arguments(program)]
        # containerd looks for its shim and for runc on PATH.
        search = f"{build(NODE)}{os.pathsep}{os.environ['PATH']}"
        url = f"http://{self.network.node}:{port}{path}"
        return self.sandbox.spawn(program, command, url, search)

    def kill(self, program: str) -> None:
        """Kill one of the programs that ``start`` starts; pods go on without it."""
        self.sandbox.end(self._binary(program))

    def kill_container(self, container_id: str) -> None:
        """Kill the main process of a container that a pod's status names, from outside of it."""
        container = container_id.removeprefix("containerd://")
        self.ctr("tasks", "kill", "--signal=SIGKILL", container)

    def log(self, program: str) -> str:
        return tail((self._folder / f"{program}.log").read_text(errors="replace"))

    def stop(self) -> None:
        """End everything, pods included; fine for a node that does not run."""
        self.sandbox.stop()
        cgroups.remove(self._group)

    def _configure(self, api: Api, folder: Path) -> None:
        network, home = self.network, self._folder
        authority = Authority(folder, f"https://{network.host}:{urlsplit(api.server).port}")
        authority.admit(f"system:node:{self.name}", "system:nodes", home / "kubelet.kubeconfig")
        proxy = authority.admit("system:kube-proxy", "", home / "kube-proxy.kubeconfig")
        # CoreDNS reads services of all namespaces; a role for it alone would be one more manifest.
        names = authority.admit("coredns", "system:masters", home / "coredns.kubeconfig")
        (home / "cni").mkdir(exist_ok=True)
        for name, text in {
            "cni/pods.conflist": settings.pod_network(network),
            "containerd.conf": settings.containerd(network, build(NODE), home / "cni"),
            "kubelet.conf": settings.kubelet(network, self._group, authority.certificate),
            "kube-proxy.conf": settings.kube_proxy(network, proxy),
            "coredns.conf": settings.coredns(network, names),
        }.items():
            (home / name).write_text(text)

    def _arguments(self, program: str) -> list[str]:
        config = self._folder / f"{program}.conf"
        match program:
            case "kubelet":
                kubeconfig = self._folder / "kubelet.kubeconfig"
                who = [f"--hostname-override={self.name}", f"--node-ip={self.network.node}"]
                return [f"--config={config}", f"--kubeconfig={kubeconfig}", *who]
            case "kube-proxy":
                return [f"--config={config}", f"--hostname-override={self.name}"]
            case "coredns":
                return ["-conf", str(config)]
            case _:
                return ["--config", str(config)]

    def _binary(self, name: str) -> Path:
        return build(NODE) / name
