"""Gangs of devices by Dynamic Resource Allocation, under the real kube-scheduler.

Slices are plain objects, so the test publishes the devices; fake nodes prepare no claims and need
none. The nodes offer no GPUs of their own.
"""

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.objects.devices import (
    DRIVER,
    claim_template,
    claims,
    device,
    device_class,
    request,
    resource_slice,
)
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import GPU, Manifest, pod_spec, task, training_job
from testbed.scenario.tenant import Tenant, nodes_of
from testbed.scenario.waiting import always

pytestmark = pytest.mark.cluster

WITHIN_SECONDS = 10.0
H100 = f'device.attributes["{DRIVER}"].model == "h100"'
L4 = f'device.attributes["{DRIVER}"].model == "l4"'
DEVICES = {"gpu-00": ("h100",) * 4, "gpu-01": ("h100", "h100", "l4", "l4")}
MEMORY = {"gpu-00": "80Gi", "gpu-01": "40Gi"}
LARGE = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("64Gi")) >= 0'
CLASS = "deviceclass.resource.kubernetes.io/h100"
FIRST = f'device.attributes["{DRIVER}"].index == 0'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    """Three nodes; four H100 on the first, two and two L4 on the second, none on the third."""
    by_devices = {"node-overcommitted": "nodes do not list what device classes back"}
    folder = tmp_path_factory.mktemp("stack")
    with gpu_stack("devices", folder, nodes=3, gpus=0, not_judged=by_devices) as stack:
        post = stack.cluster.api.post
        for node, models in DEVICES.items():
            made = (a_device(node, at, model) for at, model in enumerate(models))
            post("/apis/resource.k8s.io/v1/resourceslices", resource_slice(node, *made))
        for made_class in (device_class("h100", H100, extended=GPU), device_class("l4", L4)):
            post("/apis/resource.k8s.io/v1/deviceclasses", made_class)
        yield stack


@pytest.fixture
def counted_as(stack: BiremeStack) -> str:
    """The resource that an H100 counts as: Kubernetes before 1.36 drops what its class says."""
    found = stack.cluster.api.get("/apis/resource.k8s.io/v1/deviceclasses/h100")
    name: str = found["spec"].get("extendedResourceName", CLASS)
    return name


def a_device(node: str, index: int, model: str) -> Manifest:
    attributes = {"model": {"string": model}, "index": {"int": index}}
    capacity = {"memory": {"value": MEMORY[node]}}
    return {**device(f"d{index}", model, capacity=capacity), "attributes": attributes}


def using(fields: Manifest, replicas: int = 1) -> Manifest:
    return task("worker", replicas, spec=pod_spec(0, **fields))


def runs_at_once(tenant: Tenant, name: str = "job") -> Counter[str]:
    """Wait until the job runs, within the time and without an interruption; count its nodes."""
    began = time.monotonic()
    status = tenant.await_phase(name, "Running")
    assert time.monotonic() - began < WITHIN_SECONDS
    assert (status.get("interruptions", 0), status.get("attempt", 0)) == (0, 0)
    return Counter(nodes_of(tenant.pods(name)).values())


def waits(tenant: Tenant, words: str, name: str = "job") -> None:
    """Wait until the job says ``words``; it holds nothing."""
    began = time.monotonic()
    tenant.eventually(lambda: tenant.status(name).get("message", ""), lambda said: words in said)
    assert time.monotonic() - began < WITHIN_SECONDS
    always(lambda: tenant.plan(name), lambda plan: plan is None, 1.0, what="without a plan")


def test_devices_by_claims_of_a_template_are_planned(tenant: Tenant, counted_as: str) -> None:
    """Two for each replica: one replica more than nodes have is held until devices are free."""
    tenant.create(claim_template("two", request("h100", 2)))
    tenant.create(training_job("job", using(claims("two"), 3)))
    assert runs_at_once(tenant) == {"gpu-00": 2, "gpu-01": 1}
    plan = tenant.plan("job")
    assert plan is not None
    assert (plan["mode"], plan["tasks"][0]["requests"][counted_as]) == ("Pinned", "2")
    tenant.create(training_job("late", using(claims("two"))))
    waits(tenant, f"asks 2 {counted_as} as 1 worker; 0 {counted_as} free", "late")
    tenant.delete("TrainingJob", "job")
    tenant.await_phase("late", "Running")


def test_extended_resources_that_devices_back_are_planned(tenant: Tenant, counted_as: str) -> None:
    if counted_as == CLASS:
        pytest.skip(
            "this Kubernetes has no extended resources that devices back: 1.36 and newer do"
        )
    tenant.create(training_job("job", task("worker", 3, gpus=2)))
    assert runs_at_once(tenant) == {"gpu-00": 2, "gpu-01": 1}
    tenant.create(training_job("large", task("worker", gpus=5)))
    waits(tenant, "the largest node it may use offers 4 nvidia.com/gpu", "large")


def test_a_template_that_is_missing_is_waited_for_in_words(tenant: Tenant) -> None:
    tenant.create(training_job("job", using(claims("one"), 2)))
    waits(tenant, 'resourceclaimtemplate "one" not found')
    tenant.create(claim_template("one", request("l4")))
    assert runs_at_once(tenant) == {"gpu-01": 2}


def test_selectors_of_a_claim_choose_nodes_whose_devices_are_alike(
    tenant: Tenant, counted_as: str
) -> None:
    large = request("h100", 2, selectors=[{"cel": {"expression": LARGE}}])
    tenant.create(claim_template("large", large))
    tenant.create(training_job("job", using(claims("large"), 2)))
    assert runs_at_once(tenant) == {"gpu-00": 2}
    plan = tenant.plan("job")
    assert plan is not None
    assert plan["mode"] == "Pinned"
    tenant.create(training_job("late", using(claims("large"))))
    waits(tenant, f"0 {counted_as} free on nodes it may use", "late")
    assert "devices of class h100 for resource claim gpus" in tenant.status("late")["message"]
    tenant.delete("TrainingJob", "job")
    tenant.await_phase("late", "Running")


def test_selectors_that_split_the_devices_of_a_node_are_left_to_kube_scheduler(
    tenant: Tenant,
) -> None:
    first = request("h100", selectors=[{"cel": {"expression": FIRST}}])
    tenant.create(claim_template("first", first))
    tenant.create(training_job("job", using(claims("first"), 2)))
    assert runs_at_once(tenant) == {"gpu-00": 1, "gpu-01": 1}
    plan = tenant.plan("job")
    assert plan is not None
    assert plan["mode"] == "Score"


def test_what_is_not_counted_is_left_to_kube_scheduler(tenant: Tenant) -> None:
    """The claim takes whichever there is first; room is kept, and the job says so."""
    either = [
        {"name": "new", "deviceClassName": "h100", "count": 1},
        {"name": "old", "deviceClassName": "l4", "count": 1},
    ]
    tenant.create(claim_template("either", {"name": "gpu", "firstAvailable": either}))
    tenant.create(training_job("job", using(claims("either"), 2)))
    runs_at_once(tenant)
    plan = tenant.plan("job")
    assert plan is not None
    assert plan["mode"] == "Score"
