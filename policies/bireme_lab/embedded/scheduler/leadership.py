"""The Lease by which one of several schedulers of a configuration leads.

An embedded cluster has one of each, which holds the Lease from its start.
"""

import asyncio
from datetime import UTC, datetime
from typing import Final

from bireme_lab.embedded.client import Client

_LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
_DURATION_SECONDS: Final = 15
_RENEW_SECONDS: Final = 5.0
_HOLDER: Final = "embedded"


async def hold(client: Client, namespace: str, name: str) -> None:
    """Hold a Lease until this is cancelled."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    since = _micro_time(client.now)
    while True:
        spec = {
            "holderIdentity": _HOLDER,
            "leaseDurationSeconds": _DURATION_SECONDS,
            "acquireTime": since,
            "renewTime": _micro_time(client.now),
            "leaseTransitions": 0,
        }
        lease = {"metadata": {"name": name}, "spec": spec}
        if client.get(_LEASES, (namespace, name)) is None:
            client.send("POST", path, lease)
        else:
            client.send("PUT", f"{path}/{name}", lease)
        await asyncio.sleep(_RENEW_SECONDS)


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
