"""Mode Observe against the fake API server: it decides and compares, and no write is even tried."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bireme.core.settings import SchedulingSettings
from bireme.kube import names
from bireme.kube.client import ApiClient, NotLeader
from bireme_operator.metrics import OperatorMetrics
from bireme_operator.observer import ObserverTerm, refuse
from bireme_operator.settings import OperatorSettings
from bireme_operator.term import TermContext
from testbed.fakeapi import FakeApi
from testbed.internals import changed
from testbed.operator_term.term import (
    FAST,
    furnish,
    running,
    status,
    submit,
    until,
    written,
)
from testbed.scenario.manifests import GPU, pod, queue, task, training_job


@asynccontextmanager
async def observing(api: FakeApi, folder: Path) -> AsyncIterator[OperatorMetrics]:
    """The metrics of an operator that observes until the end of the block."""
    client = await ApiClient.connect(api.kubeconfig(folder))
    client.fence = refuse
    settings, metrics = OperatorSettings(mode="Observe"), OperatorMetrics()
    context = TermContext(client, settings, SchedulingSettings(), metrics, 0, "test", lambda: None)
    with changed(**FAST):
        async with running(ObserverTerm(context), client):
            yield metrics


def value(metrics: OperatorMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"bireme_{name}", labels) or 0.0


def put_pod(api: FakeApi, name: str, gpus: int, node: str = "") -> None:
    made = pod(name, gpus, schedulerName="volcano")
    made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "crew"}
    if node:
        made["spec"]["nodeName"] = node
    api.put(f"/api/v1/namespaces/default/pods/{name}", {**made, "status": {"phase": "Pending"}})


async def test_it_compares_what_others_bind_with_its_own_decisions_and_writes_nothing(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    submit(api, training_job("job", task(replicas=2)))
    put_pod(api, "crew-0", 6)
    put_pod(api, "crew-1", 6)
    async with observing(api, tmp_path) as metrics:
        await until(lambda: value(metrics, "observed_actions", action="admit") == 2)
        put_pod(api, "crew-0", 6, node="n0")
        put_pod(api, "crew-1", 6, node="gone")

        def binds(outcome: str) -> float:
            return value(metrics, "observed_binds_total", outcome=outcome)

        await until(lambda: (binds("same node"), binds("other node")) == (1, 1))
        api.put(f"{names.path('queues')}/default", queue("default", limit={GPU: "1"}))
        await until(lambda: value(metrics, "gangs_waiting", reason="NeverFits") == 1)
        put_pod(api, "late-0", 1)
        await until(lambda: value(metrics, "observed_actions", action="admit") == 1)
        api.put(f"{names.path('queues')}/default", queue("default", state="Closed"))
        await until(lambda: value(metrics, "gangs_waiting", reason="QueueClosed") == 2)
        put_pod(api, "late-0", 1, node="n0")
        await until(lambda: binds("held") == 1)
    assert written(api) == 0
    assert status(api, "job") == {}


async def test_pods_bound_one_after_another_are_compared_with_the_plan_of_their_gang(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 2)
    for name in ("crew-0", "crew-1"):
        put_pod(api, name, 6)
    async with observing(api, tmp_path) as metrics:
        await until(lambda: value(metrics, "observed_actions", action="admit") == 1)
        put_pod(api, "crew-0", 6, node="n0")
        # In the view of the operator the rest lacks room before its binding is seen.
        other = pod("other", 8, nodeName="n1")
        api.put("/api/v1/namespaces/default/pods/other", {**other, "status": {"phase": "Running"}})
        await until(lambda: value(metrics, "observed_actions", action="hold") == 1)
        put_pod(api, "crew-1", 6, node="n1")
        same = {"outcome": "same node"}
        await until(lambda: value(metrics, "observed_binds_total", **same) == 2)


async def test_its_client_refuses_every_write(api: FakeApi, tmp_path: Path) -> None:
    client = await ApiClient.connect(api.kubeconfig(tmp_path))
    client.fence = refuse
    try:
        with pytest.raises(NotLeader, match="Observe, in which nothing is written"):
            await client.create("/api/v1/namespaces/default/events", {})
        with pytest.raises(NotLeader):
            await client.delete("/api/v1/namespaces/default/pods/a")
    finally:
        await client.close()
    assert written(api) == 0
