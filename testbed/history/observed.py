"""The cluster at one revision, rebuilt record by record.

A gang is known by the key of its TrainingJob, or of its PodGroup where another controller makes
the pods.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from testbed.history.amounts import Amounts, amounts, request_of
from testbed.history.records import Key, Manifest, Record

GANGS: Final = ("TrainingJob", "PodGroup")
ENDED: Final = ("Succeeded", "Failed")
_LABEL: Final = "bireme.dev/"


@dataclass(frozen=True)
class Pod:
    """One revision of a pod. A pod of no gang has a ``gang`` without name."""

    name: str
    uid: str
    gang: Key
    replica: tuple[str, str]
    """Task and index; empty for pods that other controllers made."""
    plan: str
    """The plan it was made from, ``<epoch>.<attempt>``."""
    role: str
    queue: str
    """The one that its gang was admitted in; empty before that."""
    node: str
    phase: str
    is_leaving: bool
    is_ours: bool
    """Bireme's scheduler binds it."""
    is_gated: bool
    """Bireme's gate keeps every scheduler from it."""
    request: Amounts

    @property
    def holds_node(self) -> bool:
        """Return whether it takes room of its node: bound, and its containers have not ended."""
        return bool(self.node) and self.phase not in ENDED

    @property
    def is_active(self) -> bool:
        """Return whether it holds a node and is meant to go on."""
        return self.holds_node and not self.is_leaving


def pod_of(manifest: Manifest) -> Pod:
    meta, spec = manifest["metadata"], manifest.get("spec", {})
    labels = meta.get("labels") or {}
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        gang=(meta.get("namespace", ""), labels.get(_LABEL + "pod-group", "")),
        replica=_replica(meta["name"], labels),
        plan=labels.get(_LABEL + "plan", ""),
        role=labels.get(_LABEL + "role", ""),
        queue=labels.get(_LABEL + "queue", ""),
        node=spec.get("nodeName") or "",
        phase=manifest.get("status", {}).get("phase") or "Pending",
        is_leaving=bool(meta.get("deletionTimestamp")),
        is_ours=spec.get("schedulerName") == "bireme",
        is_gated={"name": _LABEL + "plan"} in (spec.get("schedulingGates") or ()),
        request=request_of(spec),
    )


def _replica(name: str, labels: Mapping[str, str]) -> tuple[str, str]:
    task, index = labels.get(_LABEL + "task", ""), labels.get(_LABEL + "index", "")
    prefix = f"{labels.get(_LABEL + 'pod-group', '')}-{task}-"
    if task and not index and name.startswith(prefix):
        index = name.removeprefix(prefix)  # somebody's admission took the label; the name stays
    return task, index


class ObservedCluster:
    """Every object at the revision of the record last applied, and the one it replaced."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[Key, Manifest]] = {}
        self.pods: dict[Key, Pod] = {}
        self.gangs: dict[Key, dict[Key, Pod]] = {}
        """Gang to its pods."""
        self.before: Manifest | None = None
        """The object of the last record as it was before; None when it is new."""
        self.pod_before: Pod | None = None
        self.newly_bound: Pod | None = None
        """The pod that got its node with the last record."""

    def apply(self, record: Record) -> None:
        kind = self.objects.setdefault(record.kind, {})
        self.before = kind.get(record.key)
        uid = record.manifest.get("metadata", {}).get("uid")
        if self.before is not None and self.before["metadata"].get("uid") != uid:
            self.before = None  # deleted and made again: another object of that name
        if record.change == "DELETED":
            kind.pop(record.key, None)
        else:
            kind[record.key] = record.manifest
        self.newly_bound = None
        if record.kind == "Pod":
            self._apply_pod(record)

    def _apply_pod(self, record: Record) -> None:
        pod = pod_of(record.manifest)
        self.pod_before = self.pods.pop(record.key, None)
        if self.pod_before is not None:
            self.gangs[self.pod_before.gang].pop(record.key, None)
            if self.pod_before.uid != pod.uid:
                self.pod_before = None
        if record.change != "DELETED":
            self.pods[record.key] = pod
            self.gangs.setdefault(pod.gang, {})[record.key] = pod
            was_bound = self.pod_before is not None and self.pod_before.node
            self.newly_bound = pod if pod.node and not was_bound else None

    # --- questions -------------------------------------------------------------------------

    def get(self, kind: str, key: Key) -> Manifest | None:
        return self.objects.get(kind, {}).get(key)

    def job(self, gang: Key) -> Manifest | None:
        return self.get("TrainingJob", gang)

    def plan(self, gang: Key) -> Manifest | None:
        """Return the plan in the status of the job or group, None without one."""
        for kind in GANGS:
            plan: Manifest | None = (self.get(kind, gang) or {}).get("status", {}).get("plan")
            if plan is not None:
                return plan
        return None

    def members(self, gang: Key) -> Iterable[Pod]:
        return self.gangs.get(gang, {}).values()

    def node_labels(self, name: str) -> dict[str, str]:
        node = self.get("Node", ("", name)) or {}
        labels: dict[str, str] = node.get("metadata", {}).get("labels") or {}
        return labels

    def allocatable(self, node: str) -> Amounts | None:
        found = self.get("Node", ("", node))
        return None if found is None else amounts(found["status"].get("allocatable"))

    def queue_of(self, gang: Key) -> str:
        owner = self.job(gang) or self.get("PodGroup", gang) or {}
        # Without a name of its own, the label of its namespace chose when its places were planned.
        named = owner.get("spec", {}).get("queue") or owner.get("status", {}).get("queue")
        return str(named or "default")


def phase_of(job: Manifest) -> str:
    return str(job.get("status", {}).get("phase") or "Pending")


def ended_members(owner: Manifest) -> set[tuple[str, str] | str]:
    """Return the replicas of a job, or uids of pods of a group, recorded as ended well."""
    status = owner.get("status") or {}
    replicas = (status.get("plan") or {}).get("endedReplicas") or ()
    of_job = {(part["task"], i) for part in replicas for i in expand(part["indices"])}
    return {*of_job, *(uid for part in status.get("endedPods") or () for uid in part["pods"])}


def fewest(owner: Manifest) -> int:
    """Return the fewest members that a job or group starts with."""
    spec = owner["spec"]
    if "minMember" in spec:
        return int(spec["minMember"])
    tasks = spec.get("tasks") or ()
    return int(spec.get("minAvailable") or sum(t.get("minReplicas", t["replicas"]) for t in tasks))


def is_elastic(job: Manifest) -> bool:
    """Return whether replicas may come and go while it runs: torchrun's, within a range."""
    spec = job["spec"]
    tasks = spec.get("tasks") or ()
    ranges = [
        (t.get("minReplicas", t["replicas"]), t.get("maxReplicas", t["replicas"])) for t in tasks
    ]
    return spec.get("rendezvous") == "torch" and any(least < most for least, most in ranges)


def expand(indices: str) -> Iterator[str]:
    """Expand a text such as ``0-3,7`` into numbers as text."""
    for part in indices.split(","):
        first, _, last = part.partition("-")
        yield from map(str, range(int(first), int(last or first) + 1))


def planned_nodes(plan: Manifest) -> dict[Any, str]:
    """Return the node of every planned member, by (task, index) or UID."""
    nodes: dict[Any, str] = {}
    for placement in plan.get("placements") or ():
        if placement.get("indices"):
            for index in expand(placement["indices"]):
                nodes[placement["task"], index] = placement["node"]
        for uid in placement.get("pods") or ():
            nodes[uid] = placement["node"]
    return nodes
