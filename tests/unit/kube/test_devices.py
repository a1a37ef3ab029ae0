"""Devices by Dynamic Resource Allocation, as the planner counts them."""

from typing import Any

import pytest

from bireme.core.gangs import Gang
from bireme.core.nodes import feasible
from bireme.core.reasons import Reason
from bireme.core.resources import IntArray
from bireme.kube import wire
from bireme.kube.device_selectors import selects
from testbed.objects.cluster_state import ClusterStateFeed
from testbed.objects.devices import (
    DRIVER,
    claim_template,
    claims,
    device,
    device_class,
    request,
    resource_slice,
)
from testbed.objects.facts import served, through_the_wire
from testbed.scenario.manifests import Manifest, pod_spec, task

CLASS = "deviceclass.resource.kubernetes.io/gpu"
FPGA = "example.com/fpga"
OWN = f'device.attributes["{DRIVER}"]'
H100, L4 = f'{OWN}.model == "h100"', f'{OWN}.model == "l4"'
_KINDS: dict[str, tuple[type[Any], str]] = {
    "ResourceSlice": (wire.V1ResourceSlice, "slice"),
    "DeviceClass": (wire.V1DeviceClass, "class"),
    "DeviceTaintRule": (wire.V1DeviceTaintRule, "rule"),
    "ResourceClaimTemplate": (wire.V1ResourceClaimTemplate, "template"),
    "ResourceClaim": (wire.V1ResourceClaim, "claim"),
}


class Cluster(ClusterStateFeed):
    """Two nodes, whose devices are what a test publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.devices = self.state.devices
        self.devices.want()
        self.devices.all_listed()

    def put(self, *manifests: Manifest) -> None:
        for each in manifests:
            kind, of = _KINDS[each["kind"]]
            namespace = "default" if "Claim" in each["kind"] else ""
            made = served(each, f"uid-{each['metadata']['name']}", namespace=namespace)
            key = (namespace, each["metadata"]["name"])
            getattr(self.devices, f"put_{of}")(key, through_the_wire(made, kind))

    def asks(self, fields: Manifest, replicas: int = 1) -> Gang:
        self.job(task("worker", replicas, spec=pod_spec(0, **fields)))
        (gang,) = self.waiting()
        return gang

    def offered(self, resource: str) -> IntArray:
        table = self.state.nodes.table
        return table.allocatable[:, table.axis.column(resource)]

    def free(self, resource: str) -> list[int]:
        snapshot = self.snapshot()
        column = snapshot.nodes.axis.column(resource)
        left: list[int] = (snapshot.nodes.allocatable - snapshot.used)[:, column].tolist()
        return left


def allocated(name: str, *devices: str, pod: str = "", node: str = "n0", **meta: Any) -> Manifest:
    results = [{"driver": DRIVER, "pool": node, "device": d, "request": "r"} for d in devices]
    status: Manifest = {"allocation": {"devices": {"results": results}}}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"{pod}-uid"}]
    return {"kind": "ResourceClaim", "metadata": {"name": name, **meta}, "status": status}


def _rule(effect: str = "NoSchedule", **selected: str) -> Manifest:
    spec = {"deviceSelector": selected, "taint": {"key": "broken", "effect": effect}}
    return {"kind": "DeviceTaintRule", "metadata": {"name": "rule"}, "spec": spec}


def indexed(name: str, model: str, index: int) -> Manifest:
    return {"name": name, "attributes": {"model": {"string": model}, "index": {"int": index}}}


def selecting(count: int, *expressions: str, name: str = "t") -> Manifest:
    """A claim template that selects among the devices of its class."""
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return claim_template(name, request(count=count, selectors=selectors))


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(
        resource_slice("n0", device("a"), device("b"), device("c", "l4")),
        resource_slice("n1", device("a")),
        device_class("gpu", f'device.attributes["{DRIVER}"].model == "h100"'),
        claim_template("two", request(count=2)),
    )
    return made


def test_devices_of_a_class_are_counted_on_their_node(cluster: Cluster) -> None:
    gang = cluster.asks(claims("two"))
    assert dict(gang.tasks[0].request)[CLASS] == 2
    assert (gang.fault, gang.left_to_scheduler, cluster.free(CLASS)) == (None, "", [2, 1])


def test_allocated_devices_are_not_free(cluster: Cluster) -> None:
    cluster.put(allocated("theirs", "a", pod="stranger"))
    assert cluster.free(CLASS) == [1, 1]
    cluster.put(allocated("theirs"))
    assert cluster.free(CLASS) == [2, 1]


def test_an_extended_resource_that_a_class_backs_is_offered(cluster: Cluster) -> None:
    """It is counted by the pod that asks for it, not by the claim that is made for that."""
    cluster.put(device_class("gpu", extended=FPGA))
    gang = cluster.asks({"containers": [{"name": "c", "resources": {"limits": {FPGA: "2"}}}]})
    assert (gang.left_to_scheduler, cluster.free(FPGA)) == ("", [3, 1])
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    cluster.put(allocated("made-for-it", "a", pod="user", annotations=notes))
    assert cluster.free(FPGA) == [3, 1]


@pytest.mark.parametrize("rule", [_rule("None"), _rule(pool="n7"), _rule(driver="other.com")])
def test_taints_that_keep_nobody_from_these_devices_change_nothing(
    cluster: Cluster, rule: Manifest
) -> None:
    cluster.put(rule)
    assert cluster.asks(claims("two")).left_to_scheduler == ""


def test_classes_that_select_alike_are_one_amount(cluster: Cluster) -> None:
    cluster.put(device_class("gpu"), device_class("as-resource", extended=FPGA))
    gang = cluster.asks(claims("two"))
    assert (dict(gang.tasks[0].request)[FPGA], gang.left_to_scheduler) == (2, "")
    cluster.put(allocated("theirs", "a"))
    assert cluster.free(FPGA) == [2, 1]


def test_a_device_plug_in_counts_for_its_node(cluster: Cluster) -> None:
    cluster.put(device_class("gpu", extended="nvidia.com/gpu"))
    assert cluster.free("nvidia.com/gpu") == [8, 8]
    gang = cluster.asks(claims("two"))
    assert "which some nodes offer without claims" in gang.left_to_scheduler


def test_devices_are_wanted_once_a_gang_asks_for_what_no_node_offers() -> None:
    feed = ClusterStateFeed()
    feed.job()
    feed.waiting()
    assert not feed.state.devices.is_wanted
    feed.job(task(spec={"containers": [{"name": "c", "resources": {"limits": {FPGA: "1"}}}]}))
    feed.waiting()
    assert feed.state.devices.is_wanted


def test_pools_that_are_not_whole_or_of_an_old_generation_offer_nothing(cluster: Cluster) -> None:
    cluster.put(resource_slice("n1", device("a"), count=2))
    cluster.asks(claims("two"))
    assert cluster.free(CLASS) == [2, 0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (claims("absent"), 'resourceclaimtemplate "absent" not found'),
        (
            {"resourceClaims": [{"name": "x", "resourceClaimName": "absent"}]},
            'resourceclaim "absent" not found',
        ),
        (claims("classless"), "resource claim gpus: device class none does not exist"),
    ],
)
def test_what_is_missing_is_a_fault_in_words(
    cluster: Cluster, fields: Manifest, words: str
) -> None:
    cluster.put(claim_template("classless", request("none")))
    assert cluster.asks(fields).fault == (Reason.CLAIM_NOT_READY, words)


@pytest.mark.parametrize(
    ("there", "fields", "words"),
    [
        (
            (allocated("shared", "a"),),
            {"resourceClaims": [{"name": "x", "resourceClaimName": "shared"}]},
            "resource claim x, which several pods may share",
        ),
        (
            (claim_template("t", {"name": "r", "firstAvailable": [{"name": "s"}]}),),
            claims("t"),
            "resource claim gpus, which lists alternatives",
        ),
        (
            (claim_template("t", request(allocationMode="All")),),
            claims("t"),
            "resource claim gpus, which asks for more than a number of devices",
        ),
        (
            (claim_template("t", request(adminAccess=True)),),
            claims("t"),
            "resource claim gpus, which asks for more than a number of devices",
        ),
        (
            (device_class("gpu"), selecting(1, H100)),
            claims("t"),
            "resource claim gpus, which selects some devices of node n0 and not others",
        ),
        (
            (selecting(1, f"{OWN}.unknown()"),),
            claims("t"),
            "resource claim gpus, whose selectors Bireme cannot evaluate",
        ),
        (
            # Of a tenant: nested in itself it would keep everybody waiting.
            (selecting(1, '["h100"].exists(m, m == device.driver)'),),
            claims("t"),
            "resource claim gpus, whose selectors Bireme cannot evaluate",
        ),
        (
            (selecting(1, "".join((H100, *(f" || {number} < 0" for number in range(40))))),),
            claims("t"),
            "resource claim gpus, whose selectors Bireme cannot evaluate",
        ),
        (
            (claim_template("t", constraints=[{"matchAttribute": "x/y"}]),),
            claims("t"),
            "resource claim gpus, whose constraints compare devices",
        ),
        (
            (device_class("any"),),
            claims("two"),
            "devices of class gpu, some of which are of class any too",
        ),
        (
            (
                resource_slice(
                    "n1", device("a", taints=[{"key": "broken", "effect": "NoSchedule"}])
                ),
            ),
            claims("two"),
            "devices of class gpu, some of which are shared, divided, tainted or on several nodes",
        ),
        (
            (_rule(pool="n1"),),
            claims("two"),
            "devices of class gpu, some of which are shared, divided, tainted or on several nodes",
        ),
        (
            (device_class("gpu", "device.attributes.unknown()"),),
            claims("two"),
            "devices of class gpu, whose selectors Bireme cannot evaluate",
        ),
    ],
)
def test_what_is_not_counted_is_left_to_kube_scheduler_in_words(
    cluster: Cluster, there: tuple[Manifest, ...], fields: Manifest, words: str
) -> None:
    cluster.put(*there)
    gang = cluster.asks(fields)
    assert (gang.fault, gang.left_to_scheduler) == (None, words)


@pytest.mark.parametrize(
    ("count", "expressions", "places"),
    [
        (1, (H100,), ["n1"]),
        (2, (H100,), []),
        (2, (L4,), ["n0"]),
        # One of three is no place for two, so that nothing is open there.
        (2, (f"{OWN}.index > 1",), []),
        (1, (f"{OWN}.index >= 0", f'"none" in {OWN} || {H100}'), ["n1"]),
        # The first that is false ends it, as in kube-scheduler: the second fails on an L4.
        (1, (H100, f"{OWN}.cores > 1"), ["n1"]),
        (3, ('device.driver != ""',), ["n0"]),
    ],
)
def test_selectors_of_all_or_none_of_a_node_s_devices_choose_nodes(
    count: int, expressions: tuple[str, ...], places: list[str]
) -> None:
    """A device that is allocated comes free, so it counts too."""
    cluster = Cluster()
    cards = [indexed(name, "l4", at) for at, name in enumerate("abc")]
    more = {"model": {"string": "h100"}, "index": {"int": 0}, "cores": {"int": 2}}
    cluster.put(
        resource_slice("n0", *cards),
        resource_slice("n1", {"name": "a", "attributes": more}),
        device_class("gpu"),
        selecting(count, *expressions),
        allocated("theirs", "a", pod="stranger"),
    )
    gang = cluster.asks(claims("t"))
    (task_,) = gang.tasks
    table = cluster.state.nodes.table
    assert (gang.fault, gang.left_to_scheduler) == (None, "")
    assert dict(task_.request)[CLASS] == count
    fits = feasible(task_.constraints, table) & (cluster.offered(CLASS) >= count)
    assert [name for name, is_one in zip(table.names, fits, strict=True) if is_one] == places


def test_a_gang_is_left_to_kube_scheduler_once_a_new_slice_splits_its_selector(
    cluster: Cluster,
) -> None:
    cluster.put(device_class("gpu"), selecting(1, L4), resource_slice("n0", device("c", "l4")))
    assert cluster.asks(claims("t")).left_to_scheduler == ""
    late = resource_slice("n0", device("a", "h100"), device("c", "l4"))
    cluster.put(late)
    (gang,) = cluster.waiting()
    assert "selects some devices of node n0 and not others" in gang.left_to_scheduler


def test_selectors_that_tell_single_devices_apart_or_are_very_many_are_not_evaluated() -> None:
    cluster = Cluster()
    cards = [indexed(f"d{at}", "l4", at) for at in range(40)]
    cluster.put(resource_slice("n0", *cards), device_class("gpu"), selecting(1, L4))
    assert cluster.asks(claims("t")).left_to_scheduler == ""
    cluster.put(selecting(1, f"{OWN}.index >= 0"))
    (gang,) = cluster.waiting()
    assert "cannot evaluate" in gang.left_to_scheduler
    cluster.put(selecting(1, L4))
    for number in range(16):
        cluster.put(selecting(1, f"{OWN}.index == {number}", name=f"t{number}"))
    (gang,) = cluster.waiting()
    assert "cannot evaluate" in gang.left_to_scheduler
    cluster.devices.delete_template(("default", "t0"))
    (gang,) = cluster.waiting()
    assert gang.left_to_scheduler == ""


A_DEVICE = through_the_wire(
    {
        "name": "d",
        "attributes": {
            "model": {"string": "h100"},
            "cores": {"int": 132},
            "ecc": {"bool": True},
            "driverVersion": {"version": "1.20.3"},
            "other.com/numa": {"int": 1},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    },
    wire.V1Device,
)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (f'device.driver == "{DRIVER}"', True),
        (f'{OWN}.model == "h100" && {OWN}.cores > 100 && {OWN}.ecc', True),
        (f'{OWN}.model in ["l4", "a100"]', False),
        (f'{OWN}.model.startsWith("h") || {OWN}.cores < 3', True),
        ('device.attributes["other.com"].numa == 1', True),
        ('"numa" in device.attributes["absent.com"]', False),
        (f'{OWN}.driverVersion.compareTo(semver("1.3.0")) > 0', True),
        (f'{OWN}.driverVersion.isLessThan(semver("1.3.0"))', False),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', True),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("100Gi"))', False),
        (f'device.attributes["{DRIVER}"].?absent.orValue("none") == "none"', True),
        (f'cel.bind(own, {OWN}, own.model == "h100" && own.cores == 132)', True),
        (f"{OWN}.absent == 1", None),
        (f"ip({OWN}.model).family() == 4", None),
        (f"{OWN}.model", None),
        ("this is no expression", None),
    ],
)
def test_selectors_are_told_as_kube_scheduler_does(expression: str, answer: bool | None) -> None:
    assert selects(expression, DRIVER, A_DEVICE) is answer
