"""A ClusterState fed by hand, the way reflectors feed it."""

from typing import Any

from bireme.core.gangs import Gang
from bireme.core.reasons import Reason
from bireme.core.resources import IntArray
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import plans, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import PlanFacts
from bireme.testing import a_node
from testbed.objects.facts import (
    CREATED,
    a_job,
    a_plan,
    node_manifest,
    pod_manifest,
    served,
    through_the_wire,
)
from testbed.scenario.manifests import GPU, Manifest, pod, pod_group, task, training_job

WORKERS = task("worker", 2, gpus=2)
JOB = a_job(WORKERS)
PLAN = a_plan(JOB, ("n0", "n1"))


class ClusterStateFeed:
    """A state fed as by reflectors: two nodes of eight GPUs, and what a test adds."""

    def __init__(self) -> None:
        self.state = ClusterState(SchedulingSettings(), self._count)
        self.changes = 0
        self._job: Manifest = {}
        self._generation = 0
        for name in ("n0", "n1"):
            self.node(name)

    def _count(self) -> None:
        self.changes += 1

    def node(self, name: str, gpus: int = 8, **fields: Any) -> None:
        made = through_the_wire(node_manifest(a_node(name, gpus, **fields)), wire.V1Node)
        self.state.nodes.put(("", name), made)

    def member(self, manifest: Manifest) -> None:
        key = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        self.state.objects.put_member(key, through_the_wire(manifest, wire.V1Pod))

    def gone(self, manifest: Manifest) -> None:
        key = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        self.state.objects.delete_member(key)

    def other(self, name: str, node: str, gpus: int, phase: str = "Running", **spec: Any) -> None:
        made = {**pod(name, gpus, nodeName=node, **spec), "status": {"phase": phase}}
        self.state.objects.put_other_pod(("default", name), through_the_wire(made, wire.V1Pod))

    def job(
        self,
        *tasks: Manifest,
        plan: PlanFacts | None = None,
        uid: str = "job-uid",
        status: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """Put TrainingJob ``job``, with ``plan`` in its status; its generation follows its spec."""
        made = training_job("job", *(tasks or (WORKERS,)), **spec)
        if made["spec"] != self._job.get("spec"):
            self._generation += 1
        given = {"generation": self._generation, **(metadata or {})}
        self._job = {**served(made, uid, **given), "status": status or {}}
        self.replan(plan)

    def replan(self, plan: PlanFacts | None) -> None:
        """Write ``plan`` into the status of the job, or take it away."""
        written = {} if plan is None else {"plan": plans.to_manifest(plan)}
        made = {**self._job, "status": {**self._job["status"], **written}}
        self.state.objects.put_job(("default", "job"), through_the_wire(made, wire.CustomObject))

    def job_gone(self) -> None:
        self.state.objects.delete_job(("default", "job"))

    def group(self, plan: PlanFacts | None = None, name: str = "group", **spec: Any) -> None:
        """Put a PodGroup of another controller's pods; its uid is ``<name>-group``."""
        manifest = served(pod_group(name, 1, **spec), f"{name}-group")
        manifest["status"] = {} if plan is None else {"plan": plans.to_manifest(plan)}
        self.state.objects.put_group(
            ("default", name), through_the_wire(manifest, wire.CustomObject)
        )

    def snapshot(self, **options: Any) -> ClusterSnapshot:
        return self.state.snapshot(CREATED, **options)

    def gpus(self, **options: Any) -> list[int]:
        return gpus(self.snapshot(**options))

    def waiting(self) -> list[Gang]:
        return list(self.snapshot().waiting)

    def fault(self) -> tuple[Reason, str]:
        (gang,) = (gang for gang in self.waiting() if gang.kind == "TrainingJob")
        if gang.fault is None:
            raise AssertionError("the job waits without a fault")
        return gang.fault


def gpus(snapshot: ClusterSnapshot, used: IntArray | None = None) -> list[int]:
    column = snapshot.nodes.axis.column(GPU)
    found: list[int] = (snapshot.used if used is None else used)[:, column].tolist()
    return found


def own_pod(index: int, phase: str = "Running", node: str | None = None, **meta: Any) -> Manifest:
    return pod_manifest(JOB, PLAN, PLAN.members[index], phase, node=node, **meta)
