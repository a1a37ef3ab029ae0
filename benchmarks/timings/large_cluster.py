"""A large cluster on a real API server: its objects are written to etcd, as a restored backup is.

Thousands of nodes and pods would take the API server minutes to create one by one. Of the control
plane only etcd and the API server run: there is nobody to schedule, and kubelets of ten thousand
nodes would take both cores.
"""

import base64
import itertools
import secrets
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from benchmarks.timings.workloads import NAMESPACE, pod_spec, training_job
from bireme.kube import names, plans, quantities, wire
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_builder import PodFactory
from bireme.kube.training_jobs import from_manifest
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.objects.facts import through_the_wire
from testbed.scenario.clusters import install_api
from testbed.scenario.manifests import Manifest, queue

STARTED: Final = 1_790_000_000.0
"""When everything was created and planned, POSIX seconds."""
GPUS: Final = 8
"""Of each node."""
REPLICAS: Final = 16
"""Pods of a gang, of one GPU each."""
_IDLE: Final = ("kwok-controller", "kube-scheduler", "kube-controller-manager")
_KEYS: Final = {
    "Node": "/registry/minions",
    "Pod": f"/registry/pods/{NAMESPACE}",
    "TrainingJob": f"/registry/{names.GROUP}/{names.PLURALS['TrainingJob']}/{NAMESPACE}",
}
_OBJECTS_AT_ONCE: Final = 100  # etcd takes 128 operations in one transaction


@dataclass(frozen=True, slots=True)
class Size:
    """Gangs of 16 one-GPU pods run on two nodes each; ``others`` are pods of no gang."""

    nodes: int
    running: int
    waiting: int
    others: int

    @property
    def pods(self) -> int:
        return self.running * REPLICAS + self.others

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.pods} pods, {self.waiting} gangs that wait"


@dataclass(slots=True)
class LargeCluster:
    """A cluster whose objects are written past the API server."""

    cluster: Cluster
    nodes: list[str] = field(default_factory=list)

    def fill(self, size: Size) -> None:
        """Write nodes, running gangs, gangs that wait, and other pods."""
        self.add(self._nodes(size.nodes))
        self.add(itertools.chain.from_iterable(map(self._running_gang, range(size.running))))
        self.add(
            training_job(f"waiting-{number:05d}", 2 * GPUS, GPUS) for number in range(size.waiting)
        )
        self.add(self._other(number) for number in range(size.others))

    def _nodes(self, count: int) -> Iterator[Manifest]:
        for manifest in fake_nodes(count, racks=max(1, count // 25)):
            self.nodes.append(manifest["metadata"]["name"])
            conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
            yield {**manifest, "status": {**manifest["status"], "conditions": conditions}}

    def _running_gang(self, number: int) -> Iterator[Manifest]:
        first, second = (self.nodes[(2 * number + at) % len(self.nodes)] for at in (0, 1))
        places = [first] * (REPLICAS // 2) + [second] * (REPLICAS // 2)
        yield from running_gang(f"running-{number:05d}", places)

    def _other(self, number: int) -> Manifest:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"other-{number:06d}"}}
        return _bound({**pod, "spec": pod_spec(0)}, self.nodes[number % len(self.nodes)])

    def add(self, manifests: Iterator[Manifest]) -> None:
        """Write objects that the API server would have stored like that."""
        while some := list(itertools.islice(manifests, _OBJECTS_AT_ONCE)):
            puts = [{"requestPut": _put(manifest)} for manifest in some]
            self.cluster.call_etcd("txn", {"success": puts})


def running_gang(
    name: str, places: Sequence[str], mode: plans.Mode = "Pinned"
) -> Iterator[Manifest]:
    """Yield a TrainingJob that runs on ``places`` (a node for each replica), and its pods."""
    job = _stored(training_job(name, len(places), 1))
    facts = from_manifest(through_the_wire(job, wire.CustomObject))
    (task,) = facts.tasks
    plan = PlanFacts(
        epoch=1,
        attempt=0,
        spec_hash=facts.spec_hash,
        mode=mode,
        planned=STARTED,
        requests={task.name: task.request},
        roles={task.name: task.role.value},
        members=tuple(Member(task.name, node, index) for index, node in enumerate(places)),
        queue=names.DEFAULT_QUEUE,
    )
    began = quantities.format_timestamp(STARTED)
    status = {
        "phase": "Running",
        "reason": "GangRunning",
        "message": f"all {len(places)} replicas run",
        "observedGeneration": 1,
        "attempt": 0,
        "startTime": began,
        "admittedTime": began,
        "plan": plans.to_manifest(plan),
    }
    yield {**job, "status": status}
    factory = PodFactory(facts, plan)
    for member in plan.members:
        yield _bound(dict(factory.manifest(member)), member.node)


def _bound(pod: Manifest, node: str) -> Manifest:
    ready = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    status = {
        "phase": "Running",
        "conditions": [{"type": each, "status": "True"} for each in ready],
        "containerStatuses": [{"name": "train", "ready": True, "state": {"running": {}}}],
    }
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def _stored(manifest: Manifest) -> Manifest:
    """Return ``manifest`` with what the API server would have added to its metadata."""
    given = {
        "uid": str(uuid.uuid4()),
        "creationTimestamp": quantities.format_timestamp(STARTED),
        "generation": 1,
    }
    return {**manifest, "metadata": {**given, **manifest["metadata"]}}


def _put(manifest: Manifest) -> dict[str, str]:
    stored = _stored(manifest)
    meta = stored["metadata"]
    if stored["kind"] != "Node":
        meta["namespace"] = NAMESPACE
    key = f"{_KEYS[stored['kind']]}/{meta['name']}"
    return {"key": _text(key.encode()), "value": _text(msgspec.json.encode(stored))}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


@contextmanager
def large_cluster(size: Size) -> Iterator[LargeCluster]:
    """Start a cluster of ``size``, in which nothing but etcd and the API server runs."""
    with Cluster.start(f"large-{secrets.token_hex(3)}") as cluster:
        install_api(cluster)
        cluster.create_namespace(NAMESPACE)
        cluster.api.post(names.path("queues"), queue(names.DEFAULT_QUEUE))
        for component in _IDLE:
            cluster.component(component).stop()
        made = LargeCluster(cluster)
        made.fill(size)
        yield made
