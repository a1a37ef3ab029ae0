"""A leading operator with a node pool of the fake API server, and what makes the pool's nodes."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from bireme.kube import names, quantities
from bireme.testing import a_node
from bireme_operator.leader import LeaderTerm
from testbed.controlplane.karpenter import NODE_POOL_LABEL
from testbed.fakeapi import FakeApi
from testbed.fakeapi.server import resources
from testbed.fakeapi.store import Object
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import events_about, leading, with_conditions
from testbed.scenario.pools import pool_scaler

SCALERS = names.path("nodepoolscalers")
TARGETS = "/apis/karpenter.sh/v1/nodepools"
NODES = "/api/v1/nodes"
POOL = "h200"


def leads(api: FakeApi, folder: Path) -> AbstractAsyncContextManager[LeaderTerm]:
    return leading(api, folder, status_refresh_seconds=0.3)


def put_target(api: FakeApi, replicas: int, **metadata: Any) -> None:
    """Serve NodePools, and one that asks for so many nodes."""
    kinds = {"nodepools": ("NodePool", False), "nodeclaims": ("NodeClaim", False)}
    api.documents["/apis/karpenter.sh/v1"] = resources("karpenter.sh/v1", kinds, ("nodepools",))
    body = {"metadata": {"name": POOL, **metadata}, "spec": {"replicas": replicas}}
    api.put(f"{TARGETS}/{POOL}", body)


def put_scaler(api: FakeApi, name: str = POOL, most: int = 4, **spec: Any) -> None:
    """Create or edit a NodePoolScaler that applies its floor to the NodePool ``POOL``."""
    api.put(f"{SCALERS}/{name}", pool_scaler(name, POOL, most, **spec))


def replicas(api: FakeApi, name: str = POOL) -> int:
    return int(api.store.get(TARGETS, ("", name))["spec"]["replicas"])


def add_nodes(api: FakeApi, *nodes: str) -> None:
    for name in nodes:
        made = a_node(name, 8, cpu_millis=96_000, labels={NODE_POOL_LABEL: POOL})
        api.put(f"{NODES}/{name}", node_manifest(made))


class FakeAutoscaler:
    """Keeps a node for every replica of NodePool ``POOL``; empty ones go, the last made first."""

    def __init__(self, api: FakeApi, is_busy: Callable[[str], bool] = lambda _: False) -> None:
        self.most = 0
        self.removed: list[str] = []
        self._api = api
        self._is_busy = is_busy
        self._made = 0
        api.store.collection(TARGETS).subscribers.append(lambda _: self.follow())

    def follow(self) -> None:
        wanted = replicas(self._api)
        self.most = max(self.most, wanted)
        there = [key[1] for key in self._api.store.collection(NODES).objects]
        for _ in range(len(there), wanted):
            self._made += 1
            add_nodes(self._api, f"{POOL}-{self._made}")
        idle = [name for name in reversed(there) if not self._is_busy(name)]
        for name in idle[: max(0, len(there) - wanted)]:
            self._api.store.delete(NODES, ("", name), {})
            self.removed.append(name)


def status_in(api: FakeApi, name: str = POOL) -> dict[str, Any]:
    return with_conditions(api, SCALERS, name)


def put_forecast(
    api: FakeApi, now: float, uppers: list[float], *, made: float | None = None
) -> None:
    """Write a forecast from the whole hour of ``now`` on, as the nightly job does."""
    begin = now - now % 3600
    hours = [
        {"hour": quantities.format_timestamp(begin + 3600 * i), "p50": upper / 2, "upper": upper}
        for i, upper in enumerate(uppers)
    ]
    found = api.store.get(SCALERS, ("", POOL))
    status = {**(found.get("status") or {}), "forecast": hours}
    status["forecastTime"] = quantities.format_timestamp(now if made is None else made)
    api.store.update(SCALERS, ("", POOL), {"status": status}, "status")


def events(api: FakeApi) -> list[Object]:
    return events_about(api, "NodePoolScaler")
