"""The addresses of a node and its link to the machine: a pair of virtual interfaces.

Each cluster has a number of its own, and with it its networks. The name of the machine's end of the
link claims the number, which the kernel grants once; the link goes with the node's namespace.
"""

import random
from dataclasses import dataclass
from typing import Final, Self

from testbed.controlplane.binaries import output
from testbed.controlplane.errors import ControlPlaneError

NUMBERS: Final = 256
COMMAND_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses of the cluster with this number, apart from those of kwok's pods."""

    number: int

    @property
    def interface(self) -> str:
        """The machine's end of the link."""
        return f"bireme{self.number}"

    @property
    def host(self) -> str:
        """The machine as the node sees it; the API server is there."""
        return f"10.198.{self.number}.1"

    @property
    def node(self) -> str:
        """The node as the machine sees it."""
        return f"10.198.{self.number}.2"

    @property
    def pods(self) -> str:
        return f"10.199.{self.number}.0/24"

    @property
    def services(self) -> str:
        """The network of ClusterIPs."""
        return f"10.200.{self.number}.0/24"

    @property
    def api_service(self) -> str:
        """The ClusterIP of the API server, the first of its network."""
        return f"10.200.{self.number}.1"

    @classmethod
    def claim(cls, pid: int) -> Self:
        """Claim a free number, its link laid to the network namespace of process ``pid``.

        Raises:
            ControlPlaneError: all numbers are taken, or the link cannot be laid.
        """
        for number in random.SystemRandom().sample(range(NUMBERS), NUMBERS):
            network = cls(number)
            link = ["ip", "link", "add", network.interface, "type", "veth"]
            try:
                _run([*link, "peer", "name", "eth0", "netns", str(pid)])
            except ControlPlaneError as error:
                # Another cluster has this number; any other refusal would meet the next one, too.
                if "File exists" not in str(error):
                    raise
                continue
            network._lay(pid)
            return network
        raise ControlPlaneError(
            f"all {NUMBERS} networks are taken: stop clusters (python -m testbed.controlplane list)"
        )

    def _lay(self, pid: int) -> None:
        """Lay addresses and routes: the machine reaches pods and services by the node.

        The node has no way to anywhere else: nothing leaves the machine.
        """
        inside = ["nsenter", f"--target={pid}", "--net", "ip"]
        for command in (
            ["ip", "address", "add", f"{self.host}/30", "dev", self.interface],
            ["ip", "link", "set", self.interface, "up"],
            [*inside, "link", "set", "lo", "up"],
            [*inside, "address", "add", f"{self.node}/30", "dev", "eth0"],
            [*inside, "link", "set", "eth0", "up"],
            [*inside, "route", "add", self.services, "via", self.host],  # kube-proxy turns it back
            ["ip", "route", "add", self.pods, "via", self.node],
            ["ip", "route", "add", self.services, "via", self.node],
        ):
            _run(command)


def _run(command: list[str]) -> None:
    output(command, timeout_seconds=COMMAND_TIMEOUT_SECONDS)
