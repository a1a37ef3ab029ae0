"""Queues, the namespaces they select, priority classes; and nodes: small manifests to facts."""

from dataclasses import fields
from typing import Any

import pytest

from bireme import settings_source
from bireme.core.nodes import NodeTable
from bireme.core.pod_constraints import Taint
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.kube import nodes, wire
from bireme.kube.api.queues import QueueSpec
from bireme.kube.cluster_state import ClusterState
from bireme.kube.tenancy import Tenancy
from bireme.testing import a_gang
from bireme_operator.settings import OperatorSettings
from testbed.objects.facts import through_the_wire
from testbed.scenario.manifests import GPU, priority_class, queue


class Counted:
    """A Tenancy, and how often it announced a change."""

    def __init__(self) -> None:
        self.times = 0
        self.cache = Tenancy(self._count)

    def _count(self) -> None:
        self.times += 1

    def queue(self, name: str, **spec: Any) -> Queue:
        made = through_the_wire(queue(name, **spec), wire.CustomObject)
        self.cache.put_queue(("", name), made)
        return self.cache.queues[name]

    def namespace(self, name: str, **labels: str) -> None:
        manifest = {"metadata": {"name": name, "labels": labels}}
        self.cache.put_namespace(("", name), through_the_wire(manifest, wire.MetadataOnly))

    def priority(self, name: str, value: int, **fields: Any) -> None:
        manifest = {**priority_class(name, value), **fields}
        self.cache.put_priority_class(("", name), through_the_wire(manifest, wire.V1PriorityClass))


def test_a_queue_without_a_spec_is_open_to_all_and_unlimited() -> None:
    assert Counted().queue("q") == Queue("q")


def test_the_operators_wait_bound_holds_in_a_queue_that_states_none() -> None:
    settings = settings_source.read(SchedulingSettings, {"BIREME_WAIT_BOUND_SECONDS": "43200"}, {})
    state = ClusterState(settings)
    for name, spec in (("plain", {}), ("quick", {"waitBoundSeconds": 60})):
        state.tenancy.put_queue(
            ("", name), through_the_wire(queue(name, **spec), wire.CustomObject)
        )
    snapshot = state.snapshot(0.0)
    bounds = {name: snapshot.wait_bound_seconds(a_gang(queue=name)) for name in snapshot.queues}
    assert bounds == {"plain": 43_200, "quick": 60}


def test_no_field_of_a_queue_hides_the_setting_of_its_name_by_a_default() -> None:
    """The API server writes defaults of the schema into each Queue, so they come before settings.

    ``startTimeoutSeconds`` is a setting of the operator, the others of every decision.
    """
    settings = {each.name for of in (SchedulingSettings, OperatorSettings) for each in fields(of)}
    shared = {name: field for name, field in QueueSpec.model_fields.items() if name in settings}
    assert {"wait_bound_seconds", "start_timeout_seconds"} <= shared.keys()
    assert {name: field.default for name, field in shared.items()} == dict.fromkeys(shared)


def test_a_queue_is_read_in_the_cores_units_and_never_grants_a_fraction() -> None:
    limit = {"cpu": "1500m", "memory": "1Gi", GPU: "7.9"}
    found = Counted().queue("q", limit=limit, userPriority=90, waitBoundSeconds=60, state="Closed")
    assert found == Queue(
        "q",
        limit={"cpu": 1500, "memory": 2**30, GPU: 7},
        user_priority=90,
        wait_bound_seconds=60,
        is_open=False,
    )


def test_the_least_time_for_a_start_on_the_way_up_holds() -> None:
    known = Counted()
    known.queue("root", startTimeoutSeconds=600)
    known.queue("org", parent="root", startTimeoutSeconds=900)
    known.queue("team", parent="org", startTimeoutSeconds=60)
    known.queue("quiet", parent="org")
    known.queue("alone", parent="gone")
    known.queue("circle", parent="ring")
    known.queue("ring", parent="circle")
    found = {name: known.cache.start_timeout_seconds(name) for name in known.cache.queues}
    none = dict.fromkeys(("alone", "circle", "ring"))
    assert found == {"root": 600, "org": 600, "team": 60, "quiet": 600, **none}


def test_the_place_of_a_queue_in_the_tree_is_read_with_it() -> None:
    found = Counted().queue("q", parent="org", weight=3, guaranteed={"cpu": "1.5", GPU: "7.9"})
    assert (found.parent, found.weight) == ("org", 3)
    assert found.guaranteed == {"cpu": 1500, GPU: 7}


@pytest.mark.parametrize(
    "spec",
    [
        {"limit": {"cpu": "many"}},
        {"limit": {"cpu": "-1"}},
        {"guaranteed": {"cpu": "-1"}},
        {"weight": 0},
        {"weight": 1001},
        {"parent": "no.queue"},
        {"state": "Ajar"},
        {"limit": 5},
    ],
)
def test_a_queue_nobody_can_read_admits_nobody(spec: dict[str, Any]) -> None:
    assert Counted().queue("q", **spec) == Queue("q", is_open=False)


def test_a_queue_admits_the_namespaces_it_selects_as_they_come_and_go() -> None:
    tenancy = Counted()
    selects = {"matchLabels": {"team": "a"}}
    assert tenancy.queue("q", namespaceSelector=selects).namespaces == frozenset()
    tenancy.namespace("one", team="a")
    tenancy.namespace("two", team="b")
    assert tenancy.cache.queues["q"].namespaces == frozenset({"one"})
    tenancy.namespace("two", team="a")
    assert tenancy.cache.queues["q"].namespaces == frozenset({"one", "two"})
    tenancy.cache.delete_namespace(("", "one"))
    assert tenancy.cache.queues["q"].namespaces == frozenset({"two"})


def test_an_empty_selector_selects_every_namespace_that_exists() -> None:
    tenancy = Counted()
    tenancy.namespace("one")
    assert tenancy.queue("q", namespaceSelector={}).namespaces == frozenset({"one"})


def test_only_changes_that_matter_are_announced() -> None:
    tenancy = Counted()
    tenancy.queue("q")
    assert tenancy.times == 1
    tenancy.queue("q")
    tenancy.namespace("one", any="label")
    assert tenancy.times == 1
    tenancy.queue("q", userPriority=60)
    assert tenancy.times == 2
    tenancy.cache.delete_queue(("", "q"))
    assert (tenancy.times, tenancy.cache.queues) == (3, {})


def test_a_priority_class_is_found_by_name_or_reported_missing() -> None:
    tenancy = Counted()
    tenancy.priority("high", 1000)
    assert tenancy.cache.priority("high") == (1000, None)
    value, fault = tenancy.cache.priority("higher")
    assert value == 0
    assert fault is not None
    assert fault[0] is Reason.PRIORITY_CLASS_NOT_FOUND
    assert "'higher'" in fault[1]
    tenancy.cache.delete_priority_class(("", "high"))
    assert tenancy.cache.priority("high")[1] is not None


def test_without_a_class_the_clusters_default_holds() -> None:
    tenancy = Counted()
    assert tenancy.cache.priority(None) == (0, None)
    tenancy.priority("plain", 7)
    assert tenancy.cache.priority(None) == (0, None)
    tenancy.priority("usual", 50, globalDefault=True)
    tenancy.priority("also", 20, globalDefault=True)
    assert tenancy.cache.priority(None) == (20, None), "the lowest, as the API server has it"


def test_a_class_says_whether_others_may_be_stopped_for_its_gangs() -> None:
    tenancy = Counted()
    tenancy.priority("bold", 9, preemptionPolicy="PreemptLowerPriority")
    tenancy.priority("meek", 9, preemptionPolicy="Never")
    assert [tenancy.cache.may_preempt(name) for name in ("bold", "meek", "gone", None)] == [
        True,
        False,
        True,
        True,
    ]
    tenancy.priority("usual", 5, preemptionPolicy="Never", globalDefault=True)
    assert not tenancy.cache.may_preempt(None)


# --- nodes ------------------------------------------------------------------------------------


def a_node(spec: dict[str, Any] | None = None, **status: Any) -> wire.V1Node:
    manifest = {"metadata": {"name": "n"}, "spec": spec or {}, "status": status}
    return through_the_wire(manifest, wire.V1Node)


def ready(value: str) -> list[dict[str, str]]:
    return [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": value}]


@pytest.mark.parametrize(
    ("value", "expected"), [("True", True), ("False", False), ("Unknown", False)]
)
def test_a_node_is_ready_only_when_its_kubelet_says_so(value: str, expected: bool) -> None:
    assert nodes.from_manifest(a_node(conditions=ready(value))).is_ready is expected
    assert not nodes.from_manifest(a_node()).is_ready


def test_a_node_that_is_being_deleted_stays_ready_and_takes_nobody_new() -> None:
    manifest = {
        "metadata": {"name": "n", "deletionTimestamp": "2030-01-01T00:00:00Z"},
        "status": {"conditions": ready("True")},
    }
    found = nodes.from_manifest(through_the_wire(manifest, wire.V1Node))
    assert (found.is_ready, found.is_leaving) == (True, True)
    assert not NodeTable([found], ()).accepts.any()


def test_a_node_never_offers_a_fraction_or_what_nobody_understands() -> None:
    offers = {"cpu": "1999.9m", GPU: "7", "memory": "lots", "odd": "-1", "pods": 110}
    found = nodes.from_manifest(a_node(allocatable=offers))
    assert found.allocatable == {"cpu": 1999, GPU: 7, "memory": 0, "odd": 0, "pods": 110}


def test_only_taints_that_repel_are_kept() -> None:
    taints = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "value": "x", "effect": "NoExecute"},
        {"key": "c", "effect": "PreferNoSchedule"},
    ]
    found = nodes.from_manifest(a_node({"taints": taints, "unschedulable": True}))
    assert found.taints == (Taint("a", "", "NoSchedule"), Taint("b", "x", "NoExecute"))
    assert found.is_cordoned
