"""Pods of the default scheduler beside a Bireme that has much to do: bound as soon as without it.

A busy machine allows no finer bound here; ``benchmarks/timings/bystanders.py`` measures it.
"""

import statistics
import time
from collections.abc import Iterator

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import annotations, pod, task, torch_job, training_job
from testbed.scenario.tenant import Tenant
from testbed.scenario.waiting import eventually

pytestmark = pytest.mark.cluster

ROUNDS, PODS = 4, 8
LINE = 60
MAX_TIMES, SLACK_SECONDS = 3.0, 0.3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with gpu_stack("bystanders", tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def test_pods_of_the_default_scheduler_are_bound_beside_a_long_line_of_gangs(
    stack: BiremeStack, tenant: Tenant
) -> None:
    tenant.create(*(training_job(f"waits-{n}", task(replicas=99)) for n in range(LINE)))
    for number in range(LINE):
        tenant.await_reason(f"waits-{number}", "NeverFits")
    alone: list[float] = []
    beside: list[float] = []
    for number in range(ROUNDS):
        for process in stack.processes:
            process.pause()
        alone += [bind_seconds(tenant, f"alone-{number}-{n}") for n in range(PODS)]
        for process in stack.processes:
            process.resume()
        come = [torch_job(f"comes-{number}-{n}", fake=annotations("1s")) for n in range(PODS)]
        for each in come:
            tenant.create(each)
            beside.append(bind_seconds(tenant, f"beside-{each['metadata']['name']}"))
    most = MAX_TIMES * statistics.median(alone) + SLACK_SECONDS
    assert statistics.median(beside) <= most, (alone, beside)


def bind_seconds(tenant: Tenant, name: str) -> float:
    """Return how long the default scheduler takes to bind a new small pod."""
    began = time.monotonic()
    tenant.create(pod(name, gpus=0))
    eventually(lambda: tenant.get("Pod", name)["spec"].get("nodeName"))
    return time.monotonic() - began
