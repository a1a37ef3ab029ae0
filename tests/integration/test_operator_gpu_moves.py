"""A gang on slow GPUs moves to faster ones once these are free, and nobody waits for them."""

import asyncio
from pathlib import Path
from typing import Any

from bireme.core.gpus import GPU_MODEL_LABEL
from bireme.kube import names
from bireme.testing import a_node
from bireme_operator.term import wall_clock
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.objects.facts import node_manifest
from testbed.operator_term.term import JOBS, leading, pods, status, submit, until
from testbed.scenario.manifests import queue, task, training_job


def furnish(api: FakeApi) -> None:
    for name, model in (("slow", "Tesla-V100-SXM2-32GB"), ("fast", "NVIDIA-H100-80GB-HBM3")):
        node = node_manifest(a_node(name, labels={GPU_MODEL_LABEL: model}))
        api.put(f"/api/v1/nodes/{name}", node)
    api.put(f"{names.path('queues')}/default", queue("default"))


def where(api: FakeApi, job: str) -> set[Any]:
    own = (pod for pod in pods(api) if pod["metadata"]["labels"].get(names.POD_GROUP_LABEL) == job)
    return {pod["spec"].get("nodeName") for pod in own}


async def test_it_moves_once_and_the_move_counts_as_no_preemption(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api)
    ahead = 0.0

    def now() -> float:
        return wall_clock() + ahead

    async with FakeKubelets(api, runs), leading(api, tmp_path, now=now, sweep_interval_seconds=0.2):
        submit(api, training_job("first", task(replicas=8)))
        await until(lambda: status(api, "first").get("phase") == "Running")
        submit(api, training_job("job", task(replicas=8), runPolicy={"resumable": True}))
        await until(lambda: status(api, "job").get("phase") == "Running")
        assert (where(api, "first"), where(api, "job")) == ({"fast"}, {"slow"})
        ahead = 3600.0  # long enough on the slow one, but the fast one is in use
        await asyncio.sleep(1.0)
        assert status(api, "job")["phase"] == "Running"
        first = api.store.get(JOBS, ("default", "first"))
        ended = {**first["spec"], "runPolicy": {"suspend": True}}
        api.store.update(JOBS, ("default", "first"), {**first, "spec": ended})
        await until(lambda: status(api, "job").get("reason") == "FasterGpus")
        assert "on NVIDIA-H100-80GB-HBM3, 3.7 times as fast" in status(api, "job")["message"]
        await until(
            lambda: status(api, "job").get("phase") == "Running" and where(api, "job") == {"fast"}
        )
        ahead = 24 * 3600.0
        await asyncio.sleep(1.0)
        assert where(api, "job") == {"fast"}
        told = status(api, "job")
        assert (told.get("interruptions"), told.get("preemptions", 0)) == (1, 0)
        assert told.get("restarts", 0) == 0
