"""What Bireme would plan for a pod: the shipped reading code and the core, node by node."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.core import ruled_placement
from bireme.core.gangs import Gang, Key
from bireme.core.placement import FreeCapacity
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import wire
from bireme.kube.cluster_state import ClusterState
from testbed.filters.drawing import NAMESPACE, Case
from testbed.objects.facts import CREATED, served, through_the_wire
from testbed.scenario.manifests import (
    PLAN_GATE,
    POD_GROUP_LABEL,
    Manifest,
    pod_group,
    queue,
    training_job,
)

QUEUE = "all"
"""The queue of every gang; it has no limit."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What the planner says of one pod that came to it as ``kind``.

    ``takes`` has every node; ``refusal`` are the words by which it plans the pod nowhere.
    """

    pod: str
    kind: str
    takes: Mapping[str, bool]
    refusal: str = ""
    left: str = ""
    """What it leaves to kube-scheduler, in words."""


def planned(case: Case, pods: Sequence[Manifest], tried: Sequence[Manifest]) -> list[Planned]:
    """Return what is planned for each tried pod, as template of a job and as pod of a group.

    ``pods`` and ``tried`` are the pods with the API server's defaults.
    """
    state = fed(case.objects, pods)
    pod_of: dict[str, str] = {}
    for template, pod in zip(case.tried, tried, strict=True):
        name = pod["metadata"]["name"]
        job, group = f"{name}-job", f"{name}-group"
        pod_of |= {job: name, group: name}
        state.objects.put_job((NAMESPACE, job), a_job(job, {"worker": (1, template)}))
        state.objects.put_group((NAMESPACE, group), _group(group))
        state.objects.put_member((NAMESPACE, name), _member(group, pod))
    snapshot = state.snapshot(CREATED)
    return [_of_gang(gang, pod_of[gang.name], snapshot) for gang in snapshot.waiting]


def fed(objects: Sequence[Manifest], pods: Sequence[Manifest]) -> ClusterState:
    """Return a state that has read the objects, as reflectors would have fed it."""
    state = ClusterState(SchedulingSettings())
    everybody = through_the_wire(served(queue(QUEUE), "uid-queue", namespace=""), wire.CustomObject)
    state.tenancy.put_queue(("", QUEUE), everybody)
    volumes, devices = state.volumes, state.devices
    put: Mapping[str, tuple[Callable[[Key, Any], None], type[Any]]] = {
        "Node": (state.nodes.put, wire.V1Node),
        "Namespace": (state.tenancy.put_namespace, wire.MetadataOnly),
        "PersistentVolumeClaim": (volumes.put_claim, wire.V1PersistentVolumeClaim),
        "PersistentVolume": (volumes.put_volume, wire.V1PersistentVolume),
        "StorageClass": (volumes.put_class, wire.V1StorageClass),
        "CSINode": (volumes.put_csi_node, wire.V1CsiNode),
        "VolumeAttachment": (volumes.put_attachment, wire.V1VolumeAttachment),
        "CSIDriver": (volumes.put_driver, wire.V1CsiDriver),
        "CSIStorageCapacity": (volumes.put_capacity, wire.V1CsiStorageCapacity),
        "ResourceSlice": (devices.put_slice, wire.V1ResourceSlice),
        "DeviceClass": (devices.put_class, wire.V1DeviceClass),
        "ResourceClaimTemplate": (devices.put_template, wire.V1ResourceClaimTemplate),
        "ResourceClaim": (devices.put_claim, wire.V1ResourceClaim),
    }
    for made in objects:
        if made["kind"] in put:
            feed, kind = put[made["kind"]]
            meta = made["metadata"]
            feed((meta.get("namespace", ""), meta["name"]), through_the_wire(made, kind))
    for known in (volumes, devices):
        known.want()
        known.all_listed()
    for made in pods:
        meta = made["metadata"]
        read = through_the_wire(made, wire.V1Pod)
        state.objects.put_other_pod((meta["namespace"], meta["name"]), read)
    return state


def a_job(name: str, tasks: Mapping[str, tuple[int, Manifest]]) -> wire.CustomObject:
    """Return a TrainingJob of tasks: by name, the replicas and the pod that each is a copy of."""
    made = [
        {
            "name": task,
            "role": task,
            "replicas": replicas,
            "template": {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]},
        }
        for task, (replicas, pod) in tasks.items()
    ]
    job = served(training_job(name, *made, queue=QUEUE), f"uid-{name}", namespace=NAMESPACE)
    return through_the_wire(job, wire.CustomObject)


def _group(name: str) -> wire.CustomObject:
    made = served(pod_group(name, 1, queue=QUEUE), f"uid-{name}", namespace=NAMESPACE)
    return through_the_wire(made, wire.CustomObject)


def _member(group: str, pod: Manifest) -> wire.V1Pod:
    meta, spec = pod["metadata"], pod["spec"]
    gates = [*spec.get("schedulingGates", ()), {"name": PLAN_GATE}]
    made = {
        **pod,
        "metadata": {**meta, "labels": {**meta["labels"], POD_GROUP_LABEL: group}},
        "spec": {**spec, "schedulerName": "bireme", "schedulingGates": gates},
    }
    return through_the_wire(made, wire.V1Pod)


def _of_gang(gang: Gang, pod: str, snapshot: ClusterSnapshot) -> Planned:
    nodes = snapshot.nodes
    if gang.fault is not None:
        return Planned(pod, gang.kind, dict.fromkeys(nodes.names, False), gang.fault[1])
    capacity = FreeCapacity(nodes, snapshot.used, snapshot.occupants)
    one = np.eye(len(nodes), dtype=np.bool_)
    takes = {
        name: ruled_placement.place(gang, capacity.inside(one[row])) is not None
        for row, name in enumerate(nodes.names)
    }
    return Planned(pod, gang.kind, takes, left=gang.left_to_scheduler)
