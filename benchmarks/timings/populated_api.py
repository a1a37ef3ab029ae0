"""A fake API server with a large, busy cluster, for what needs many objects and no scheduling.

The objects are made by the library's own functions, as the programs under test write them.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks.timings.workloads import NAMESPACE, pod_spec, training_job
from bireme.kube import names, plans, quantities, wire
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_builder import PodFactory
from bireme.kube.training_jobs import from_manifest
from testbed.controlplane.nodes import fake_nodes
from testbed.fakeapi import FakeApi
from testbed.objects.facts import through_the_wire
from testbed.scenario.manifests import Manifest

_STARTED: Final = quantities.format_timestamp(1_893_456_000.0)
"""Creation time of everything."""


class PopulatedApi:
    """Cluster of 8-GPU nodes in ``api``."""

    def __init__(self, api: FakeApi, nodes: int) -> None:
        self.api = api
        self.nodes: list[str] = []
        for manifest in fake_nodes(nodes, racks=max(1, nodes // 25)):
            # No kwok runs here to make nodes ready.
            conditions = [{"type": "Ready", "status": "True"}]
            status = {**manifest["status"], "conditions": conditions}
            name = manifest["metadata"]["name"]
            api.put(f"/api/v1/nodes/{name}", {**manifest, "status": status})
            self.nodes.append(name)
        api.put(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {}})
        api.put(names.path("queues") + f"/{names.DEFAULT_QUEUE}", {"spec": {}})

    def add_gang(self, name: str, places: list[str], gpus: int, mode: str = "Pinned") -> None:
        """Add a TrainingJob with one running replica on each of ``places``."""
        planned = self._add_job(name, places, gpus, mode)
        for pod, node in zip(planned, places, strict=True):
            self.add_pod(pod, node)

    def plan_gang(self, name: str, places: list[str], gpus: int, mode: str) -> list[Manifest]:
        """Add a gang whose pods are about to be bound; return the pods as a scheduler sees them."""
        return [
            self.api.put(_pod_path(pod["metadata"]["name"]), pod)
            for pod in self._add_job(name, places, gpus, mode)
        ]

    def add_waiting(self, name: str, replicas: int, gpus: int) -> None:
        """Add a TrainingJob that nobody has decided on."""
        job = training_job(name, replicas, gpus)
        self.api.put(names.path("trainingjobs", NAMESPACE, name), job)

    def add_pod(self, pod: Manifest, node: str) -> None:
        spec = {**pod["spec"], "nodeName": node}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        path = _pod_path(pod["metadata"]["name"])
        self.api.put(path, {**pod, "spec": spec, "status": status})

    def add_others(self, count: int) -> None:
        """Add pods without GPUs of some other controller, spread over all nodes."""
        spec = pod_spec(0) | {"schedulerName": "default-scheduler"}
        for number in range(count):
            pod = {"metadata": {"name": f"other-{number:05d}"}, "spec": spec}
            self.add_pod(pod, self.nodes[number % len(self.nodes)])

    def _add_job(self, name: str, places: list[str], gpus: int, mode: str) -> Iterator[Manifest]:
        """Add the job with its plan; return the pods of the plan, which are not stored."""
        status = {
            "phase": "Running",
            "reason": "GangRunning",
            "message": f"all {len(places)} replicas run",
            "observedGeneration": 1,
            "attempt": 0,
            "startTime": _STARTED,
            "admittedTime": _STARTED,
        }
        job, path = (
            training_job(name, len(places), gpus),
            names.path("trainingjobs", NAMESPACE, name),
        )
        stored = self.api.put(path, job)
        facts = from_manifest(through_the_wire(stored, wire.CustomObject))
        (task,) = facts.tasks
        members = tuple(Member(task.name, node, index) for index, node in enumerate(places))
        plan = PlanFacts(
            epoch=1,
            attempt=0,
            spec_hash=facts.spec_hash,
            mode=mode,
            planned=quantities.parse_timestamp(_STARTED) or 0.0,
            requests={task.name: task.request},
            roles={task.name: task.role.value},
            members=members,
            queue=names.DEFAULT_QUEUE,
        )
        self.api.put(path, job | {"status": {**status, "plan": plans.to_manifest(plan)}})
        factory = PodFactory(facts, plan)
        return (factory.manifest(member) for member in members)


def _pod_path(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
