"""Node pools of Karpenter with their NodePoolScalers, as an administrator and a user have them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from controlplane.karpenter import NODE_POOL_LABEL, karpenter
from controlplane.nodes import GPU
from controlplane.stack import BiremeStack
from scenario.clusters import gpu_stack
from scenario.manifests import API_VERSION, Manifest, pod_spec, task, training_job

GPUS_PER_NODE: Final = 8
TEMPLATE: Final[Manifest] = {
    "allocatable": {"cpu": "95", "memory": "1000Gi", "pods": "110", GPU: str(GPUS_PER_NODE)}
}
"""What a node of :func:`controlplane.karpenter.static_pool` offers, or a little less."""


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
    now = datetime.now(UTC)
    first = now.replace(minute=0, second=0, microsecond=0)
    return {
        "forecastTime": _written(now),
        "model": {"name": "seasonal-naive"},
        "forecast": [
            {"hour": _written(first + timedelta(hours=hour)), "p50": upper / 2, "upper": upper}
            for hour in range(hours)
        ],
    }


def recorded_status(demand: Callable[[datetime], float], days: int = 28) -> Manifest:
    """The status of a NodePoolScaler whose operator has counted ``demand`` of every hour so far."""
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    dates = [midnight - timedelta(days=ago) for ago in range(days, -1, -1)]
    recorded = [_day(date, demand, now) for date in dates]
    return {"history": {"days": [day for day in recorded if day["demand"]]}}


def _day(date: datetime, demand: Callable[[datetime], float], now: datetime) -> Manifest:
    hours = [date + timedelta(hours=hour) for hour in range(24)]
    counted = [hour for hour in hours if hour + timedelta(hours=1) <= now]
    return {
        "date": f"{date:%Y-%m-%d}",
        "demand": " ".join(f"{demand(hour):g}" for hour in counted),
        "tasks": " ".join("0" for _ in counted),
    }


def _written(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
