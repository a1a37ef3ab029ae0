"""The lease of leaders under hand-driven clocks."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

from bireme.kube.client import ApiClient
from bireme_operator.lease import Lease
from testbed.fakeapi import FakeApi

LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
DURATION: Final = 15
"""Of every lease, in seconds."""


class Clocks:
    """A monotonic clock that tests move, and a wall clock that may do anything."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = datetime(2030, 1, 1, tzinfo=UTC)

    def lease(
        self, client: ApiClient, identity: str, namespace: str = "system", **options: Any
    ) -> Lease:
        """The claim of ``identity`` on the lease of the release in ``namespace``."""
        return Lease(
            client,
            namespace,
            "bireme",
            identity,
            duration_seconds=DURATION,
            clock=lambda: self.now,
            wall_clock=lambda: self.wall,
            **options,
        )

    async def sleep(self, seconds: float) -> None:
        """Time passes only while somebody sleeps."""
        self.now += seconds
        await asyncio.sleep(0)


def spec_of_lease(api: FakeApi) -> Any:
    """The spec of the lease as it is stored."""
    return api.store.get(LEASES, ("system", "bireme"))["spec"]
