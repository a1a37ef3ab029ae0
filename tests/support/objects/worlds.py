"""Random clusters told twice: as a snapshot built by hand, and as the objects an API server has.

A :class:`World` is the ground of the parity tests. Its snapshot is summed up in plain loops while
the world is drawn; its manifests are what the operator would find. Amounts are small, so that
gangs clash, and everything is drawn from short lists, so that failures shrink.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bireme.core.gangs import Gang, Key
from bireme.core.nodes import Node, NodeTable
from bireme.core.queues import Queue
from bireme.core.resources import Request
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import nodes as node_manifests
from bireme.kube import quantities, wire
from bireme.kube.allocations import AssumedPlan
from bireme.kube.cluster_state import ClusterState
from tests.support.objects import encoding
from tests.support.objects.facts import served, through_the_wire
from tests.support.objects.held import Held
from tests.support.scenario.manifests import Manifest, priority_class

NOW = 1_000_000.0
SATURATED = 2**47
"""What one pod counts at most on a node, see :mod:`bireme.core.resources`."""
QUEUES = (
    Queue("free", wait_bound_seconds=86_400),
    Queue("small", {"nvidia.com/gpu": 6, "cpu": 9000}, 90, 40),
    Queue("closed", wait_bound_seconds=86_400, is_open=False),
    Queue("team", wait_bound_seconds=86_400, namespaces=frozenset({"team"})),
)
CLASSES: Mapping[str, int] = {"low": -5, "high": 1000}


@dataclass
class World:
    """A cluster under construction: every ``add_*`` tells it both ways."""

    nodes: tuple[Node, ...]
    settings: SchedulingSettings
    queues: tuple[Queue, ...] = QUEUES
    objects: list[tuple[str, Manifest]] = field(default_factory=list)
    """(collection, manifest); the collection names the ``put_*`` that takes it."""
    reserved: dict[Key, AssumedPlan] = field(default_factory=dict)
    waiting: list[Gang] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    queue_usage: dict[str, dict[str, int]] = field(default_factory=dict)
    _taken: list[tuple[str, Request]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node in self.nodes:
            self.objects.append(("node", node_manifests.to_manifest(node)))
        self.objects += [("queue", encoding.queue(queue)) for queue in self.queues]
        for name in ("default", "team"):
            self.objects.append(("namespace", encoding.namespace(name, self.queues)))
        for name, value in CLASSES.items():
            self.objects.append(("priority_class", priority_class(name, value)))

    def add_object(self, collection: str, manifest: Manifest) -> None:
        """Something the API server has."""
        self.objects.append((collection, manifest))

    def add_usage(self, node: str, request: Request) -> None:
        """A pod's worth taken from ``node``, if it exists."""
        self._taken.append((node, request))

    def add_demand(self, queue: str, request: Request) -> None:
        """A replica's worth taken from ``queue``."""
        held = self.queue_usage.setdefault(queue, {})
        for name, units in request:
            held[name] = held.get(name, 0) + units

    def snapshot(self) -> ClusterSnapshot:
        """The cluster as told by hand."""
        levels = self.settings.topology_levels
        table = NodeTable(self.nodes, levels)
        used = np.zeros_like(table.allocatable)
        for node, request in self._taken:
            for name, units in request:
                if node in table.row and name in table.axis.names:
                    used[table.row[node], table.axis.names.index(name)] += min(units, SATURATED)
        return ClusterSnapshot(
            now=NOW,
            nodes=table,
            used=used,
            waiting=tuple(self.waiting),
            queues={queue.name: queue for queue in self.queues},
            queue_usage=self.queue_usage,
            settings=self.settings,
            running=tuple(r for held in self.held if (r := held.running(self.nodes, levels))),
        )


def feed(state: ClusterState, collection: str, manifest: Manifest, *, delete: bool = False) -> None:
    """Hand one object to ``state`` as its reflector would."""
    kinds: dict[str, tuple[Any, type[Any]]] = {
        "node": (state, wire.V1Node),
        "member": (state, wire.V1Pod),
        "other_pod": (state, wire.V1Pod),
        "job": (state, wire.CustomObject),
        "group": (state, wire.CustomObject),
        "queue": (state.tenancy, wire.CustomObject),
        "namespace": (state.tenancy, wire.V1Namespace),
        "priority_class": (state.tenancy, wire.V1PriorityClass),
    }
    owner, kind = kinds[collection]
    meta = manifest["metadata"]
    key = (meta.get("namespace", ""), meta["name"])
    verb = "delete" if delete else "put"
    getattr(owner, f"{verb}_{collection}")(key, through_the_wire(manifest, kind))


def job_manifest(
    gang: Gang, style: int, class_name: str | None, status: Mapping[str, Any], waited: int = 0
) -> Manifest:
    """The TrainingJob that waits as ``gang`` does, having waited before for ``waited`` seconds."""
    made = encoding.training_job(gang, style)
    if class_name is not None:
        made["spec"]["priorityClassName"] = class_name
    created = quantities.format_timestamp(gang.arrived - 7 if waited else gang.arrived)
    queued = quantities.format_timestamp(gang.arrived + waited)
    again = {"queuedTime": queued, "waitSeconds": waited} if waited else {}
    made = served(made, gang.uid, namespace=gang.namespace, creationTimestamp=created)
    return {**made, "status": {**status, **again}}
