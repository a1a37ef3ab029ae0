"""Facts for unit tests, read from manifests: a job, its plan, its pods and what they look like."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from bireme.core.nodes import CORDON, Node
from bireme.kube import (
    allocations,
    plans,
    pod_groups,
    pods,
    quantities,
    training_jobs,
    wire,
)
from bireme.kube.allocations import GangView
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.pod_builder import PodFactory
from bireme.kube.pod_groups import GroupFacts
from bireme.kube.pods import PodFacts
from bireme.kube.training_jobs import JobFacts
from testbed.scenario.manifests import Manifest, member_template, pod_group, training_job

T = TypeVar("T")
CREATED = 1_000_000.0
"""POSIX seconds at which everything was created."""


def through_the_wire(manifest: Any, kind: type[T]) -> T:
    """Decode ``manifest`` as a reflector would."""
    return msgspec.json.decode(msgspec.json.encode(manifest), type=kind)


def served(
    manifest: Manifest,
    uid: str,
    /,
    *,
    namespace: str = "default",
    version: str = "1",
    **metadata: Any,
) -> Manifest:
    """Add the metadata that an API server adds."""
    added = {
        "uid": uid,
        "namespace": namespace,
        "resourceVersion": version,
        "creationTimestamp": quantities.format_timestamp(CREATED),
        "generation": 1,
    }
    return {**manifest, "metadata": {**added, **manifest["metadata"], **metadata}}


def a_job(
    *tasks: Manifest,
    name: str = "job",
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> JobFacts:
    """Return a TrainingJob of one worker unless tasks are given; its uid is ``<name>-uid``."""
    manifest = served(training_job(name, *tasks, **spec), f"{name}-uid", **(metadata or {}))
    return training_jobs.from_manifest(
        through_the_wire({**manifest, "status": dict(status or {})}, wire.CustomObject)
    )


def a_plan(
    job: JobFacts,
    nodes: Sequence[str] = ("n0",),
    *,
    epoch: int = 1,
    attempt: int | None = None,
    planned: float = CREATED,
    mode: str = "Pinned",
) -> PlanFacts:
    """Plan all replicas of ``job``, dealt out over ``nodes`` in turn."""
    members = [(task.name, index) for task in job.tasks for index in range(task.replicas)]
    return PlanFacts(
        epoch=epoch,
        attempt=job.attempt if attempt is None else attempt,
        spec_hash=job.spec_hash,
        mode=mode,
        planned=planned,
        requests={task.name: task.request for task in job.tasks},
        roles={task.name: task.role.value for task in job.tasks},
        queue=job.queue,
        members=tuple(
            Member(task, nodes[turn % len(nodes)], index)
            for turn, (task, index) in enumerate(members)
        ),
    )


def with_plan(job: JobFacts, plan: PlanFacts, **status: Any) -> JobFacts:
    """Return ``job`` with ``plan`` in its status."""
    return replace(job, plan=plan, status={**job.status, "plan": plans.to_manifest(plan), **status})


def a_group(name: str, plan: PlanFacts | None = None, **status: Any) -> GroupFacts:
    """Return a PodGroup of one member; its uid is ``<name>-group``."""
    if plan is not None:
        status["plan"] = plans.to_manifest(plan)
    manifest = served(pod_group(name, 1), f"{name}-group")
    return pod_groups.from_manifest(
        through_the_wire({**manifest, "status": status}, wire.CustomObject)
    )


def pod_manifest(
    job: JobFacts,
    plan: PlanFacts,
    member: Member,
    phase: str = "Running",
    *,
    node: str | None = None,
    ready: bool | None = None,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Manifest:
    """Return the created pod of ``member``, by default on its planned node."""
    made = PodFactory(job, plan).manifest(member)
    where = member.node if node is None else node
    if where:
        made["spec"]["nodeName"] = where
    is_ready = phase == "Running" if ready is None else ready
    base = {"phase": phase, "conditions": [{"type": "Ready", "status": str(is_ready)}]}
    uid = f"{made['metadata']['name']}-uid"
    return {**served(made, uid, **metadata), "status": {**base, **(status or {})}}


def a_pod(
    job: JobFacts, plan: PlanFacts, member: Member, phase: str = "Running", **options: Any
) -> PodFacts:
    made = pod_manifest(job, plan, member, phase, **options)
    return pods.from_manifest(through_the_wire(made, wire.V1Pod))


def a_view(job: JobFacts, plan: PlanFacts, there: Iterable[PodFacts]) -> GangView:
    return allocations.view_of(job.key, job.uid, plan, there)


def running(job: JobFacts, plan: PlanFacts, **phases: str) -> list[PodFacts]:
    """Return a Running pod for every member but those in ``phases``, by ``task_index``."""
    named = {member: phases.get(f"{member.task}_{member.index}") for member in plan.members}
    return [a_pod(job, plan, member, phase or "Running") for member, phase in named.items()]


def gated_pod(
    name: str, group: str = "group", *, labels: Mapping[str, str] | None = None, **spec: Any
) -> Manifest:
    """Return a pod of another controller behind Bireme's gate; its uid is ``<name>-uid``."""
    made = member_template(group, 0, **spec)
    meta = {"name": name, "labels": {**made["metadata"]["labels"], **(labels or {})}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made["spec"]}
    return served({**pod, "status": {"phase": "Pending"}}, f"{name}-uid")


def node_manifest(node: Node) -> Manifest:
    """The Node object that :mod:`bireme.kube.nodes` reads back as ``node``."""
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in (*node.taints, *node.soft_taints)
        if taint != CORDON
    ]
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if node.is_leaving else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)} | leaving,
        "spec": {"taints": taints} | ({"unschedulable": True} if node.is_cordoned else {}),
        "status": {
            "allocatable": {
                name: quantities.format_quantity(name, amount)
                for name, amount in node.allocatable.items()
            },
            "conditions": [{"type": "Ready", "status": "True" if node.is_ready else "False"}],
        },
    }
