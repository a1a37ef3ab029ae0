"""The leader behind the chart's Service, where the operator is a process and no pod.

Users ask the leader through the API server's proxy. That one goes by Endpoints, not by
EndpointSlices, and to addresses of pods alone, of which none may be the loopback's.
"""

import json
import socket
from contextlib import closing
from typing import Final

from testbed.cel.tickets import ticket_policies
from testbed.controlplane.cluster import Cluster

SYSTEM: Final = "bireme-system"
SERVICE: Final = "bireme-outlook"


def own_address() -> str:
    """Return an address of this machine that may be an endpoint's: not the loopback's.

    Raises:
        OSError: it has none, as without a network.
    """
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])


def serve_leader(cluster: Cluster, address: str, port: int) -> None:
    """Make the Service of the chart in front of ``address`` and ``port``, and its namespace.

    Who asks says so by tickets there, which the chart's policy makes true; the leader looks for
    them in the namespace of its Lease.
    """
    pod = {"name": "operator", "namespace": SYSTEM}
    named = {"name": SERVICE, "namespace": SYSTEM}
    spec = {
        "schedulingGates": [{"name": "bireme.dev/nothing-runs-it"}],
        "containers": [{"name": "operator", "image": "none"}],
    }
    ports = [{"name": "outlook", "port": port}]
    subset = {"addresses": [{"ip": address, "targetRef": {"kind": "Pod", **pod}}], "ports": ports}
    cluster.create_namespace(SYSTEM)
    for manifest in ticket_policies():
        cluster.kubectl("create", "-f", "-", input=json.dumps(manifest))
    for manifest in (
        {"kind": "Pod", "metadata": pod, "spec": spec},
        {"kind": "Service", "metadata": named, "spec": {"ports": ports}},
        {"kind": "Endpoints", "metadata": named, "subsets": [subset]},
    ):
        cluster.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", **manifest}))
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
    cluster.kubectl("patch", "pod", "operator", "-n", SYSTEM, *patch)
