"""Node pools of Karpenter with their NodePoolScalers, as an administrator and a user have them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from bireme.core.pool_history import PoolHistory
from bireme.core.times import DAY, HOUR
from bireme.kube import quantities
from bireme.kube.api.node_pool_scaler import history_manifest
from bireme_lab.embedded.fake_nodes import GPU
from testbed.controlplane.karpenter import NODE_POOL_LABEL, karpenter
from testbed.controlplane.nodes import is_usable
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import API_VERSION, Manifest, pod_spec, task, training_job
from testbed.scenario.tenant import Tenant
from testbed.scenario.waiting import PATIENCE_SECONDS

GPUS_PER_NODE: Final = 8
TEMPLATE: Final[Manifest] = {
    "allocatable": {"cpu": "95", "memory": "1000Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
}
"""Offer of a node of :func:`testbed.controlplane.karpenter.static_pool` or a little less."""
BRIEF: Final = {"lease_duration_seconds": 15}
"""Operators are killed there, and the next one need not wait for a minute."""


@contextmanager
def pool_stack(purpose: str, folder: Path) -> Iterator[BiremeStack]:
    """Bireme and Karpenter on a cluster that has no node until a pool makes some."""
    with (
        gpu_stack(purpose, folder / "bireme", nodes=0, internals=BRIEF) as stack,
        karpenter(stack.cluster, folder / "karpenter"),
    ):
        yield stack


def pool_scaler(name: str, pool: str = "", most: int = 4, **spec: Any) -> Manifest:
    """Return a scaler that applies its floor to the NodePool ``pool``, by default its namesake."""
    pool = pool or name
    return {
        "apiVersion": API_VERSION,
        "kind": "NodePoolScaler",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"matchLabels": {NODE_POOL_LABEL: pool}},
            "scaleTargetRef": {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": pool},
            "mode": "Apply",
            "max": most,
            "nodeTemplate": TEMPLATE,
            **spec,
        },
    }


def pool_job(name: str, pool: str, nodes: int = 1) -> Manifest:
    """Return a job of ``nodes`` workers, each of which takes a whole node of ``pool``."""
    spec = pod_spec(GPUS_PER_NODE, nodeSelector={NODE_POOL_LABEL: pool})
    return training_job(name, task(replicas=nodes, spec=spec))


def forecast_status(upper: float) -> Manifest:
    """Return a scaler's status after a night that forecast ``upper`` for every hour."""
    now = _now()
    hours = [now - now % HOUR + HOUR * number for number in range(48)]
    return {
        "forecastTime": quantities.format_timestamp(now),
        "model": {"name": "seasonal-naive"},
        "forecast": [
            {"hour": quantities.format_timestamp(hour), "p50": upper / 2, "upper": upper}
            for hour in hours
        ],
    }


def recorded_status(
    demand: Callable[[float], float], days: int = 28, now: float | None = None, tasks: float = 0.0
) -> Manifest:
    """Return a scaler's status with ``days`` days of history and the hours of today.

    ``demand`` maps the POSIX second at which an hour began to nodes.
    """
    now = _now() if now is None else now
    start = now - now % DAY - DAY * days
    hours = np.arange(start, now - now % HOUR, HOUR)
    counted = np.array([demand(hour) for hour in hours.tolist()])
    return {"history": history_manifest(PoolHistory(start, counted, np.full_like(counted, tasks)))}


def _now() -> float:
    return time.time()  # noqa: TID251  # the operator's clock, too


# --- what came of them ---------------------------------------------------------------------


def replicas(tenant: Tenant, pool: str) -> int:
    found: int = tenant.get("NodePool", pool)["spec"]["replicas"]
    return found


def nodes_of_pool(tenant: Tenant, pool: str) -> list[Manifest]:
    return tenant.all("Node", f"{NODE_POOL_LABEL}={pool}")


def await_nodes(
    tenant: Tenant, pool: str, count: int, timeout_seconds: float = PATIENCE_SECONDS
) -> set[str]:
    """Return the names of a NodePool's nodes once they are ``count`` and all usable."""
    nodes = tenant.eventually(
        lambda: nodes_of_pool(tenant, pool),
        lambda found: len(found) == count and all(map(is_usable, found)),
        timeout_seconds,
    )
    return {node["metadata"]["name"] for node in nodes}


def await_scaling(tenant: Tenant, scaler: str, reason: str) -> str:
    """Return the message of the condition Scaling once ``reason`` is its reason."""
    status = tenant.eventually(
        lambda: condition(tenant, scaler, "Scaling"), lambda c: c.get("reason") == reason
    )
    return str(status["message"])


def condition(tenant: Tenant, scaler: str, kind: str) -> Manifest:
    """Return one condition of a NodePoolScaler, empty before it is set."""
    found: list[Manifest] = tenant.status(scaler, "NodePoolScaler").get("conditions", [])
    return next((c for c in found if c["type"] == kind), {})
