"""A history of a workload as a faithful cluster would make it, told job by job, for tests."""

from demo.workload import NAMESPACE, RACK, Manifest, Workload
from history.records import Change
from history.testing import Story, meta, pod


class Told(Story):
    """Tells the small workload; every method takes the name of a job."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.jobs = {job.name: job.manifest for job in workload.submissions}
        self.jobs["recommender"]["spec"].pop("roleAffinity")  # one replica stands for all
        for number in range(workload.nodes):
            labels = {RACK: f"rack-{number * workload.racks // workload.nodes}"}
            node = meta(f"gpu-{number:02d}", namespace="", labels=labels)
            offered = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
            self.tell("Node", node | {"status": {"allocatable": offered}})

    def say(self, name: str, phase: str, reason: str, message: str, attempt: int = 0) -> None:
        """The job with a status; without one when ``phase`` is empty."""
        manifest = meta(name, namespace=NAMESPACE) | {"spec": self.jobs[name]["spec"]}
        if phase:
            status = {"phase": phase, "reason": reason, "message": message, "attempt": attempt}
            manifest["status"] = status | {"priority": {"score": 0.5}, "queuePosition": 1}
        self.tell("TrainingJob", manifest)

    def submit(self, name: str) -> None:
        """The job is new, then waits."""
        self.say(name, "", "", "")
        waiting = "asks 9 nvidia.com/gpu as 9 worker; 4 nvidia.com/gpu free; 0 ahead"
        self.say(name, "Pending", "WaitingForCapacity", waiting)

    def run(self, name: str, node: str, attempt: int = 0) -> None:
        """All replicas on one node."""
        plan = {
            "epoch": 1,
            "attempt": attempt,
            "plannedTime": str(attempt),
            "mode": "Pinned",
            "placements": [{"task": "worker", "indices": "0", "node": node}],
        }
        self.group(name, plan)
        self.bound(name, node, "Running", attempt)
        self.say(name, "Running", "GangRunning", "all run", attempt)

    def end(self, name: str, node: str, phase: str = "Succeeded", attempt: int = 0) -> None:
        """The job succeeds, or fails and restarts."""
        done = phase == "Succeeded"
        self.bound(name, node, phase, attempt)
        self.say(
            name, phase if done else "Restarting", phase if done else "PodFailed", "so", attempt
        )
        self.group(name, None)
        if not done:
            self.bound(name, node, phase, attempt, "DELETED")

    def group(self, name: str, plan: Manifest | None) -> None:
        """The PodGroup of a job with its plan, if any."""
        spec = {"minMember": 1, "queue": self.jobs[name]["spec"]["queue"]}
        status = {"plan": plan} if plan else {}
        self.tell("PodGroup", meta(name, namespace=NAMESPACE) | {"spec": spec, "status": status})

    def bound(
        self, name: str, node: str, phase: str, attempt: int, change: Change = "MODIFIED"
    ) -> None:
        """The one replica of a job, of 2 GPUs."""
        one = pod("0", node, phase, gpus=2, gang=name, uid=f"{name}{attempt}", plan=f"1.{attempt}")
        one["metadata"]["namespace"] = NAMESPACE
        self.tell("Pod", one, change)
