"""NodePoolScalers as a nightly job finds them, and the status it writes."""

from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from bireme.kube.api.node_pool_scaler import NodePoolScalerStatus
from testbed.fakeapi import FakeApi
from testbed.operator_term.node_pools import POOL, SCALERS
from testbed.scenario.pools import pool_scaler, recorded_status

NOW: Final = datetime(2026, 11, 23, 0, 30, tzinfo=UTC).timestamp()
"""A Monday."""
NOWHERE: Final = {"source": "Prometheus", "prometheus": {"url": "http://127.0.0.1:1", "query": "x"}}
"""A history that nobody answers for."""


def recorded(days: int = 28, now: float = NOW) -> dict[str, Any]:
    """Return a status with its history: about six nodes at night, twelve by day."""
    noise = np.random.default_rng(1)

    def demand(at: float) -> float:
        usual = 12 if 8 <= at // 3600 % 24 < 18 else 6
        return max(0.0, usual + float(noise.normal()))

    return recorded_status(demand, days, now, tasks=2.0)


def put(api: FakeApi, name: str = POOL, status: dict[str, Any] | None = None, **spec: Any) -> None:
    """Create or edit a scaler that has four weeks behind it, or ``status``."""
    status = recorded() if status is None else status
    api.put(f"{SCALERS}/{name}", {**pool_scaler(name, most=20, **spec), "status": status})


def status_in(api: FakeApi, name: str = POOL) -> dict[str, Any]:
    """Return the status of a scaler; it must be what the CRD allows."""
    status: dict[str, Any] = api.store.get(SCALERS, ("", name))["status"]
    NodePoolScalerStatus.model_validate(status)
    return status


def condition(api: FakeApi, name: str = POOL) -> dict[str, str]:
    known: dict[str, dict[str, str]] = {c["type"]: c for c in status_in(api, name)["conditions"]}
    return known["Forecast"]
