"""Node pools of Karpenter with their NodePoolScalers, as an administrator and a user have them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from controlplane.karpenter import NODE_POOL_LABEL, karpenter
from controlplane.nodes import GPU
from controlplane.registration import is_usable
from controlplane.stack import BiremeStack
from scenario.clusters import gpu_stack
from scenario.manifests import API_VERSION, Manifest, pod_spec, task, training_job
from scenario.tenant import Tenant
from scenario.waiting import PATIENCE_SECONDS

GPUS_PER_NODE: Final = 8
TEMPLATE: Final[Manifest] = {
    "allocatable": {"cpu": "95", "memory": "1000Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
}
"""What a node of :func:`controlplane.karpenter.static_pool` offers, or a little less."""


_WRITTEN: Final = "%Y-%m-%dT%H:%M:%SZ"


@contextmanager
def pool_stack(purpose: str, folder: Path) -> Iterator[BiremeStack]:
    """Bireme and Karpenter on a cluster that has no node until a pool makes some."""
    with (
        gpu_stack(purpose, folder / "bireme", nodes=0) as stack,
        karpenter(stack.cluster, folder / "karpenter"),
    ):
        yield stack


def pool_scaler(name: str, pool: str = "", most: int = 4, **spec: Any) -> Manifest:
    """A NodePoolScaler that applies its floor to the NodePool ``pool``, by default its namesake."""
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


def pool_job(name: str, pool: str, nodes: int = 1, fake: Manifest | None = None) -> Manifest:
    """A TrainingJob of ``nodes`` workers, each of which takes a whole node of ``pool``."""
    spec = pod_spec(GPUS_PER_NODE, nodeSelector={NODE_POOL_LABEL: pool})
    return training_job(name, task(replicas=nodes, spec=spec, fake=fake))


def forecast_status(upper: float, hours: int = 48) -> Manifest:
    """The status of a NodePoolScaler after a night that forecast ``upper`` for every hour."""
    now = _now()
    first = now.replace(minute=0, second=0)
    return {
        "forecastTime": f"{now:{_WRITTEN}}",
        "model": {"name": "seasonal-naive"},
        "forecast": [
            {"hour": f"{first + timedelta(hours=n):{_WRITTEN}}", "p50": upper / 2, "upper": upper}
            for n in range(hours)
        ],
    }


def recorded_status(demand: Callable[[datetime], float], days: int = 28) -> Manifest:
    """The status of a NodePoolScaler whose operator has counted ``demand`` of every hour so far."""
    now = _now()
    midnight = now.replace(hour=0, minute=0, second=0)
    recorded = (_day(midnight - timedelta(days=ago), demand, now) for ago in range(days, -1, -1))
    return {"history": {"days": [day for day in recorded if day["demand"]]}}


def _day(date: datetime, demand: Callable[[datetime], float], now: datetime) -> Manifest:
    hours = [date + timedelta(hours=n) for n in range(24)]
    counted = [demand(hour) for hour in hours if hour + timedelta(hours=1) <= now]
    return {
        "date": f"{date:%Y-%m-%d}",
        "demand": " ".join(f"{value:g}" for value in counted),
        "tasks": " ".join("0" for _ in counted),
    }


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)  # noqa: TID251  # the operator's clock is it


# --- what came of them ---------------------------------------------------------------------


def replicas(tenant: Tenant, pool: str) -> int:
    """What a NodePool asks for."""
    found: int = tenant.get("NodePool", pool)["spec"]["replicas"]
    return found


def nodes_of_pool(tenant: Tenant, pool: str) -> list[Manifest]:
    """The nodes of a NodePool, usable or not."""
    return tenant.all("Node", f"{NODE_POOL_LABEL}={pool}")


def await_nodes(
    tenant: Tenant, pool: str, count: int, timeout_seconds: float = PATIENCE_SECONDS
) -> set[str]:
    """Names of a NodePool's nodes once they are ``count`` and all usable."""
    nodes = tenant.eventually(
        lambda: nodes_of_pool(tenant, pool),
        lambda found: len(found) == count and all(map(is_usable, found)),
        timeout_seconds,
    )
    return {node["metadata"]["name"] for node in nodes}


def await_scaling(tenant: Tenant, scaler: str, reason: str) -> str:
    """The message of a NodePoolScaler's condition Scaling once ``reason`` is its reason."""
    said = tenant.eventually(
        lambda: condition(tenant, scaler, "Scaling"), lambda c: c.get("reason") == reason
    )
    return str(said["message"])


def condition(tenant: Tenant, scaler: str, kind: str) -> Manifest:
    """One condition of a NodePoolScaler, empty before it is set."""
    found: list[Manifest] = tenant.status(scaler, "NodePoolScaler").get("conditions", [])
    return next((c for c in found if c["type"] == kind), {})
