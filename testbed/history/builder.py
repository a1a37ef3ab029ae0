"""Histories for tests, written line by line: each line one revision, a tenth of a second later."""

from dataclasses import dataclass, field
from typing import Any, Final

from testbed.history.observer import check
from testbed.history.records import Change, Manifest, Record

GROUP: Final = "bireme.dev"


@dataclass
class HistoryBuilder:
    """Writes a history of one gang ``ns/j`` in queue ``q``, unless given otherwise."""

    records: list[Record] = field(default_factory=list)
    seconds: float = 0.0
    _jobs: dict[str, Manifest] = field(default_factory=dict)

    def add(self, kind: str, manifest: Manifest, change: Change = "MODIFIED") -> None:
        """The next revision of an object."""
        self.seconds = round(self.seconds + 0.1, 3)
        revision = len(self.records) + 1
        self.records.append(Record(self.seconds, change, kind, revision, manifest))

    def wait(self, seconds: float) -> None:
        """Time passes, and something unrelated happens."""
        self.seconds += seconds
        self.add("Queue", meta("clock", namespace=""))

    def node(self, name: str = "n0", gpus: int = 8, rack: str = "r0") -> None:
        """A node with the label ``rack``."""
        labels = {"rack": rack}
        status = {
            "allocatable": {"cpu": "8", "nvidia.com/gpu": str(gpus), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.add("Node", meta(name, namespace="", labels=labels) | {"status": status})

    def queue(self, name: str, gpus: int) -> None:
        """A queue with a limit."""
        self.add("Queue", meta(name, namespace="") | {"spec": {"limit": {"nvidia.com/gpu": gpus}}})

    def job(self, phase: str, *, name: str = "j", attempt: int = 0, **spec: Any) -> None:
        """A TrainingJob in ``phase``, with the plan it had; of two workers unless given."""
        before = self._jobs.get(name, {}).get("status", {})
        status = {"phase": phase, "attempt": attempt, "reason": "R", "message": "because"}
        status |= {"plan": before["plan"]} if "plan" in before else {}
        workers = {"name": "worker", "replicas": 2}
        self._put_job(name, {"queue": "q", "tasks": [workers], **spec}, status)

    def plan(
        self, places: dict[str, str] | None, *, epoch: int = 1, attempt: int = 0, name: str = "j"
    ) -> None:
        """``places`` maps replica index to node; None clears the plan. Made if it is not there."""
        if name not in self._jobs:
            self.job("Pending", name=name)
        job = self._jobs[name]
        status = {key: value for key, value in job["status"].items() if key != "plan"}
        if places is not None:
            status["plan"] = plan(places, epoch=epoch, attempt=attempt)
        self._put_job(name, job["spec"], status)

    def _put_job(self, name: str, spec: Manifest, status: Manifest) -> None:
        self._jobs[name] = meta(name) | {"spec": spec, "status": status}
        self.add("TrainingJob", self._jobs[name])

    def pod(self, index: str, node: str = "", phase: str = "Pending", **given: Any) -> None:
        """A pod as :func:`pod` makes it; ``change`` is the kind of its record."""
        change: Change = given.pop("change", "MODIFIED")
        self.add("Pod", pod(index, node, phase, **given), change)

    def gang(self, *nodes: str) -> None:
        """A whole gang, planned, bound and running."""
        self.plan({str(index): node for index, node in enumerate(nodes)})
        for index, node in enumerate(nodes):
            self.pod(str(index), node, "Running")
        self.job("Running")

    def broken(self, **options: Any) -> set[str]:
        """Names of the invariants that this history breaks; options are those of ``check``."""
        return {violation.invariant for violation in check(self.records, **options)}


def meta(name: str, namespace: str = "ns", uid: str = "", **fields: Any) -> Manifest:
    """An object with nothing but metadata; its uid is its name unless given."""
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid or name, **fields}}


def plan(places: dict[str, str], *, epoch: int = 1, attempt: int = 0) -> Manifest:
    """A plan of workers; ``places`` maps replica index to node."""
    return {
        "epoch": epoch,
        "attempt": attempt,
        "plannedTime": f"t{epoch}{attempt}",
        "mode": "Pinned",
        "placements": [
            {"task": "worker", "indices": index, "node": node} for index, node in places.items()
        ],
    }


def pod(
    index: str,
    node: str,
    phase: str,
    *,
    gpus: int = 1,
    uid: str = "",
    name: str = "",
    plan: str = "1.0",
    role: str = "worker",
    gang: str = "j",
    leaving: bool = False,
) -> Manifest:
    """A replica of ``gang``, named ``<gang>-<role>-<index>``, with its role as its task."""
    labels = {
        f"{GROUP}/pod-group": gang,
        f"{GROUP}/task": role,
        f"{GROUP}/index": index,
        f"{GROUP}/plan": plan,
        f"{GROUP}/role": role,
    }
    fields: Manifest = {"labels": labels}
    if leaving:
        fields["deletionTimestamp"] = "now"
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    spec = {
        "nodeName": node,
        "schedulerName": "bireme",
        "containers": [{"resources": resources}],
    }
    name = name or f"{gang}-{role}-{index}"
    return meta(name, uid=uid or name, **fields) | {"spec": spec, "status": {"phase": phase}}
