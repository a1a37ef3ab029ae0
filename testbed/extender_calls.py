"""Builders for tests of the extender: manifests as the API server and the scheduler send them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from starlette.types import ASGIApp

from bireme import testing
from bireme.core.gpus import GPU
from bireme.core.settings import SchedulingSettings
from bireme.kube import names, plans, wire
from bireme.kube.cluster_state import ClusterState
from bireme.kube.plans import PlannedGang
from bireme_extender.cache import ClusterCache
from bireme_extender.metrics import Metrics
from testbed.objects.facts import node_manifest, through_the_wire

Manifest: TypeAlias = dict[str, Any]
JOB_UID = "job-uid"
REQUESTS: Mapping[str, str] = {"cpu": "4", "memory": "16Gi", GPU: "1"}


def a_node(name: str, gpus: int = 8, *, rack: str = "r0", is_ready: bool = True) -> Manifest:
    return node_manifest(testing.a_node(name, gpus, rack=rack, is_ready=is_ready))


def a_group(
    name: str = "job",
    places: Sequence[tuple[str, str, str]] = (("worker", "n0", "0"),),
    *,
    epoch: int = 1,
    attempt: int = 0,
    mode: str = "Pinned",
    job_uid: str = JOB_UID,
    requests: Mapping[str, str] = REQUESTS,
    is_planned: bool = True,
) -> Manifest:
    """Return the TrainingJob ``job_uid`` (a PodGroup when empty) with its plan.

    ``places`` are (task, node, indices), or (task, node, UIDs joined by spaces) without a job. A
    task named ``ps`` has that role, every other is a worker.
    """
    members = "indices" if job_uid else "pods"
    placements = [
        {"node": node, "task": task, members: which if job_uid else which.split()}
        for task, node, which in places
    ]
    plan = {
        "epoch": epoch,
        "attempt": attempt,
        "specHash": "0123456789abcdef",
        "queue": "default",
        "mode": mode,
        "plannedTime": "2030-01-01T00:00:00Z",
        "tasks": [_planned_task(t, requests) for t in dict.fromkeys(t for t, _, _ in places)],
        "placements": placements,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob" if job_uid else "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": job_uid or f"group-{name}"},
        "spec": {} if job_uid else {"minMember": 1, "queue": "default"},
        "status": {"plan": plan} if is_planned else {},
    }


def _planned_task(name: str, requests: Mapping[str, str]) -> Manifest:
    role = "ps" if name == "ps" else "worker"
    return {"name": name, "role": role, "requests": {**requests, "pods": "1"}, "replicas": 1}


def a_pod(
    index: int | str = 0,
    *,
    group: str | None = "job",
    task: str = "worker",
    plan: str | None = "1.0",
    job_uid: str = JOB_UID,
    uid: str = "",
    node: str = "",
    phase: str = "Pending",
    requests: Mapping[str, str] = REQUESTS,
    **spec: Any,
) -> Manifest:
    """Return a pod of TrainingJob ``job_uid`` as the operator makes it; ownerless when empty."""
    labels = {names.POD_GROUP_LABEL: group, names.TASK_LABEL: task, names.INDEX_LABEL: str(index)}
    labels |= {names.PLAN_LABEL: plan, names.JOB_LABEL: group if job_uid else None}
    name = f"{group}-{task}-{index}"
    owner = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "name": "job", "uid": job_uid}
    meta = {
        "name": name,
        "namespace": "team",
        "uid": uid or f"uid-{name}",
        "labels": {key: value for key, value in labels.items() if value is not None},
    }
    container = {"name": "main", "image": "train", "resources": {"requests": dict(requests)}}
    held = {"nodeName": node} if node else {}
    return {
        "metadata": meta | ({"ownerReferences": [owner]} if job_uid else {}),
        "spec": {"schedulerName": "bireme", "containers": [container], **held, **spec},
        "status": {"phase": phase},
    }


def a_body(pod: Manifest | None, node_names: Sequence[str] | None, nodes: Any = None) -> bytes:
    """Return the body of a filter or prioritize request, as kube-scheduler sends it."""
    return msgspec.json.encode({"Pod": pod, "Nodes": nodes, "NodeNames": node_names})


def a_state(
    nodes: Iterable[Manifest] = (),
    groups: Iterable[Manifest] = (),
    members: Iterable[Manifest] = (),
    others: Iterable[Manifest] = (),
) -> ClusterState:
    state = ClusterState(SchedulingSettings())
    for node in nodes:
        state.nodes.put(_key(node), msgspec.convert(node, wire.V1Node))
    for group in groups:
        put_gang(state, group)
    for pod in members:
        state.objects.put_member(_key(pod), msgspec.convert(pod, wire.V1Pod))
    for pod in others:
        state.objects.put_other_pod(_key(pod), msgspec.convert(pod, wire.V1Pod))
    return state


def put_gang(state: ClusterState, gang: Manifest) -> None:
    """Feed ``gang`` as the extender's watches do, which read the plan alone of a TrainingJob."""
    if gang["kind"] == "PodGroup":
        state.objects.put_group(_key(gang), through_the_wire(gang, wire.CustomObject))
        return
    plan, uid = plans.read(gang["status"]), gang["metadata"]["uid"]
    state.objects.put_job_plan(_key(gang), None if plan is None else PlannedGang(uid, True, plan))


@dataclass
class FixedFreshness(ClusterCache):
    """A cache as current as a test says."""

    is_live: bool = True
    is_complete: bool = True

    @property
    def knows_nodes(self) -> bool:
        return self.is_complete

    async def has_nodes(self, timeout_seconds: float) -> bool:
        return self.is_complete


def make_metrics() -> Metrics:
    metrics = Metrics()
    metrics.show_cache(dict, list)
    return metrics


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


async def call(
    app: ASGIApp, method: str, path: str, *chunks: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Send one request to ``app`` in ``chunks`` without a socket; return status and body."""
    parts = [*({"body": chunk, "more_body": True} for chunk in chunks[:-1])]
    parts.append({"body": chunks[-1] if chunks else b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", **parts.pop(0)} if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": pairs}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
